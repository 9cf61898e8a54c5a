"""tokpit's load generator beside others, each on one core, against a server that writes down its every send.

    python benchmarks/load_peers.py SERVER [--vllm VENV] [--sglang VENV] [--aiperf VENV] [--guidellm VENV]
        [--tokenizer FOLDER] [--only NAME,...] [--slow] [--cpu] [--libs FOLDER] [--peer-path FOLDER] [--realtime]
        [--repeat N]

SERVER is a binary that takes --listen and --log, serves OpenAI chat streams whose `ttft` and `itl` (ms) stand after `@`
in the model's name, and on GET /truth/log?PATH begins a log of 32-byte records: u64 monotonic ns of the send, u64, u32
request, u32, u16, u8 kind (1 request read, 3 token chunk), u8, u32. VENV are environments with `vllm bench serve` and
`sglang.bench_serving`; FOLDER after --tokenizer has a tokenizer.json for them. `--libs` holds orjson for the plain
readers where the environment has none; `--peer-path` goes before the peers' modules, where theirs do not import on a
machine without a GPU. `--slow` searches the chunk rate of vLLM and of SGLang's Python client as far as that of the
others (minutes: they take long to start).

With --realtime server and clients run before all other work of the machine (SCHED_FIFO), so that a neighbour's work is
not taken for theirs. With --repeat every figure is the median of N runs.

The server is pinned to core 1 and every client to core 0. Errors are against the server's log of the same run. Around
each client a spinning loop tells what share of core 0 the machine takes away: over a few per cent no p99 is worth much.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from load_truth import RECORD, get, truth

PORT = 18117
URL = f"http://127.0.0.1:{PORT}"
SRC = Path(__file__).parents[1] / "src"
LEVELS = (1, 16, 64, 256)
RATES = (4000, 6400, 8000, 16000, 20000, 32000, 48000, 64000)
RATE_STREAMS = 256
LONGEST_S = 300
"""A client that takes longer for a run is ended and not measured."""
REALTIME: list[str] = []
AGENT = "import sys; from tokpit.load.agent import main; sys.exit(main())"


@dataclass(frozen=True)
class Load:
    concurrency: int
    requests: int
    tokens: int
    ttft_ms: float
    itl_ms: float

    @property
    def model(self) -> str:
        return f"m@ttft={self.ttft_ms:g};itl={self.itl_ms:g}"


@dataclass(frozen=True)
class Client:
    name: str
    command: Callable[[Load, Path], list[str]]
    figures: Callable[[str, Path], dict[str, float]]
    """ttft_p50, ttft_p99, itl_p50, itl_p99 in ms of its output and its result file."""
    slow: bool = False
    measures: bool = True
    online: bool = False
    """Its offline mode does not take a tokenizer in a folder."""


def tokpit_agent(load: Load, result: Path) -> list[str]:
    plan = {
        "url": URL, "model": load.model, "levels": [load.concurrency], "requests": load.requests, "warmup": 0,
        "max_tokens": load.tokens,
    }  # fmt: skip
    return [sys.executable, "-c", AGENT, json.dumps(plan)]


def tokpit_figures(output: str, result: Path) -> dict[str, float]:
    level = json.loads(output.splitlines()[-1])["result"]["levels"][0]
    found = {
        f"{a}_{p}": level[key][p] * 1e3 for a, key in (("ttft", "ttft_s"), ("itl", "icl_s")) for p in ("p50", "p99")
    }
    marked = {check["code"] for check in level["checks"] if check["ok"] is False}
    return {**found, "marked": float(bool(marked & {"MERGED_READS", "CLIENT_BOUND"}))}


def tokpit_command(load: Load, result: Path) -> list[str]:
    words = ["-c", str(load.concurrency), "-n", str(load.requests), "--max-tokens", str(load.tokens)]
    return [sys.executable, "-m", "tokpit", "sweep", URL, *words, "--model", load.model, "--warmup", "0", "--json"]


def reader(kind: str) -> Callable[[Load, Path], list[str]]:
    def command(load: Load, result: Path) -> list[str]:
        numbers = map(str, (load.concurrency, load.requests, load.tokens))
        return [sys.executable, __file__, "--reader", kind, load.model, *numbers]

    return command


def vllm(venv: str, tokenizer: str) -> Client:
    def command(load: Load, result: Path) -> list[str]:
        return [
            f"{venv}/bin/vllm", "bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
            "--base-url", URL, "--model", load.model, "--tokenizer", tokenizer, "--dataset-name", "random",
            "--random-input-len", "16", "--random-output-len", str(load.tokens), "--num-prompts", str(load.requests),
            "--max-concurrency", str(load.concurrency), "--ignore-eos", "--ready-check-timeout-sec", "0",
            "--disable-tqdm", "--percentile-metrics", "ttft,itl", "--metric-percentiles", "50,99", "--save-result",
            "--result-dir", str(result.parent), "--result-filename", result.name,
        ]  # fmt: skip

    return Client("vLLM bench serve", command, lambda output, result: peer_figures(result), slow=True)


def sglang(venv: str, tokenizer: str, *, rust: bool) -> Client:
    def command(load: Load, result: Path) -> list[str]:
        return [
            f"{venv}/bin/python", "-m", "sglang.benchmark.rust_client" if rust else "sglang.bench_serving",
            "--backend", "vllm-chat", "--base-url", URL, "--model", load.model, "--tokenizer", tokenizer,
            "--dataset-name", "random-ids", "--random-input-len", "16", "--random-output-len", str(load.tokens),
            "--random-range-ratio", "1", "--num-prompts", str(load.requests), "--max-concurrency",
            str(load.concurrency), "--warmup-requests", "0", "--disable-tqdm", "--output-file", str(result),
            *(["--worker-threads", "1"] if rust else []),
        ]  # fmt: skip

    name = "SGLang Rust client" if rust else "SGLang bench_serving"
    return Client(name, command, lambda output, result: peer_figures(result), slow=not rust)


def peer_figures(result: Path) -> dict[str, float]:
    data = json.loads(result.read_text().splitlines()[-1])
    found = {}
    for name in ("ttft", "itl"):
        found[f"{name}_p50"] = data[f"median_{name}_ms"]
        found[f"{name}_p99"] = data[f"p99_{name}_ms"]
    return found


def aiperf(venv: str, tokenizer: str) -> Client:
    def command(load: Load, result: Path) -> list[str]:
        words = [
            f"{venv}/bin/aiperf", "profile", "--model", load.model, "--url", URL, "--endpoint-type", "chat",
            "--tokenizer", tokenizer, "--concurrency", str(load.concurrency), "--request-count", str(load.requests),
            "--synthetic-input-tokens-mean", "16", "--output-tokens-mean", str(load.tokens), "--output-tokens-stddev",
            "0", "--extra-inputs", "ignore_eos:true", "--artifact-dir", str(result), "--ui", "dashboard",
            "--streaming", "--use-server-token-count",
        ]  # fmt: skip
        # Its charts want a terminal.
        return ["script", "-qec", shlex.join(words), "/dev/null"]

    def figures(output: str, result: Path) -> dict[str, float]:
        data = json.loads(next(result.rglob("profile_export_aiperf.json")).read_text())
        pairs = (("ttft", "time_to_first_token"), ("itl", "inter_chunk_latency"))
        return {f"{short}_{p}": data[name][p] for short, name in pairs for p in ("p50", "p99")}

    return Client("AIPerf", command, figures, slow=True, online=True)


def guidellm(venv: str, tokenizer: str) -> Client:
    def command(load: Load, result: Path) -> list[str]:
        return [
            f"{venv}/bin/guidellm", "run", "--backend", f"kind=openai_http,target={URL},model={load.model}",
            "--profile", f"kind=concurrent,streams={load.concurrency}",
            "--constraint", f"kind=max_requests,count={load.requests}",
            "--tokenizer", f"kind=huggingface_auto,model={tokenizer}",
            "--data", f"kind=synthetic_text,prompt_tokens=16,output_tokens={load.tokens}",
            "--output", f"kind=json,path={result}",
        ]  # fmt: skip

    def figures(output: str, result: Path) -> dict[str, float]:
        data = json.loads(result.read_text())["benchmarks"][0]["metrics"]
        pairs = (("ttft", "time_to_first_token_ms"), ("itl", "inter_token_latency_ms"))
        return {
            f"{short}_{p}": data[name]["successful"]["percentiles"][p] for short, name in pairs for p in ("p50", "p99")
        }

    return Client("GuideLLM", command, figures, slow=True, online=True)


def own_environment() -> dict[str, str]:
    here = os.pathsep.join(filter(None, (str(SRC), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": here}


@dataclass(frozen=True)
class Ran:
    start_s: float
    cpu_s: float
    errors: dict[str, float]
    """Relative, by figure; empty where the client gives none."""
    marked: bool
    chunks_per_s: float


def run(client: Client, load: Load, folder: Path) -> Ran:
    log, result = folder / f"{time.monotonic_ns()}.bin", folder / f"{time.monotonic_ns()}.json"
    get(f"/truth/log?{log}", URL)
    home = {"XDG_STATE_HOME": f"{folder}/state", "XDG_CONFIG_HOME": f"{folder}/config", "XDG_CACHE_HOME": f"{folder}/c"}
    own = client.command(load, result)[0] == sys.executable
    environment = (
        {**own_environment(), **home}
        if own
        else {**os.environ, **({} if client.online else {"HF_HUB_OFFLINE": "1"}), "PYTHONPATH": os.environ["PEER_PATH"]}
    )
    begun = time.monotonic_ns()
    with (folder / "output").open("w+") as output, (folder / "errors").open("w+") as errors:
        process = subprocess.Popen(
            [*REALTIME, "timeout", "--foreground", str(LONGEST_S), "taskset", "-c", "0", *client.command(load, result)],
            stdin=-1,
            stdout=output,
            stderr=errors,
            env=environment,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.stdin is not None:
            process.stdin.close()  # an open input keeps the agent running
        output.seek(0)
        errors.seek(0)
        text, said = output.read(), errors.read()
    if process.returncode:
        raise RuntimeError(f"{client.name} ended with {process.returncode}: {said[-600:]}")
    get("/truth/log", URL)
    records = list(RECORD.iter_unpack(log.read_bytes()[: log.stat().st_size // RECORD.size * RECORD.size]))
    first = min(record[0] for record in records if record[5] == 1)
    tokens = [record[0] for record in records if record[5] == 3]
    requests = len({record[2] for record in records if record[5] == 3})
    if requests < load.requests:
        raise RuntimeError(f"{client.name} sent {requests} requests, not {load.requests}")
    ttft, gaps = truth(log)
    seen = client.figures(text, result) if client.measures else {}
    true = {
        f"{name}_{p}": getattr(d, p) * 1e3 for name, d in (("ttft", ttft), ("itl", gaps)) if d for p in ("p50", "p99")
    }
    return Ran(
        start_s=(first - begun) / 1e9,
        cpu_s=usage.ru_utime + usage.ru_stime,
        errors={name: seen[name] / true[name] - 1 for name in true if name in seen},
        marked=bool(seen.get("marked")),
        chunks_per_s=len(tokens) / ((max(tokens) - min(tokens)) / 1e9) if len(tokens) > 1 else 0.0,
    )


def median(client: Client, load: Load, folder: Path, repeat: int) -> Ran:
    """`repeat` runs as one: every figure the median of theirs; marked if most of them were."""
    runs = [run(client, load, folder) for _ in range(repeat)]
    return Ran(
        start_s=statistics.median(one.start_s for one in runs),
        cpu_s=statistics.median(one.cpu_s for one in runs),
        errors={name: statistics.median(one.errors[name] for one in runs) for name in runs[0].errors},
        marked=sum(one.marked for one in runs) * 2 > repeat,
        chunks_per_s=statistics.median(one.chunks_per_s for one in runs),
    )


def measure(client: Client, folder: Path, *, slow: bool, repeat: int, cpu_only: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    empty = median(client, Load(1, 1, 2, 5, 5), folder, repeat)
    found["start_s"], found["base_cpu_s"] = empty.start_s, empty.cpu_s
    level = median(client, Load(64, 64, 1024, 200, 10), folder, repeat)
    found["level_cpu_s"] = level.cpu_s - empty.cpu_s
    found["total_cpu_s"] = level.cpu_s
    if not client.measures or cpu_only:
        return found
    for concurrency in LEVELS:
        ran = median(client, Load(concurrency, max(4, 2 * concurrency), 50, 200, 20), folder, repeat)
        found[f"C={concurrency}"] = {**ran.errors, "marked": ran.marked}
    for rate in RATES if slow or not client.slow else RATES[:1]:
        itl_ms = RATE_STREAMS / rate * 1e3
        ran = median(client, Load(RATE_STREAMS, RATE_STREAMS, int(3000 / itl_ms), 500, itl_ms), folder, repeat)
        error = ran.errors["itl_p99"]
        found.setdefault("rates", {})[rate] = {"error": error, "marked": ran.marked, "real": ran.chunks_per_s}
        for limit in (0.01, 0.1):
            if abs(error) <= limit:
                found[f"rate_{limit:g}"] = rate
        if abs(error) > 0.1 and not ran.marked:
            break
    return found


def show(name: str, found: dict[str, Any]) -> None:
    print(
        f"{name:22} start {found['start_s']:6.2f} s   CPU 64x1024 {found['level_cpu_s']:6.2f} s "
        f"(+ {found['base_cpu_s']:.2f} s to start)"
    )
    for concurrency in LEVELS:
        errors = found.get(f"C={concurrency}")
        if errors:
            words = "  ".join(f"{key.replace('_', ' ')} {errors[key]:+8.1%}" for key in errors if key != "marked")
            print(f"    C={concurrency:<4} {words}{'  marked' if errors['marked'] else ''}")
    for rate, one in found.get("rates", {}).items():
        mark = "  marked" if one["marked"] else ""
        print(f"    {rate:6d} chunks/s (sent {one['real']:.0f}): ITL p99 {one['error']:+8.1%}{mark}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Load generators side by side, against a server's own log.")
    parser.add_argument("server")
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--repeat", type=int, default=1)
    for option in ("--vllm", "--sglang", "--aiperf", "--guidellm", "--tokenizer", "--only", "--libs", "--peer-path"):
        parser.add_argument(option, default="")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="only what start and a level of 64 x 1024 tokens cost")
    args = parser.parse_args()
    os.environ["PEER_PATH"] = args.peer_path
    if args.libs:
        os.environ["READER_LIBS"] = args.libs
    clients = [
        Client("tokpit", tokpit_agent, tokpit_figures),
        Client("tokpit sweep (command)", tokpit_command, tokpit_figures, measures=False),
        Client("aiohttp + orjson", reader("chunks"), lambda output, result: json.loads(output)),
        Client("async for line", reader("lines"), lambda output, result: json.loads(output)),
    ]
    if args.sglang:
        clients += [sglang(args.sglang, args.tokenizer, rust=True), sglang(args.sglang, args.tokenizer, rust=False)]
    if args.realtime:
        REALTIME.extend(("chrt", "-f", "10"))
    if args.aiperf:
        clients.append(aiperf(args.aiperf, args.tokenizer))
    if args.guidellm:
        clients.append(guidellm(args.guidellm, args.tokenizer))
    if args.vllm:
        clients.append(vllm(args.vllm, args.tokenizer))
    chosen = [one for one in clients if not args.only or any(word in one.name for word in args.only.split(","))]
    print(f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {os.cpu_count()} cores, load {os.getloadavg()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        serve = [
            *REALTIME,
            "taskset",
            "-c",
            "1",
            args.server,
            "--listen",
            f"127.0.0.1:{PORT}",
            "--log",
            f"{folder}/first.bin",
        ]
        with subprocess.Popen(serve, stderr=subprocess.DEVNULL) as server:
            try:
                while True:
                    try:
                        get("/health", URL)
                        break
                    except (urllib.error.URLError, ConnectionError):
                        time.sleep(0.05)
                compare(chosen, folder, slow=args.slow, repeat=args.repeat, cpu_only=args.cpu)
            finally:
                server.terminate()


def taken_away() -> float:
    """The share of a second in which a loop that never waits did not run on core 0, in gaps of over 0.2 ms."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})
    begun = last = time.perf_counter()
    lost = 0.0
    while last - begun < 1.0:
        now = time.perf_counter()
        lost += now - last if now - last > 0.0002 else 0.0
        last = now
    os.sched_setaffinity(0, cores)
    return lost / (last - begun)


def compare(clients: list[Client], folder: Path, *, slow: bool, repeat: int, cpu_only: bool) -> None:
    all_found: dict[str, dict[str, Any]] = {}
    for client in clients:
        before, taken = os.getloadavg()[0], taken_away()
        try:
            all_found[client.name] = measure(client, folder, slow=slow, repeat=repeat, cpu_only=cpu_only)
        except (RuntimeError, OSError, ValueError, KeyError) as error:
            print(f"{client.name}: not measured: {error}")
            continue
        show(client.name, all_found[client.name])
        after, lost = os.getloadavg()[0], taken_away()
        print(f"    load average {before:.1f}, then {after:.1f}; core 0 taken away {taken:.0%}, then {lost:.0%}")
        sys.stdout.flush()
    own = all_found.get("tokpit")
    for name, found in all_found.items():
        if own and name != "tokpit":
            cpu, start = found["level_cpu_s"] / own["level_cpu_s"], found["start_s"] / own["start_s"]
            print(f"{name:22} / tokpit: CPU of the level {cpu:.2f}, start {start:.1f}")


async def read(kind: str, model: str, concurrency: int, requests: int, tokens: int) -> None:
    """The plain readers: what a short script with aiohttp measures."""
    sys.path.append(os.environ.get("READER_LIBS", ""))
    import aiohttp
    import orjson

    from tokpit.load.stats import dist

    first: list[float] = []
    gaps: list[float] = []
    body = {"model": model, "stream": True, "max_tokens": tokens, "messages": [{"role": "user", "content": "hello"}]}
    left = requests

    async def one(session: aiohttp.ClientSession) -> None:
        begun = last = time.perf_counter()
        seen = False
        rest = b""

        def chunk(data: Any, now: float) -> None:
            nonlocal seen, last
            choices = data.get("choices")
            if choices and choices[0].get("delta", {}).get("content"):
                (gaps if seen else first).append(now - (last if seen else begun))
                seen, last = True, now

        async with session.post(f"{URL}/v1/chat/completions", json=body) as response:
            if kind == "lines":
                async for line in response.content:
                    text = line.strip()
                    if text.startswith(b"data:") and text != b"data: [DONE]":
                        chunk(json.loads(text[5:]), time.perf_counter())
                return
            async for data in response.content.iter_any():
                now = time.perf_counter()
                *found, rest = (rest + data).split(b"\n\n")
                for text in found:
                    if text != b"data: [DONE]":
                        chunk(orjson.loads(text[5:]), now)

    async def slot(session: aiohttp.ClientSession) -> None:
        nonlocal left
        while left:
            left -= 1
            await one(session)

    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await asyncio.gather(*(slot(session) for _ in range(concurrency)))
    ttft, itl = dist(first), dist(gaps)
    assert ttft is not None
    figures = {"ttft_p50": ttft.p50, "ttft_p99": ttft.p99}
    if itl is not None:
        figures |= {"itl_p50": itl.p50, "itl_p99": itl.p99}
    print(json.dumps({name: value * 1e3 for name, value in figures.items()}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--reader"]:
        asyncio.run(read(sys.argv[2], sys.argv[3], *map(int, sys.argv[4:7])))
    else:
        main()
