"""A candidate that cannot win any more is not measured to the end of its level; what was measured of it is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.ops.session import Session
from tokpit.tune.experiment import Experiment, Search

REQUESTS = 64


async def test_a_level_is_cut_while_it_runs(
    session: Session, engine_dir: Path, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_STEP_S", "0.01")
    settings = Settings(model="tiny", port=unused_tcp_port, max_running=8)
    spec = LaunchSpec(host="local", engine="vllm", program=(str(engine_dir),), settings=settings)
    await session.execute("server.launch", spec=spec, timeout_s=40.0)
    (first,) = [s for s in await session.find("local") if s.port == unused_tcp_port]
    workload = {"levels": "8", "requests": REQUESTS, "max_tokens": 32, "source": "here", "warmup": 0}
    slower = Experiment(
        target=first.label, vary={"max_running": "1"}, workload=workload, timeout_s=40.0, search=Search(repeats=0)
    )
    done = await session.execute("tune.start", experiment=slower)
    (whole,) = [trial for trial in done.trials if trial.role == "first"]
    (cut,) = [trial for trial in done.trials if trial.role == "search"]
    assert (whole.status, cut.status) == ("measured", "cut")
    assert "so far, at C=8; the best has" in cut.reason
    assert whole.value is not None
    assert cut.value is not None
    assert 0 < cut.value < 0.5 * whole.value
    assert done.winner is None
    run = await (await session.history()).run(cut.runs[0])
    assert run.status == "stopped"
    (level,) = run.levels
    assert level.result["partial"]
    assert 2 <= level.ok < REQUESTS
    assert level.err == 0
    (back,) = [s for s in await session.find("local") if s.port == unused_tcp_port]
    assert back.argv == first.argv
