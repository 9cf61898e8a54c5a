"""The use cases on the simulated host over real SSH: launch, ready, find, sweep, relaunch, stop, audit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from tokpit.config.inventory import Inventory
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.errors import LaunchError, StartFailed, StopError, TargetError
from tokpit.ops.gate import ConfirmRequest, Refused
from tokpit.ops.lifecycle.launch import plan
from tokpit.ops.session import Session
from tokpit.sim.host import SimHost

CLOCK = 60.0


@pytest.fixture(scope="module")
def sim() -> Iterator[SimHost]:
    with SimHost(clock_factor=CLOCK) as host:
        yield host


@pytest.fixture
async def session(sim: SimHost, tmp_path: Path) -> AsyncIterator[Session]:
    inventory = Inventory(hosts={sim.spec.name: sim.spec})
    async with Session(inventory, history_path=tmp_path / "history.sqlite", assume_yes=True) as made:
        made.add_host(sim.spec.name)
        yield made
        for server in await made.find(sim.spec.name):
            await made.execute("server.stop", server_id=server.id)


def spec_of(sim: SimHost, port: int, **settings: object) -> LaunchSpec:
    wanted = Settings(
        model=sim.model_path, port=port, spec_method="mtp", spec_steps=3, state_slots=48, mamba_strategy="extra_buffer"
    )
    changed = msgspec.structs.replace(wanted, **settings)  # type: ignore[arg-type]  # values of given fields
    return LaunchSpec(host=sim.spec.name, engine="sglang", program=(), settings=changed)


async def test_launch_find_sweep_relaunch_stop(session: Session, sim: SimHost, unused_tcp_port: int) -> None:
    launched = await session.execute("server.launch", spec=spec_of(sim, unused_tcp_port))
    operation = next(o for o in session.store.operations.values() if o.kind == "launch")
    assert operation.status == "done"
    kinds = [step.kind for step in operation.steps]
    assert kinds[0] == "started"
    assert [kind for kind in kinds if not kind.startswith("milestone.")] == ["started", "listening", "healthy", "token"]
    elapsed = [step.elapsed_s for step in operation.steps]
    assert elapsed == sorted(elapsed)
    assert len({round(t) for t in elapsed}) > 5, "milestones read in one look still carry the times of their stamps"

    found = [s for s in await session.find(sim.spec.name) if s.port == unused_tcp_port]
    assert [s.id for s in found] == [launched.server.id]
    assert found[0].settings.spec_steps == 3
    assert found[0].launched_by_tokpit

    run = await session.execute("sweep.start", target=found[0].label, levels="1,12", requests=12, max_tokens=64)
    assert run.status == "done"
    assert [(level.ok, level.err, level.avg_output) for level in run.levels] == [(12, 0, 64), (12, 0, 64)]
    stored = await (await session.history()).run(run.id)
    assert [level.concurrency for level in stored.levels] == [1, 12]
    assert stored.context["settings"]["state_slots"] == 48

    again = await session.execute("server.relaunch", server_id=found[0].id, changes={"spec_steps": 1})
    assert again.server.port == unused_tcp_port
    assert again.server.pid != launched.server.pid
    assert "--speculative-num-steps 1" in again.command

    stopped = await session.execute("server.stop", target=f"{sim.spec.name}:{unused_tcp_port}")
    assert stopped.server.pid == again.server.pid
    assert all(s.port != unused_tcp_port for s in await session.find(sim.spec.name))
    with pytest.raises((StopError, TargetError)):
        await session.execute("server.stop", server_id=again.server.id)

    audit = await (await session.history()).audit()
    assert {(entry.command, entry.outcome) for entry in audit} >= {
        ("server.launch", "done"),
        ("sweep.start", "done"),
        ("server.relaunch", "done"),
        ("server.stop", "done"),
    }
    assert any("--speculative-num-steps 3" in line for entry in audit for line in entry.lines)


async def test_a_sweep_that_is_stopped_keeps_what_was_measured(
    session: Session, sim: SimHost, unused_tcp_port: int
) -> None:
    launched = await session.execute("server.launch", spec=spec_of(sim, unused_tcp_port))
    stop = asyncio.Event()
    sweep = asyncio.create_task(
        session.execute("sweep.start", target=launched.server.id, levels="1,2", requests=6, max_tokens=512, stop=stop)
    )
    while not any(o.levels for o in session.store.operations.values() if o.kind == "sweep"):
        await asyncio.sleep(0.05)
    stop.set()
    run = await sweep
    assert run.status == "stopped"
    assert run.levels[0].ok == 6
    stored = await (await session.history()).run(run.id)
    assert stored.status == "stopped"
    assert stored.levels[0].ok == 6
    await session.execute("server.stop", server_id=launched.server.id)


async def test_a_flag_that_this_version_does_not_know_is_refused_before_the_start(
    session: Session, sim: SimHost, unused_tcp_port: int
) -> None:
    spec = spec_of(sim, unused_tcp_port, raw=("--no-such-flag", "3"))
    with pytest.raises(LaunchError, match="--no-such-flag"):
        await session.execute("server.launch", spec=spec)
    assert all(s.port != unused_tcp_port for s in await session.find(sim.spec.name))


async def test_plain_flags_count_like_settings(session: Session, sim: SimHost, unused_tcp_port: int) -> None:
    spec = spec_of(sim, 1, raw=("--port", str(unused_tcp_port), "--page-size", "48"))
    made = await plan(session, spec, force=True)
    assert made.port == unused_tcp_port
    assert any("48" in warning for warning in made.warnings), made.warnings


async def test_a_start_that_fails_names_its_cause(session: Session, sim: SimHost, unused_tcp_port: int) -> None:
    spec = spec_of(sim, unused_tcp_port, raw=("--no-such-flag", "3"))
    with pytest.raises(StartFailed) as caught:
        await session.execute("server.launch", spec=spec, force=True)
    assert caught.value.code.startswith("FLAG")
    assert "--no-such-flag" in str(caught.value)
    operation = next(o for o in session.store.operations.values() if o.kind == "launch")
    assert (operation.status, bool(operation.hint)) == ("failed", True)


async def test_consent_is_asked_once_with_the_exact_command_and_no_means_no(
    session: Session, sim: SimHost, unused_tcp_port: int
) -> None:
    asked: list[ConfirmRequest] = []

    async def refuse(request: ConfirmRequest) -> bool:
        asked.append(request)
        return False

    session.assume_yes, session.confirm = False, refuse
    with pytest.raises(Refused):
        await session.execute("server.launch", spec=spec_of(sim, unused_tcp_port))
    assert len(asked) == 1
    assert f"--port {unused_tcp_port}" in asked[0].lines[0]
    assert all(s.port != unused_tcp_port for s in await session.find(sim.spec.name))


async def test_a_target_that_is_not_there_lists_what_is(session: Session, sim: SimHost) -> None:
    with pytest.raises(TargetError):
        await session.execute("sweep.start", target=f"{sim.spec.name}:1", levels="1")
