"""The generator on the host, over a real sshd: it measures, it ends when told, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from load_server import HOLD, ScriptServer, answer, role, token
from sshd import Sshd
from tokpit.domain.hostspec import HostSpec
from tokpit.domain.server import ServerInfo
from tokpit.errors import HostError, LoadError, RemoteFailed
from tokpit.load import events
from tokpit.load.plan import Plan
from tokpit.ops.sweep.onhost import OnHost, candidates, find_on_host
from tokpit.ops.sweep.place import Here, choose
from tokpit.transport.local import LocalHost
from tokpit.transport.open import open_host
from tokpit.transport.ssh import SshHost


@pytest.fixture
async def host(sshd: Sshd) -> AsyncIterator[SshHost]:
    made = open_host(sshd.spec(programs={"vllm": sys.executable}), prompt=None)
    assert isinstance(made, SshHost)
    await made.connect()
    yield made
    await made.close()


@pytest.fixture
async def source(host: SshHost) -> AsyncIterator[OnHost]:
    made = await find_on_host(host, None)
    await made.ready()
    yield made
    await made.close()


def generators(folder: Path) -> list[int]:
    """Processes that run a generator out of `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b".pyz" in line and str(folder).encode() in line and not line.startswith(b"/bin/sh"):
                found.append(int(entry.name))
    return found


async def until(condition: Callable[[], object], patience_s: float = 15.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.05)


def no_event(event: events.Event) -> None:
    pass


async def test_the_host_gives_the_same_counts_as_here(source: OnHost, host: SshHost) -> None:
    told: list[events.Event] = []
    async with ScriptServer(lambda body, index: answer(12, gap_s=0.004)) as server:
        plan = Plan(url=server.url, levels=(3,), requests=9, max_tokens=12, warmup=0)
        there = await source.run(plan, told.append, asyncio.Event())
        again = await source.run(plan, no_event, asyncio.Event())
        here = await Here(host).run(plan, no_event, asyncio.Event())
    for result in (there, again, here):
        level = result.levels[0]
        assert (level.ok, level.err, level.output_tokens, level.peak_in_flight) == (9, 0, 108, 3)
        assert level.ttft_s is not None
        assert level.tpot_s is not None
        assert level.tpot_s.p50 >= 0.004
    assert isinstance(told[0], events.LevelStarted)
    assert isinstance(told[-1], events.SweepFinished)
    assert there.client["python"]


async def test_the_file_is_private_sent_once_and_found_again(source: OnHost, sshd: Sshd, host: SshHost) -> None:
    folder = sshd.home / ".cache" / "tokpit"
    assert folder.stat().st_mode & 0o777 == 0o700
    (packed,) = folder.glob("load-*.pyz")
    assert packed.stat().st_mode & 0o077 == 0
    before = packed.stat().st_mtime_ns
    other = await find_on_host(host, None)
    await other.ready()
    assert packed.stat().st_mtime_ns == before


async def test_a_cut_file_is_sent_again(source: OnHost, sshd: Sshd, host: SshHost) -> None:
    (packed,) = (sshd.home / ".cache" / "tokpit").glob("load-*.pyz")
    whole = packed.read_bytes()
    packed.write_bytes(whole[:100])
    other = await find_on_host(host, None)
    await other.ready()
    assert packed.read_bytes() == whole


async def test_a_stop_keeps_what_was_measured(source: OnHost, sshd: Sshd) -> None:
    stop = asyncio.Event()

    def hear(event: events.Event) -> None:
        if isinstance(event, events.Progress) and event.tokens >= 2:
            stop.set()

    async with ScriptServer(lambda body, index: [role(), token(), token(), HOLD]) as server:
        plan = Plan(url=server.url, model="m", levels=(2,), requests=4, max_tokens=9, warmup=0)
        result = await source.run(plan, hear, stop)
        assert result.status == "stopped"
        assert result.levels[0].cancelled == 2
    await source.close()
    await until(lambda: not generators(sshd.home))


async def test_a_cancelled_sweep_leaves_nothing_on_the_host(source: OnHost, sshd: Sshd) -> None:
    async with ScriptServer(lambda body, index: [role(), token(), HOLD]) as server:
        plan = Plan(url=server.url, model="m", levels=(2,), requests=4, warmup=0)
        task = asyncio.create_task(source.run(plan, no_event, asyncio.Event()))
        await until(lambda: server.running == 2)
        assert generators(sshd.home)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await source.close()
        await until(lambda: not generators(sshd.home))


async def test_a_lost_link_is_told_and_leaves_nothing_on_the_host(source: OnHost, sshd: Sshd) -> None:
    async with ScriptServer(lambda body, index: [role(), token(), HOLD]) as server:
        plan = Plan(url=server.url, model="m", levels=(2,), requests=4, warmup=0)
        task = asyncio.create_task(source.run(plan, no_event, asyncio.Event()))
        await until(lambda: server.running == 2)
        sshd.signal_sessions(signal.SIGKILL)
        with pytest.raises(HostError):
            await task
        await until(lambda: not generators(sshd.home))


_CLIENT = """
import asyncio, sys
import msgspec
from tokpit.domain.hostspec import HostSpec
from tokpit.load.plan import Plan
from tokpit.ops.sweep.onhost import find_on_host
from tokpit.transport.open import open_host

async def main():
    host = open_host(msgspec.json.decode(sys.argv[1], type=HostSpec), prompt=None)
    await host.connect()
    source = await find_on_host(host, None)
    await source.ready()
    await source.run(Plan.from_json(sys.argv[2]), lambda event: None, asyncio.Event())

asyncio.run(main())
"""


async def test_a_killed_tokpit_leaves_nothing_on_the_host(sshd: Sshd) -> None:
    spec = msgspec.json.encode(sshd.spec(programs={"vllm": sys.executable})).decode()
    async with ScriptServer(lambda body, index: [role(), token(), HOLD]) as server:
        plan = Plan(url=server.url, model="m", levels=(2,), requests=4, warmup=0)
        client = subprocess.Popen([sys.executable, "-c", _CLIENT, spec, plan.to_json()], env=os.environ | _PATH)
        try:
            await until(lambda: server.running == 2, 30)
            assert generators(sshd.home)
        finally:
            client.kill()
            client.wait()
        await until(lambda: not generators(sshd.home))


_PATH = {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}


async def test_a_silence_ends_it(source: OnHost, sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link may die without telling either end."""
    monkeypatch.setattr("tokpit.ops.sweep.onhost.PATIENCE_S", 0.5)
    await source.close()
    async with ScriptServer(lambda body, index: [role(), token(), HOLD]) as server:
        plan = Plan(url=server.url, model="m", levels=(1,), requests=2, warmup=0)
        result = await source.run(plan, no_event, asyncio.Event())
    assert result.status == "stopped"
    await until(lambda: not generators(sshd.home))


async def test_this_machine_runs_it_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    local = LocalHost(HostSpec(name="local", local=True))
    source, _ = await choose("auto", local, None)
    try:
        await source.ready()
        await until(lambda: generators(tmp_path))
        async with ScriptServer(lambda body, index: answer(5)) as server:
            plan = Plan(url=server.url, levels=(2,), requests=4, max_tokens=5, warmup=0)
            result = await source.run(plan, no_event, asyncio.Event())
        assert (result.levels[0].ok, result.levels[0].output_tokens) == (4, 20)
        await source.close()
        await until(lambda: not generators(tmp_path))
    finally:
        await local.close()
    assert source.where == "host"


async def test_a_connection_without_a_free_session_is_measured_from_here(host: SshHost, source: OnHost) -> None:
    async with contextlib.AsyncExitStack() as stack:
        while host.lasting_free():
            await stack.enter_async_context(host.stream("sleep 60"))
        other = await find_on_host(host, None)
        with pytest.raises(RemoteFailed, match="no place"):
            await other.ready()


async def test_a_host_without_a_python_says_so_and_auto_measures_from_here(host: SshHost) -> None:
    host.spec = msgspec.structs.replace(host.spec, programs={})
    real = host.run

    async def bare(script: str, **options: object) -> object:
        return await real(f"PATH=/nowhere; {script}", **options)  # type: ignore[arg-type]  # passed on as it came

    host.run = bare  # type: ignore[assignment,method-assign]  # the PATH of a bare host
    with pytest.raises(RemoteFailed, match="no Python with aiohttp"):
        await choose("host", host, None)
    found, why = await choose("auto", host, None)
    assert found.where == "here"
    assert "no Python with aiohttp" in why


async def test_a_url_has_no_host() -> None:
    with pytest.raises(LoadError, match="URL"):
        await choose("host", None, None)
    found, why = await choose("auto", None, None)
    assert found.where == "here"
    assert "URL" in why


async def test_a_plan_that_the_generator_refuses_is_an_error(source: OnHost) -> None:
    plan = Plan(url="http://127.0.0.1:1", levels=(1,), requests=1, warmup=0)
    object.__setattr__(plan, "api", "morse")
    with pytest.raises(LoadError, match="morse"):
        await source.run(plan, no_event, asyncio.Event())


def test_the_servers_own_interpreter_comes_first() -> None:
    programs = {"sglang": "/opt/sgl", "vllm": "/opt/v/bin/vllm serve", "llamacpp": "/opt/p/bin/python3 -m x"}
    host = LocalHost(HostSpec(name="h", programs=programs))
    info = ServerInfo(host="h", engine="vllm", pid=1, start_ticks=1, pgid=1, python="/srv/venv/bin/python")
    found = candidates(host, info)
    assert found[0] == "/srv/venv/bin/python"
    assert {"/opt/sgl/bin/python", "/opt/v/bin/python", "/opt/p/bin/python3"} <= set(found)
    assert found[-2:] == ("python3", "python")
