"""Experiments on the simulated host: end to end, cut off at every phase, and the first server back each time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tokpit.config.inventory import Inventory
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.domain.tuning import Tuning
from tokpit.ops.gate import ConfirmRequest
from tokpit.ops.session import Session
from tokpit.ops.tuning.start import folder, preview
from tokpit.sim.host import SimHost
from tokpit.store.journal import Journal, entries
from tokpit.tune.experiment import Experiment

CLOCK = 60.0
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
