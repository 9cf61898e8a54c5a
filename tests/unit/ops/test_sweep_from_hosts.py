"""One level from several hosts: real sshds, real generators, one of them with a clock of its own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from load_server import HOLD, ScriptServer, answer, role, token
from sshd import SSHD_MISSING, Sshd
from tokpit.config.inventory import Inventory
from tokpit.domain.run import Run
from tokpit.errors import HostError, RemoteFailed, UsageError
from tokpit.load.member import Frames, look, shift
from tokpit.load.records import Part, frame
from tokpit.load.stream import Exchange
from tokpit.ops.session import Session
from tokpit.ops.sweep.plan import read_hosts

NAMES = ("load1", "load2", "load3")
AHEAD_S = 5000


def _other_clock(folder: Path) -> str | None:
    """A Python whose monotonic clock is AHEAD_S ahead of this machine's; None where that cannot be had."""
    words = ["unshare", "--time", "--fork", "--monotonic", str(AHEAD_S), "--boottime", str(AHEAD_S)]
    probe = subprocess.run([*words, "true"], capture_output=True, check=False)
    if probe.returncode:
        return None
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec {" ".join(words)} --kill-child {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Sshd]]:
    if SSHD_MISSING:
        pytest.skip(SSHD_MISSING)
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Sshd.start(tmp_path_factory.mktemp(name))) for name in NAMES}


@pytest.fixture
async def session(hosts: dict[str, Sshd], tmp_path: Path) -> AsyncIterator[Session]:
    pythons = dict.fromkeys(NAMES, sys.executable) | {"load2": _other_clock(tmp_path) or sys.executable}
    specs = {name: server.spec(name, programs={"vllm": pythons[name]}) for name, server in hosts.items()}
    async with Session(Inventory(hosts=specs), history_path=tmp_path / "history.sqlite") as made:
        yield made


async def sweep(session: Session, target: str, **values: Any) -> Run:
    asked = {"source": ",".join(NAMES), "warmup": 1, "max_tokens": 6, "model": "m", **values}
    run = await session.execute("sweep.start", target=target, **asked)
    assert isinstance(run, Run)
    return run


def generators(server: Sshd) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(server.home).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.02)


async def test_every_sample_of_every_host_is_in_the_level(session: Session, hosts: dict[str, Sshd]) -> None:
    async with ScriptServer(lambda body, index: answer(6, gap_s=0.01)) as server:
        run = await sweep(session, server.url, levels="7,2", requests=23)
        peak, bodies = server.peak, server.bodies
    first, second = run.levels
    assert run.status == "done"
    assert (first.requests, first.ok, first.err, first.result["output_tokens"]) == (23, 23, 0, 138)
    assert (second.ok, second.concurrency) == (23, 2)
    assert first.result["processes"] == 3
    assert peak == 7
    assert len({str(body["messages"]) for body in bodies}) == 1 + 2 * 23
    # Latencies are of one clock each; a clock that is 5000 s ahead shows in nothing.
    assert (first.result["ttft_s"]["n"], first.result["icl_s"]["n"]) == (23, 23 * 5)
    assert first.result["ttft_s"]["max"] < 30
    assert first.elapsed_s < 30
    assert first.result["peak_in_flight"] <= 7
    clocks = next(check for check in first.result["checks"] if check["code"] == "GENERATOR_CLOCKS")
    assert clocks["value"] < 30
    assert run.context["from"] == "hosts load1, load2, load3"
    assert "load1, load2, load3" in run.context["client"]
    for one in hosts.values():
        await until(lambda one=one: not generators(one))


async def test_an_open_loop_keeps_its_one_schedule(session: Session) -> None:
    async with ScriptServer(lambda body, index: answer(2)) as server:
        run = await sweep(session, server.url, rates="60", requests=30, max_tokens=2)
    assert (run.levels[0].ok, run.levels[0].result["processes"]) == (30, 3)


async def test_a_lost_generator_takes_its_share_out_and_the_others_go_on(
    session: Session, hosts: dict[str, Sshd]
) -> None:
    def script(body: dict[str, Any], index: int) -> list[Any]:
        return answer(4, gap_s=0.3) if 0 < index <= 9 else answer(4)

    async with ScriptServer(script) as server:
        work = asyncio.ensure_future(sweep(session, server.url, levels="9,3", requests=18, max_tokens=4))
        await until(lambda: server.running == 9)
        hosts["load2"].signal_sessions(signal.SIGKILL)
        run = await work
    first, second = run.levels
    assert run.status == "done"
    assert (first.concurrency, first.ok) == (6, 12)
    assert "on load2 was lost" in first.result["partial"]
    assert "3 of the 9 slots are missing" in first.result["partial"]
    lost = next(check for check in first.result["checks"] if check["code"] == "GENERATOR_LOST")
    assert lost["ok"] is False
    assert first.result["void"]  # until then the server had more than the level says
    assert (second.concurrency, second.ok, second.result["processes"]) == (3, 18, 2)
    assert not second.result["partial"]


async def test_a_stop_keeps_what_all_hosts_measured(session: Session) -> None:
    stop = asyncio.Event()
    script = lambda body, index: [role(), token(), HOLD] if index else answer(2)  # noqa: E731
    async with ScriptServer(script) as server:
        work = asyncio.ensure_future(sweep(session, server.url, levels="6", stop=stop))
        await until(lambda: server.running == 6)
        stop.set()
        run = await work
    assert run.status == "stopped"
    assert run.levels[0].result["cancelled"] == 6


async def test_a_server_that_a_generator_cannot_reach_is_told_before_any_load(session: Session) -> None:
    with pytest.raises(RemoteFailed, match=r"does not answer 3 of 3 load generators \(load1 to http://127.0.0.1:9"):
        await sweep(session, "http://127.0.0.1:9")


async def test_a_host_that_is_not_there_is_told(session: Session, hosts: dict[str, Sshd]) -> None:
    with pytest.raises(HostError, match="nowhere"):
        await sweep(session, "http://127.0.0.1:9", source="load1,nowhere.invalid")
    await until(lambda: not generators(hosts["load1"]))


def test_hosts_are_named_once() -> None:
    assert read_hosts("a, b") == ("a", "b")
    for text in ("a,,b", "a,a"):
        with pytest.raises(UsageError):
            read_hosts(text)


def test_a_clock_is_right_to_half_a_round_trip() -> None:
    found = look(1_000, 50_600, 2_000)
    assert (found.offset_ns, found.round_trip_ns) == (49_100, 1_000)
    x = Exchange(0)
    x.t_start, x.t_sent, x.t_first, x.t_end = 50_100, 50_200, 50_300, 51_000
    x.stamps.extend([50_300, 50_900])
    part = shift(Part(exchanges=[x], t_begin=50_000, t_end=51_000), 49_100)
    assert (part.t_begin, part.t_end, x.t_sent, x.t_first, x.t_due) == (900, 1_900, 1_100, 1_200, 0)
    assert list(x.stamps) == [1_200, 1_800]


def test_messages_survive_any_cut() -> None:
    data = frame({"a": 1}) + frame({"records": 2}, b"\x00" * 37) + frame({"b": "ü"})
    for size in (1, 3, 11, len(data)):
        frames = Frames()
        found = [one for i in range(0, len(data), size) for one in frames.feed(data[i : i + size])]
        assert found == [({"a": 1}, b""), ({"records": 2}, b"\x00" * 37), ({"b": "ü"}, b"")]
    with pytest.raises(ValueError, match="no message"):
        Frames().feed(b"Welcome to this host!\n")
