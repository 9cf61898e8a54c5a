"""The life of a server on the simulated GPU host over SSH: found, adopted, examined, stopped with its memory."""

from __future__ import annotations

from pathlib import Path

from tokpit.config.inventory import Inventory
from tokpit.ops.host.doctor import examine
from tokpit.ops.lifecycle.occupants import occupants, sentences
from tokpit.ops.session import Session
from tokpit.sim.host import SimHost


async def test_a_strangers_server_is_examined_adopted_and_gives_its_memory_back(tmp_path: Path) -> None:
    async with (
        SimHost(clock_factor=60.0, running=True) as sim,
        Session(Inventory(hosts={sim.name: sim.spec}), history_path=tmp_path / "h.sqlite", assume_yes=True) as session,
    ):
        target = f"{sim.name}:{sim.engine_port}"
        report = await examine(session, sim.name)
        lines = {check.name: check for check in report.checks}
        assert "driver" in lines["gpu"].says
        assert any("SGLang" in check.says and sim.venv in check.says for check in report.checks)
        assert lines["gpu memory"].says.startswith(f"{target} holds ")
        held = await occupants(session, session.host(sim.name))
        assert {one.kind for one in held} <= {"server", "worker"}
        assert len(sentences(held, sim.name)) == len(held)

        adopted = await session.execute("server.adopt", target=target)
        assert adopted.state.port == sim.engine_port
        done = await session.execute("server.stop", target=target)
        assert done.gpu_before_mib is not None
        assert done.gpu_before_mib > 10_000
        assert done.gpu_after_mib == 0
        assert done.port_free is True
        assert done.gpu_used_before_mib - done.gpu_used_after_mib > 10_000
        assert await occupants(session, session.host(sim.name)) == ()
