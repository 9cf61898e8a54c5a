"""Experiments on the simulated host: end to end, cut off at every phase, and the first server back each time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tokpit.config.inventory import Inventory
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.domain.tuning import Tuning
from tokpit.errors import TargetError, UsageError
from tokpit.ops.gate import ConfirmRequest
from tokpit.ops.session import Session
from tokpit.ops.tuning.ab import Compared
from tokpit.ops.tuning.start import folder, preview
from tokpit.sim.host import SimHost
from tokpit.store.journal import Journal, entries
from tokpit.tune.experiment import Experiment, Limits, Search

CLOCK = 200.0
WORKLOAD = {"levels": "1,8", "requests": 8, "max_tokens": 32, "source": "here", "warmup": 0}


@pytest.fixture(scope="module")
def sim() -> Iterator[SimHost]:
    with SimHost(clock_factor=CLOCK) as host:
        yield host


@pytest.fixture
async def session(sim: SimHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Session]:
    monkeypatch.setenv("TOKPIT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TOKPIT_CACHE_DIR", str(sim.root / "cache"))
    inventory = Inventory(hosts={sim.spec.name: sim.spec})
    async with Session(inventory, history_path=tmp_path / "history.sqlite", assume_yes=True) as made:
        made.add_host(sim.spec.name)
        yield made


@pytest.fixture
async def first(session: Session, sim: SimHost) -> ServerInfo:
    """The server as it ran: found, where the test before put it back, or started."""
    found = [s for s in await session.find(sim.spec.name) if s.port == sim.engine_port]
    if not found:
        settings = Settings(
            model=sim.model_path, port=sim.engine_port, spec_method="mtp", spec_steps=3, state_slots=48,
            max_running=8, mamba_strategy="extra_buffer",
        )  # fmt: skip
        spec = LaunchSpec(host=sim.spec.name, engine="sglang", program=(), settings=settings)
        await session.execute("server.launch", spec=spec)
        found = [s for s in await session.find(sim.spec.name) if s.port == sim.engine_port]
    return found[0]


def experiment(info: ServerInfo, **changes: Any) -> Experiment:
    made = Experiment(target=info.label, vary={"mtp_steps": "1,3", "max_running": "4,6"}, workload=WORKLOAD)
    return msgspec.structs.replace(made, **changes)


async def running(session: Session, first: ServerInfo) -> list[ServerInfo]:
    return [s for s in await session.find(first.host) if s.port == first.port]


async def check_first_is_back(session: Session, first: ServerInfo, experiment_id: str) -> None:
    (back,) = await running(session, first)
    assert back.argv == first.argv
    journal = Journal.find(folder(), experiment_id)
    assert journal.first() is None, "what may hold secrets is gone once the first server is back"
    assert [(e.id, e.state) for e in entries(folder())] == [(experiment_id, "ended")]


async def test_an_experiment_from_plan_to_report_with_a_candidate_that_fails(
    session: Session, first: ServerInfo
) -> None:
    asked: list[ConfirmRequest] = []

    async def confirm(request: ConfirmRequest) -> bool:
        asked.append(request)
        return True

    session.assume_yes, session.confirm = False, confirm
    wanted = experiment(first, vary={"mtp_steps": "1,3", "hicache_gb": "0,400"})
    shown = await preview(session, wanted)
    assert (shown.candidates, shown.to_try) == (4, 2), "the smaller host cache waits behind the larger one"
    assert any("at most 4 restarts" in line for line in shown.lines)
    assert any("at most: a start" in line for line in shown.lines)
    assert not entries(folder()), "a plan touches nothing"

    done = await session.execute("tune.start", experiment=wanted)
    assert isinstance(done, Tuning)
    assert len(asked) == 1, "consent once, for the whole"
    assert asked[0].typed_word == str(first.port)
    assert done.phase == "done"
    failed = [trial for trial in done.trials if trial.status == "failed"]
    assert {trial.choice["hicache_gb"] for trial in failed} == {400.0}
    assert all(trial.code and trial.reason for trial in failed)
    measured = [trial for trial in done.trials if trial.status in {"measured", "cut"}]
    assert {trial.role for trial in measured} >= {"first", "search", "last"}
    assert all(trial.value for trial in measured)
    assert "## Measured" in done.report
    assert session.store.tunings[done.id] == done
    await check_first_is_back(session, first, done.id)
    audit = await (await session.history()).audit()
    commands = [entry.command for entry in audit]
    assert commands.count("tune.start") == 1
    assert commands.count("server.relaunch") + commands.count("server.launch") >= 3, "every restart is on record"
    assert "sweep.start" in commands


async def test_a_stop_ends_the_start_under_way_and_brings_the_first_server_back(
    session: Session, first: ServerInfo
) -> None:
    task = asyncio.create_task(session.execute("tune.start", experiment=experiment(first)))
    while not any(t.status == "starting" for tuning in session.store.tunings.values() for t in tuning.trials):
        await asyncio.sleep(0.02)
        assert not task.done()
    (tuning_id,) = session.store.tunings
    with pytest.raises(UsageError, match="under way"):
        await session.execute("tune.start", experiment=experiment(first))
    await session.execute("tune.stop", id=tuning_id)
    done = await task
    assert done.phase == "stopped"
    assert {item.code for item in done.left_out} == {"limit"}
    await check_first_is_back(session, first, tuning_id)


async def test_limits_count_the_way_back_and_the_winner_is_kept_where_asked(
    session: Session, first: ServerInfo
) -> None:
    limited = experiment(first, vary={"max_running": "4,9"}, limits=Limits(restarts=2), search=Search(repeats=0))
    done = await session.execute("tune.start", experiment=limited)
    assert done.restarts == 1
    (one,) = [trial for trial in done.trials if trial.role == "search"]
    assert one.choice == {"max_running": 9}, "the likeliest first"
    await check_first_is_back(session, first, done.id)

    again = msgspec.structs.replace(limited, keep=True, limits=Limits(), vary={"max_running": "9"}, note="keep")
    done = await session.execute("tune.start", experiment=again)
    (left,) = await running(session, first)
    assert (left.settings.max_running == 9) == (done.winner is not None)
    await session.execute("server.stop", server_id=left.id)


async def test_what_somebody_else_put_on_the_port_is_not_touched(session: Session, first: ServerInfo) -> None:
    from tokpit.ops.tuning.place import Place
    from tokpit.ops.tuning.plan import first_of

    known = await first_of(session, first)
    other = msgspec.structs.replace(known, argv=(*known.argv, "--random-seed", "7"))
    place = Place(session, other, timeout_s=600)
    with pytest.raises(TargetError, match="did not start"):
        await place.put_first_back()
    assert [server.pid for server in await running(session, first)] == [first.pid]


async def test_a_against_b_in_alternating_blocks(session: Session, first: ServerInfo) -> None:
    with pytest.raises(UsageError, match="the same"):
        await session.execute("ab.start", target=first.label, changes={}, workload=WORKLOAD)
    done = await session.execute(
        "ab.start", target=first.label, changes={"max_running": 2}, blocks=2, workload={**WORKLOAD, "levels": "8"}
    )
    assert isinstance(done, Compared)
    assert [block.side for block in done.blocks] == ["A", "B", "B", "A"]
    assert [block.restarted for block in done.blocks] == [False, True, False, True]
    assert done.versus.ratio < 1
    assert done.changes == ("max_running: 8 -> 2",)
    await check_first_is_back(session, first, done.id)


# --- kill -9 of tokpit in each phase

_Events = Callable[[list[str]], bool]
PHASES: dict[str, _Events] = {
    "the first measurement": lambda kinds: "begin" in kinds,
    "the first restart": lambda kinds: "start" in kinds,
    "a later candidate": lambda kinds: kinds.count("trial") >= 2 and kinds[-1] == "start",
    "the way back": lambda kinds: kinds.count("start") >= 3 and kinds.count("trial") >= 3,
}


async def killed(sim: SimHost, tmp_path: Path, first: ServerInfo, reached: _Events) -> str:
    """Start an experiment in a tokpit of its own and kill it once its journal shows the phase; the experiment's id."""
    inventory = tmp_path / "hosts.toml"
    inventory.write_text(sim.inventory_toml())
    words = ["--inventory", str(inventory), "tune", first.label, "--vary", "max_running=4,9", "--patience", "2"]
    words += ["-c", "1,8", "-n", "8", "--max-tokens", "32", "--from", "here", "-y"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tokpit", *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        while not any(reached(_kinds(path)) for path in folder().glob("*.jsonl")):
            assert process.returncode is None, "it ended before it was killed"
            await asyncio.sleep(0.02)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
    (entry,) = entries(folder())
    assert entry.state == "open"
    return entry.id


def _kinds(path: Path) -> list[str]:
    return [event.kind for event in Journal(path.parent, path.stem).events()]


@pytest.mark.parametrize("phase", PHASES)
async def test_after_a_kill_the_first_server_is_put_back(
    session: Session, sim: SimHost, first: ServerInfo, tmp_path: Path, phase: str
) -> None:
    cut_off = await killed(sim, tmp_path, first, PHASES[phase])
    with pytest.raises(UsageError, match="was cut off") as caught:
        await session.execute("tune.start", experiment=experiment(first))
    assert f"--restore {cut_off}" in caught.value.hint
    await session.execute("tune.restore", id=cut_off[:8])
    await check_first_is_back(session, first, cut_off)
    if phase == "the first measurement":
        assert (await running(session, first))[0].pid == first.pid, "nothing was restarted, so nothing is"
    with pytest.raises(UsageError, match="already"):
        await session.execute("tune.restore", id=cut_off)


@pytest.mark.parametrize("phase", ["the first restart", "a later candidate"])
async def test_after_a_kill_the_experiment_goes_on_where_it_was(
    session: Session, sim: SimHost, first: ServerInfo, tmp_path: Path, phase: str
) -> None:
    cut_off = await killed(sim, tmp_path, first, PHASES[phase])
    before = [event.data["trial"] for event in Journal.find(folder(), cut_off).events() if event.kind == "trial"]
    done = await session.execute("tune.resume", id=cut_off)
    assert done.id == cut_off
    assert done.phase == "done"
    assert [trial.number for trial in done.trials] == list(range(len(done.trials))), "nothing is measured twice"
    assert len(done.trials) > len(before)
    assert [t.value for t in done.trials[: len(before)]] == [t["value"] for t in before]
    await check_first_is_back(session, first, cut_off)
