"""Against a server that logs the true time of every chunk, where its binary is given."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tokpit.load.plan import Plan
from tokpit.load.run import run_sweep
from tokpit.load.stats import dist

BINARY = os.environ.get("TOKPIT_TRUTHSERVER", "")
pytestmark = pytest.mark.skipif(not BINARY, reason="TOKPIT_TRUTHSERVER names no binary")
RECORD = struct.Struct("<QQIIHBBI")


@pytest.fixture
async def truth(tmp_path: Path) -> AsyncIterator[tuple[str, Path]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path / "truth.bin"
    with subprocess.Popen([BINARY, "--listen", f"127.0.0.1:{port}", "--log", str(log)], stderr=-3) as process:
        url = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(url + "/health"):
                        break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.02)
        yield url, log
        process.terminate()


def true_times(log: Path) -> tuple[list[float], list[float]]:
    """TTFT and gaps between chunks in seconds, from the server's own log."""
    came: dict[int, int] = {}
    last: dict[int, int] = {}
    first: list[float] = []
    gaps: list[float] = []
    data = log.read_bytes()
    for at, _, request, _, _, kind, _, _ in RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size]):
        if kind == 1:
            came[request] = at
        elif kind == 3:
            if request in last:
                gaps.append((at - last[request]) / 1e9)
            else:
                first.append((at - came[request]) / 1e9)
            last[request] = at
    return first, gaps


async def flush(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(url + "/truth/log"):
        pass


async def test_measured_times_are_the_true_ones(truth: tuple[str, Path]) -> None:
    url, log = truth
    plan = Plan(url=url, model="m@ttft=80,itl=15,k=1-4", levels=(8,), max_tokens=60, warmup=0)
    result = await run_sweep(plan)
    await flush(url)
    level = result.levels[0]
    first, gaps = (dist(values) for values in true_times(log))
    assert (level.ok, level.output_tokens) == (16, 16 * 60)
    assert level.tokens_per_chunk is not None
    assert level.tokens_per_chunk > 1.5
    assert level.ttft_s is not None
    assert level.icl_s is not None
    assert first is not None
    assert gaps is not None
    assert level.icl_s.n == gaps.n
    assert level.ttft_s.p50 == pytest.approx(first.p50, rel=0.05)
    assert level.icl_s.mean == pytest.approx(gaps.mean, rel=0.02)


async def test_the_true_rate_of_a_lock_step_engine_with_a_cap_is_found(truth: tuple[str, Path]) -> None:
    url, _ = truth
    config = url + "/truth/config?batch=1&a=10&b=2&maxc=4&ttft=5"
    async with aiohttp.ClientSession() as session, session.get(config):
        pass
    plan = Plan(url=url, model="m", levels=(8,), requests=22, max_tokens=40, warmup=0)
    result = await run_sweep(plan)
    level = result.levels[0]
    true = 4 / (0.010 + 4 * 0.002)
    assert level.steady_tps == pytest.approx(true, rel=0.08)


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("503", "5xx"), ("429", "429"), ("500", "5xx"), ("json200", "error_in_stream"), ("hangup", "reset"),
        ("abort", "truncated"), ("reset", "reset"), ("stall", "timeout.between"), ("errobj", "error_in_stream"),
        ("errnodone", "error_in_stream"), ("badjson", "bad_sse"), ("nodone", "ok"), ("nofinish", "truncated"),
        ("nousage", "truncated"), ("earlystop", "ok"), ("splitutf8", "ok"), ("splitevent", "ok"), ("coalesce", "ok"),
        ("crlf", "ok"), ("cr", "ok"), ("comment", "ok"), ("nospace", "ok"), ("multiline", "ok"), ("emptyfirst", "ok"),
        ("nullcontent", "ok"), ("bigevent", "ok"), ("http10", "ok"), ("close", "ok"),
    ],
)  # fmt: skip
async def test_every_fault_is_told_from_the_good_answers_beside_it(
    truth: tuple[str, Path], fault: str, outcome: str
) -> None:
    from tokpit.load.plan import Timeouts

    plan = Plan(
        url=truth[0],
        model=f"m@ttft=5,itl=1,fault={fault},every=2,at=3",
        levels=(2,),
        requests=6,
        max_tokens=12,
        warmup=0,
        timeouts=Timeouts(first_s=2, between_s=0.5),
    )
    level = (await run_sweep(plan)).levels[0]
    expected = {"ok": 6} if outcome == "ok" else {"ok": 3, outcome: 3}
    assert {name: item.count for name, item in level.outcomes.items()} == expected
