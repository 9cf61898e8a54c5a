"""`tokpit diagnose TARGET` on the simulated host over real SSH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tokpit.config.inventory import Inventory
from tokpit.domain.run import Level, Run
from tokpit.errors import TargetError
from tokpit.ops.diagnose.run import Sources, diagnose_all
from tokpit.ops.session import Session
from tokpit.sim.host import SimHost


@pytest.fixture(scope="module")
def sim() -> Iterator[SimHost]:
    with SimHost(clock_factor=40, running=True) as host:
        yield host


async def test_live_server_tells_cap_slots_and_gpu_and_nothing_false(sim: SimHost, tmp_path: Path) -> None:
    inventory = Inventory(hosts={sim.spec.name: sim.spec})
    async with Session(inventory, history_path=tmp_path / "h.sqlite") as session:
        session.add_host(sim.spec.name)
        found = await diagnose_all(session, Sources(target=sim.spec.name))
        assert found.facts.max_running_requests == 9
        assert found.facts.state_slots == 48
        assert found.facts.gpu is not None
        assert "PRO 6000" in found.facts.gpu
        assert found.facts.host_cache_usage is not None, "its metrics page was not read"
        assert [f.code for f in found.findings if f.severity != "info"] == []
        with pytest.raises(TargetError):
            await diagnose_all(session, Sources(target=f"{sim.spec.name}:1"))


async def one_stream(session: Session, sim: SimHost) -> Run:
    run = await session.execute("sweep.start", target=sim.name, levels="1", requests=3, max_tokens=256)
    assert isinstance(run, Run)
    return run


async def test_a_server_that_was_faster_with_other_settings_is_told_with_what_changed(
    sim: SimHost, tmp_path: Path
) -> None:
    inventory = Inventory(hosts={sim.spec.name: sim.spec})
    async with Session(inventory, history_path=tmp_path / "h.sqlite") as session:
        session.add_host(sim.spec.name)
        run = await one_stream(session, sim)
        quiet = await diagnose_all(session, Sources(target=sim.name))
        assert "GAP_CANDIDATES" not in [f.code for f in quiet.findings], "it is as fast as its run"
        assert quiet.curve is not None, "the newest sweep of this process was not looked at"
        assert any(run.id in note for note in quiet.notes)
        level = run.levels[0]
        tpot = level.result["tpot_s"]
        faster = {**level.result, "tpot_s": {**tpot, "p50": tpot["p50"] / 2}}
        settings = {**run.context["settings"], "quantization": "fp8", "spec_steps": 5}
        old = msgspec.structs.replace(
            run,
            id=await (await session.history()).new_run_id(),
            started_at=run.started_at - 86_400,
            levels=(msgspec.structs.replace(level, result=faster),),
            context={**run.context, "settings": settings, "version": "0.5.9"},
        )
        await (await session.history()).save_run(old)
        found = await diagnose_all(session, Sources(target=sim.name))
        gap = next(f for f in found.findings if f.code == "GAP_CANDIDATES")
        assert gap.evidence[0].startswith("quantization: fp8 -> not given")
        assert any(line.startswith("spec_steps: 5 -> 3") for line in gap.evidence)
        assert any(line.startswith("version: 0.5.9 -> ") for line in gap.evidence)
        assert old.id in gap.claim


async def test_stored_run_is_judged_with_the_facts_of_its_context(tmp_path: Path) -> None:
    rows = ((1, 8, 88.0), (4, 8, 26.0), (8, 16, 29.0), (16, 32, 56.0), (32, 64, 110.0), (64, 128, 219.0))
    levels = tuple(
        Level(concurrency=c, requests=n, ok=n, err=0, elapsed_s=t, output_tps=n * 500 / t, avg_output=500)
        for c, n, t in rows
    )
    async with Session(Inventory(hosts={}), history_path=tmp_path / "h.sqlite") as session:
        history = await session.history()
        context = {"settings": {"max_running": 8}, "plan": {"max_tokens": 500}}
        run = Run(
            id=await history.new_run_id(), kind="sweep", target="t", started_at=1.7e9, levels=levels, context=context
        )
        await history.save_run(run)
        found = await diagnose_all(session, Sources(runs=(run.id,)))
        assert found.findings[0].code == "QUEUE_LIMITED_BY_MAX_RUNNING"
