"""The simulated host from outside: over real SSH, as tokpit reaches it."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import asyncssh
import pytest

from tokpit.sim import owner, story
from tokpit.sim.host import SimHost, free_port

FACTOR = 60.0
SMALL = ("--mamba-scheduler-strategy", "extra_buffer", "--max-mamba-cache-size", "48", "--max-running-requests", "9")
MTP = (*SMALL, "--speculative-algorithm", "NEXTN")


@pytest.fixture(scope="module")
def sim() -> Iterator[SimHost]:
    """A host with one server running, at a high clock factor."""
    with SimHost(FACTOR, running=True) as host:
        yield host


@pytest.fixture(scope="module")
def empty() -> Iterator[SimHost]:
    """A host without servers, faster still: only starts are tried there."""
    with SimHost(200.0) as host:
        yield host


def connect(host: SimHost) -> asyncssh.connection._ACMWrapper[asyncssh.SSHClientConnection]:
    spec = host.spec
    assert spec.address
    assert spec.port
    return asyncssh.connect(
        spec.address,
        port=spec.port,
        username=spec.user,
        client_keys=list(spec.identity_files),
        known_hosts=spec.known_hosts,
        config=None,
        encoding=None,
    )


async def sh(connection: asyncssh.SSHClientConnection, script: str) -> tuple[str, int | None]:
    done = await connection.run("/bin/sh", input=script.encode(), encoding=None)
    assert isinstance(done.stdout, bytes)
    return done.stdout.decode(), done.exit_status


@pytest.fixture
async def link(sim: SimHost) -> AsyncIterator[asyncssh.SSHClientConnection]:
    async with connect(sim) as connection:
        yield connection


@pytest.fixture
async def bare(empty: SimHost) -> AsyncIterator[asyncssh.SSHClientConnection]:
    async with connect(empty) as connection:
        yield connection


async def until(check: Callable[[], Awaitable[bool]], within_s: float = 15.0) -> None:
    deadline = time.monotonic() + within_s
    while not await check():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.03)


async def start(
    connection: asyncssh.SSHClientConnection, host: SimHost, *flags: str, failing: bool = False
) -> tuple[str, str]:
    """Launch in the background; (pid, log path)."""
    log = str(host.root / "logs" / f"{time.monotonic_ns()}.log")
    begin = "" if failing else "exec "
    words = shlex.join((*host.program, "--model-path", host.model_path, *flags))
    tail = "; echo ended $?" if failing else ""
    run = f"(setsid sh -c {shlex.quote(f'{begin}{words}{tail}')} >{log} 2>&1 </dev/null & echo $!)"
    out, _ = await sh(connection, run)
    return out.strip(), log


async def log_of_failed(connection: asyncssh.SSHClientConnection, host: SimHost, *flags: str) -> str:
    _, log = await start(connection, host, *flags, failing=True)

    async def ended() -> bool:
        return "\nended " in Path(log).read_text()

    await until(ended)
    return Path(log).read_text()


# --- sessions


async def test_script_runs_under_sh_with_status_and_both_streams(link: asyncssh.SSHClientConnection) -> None:
    done = await link.run("/bin/sh", input=b"echo out; echo err >&2; printf '\\377'; exit 3", encoding=None)

    assert (done.stdout, done.stderr, done.exit_status) == (b"out\n\xff", b"err\n", 3)


async def test_signal_death_is_told_as_a_signal(link: asyncssh.SSHClientConnection) -> None:
    done = await link.run("kill -TERM $$", encoding=None)

    assert done.exit_signal is not None
    assert done.exit_signal[0] == "TERM"


async def test_input_after_the_first_line_arrives_unchanged(link: asyncssh.SSHClientConnection) -> None:
    data = b"cat\n" + b"see /proc/meminfo\n\x00\xff" * 5000

    done = await link.run('IFS= read -r script; eval "$script"', input=data, encoding=None)

    assert done.stdout == data[4:]


async def test_other_keys_are_refused(sim: SimHost) -> None:
    with pytest.raises(asyncssh.PermissionDenied):
        async with asyncssh.connect(
            "127.0.0.1",
            port=sim.spec.port or 0,
            username="sim",
            client_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            known_hosts=sim.spec.known_hosts,
            config=None,
        ):
            pass


async def test_memory_is_the_storys_however_a_script_reads_it(link: asyncssh.SSHClientConnection) -> None:
    script = (
        "IFS=' ' read -r _ total _ </proc/meminfo; echo $total; sed -n 's/MemTotal: *//p' /proc/meminfo; "
        "cat /proc/self/cgroup"
    )
    out, _ = await sh(link, f"eval {shlex.quote(script)}\n")

    total = story.HOST_MEM_TOTAL_BYTES // 1024
    assert out == f"{total}\n{total} kB\n"


async def test_model_folder_is_there_for_scripts_that_ask(sim: SimHost, link: asyncssh.SSHClientConnection) -> None:
    path = sim.model_path
    script = f"test -e {path} && echo there; model={path}; grep -c linear_attention $model/config.json"
    out, _ = await sh(link, f"{script}; echo --model-path {path}\n")

    assert out == f"there\n48\n--model-path {story.MODEL_PATH}\n"


async def test_gpu_of_the_running_server_is_seen_through_nvidia_smi(link: asyncssh.SSHClientConnection) -> None:
    out, status = await sh(link, "nvidia-smi --query-gpu=name,memory.used --format=csv,noheader,nounits\n")
    _, bad = await sh(link, "nvidia-smi --query-gpu=name,no.such --format=csv\n")

    name, used = out.strip().rsplit(", ", 1)
    assert (name, status, bad) == (story.GPU_NAME, 0, 2)
    assert 70_000 < int(used) < story.GPU_MEM_MIB


async def test_process_listing_shows_the_server_and_its_workers_only(
    sim: SimHost, link: asyncssh.SSHClientConnection
) -> None:
    out, _ = await sh(link, 'for d in "$TOKPIT_PROC"/[0-9]*; do tr "\\0" " " <$d/cmdline; echo; done\n')

    rows = [row.strip() for row in out.splitlines()]
    assert rows[0].startswith(f"{sim.venv}/bin/python -m sglang.launch_server --model-path {sim.model_path}")
    assert sorted(rows[1:]) == ["sglang::detokenizer", "sglang::scheduler"]


async def test_installed_version_is_found_without_importing_the_engine(link: asyncssh.SSHClientConnection) -> None:
    code = "from importlib.metadata import version; print(version('sglang'))"
    out, _ = await sh(link, f'"{{venv}}/bin/python" -c "{code}"\n'.replace("{venv}", "$TOKPIT_SIM_ROOT/venv"))

    assert out.strip() == story.VERSION


# --- the running server


async def post(
    session: aiohttp.ClientSession, url: str, tokens: int, prompt: str = "Say it", **more: object
) -> tuple[int, str]:
    body = {"model": "any", "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, **more}
    async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
        return answer.status, await answer.text()


STREAM = {"stream": True, "stream_options": {"include_usage": True}}


async def test_stream_through_the_forward_carries_as_many_tokens_as_its_usage_says(
    sim: SimHost, link: asyncssh.SSHClientConnection
) -> None:
    listener = await link.forward_local_port("127.0.0.1", 0, "127.0.0.1", sim.engine_port)
    async with listener, aiohttp.ClientSession() as session:
        status, text = await post(session, f"http://127.0.0.1:{listener.get_port()}", 200, **STREAM)

    events = [event.removeprefix("data: ") for event in text.strip().split("\n\n")]
    chunks = [json.loads(event) for event in events[:-1]]
    words = "".join(c["choices"][0]["delta"]["content"] or "" for c in chunks[:-1])
    assert (status, events[-1]) == (200, "[DONE]")
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]) == ([], 200)
    assert len(words.split()) == 200
    assert len(chunks) < 150


async def test_whole_answer_and_information_routes(sim: SimHost) -> None:
    url = f"http://127.0.0.1:{sim.engine_port}"
    async with aiohttp.ClientSession() as session:
        status, text = await post(session, url, 12)
        info = await (await session.get(f"{url}/server_info")).json()
        loads = await (await session.get(f"{url}/v1/loads")).json()
        models = await (await session.get(f"{url}/v1/models")).json()

    assert (status, json.loads(text)["usage"]["completion_tokens"]) == (200, 12)
    assert (info["version"], info["internal_states"][0]["effective_max_running_requests_per_dp"]) == ("0.5.11", 9)
    assert loads["loads"][0]["max_running_requests"] == 9
    assert models["data"][0]["id"] == story.MODEL_NAME


async def test_too_long_a_request_is_refused_with_the_engines_words(sim: SimHost) -> None:
    async with aiohttp.ClientSession() as session:
        status, text = await post(session, f"http://127.0.0.1:{sim.engine_port}", story.CONTEXT_LEN)

    assert status == 400
    assert json.loads(text)["message"].startswith("Requested token count exceeds the model's maximum context length")


async def test_cap_of_nine_shows_in_metrics_and_log(sim: SimHost) -> None:
    url = f"http://127.0.0.1:{sim.engine_port}"
    seen: dict[str, float] = {}

    async with aiohttp.ClientSession() as session:

        async def nine_run_three_wait() -> bool:
            page = await (await session.get(f"{url}/metrics")).text()
            for line in page.splitlines():
                if line.startswith("sglang:num_") and "_reqs{" in line:
                    seen[line.split("{")[0]] = float(line.split()[-1])
            return (seen["sglang:num_running_reqs"], seen["sglang:num_queue_reqs"]) == (9.0, 3.0)

        tasks = [asyncio.create_task(post(session, url, 4000, f"many {i}", **STREAM)) for i in range(12)]
        try:
            await until(nine_run_three_wait)

            async def logged() -> bool:
                lines = Path(sim.log_path).read_text().splitlines()
                return any("Decode batch, #running-req: 9," in s and s.endswith("#queue-req: 3") for s in lines)

            await until(logged)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        async def clients_gone() -> bool:
            loads = await (await session.get(f"{url}/v1/loads")).json()
            return bool(loads["loads"][0]["num_running_reqs"] == 0)

        await until(clients_gone)


@pytest.mark.parametrize("row", [story.TABLE[1], story.TABLE[3]], ids=["C=4", "C=16"])
async def test_sweep_levels_come_out_as_measured(sim: SimHost, row: tuple[int, int, float, float]) -> None:
    concurrency, count, elapsed_s, _ = row
    url = f"http://127.0.0.1:{sim.engine_port}"
    gate = asyncio.Semaphore(concurrency)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(number: int) -> str:
            async with gate:
                return (await post(session, url, story.OUTPUT_TOKENS, f"prompt {number % 8}", **STREAM))[1]

        took: list[float] = []
        for _ in range(4):  # a busy machine may spoil a try; the fastest counts
            begin = time.monotonic()
            answers = await asyncio.gather(*(one(i) for i in range(count)))
            took.append((time.monotonic() - begin) * FACTOR)
            assert all('"completion_tokens": 1024' in a for a in answers)
            if took[-1] == pytest.approx(elapsed_s, rel=0.05):
                break

    assert min(took) == pytest.approx(elapsed_s, rel=0.05)


async def test_own_users_come_back_after_a_quiet_while(sim: SimHost) -> None:
    log = Path(sim.log_path)
    size = log.stat().st_size

    async def moves() -> bool:
        return b"Decode batch" in log.read_bytes()[size:]

    await until(moves)


# --- starts


async def test_launch_survives_the_disconnect_serves_and_drains_on_term(empty: SimHost) -> None:
    port = free_port()
    async with connect(empty) as connection:
        _, log = await start(connection, empty, "--port", str(port), *MTP)

    async def ready() -> bool:
        return "The server is fired up and ready to roll!" in Path(log).read_text()

    await until(ready)
    async with connect(empty) as connection, aiohttp.ClientSession() as session:
        health = (await session.get(f"http://127.0.0.1:{port}/health")).status
        metrics = (await session.get(f"http://127.0.0.1:{port}/metrics")).status
        out, _ = await sh(connection, f"ss -ltnpH 'sport = :{port}' | sed 's/.*pid=\\([0-9]*\\).*/\\1/'\n")
        pid = int(out)
        os.killpg(pid, signal.SIGTERM)

        async def gone() -> bool:
            return not Path(f"/proc/{pid}").exists()

        await until(gone)
    assert (health, metrics) == (200, 404)
    assert "Gracefully exiting... Remaining number of requests 0." in Path(log).read_text()


async def test_unknown_flag_prints_usage_and_ends_with_2(empty: SimHost, bare: asyncssh.SSHClientConnection) -> None:
    text = await log_of_failed(bare, empty, "--max-mamba-cach-size", "4")

    assert text.startswith("usage: launch_server.py")
    assert text.endswith("error: unrecognized arguments: --max-mamba-cach-size 4\nended 2\n")


async def test_host_cache_too_large_fails_after_loading(empty: SimHost, bare: asyncssh.SSHClientConnection) -> None:
    text = await log_of_failed(bare, empty, *MTP, "--enable-hierarchical-cache", "--hicache-size", "250")

    assert "Allocating 250.00 GB host memory for hierarchical KV cache." in text
    assert "ValueError: Not enough host memory available. Requesting 250.10 GB but only have" in text
    assert text.endswith("ended 137\n")


async def test_busy_port_is_noticed_only_after_the_whole_load(
    empty: SimHost, bare: asyncssh.SSHClientConnection
) -> None:
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        text = await log_of_failed(bare, empty, *MTP, "--port", str(port))

    assert f"[Errno 98] error while attempting to bind on address ('127.0.0.1', {port}): address already in use" in text
    assert text.index("max_running_requests=9") < text.index("[Errno 98]")
    assert text.endswith("ended 1\n")


async def test_second_gpu_that_is_not_there_fails_as_cuda_does(
    empty: SimHost, bare: asyncssh.SSHClientConnection
) -> None:
    text = await log_of_failed(bare, empty, *MTP, "--tp-size", "2")

    assert "torch.AcceleratorError: CUDA error: invalid device ordinal" in text


# --- the end


def left_over(root: Path) -> list[int]:
    return owner.sandbox_pids(root)


def test_nothing_is_left_after_the_end() -> None:
    with SimHost(FACTOR, running=True) as host:
        root = host.root
        assert len(left_over(root)) == 3

    assert left_over(root) == []
    assert not root.exists()


@pytest.mark.parametrize("whom", ["owner", "server"])
def test_nothing_is_left_after_kill_9(whom: str) -> None:
    code = (
        "import signal, time; from tokpit.sim.host import SimHost\n"
        # A shell's background job ignores the interrupt, and so would its children.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"with SimHost({FACTOR}, running=True) as h: print(h.root, h.pid, flush=True); time.sleep(60)"
    )
    source = str(Path(owner.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": source}
    ) as process:
        assert process.stdout is not None
        folder, server_pid = process.stdout.readline().split()
        root = Path(folder.decode())
        assert len(left_over(root)) == 3
        os.kill(process.pid if whom == "owner" else int(server_pid), signal.SIGKILL)

        deadline = time.monotonic() + 10
        while left_over(root) and time.monotonic() < deadline:
            time.sleep(0.03)
        assert left_over(root) == []
        if whom == "server":
            process.send_signal(signal.SIGINT)
    while root.exists() and time.monotonic() < deadline:
        time.sleep(0.03)
    assert not root.exists()


def test_inventory_entry_says_that_it_is_simulated(sim: SimHost) -> None:
    import tomllib

    entry = tomllib.loads(sim.inventory_toml())["hosts"]["demo"]

    assert entry["label"] == "SIMULATED ×60"
    assert entry["clock_factor"] == FACTOR
    assert entry["programs"] == {"sglang": sim.venv}
    assert entry["port"] == sim.spec.port


async def test_running_server_can_have_other_flags() -> None:
    host = SimHost(FACTOR, running=True, flags=(*MTP, "--max-running-requests", "2"))
    async with host, aiohttp.ClientSession() as session:
        loads = await (await session.get(f"http://127.0.0.1:{host.engine_port}/v1/loads")).json()

    assert loads["loads"][0]["max_running_requests"] == 2
    assert not host.root.exists()
