"""However an experiment ends, the first server runs again: stops, failures, foreign servers, kill -9 in each phase."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from process_tools import alive
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.errors import LaunchError, LoadError, TargetError, UsageError
from tokpit.ops.session import Session
from tokpit.ops.tuning.ab import Compared
from tokpit.ops.tuning.place import Place, digest
from tokpit.ops.tuning.plan import first_of
from tokpit.ops.tuning.start import folder
from tokpit.store.journal import Event, Journal, entries
from tokpit.tune.experiment import Experiment, Limits, Search

WORKLOAD = {"levels": "8", "requests": 8, "max_tokens": 8, "source": "here", "warmup": 0}
TIMEOUT_S = 40.0


@pytest.fixture
async def first(session: Session, engine_dir: Path, unused_tcp_port: int) -> ServerInfo:
    """The server as it ran."""
    settings = Settings(model="tiny", port=unused_tcp_port, max_running=2)
    spec = LaunchSpec(host="local", engine="vllm", program=(str(engine_dir),), settings=settings)
    await session.execute("server.launch", spec=spec, timeout_s=TIMEOUT_S)
    (found,) = [s for s in await session.find("local") if s.port == unused_tcp_port]
    return found


def experiment(info: ServerInfo, **changes: Any) -> Experiment:
    made = Experiment(target=info.label, vary={"max_running": "4,8"}, workload=WORKLOAD, timeout_s=TIMEOUT_S)
    return msgspec.structs.replace(made, **changes)


async def running(session: Session, first: ServerInfo) -> list[ServerInfo]:
    return [s for s in await session.find(first.host) if s.port == first.port]


async def check_first_is_back(session: Session, first: ServerInfo, experiment_id: str) -> ServerInfo:
    (back,) = await running(session, first)
    assert back.argv == first.argv
    assert Journal.find(folder(), experiment_id).first() is None, "what may hold secrets goes with the end"
    assert {e.id: e.state for e in entries(folder())}[experiment_id] == "ended"
    return back


async def test_a_stop_ends_what_is_under_way_and_brings_the_first_server_back(
    session: Session, first: ServerInfo
) -> None:
    task = asyncio.create_task(session.execute("tune.start", experiment=experiment(first)))
    while not any(t.status == "starting" for tuning in session.store.tunings.values() for t in tuning.trials):
        await asyncio.sleep(0.01)
        assert not task.done()
    (tuning_id,) = session.store.tunings
    with pytest.raises(UsageError, match="under way"):
        await session.execute("tune.start", experiment=experiment(first))
    await session.execute("tune.stop", id=tuning_id)
    done = await task
    assert done.phase == "stopped"
    assert {item.code for item in done.left_out} == {"limit"}
    await check_first_is_back(session, first, tuning_id)


async def test_a_cancelled_experiment_brings_the_first_server_back_before_it_goes(
    session: Session, first: ServerInfo
) -> None:
    task = asyncio.create_task(session.execute("tune.start", experiment=experiment(first)))
    while not any(t.role == "search" for tuning in session.store.tunings.values() for t in tuning.trials):
        await asyncio.sleep(0.01)
        assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (tuning_id,) = session.store.tunings
    await check_first_is_back(session, first, tuning_id)


async def test_limits_count_the_way_back_and_the_winner_is_kept_where_asked(
    session: Session, first: ServerInfo
) -> None:
    limited = experiment(first, limits=Limits(restarts=3), search=Search(repeats=0), keep=True)
    done = await session.execute("tune.start", experiment=limited)
    (one,) = [trial for trial in done.trials if trial.role == "search"]
    assert one.choice == {"max_running": 8}, "the likeliest first, and no second one: two restarts are kept for the end"
    assert done.winner == one.number, "eight at once are faster than two"
    (left,) = await running(session, first)
    assert left.settings.max_running == 8
    assert any("kept" in note for note in done.notes)
    assert {e.state for e in entries(folder())} == {"ended"}


async def test_a_first_server_that_gives_nothing_ends_it_before_any_restart(
    session: Session, first: ServerInfo
) -> None:
    hopeless = experiment(first, workload={**WORKLOAD, "api": "chat", "timeout_s": 0.001})
    with pytest.raises(LoadError):
        await session.execute("tune.start", experiment=hopeless)
    ((entry,)) = entries(folder())
    back = await check_first_is_back(session, first, entry.id)
    assert back.pid == first.pid


async def test_a_first_server_that_does_not_come_back_is_told_with_what_to_do(
    session: Session, first: ServerInfo, engine_dir: Path
) -> None:
    program = engine_dir / "bin" / "vllm"
    whole = program.read_text()
    task = asyncio.create_task(session.execute("tune.start", experiment=experiment(first)))
    while not any(t.role == "search" and t.points for tuning in session.store.tunings.values() for t in tuning.trials):
        await asyncio.sleep(0.01)
        assert not task.done()
    program.write_text(f"#!{engine_dir}/bin/python\nraise SystemExit('the disk is full')\n")
    with pytest.raises(LaunchError, match="was not put back") as caught:
        await task
    (entry,) = entries(folder())
    assert entry.state == "open"
    assert f"--restore {entry.id}" in caught.value.hint
    private = folder() / f"{entry.id}.first.json"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    program.write_text(whole)
    await session.execute("tune.restore", id=entry.id)
    await check_first_is_back(session, first, entry.id)


async def test_what_somebody_else_put_on_the_port_is_not_touched(session: Session, first: ServerInfo) -> None:
    known = await first_of(session, first)
    other = msgspec.structs.replace(known, argv=(*known.argv, "--seed", "7"))
    with pytest.raises(TargetError, match="did not start"):
        await Place(session, other, timeout_s=TIMEOUT_S).put_first_back()
    assert [server.pid for server in await running(session, first)] == [first.pid]


async def test_a_against_b_in_alternating_blocks(session: Session, first: ServerInfo) -> None:
    with pytest.raises(UsageError, match="the same"):
        await session.execute("ab.start", target=first.label, changes={}, workload=WORKLOAD)
    done = await session.execute(
        "ab.start", target=first.label, changes={"max_running": 8}, blocks=2, workload=WORKLOAD, timeout_s=TIMEOUT_S
    )
    assert isinstance(done, Compared)
    assert [block.side for block in done.blocks] == ["A", "B", "B", "A"]
    assert [block.restarted for block in done.blocks] == [False, True, False, True]
    assert done.versus.ratio > 1
    assert done.changes == ("max_running: 2 -> 8",)
    await check_first_is_back(session, first, done.id)


# --- kill -9 of tokpit in each phase

Reached = Callable[[list[Event], ServerInfo], bool]
PHASES: dict[str, Reached] = {
    "the first measurement": lambda events, first: bool(events),
    "the first restart": lambda events, first: starts(events) == 1,
    "the way back": lambda events, first: starts(events, digest(first.argv)) == 1,
}


def starts(events: list[Event], line: str = "") -> int:
    return sum(e.kind == "start" and line in {"", e.data["line"]} for e in events)


async def killed(tmp_path: Path, first: ServerInfo, reached: Reached) -> str:
    """Start an experiment in a tokpit of its own and kill it once its journal shows the phase; the experiment's id."""
    inventory = tmp_path / "hosts.toml"
    inventory.write_text("[hosts.local]\nlocal = true\n")
    words = ["--inventory", str(inventory), "tune", first.label, "--vary", "max_running=8", "--timeout", "40"]
    words += ["-c", "8", "-n", "8", "--max-tokens", "8", "--from", "here", "-y"]
    log = tmp_path / "tune.log"
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tokpit", *words, stdout=file, stderr=file,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
    try:
        while not any(reached(Journal(path.parent, path.stem).events(), first) for path in folder().glob("*.jsonl")):
            assert process.returncode is None, f"it ended before it was killed: {log.read_text()}"
            await asyncio.sleep(0.01)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
    (entry,) = entries(folder())
    while entry.state == "running":  # a child that was about to become another program has the lock until it has
        await asyncio.sleep(0.01)
        (entry,) = entries(folder())
    assert entry.state == "open"
    return entry.id


@pytest.mark.parametrize("phase", PHASES)
async def test_after_a_kill_the_first_server_is_put_back(
    session: Session, first: ServerInfo, tmp_path: Path, phase: str
) -> None:
    cut_off = await killed(tmp_path, first, PHASES[phase])
    with pytest.raises(UsageError, match="was cut off") as caught:
        await session.execute("tune.start", experiment=experiment(first, target=first.label))
    assert f"--restore {cut_off}" in caught.value.hint
    await session.execute("tune.restore", id=cut_off[:9], timeout_s=TIMEOUT_S)
    back = await check_first_is_back(session, first, cut_off)
    if phase == "the first measurement":
        assert back.pid == first.pid, "nothing was restarted, so nothing is"
    else:
        assert not alive(first.pid) or back.pid == first.pid
    with pytest.raises(UsageError, match="already"):
        await session.execute("tune.restore", id=cut_off)


async def test_after_a_kill_the_experiment_goes_on_where_it_was(
    session: Session, first: ServerInfo, tmp_path: Path
) -> None:
    cut_off = await killed(tmp_path, first, PHASES["the first restart"])
    before = [event.data["trial"] for event in Journal.find(folder(), cut_off).events() if event.kind == "trial"]
    done = await session.execute("tune.resume", id=cut_off)
    assert done.id == cut_off
    assert done.phase == "done"
    assert [trial.number for trial in done.trials] == list(range(len(done.trials))), "nothing is measured twice"
    assert len(done.trials) > len(before)
    assert [t.value for t in done.trials[: len(before)]] == [t["value"] for t in before]
    await check_first_is_back(session, first, cut_off)
