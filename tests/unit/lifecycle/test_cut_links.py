"""A link that is cut in the middle of a launch or a sweep: the server lives, and what happened is said."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from process_tools import alive
from relay import Relay
from sshd import Sshd
from tokpit.config.inventory import Inventory
from tokpit.domain.records import LinkState, Operation
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.errors import HostError, LoadError
from tokpit.ops.lifecycle.launch import Launched
from tokpit.ops.session import Session
from tokpit.sim.host import SimHost


async def until(holds: Callable[[], object]) -> None:
    """The test's time limit is the check."""
    while not holds():
        await asyncio.sleep(0.02)


def operation(session: Session, kind: str) -> Operation | None:
    return next((o for o in session.store.operations.values() if o.kind == kind), None)


async def test_a_launch_goes_on_through_a_cut_link_and_its_log_comes_once(
    sshd: Sshd, engine_dir: Path, mark: str, tmp_path: Path, unused_tcp_port: int
) -> None:
    gate = tmp_path / "gate"
    spec = LaunchSpec(
        host="box",
        engine="vllm",
        program=(str(engine_dir),),
        settings=Settings(model="tiny", port=unused_tcp_port),
        env={"FAKE_GATE": str(gate), "FAKE_MARK": mark},
    )
    inventory = Inventory(hosts={"box": sshd.spec("box")})
    async with Session(inventory, history_path=tmp_path / "h.sqlite", assume_yes=True) as session:
        links: list[LinkState] = []
        session.host("box").on_link(lambda record: links.append(record.state))
        launch = asyncio.create_task(session.execute("server.launch", spec=spec, timeout_s=600))
        await until(lambda: (found := operation(session, "launch")) is not None and found.steps)
        pid = int(operation(session, "launch").steps[0].detail.split()[1].rstrip(","))  # type: ignore[union-attr]
        sshd.signal_sessions(signal.SIGKILL)
        await until(lambda: LinkState.LOST in links and links[-1] is LinkState.UP)
        assert alive(pid)
        gate.touch()
        done = await launch
        assert isinstance(done, Launched)
        assert done.state.pid == pid
        server = session.store.servers[done.server.id]
        await until(lambda: server.log.seen)
        said = [record.text for record in server.log.records if "API server version" in record.text]
        assert len(said) == 1
        await session.execute("server.stop", target=f"box:{unused_tcp_port}", term_wait_s=10)


@pytest.fixture
async def relayed(tmp_path: Path) -> AsyncIterator[tuple[Session, Relay]]:
    async with SimHost(clock_factor=30.0, running=True) as sim:
        relay = Relay(sim.spec.port or 22)
        await relay.open()
        known = tmp_path / "known_hosts"
        known.write_text(f"[127.0.0.1]:{relay.port} " + Path(sim.spec.known_hosts or "").read_text().split(" ", 1)[1])
        spec = msgspec.structs.replace(sim.spec, port=relay.port, known_hosts=str(known))
        async with Session(Inventory(hosts={spec.name: spec}), history_path=tmp_path / "h.sqlite") as session:
            session.add_host(spec.name)
            yield session, relay
        await relay.close()


@pytest.mark.parametrize("source", ["host", "here"])
async def test_a_sweep_that_loses_its_link_keeps_its_levels_and_says_so_while_the_server_serves_on(
    relayed: tuple[Session, Relay], source: str
) -> None:
    session, relay = relayed
    (server,) = await session.find("demo")
    args = {"target": "demo", "requests": 60, "max_tokens": 128, "warmup": 0, "source": source}
    sweep = asyncio.create_task(session.execute("sweep.start", levels="4,2", **args))
    await until(lambda: (found := operation(session, "sweep")) is not None and found.levels and found.live.get("done"))
    await relay.close()
    with pytest.raises((HostError, LoadError)) as caught:
        await sweep
    failed = operation(session, "sweep")
    assert failed is not None
    assert failed.status == "failed"
    assert failed.error
    (run,) = await (await session.history()).runs(limit=5)
    assert f"kept as run {run.id}" in caught.value.hint
    assert run.status == "failed"
    whole = [level.concurrency for level in run.levels if not level.result["partial"]]
    assert whole == [4], "a generator beside the server ends with the link; one here keeps what it had, marked"
    await relay.open()
    assert [s.pid for s in await session.find("demo")] == [server.pid]
    again = await session.execute("sweep.start", levels="2", **{**args, "requests": 4})
    assert (again.status, again.levels[0].ok) == ("done", 4)
