"""A live store filled with records of a hybrid SGLang server with speculation, and a session that only records."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from tokpit.domain.records import (
    Facts,
    GpuRecord,
    GpuSample,
    HostRecord,
    LinkRecord,
    LinkState,
    LogBatch,
    LogRecord,
    Mark,
    Operation,
    PhaseRecord,
    Sample,
    ServersRecord,
    Step,
)
from tokpit.domain.run import Level, Run
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import Settings
from tokpit.store.live import LiveStore
from tokpit.transport.base import HostSpec

HOST = "gpu-rack-7"
GIB = 1 << 30
ARGV = tuple(
    "/opt/sgl/bin/python -m sglang.launch_server --model-path /srv/models/Qwen3.6-27B --port 30000 --tp-size 1 "
    "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 4 --enable-hierarchical-cache --hicache-size 150 --context-length 131072 "
    "--api-key sk-feed-secret".split()
)


def server(**changes: Any) -> ServerInfo:
    fields: dict[str, Any] = {
        "host": HOST,
        "engine": "sglang",
        "pid": 4711,
        "start_ticks": 998_877,
        "pgid": 4711,
        "port": 30_000,
        "model": "/srv/models/Qwen3.6-27B",
        "version": "0.5.16",
        "log_path": "/var/log/llm/sglang-30000.log",
        "started_at": time.time() - 7_400,
        "argv": ARGV,
        "settings": Settings(tp=1, spec_method="mtp", spec_steps=3, hicache_gb=150, context_len=131_072),
    }
    return ServerInfo(**{**fields, **changes})


def decode_line(number: int, t: float, running: int, queued: int, tps: float, accept: float) -> LogRecord:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(t))
    text = (
        f"[{stamp} TP0] Decode batch, #running-req: {running}, #full token: {running * 731}, full token usage: 0.17, "
        f"mamba num: {running * 5}, mamba usage: {running * 5 / 48:.2f}, accept len: {accept:.2f}, "
        f"cuda graph: True, gen throughput (token/s): {tps:.2f}, #queue-req: {queued}"
    )
    fields = {"running_reqs": running, "queue_reqs": queued, "gen_tps": round(tps, 2), "accept_len": round(accept, 2)}
    return LogRecord(number, "decode_batch", text, fields, lines=(text,), level="info")


def access_line(number: int, path: str, status: int = 200) -> LogRecord:
    text = f'INFO:     127.0.0.1:51844 - "GET {path} HTTP/1.1" {status} OK'
    fields = {"client": "127.0.0.1:51844", "method": "GET", "path": path, "status": status}
    return LogRecord(number, "access", text, fields, lines=(text,), level="info")


def text_line(number: int, text: str, level: str = "info", kind: str = "text") -> LogRecord:
    return LogRecord(number, kind, text, lines=(text,), level=level)


@dataclass
class FakeHistory:
    """Stored runs as plain data."""

    stored: tuple[Run, ...] = ()
    baseline: tuple[Run, ...] = ()

    async def runs(self, *, limit: int = 20) -> tuple[Run, ...]:
        return self.stored[:limit]

    async def baseline_runs(self, model: str, host: str, family: str) -> tuple[Run, ...]:
        return self.baseline

    async def run(self, run_id: str) -> Run:
        return next(run for run in self.stored if run.id == run_id)


@dataclass
class Recorder:
    """A session that records what the console asks of it."""

    store: LiveStore = field(default_factory=LiveStore)
    host_specs: dict[str, HostSpec] = field(default_factory=lambda: {HOST: HostSpec(name=HOST)})
    read_only: bool = False
    confirm: Any = None
    prompt: Any = None
    stored: FakeHistory = field(default_factory=FakeHistory)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    watched: list[str] = field(default_factory=list)

    def watch_host(self, name: str) -> None:
        self.watched.append(name)

    def watch_server(self, server_id: str) -> None:
        self.watched.append(server_id)

    async def find(self, name: str) -> None:
        self.calls.append(("find", {"host": name}))

    async def history(self) -> FakeHistory:
        return self.stored

    async def execute(self, command_id: str, **args: Any) -> Any:
        self.calls.append((command_id, args))


def link(state: LinkState = LinkState.UP, **more: Any) -> LinkRecord:
    fields: dict[str, Any] = {"rtt_s": 0.012} if state is LinkState.UP else {}
    return LinkRecord(HOST, time.time(), state, **{**fields, **more})


def gpu(index: int = 0, **changes: Any) -> GpuSample:
    fields: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "util": 0.97,
        "mem_used_mib": 91_300.0,
        "mem_total_mib": 97_887.0,
        "power_w": 412.0,
        "power_limit_w": 600.0,
        "temp_c": 71.0,
        "sm_clock_mhz": 2430.0,
    }
    return GpuSample(**{**fields, **changes})


def fill(
    store: LiveStore, *, seconds: int = 330, gpus: int = 1, info: ServerInfo | None = None, end: float = 0.0
) -> str:
    """Five minutes of a server under a load that rises from 4 to 48 clients; returns the server's id."""
    info = info or server()
    end = end or time.time()
    store.apply(link())
    store.apply(HostRecord(HOST, end, 256 * GIB, 88 * GIB, 12 * GIB, 0, 7.4, 32, 0.23))
    store.apply(GpuRecord(HOST, end, tuple(gpu(n) for n in range(gpus))))
    store.apply(ServersRecord(HOST, end, (info,)))
    store.apply(PhaseRecord(info.id, end - 7_250, "ready", elapsed_s=150.2))
    store.apply(Facts(info.id, end, {"max_running_reqs": 9}))
    store.apply(Mark(info.id, end - 140, "sweep", "C=48"))
    lines: list[LogRecord] = []
    for n in range(seconds):
        t = end - seconds + n + 0.9
        clients = 4 if n < seconds * 0.25 else 8 if n < seconds * 0.55 else 48
        running = min(9, clients)
        tps = running * 43.0 + 12 * math.sin(n / 9) + 4 * math.sin(n * 1.7)
        accept = 3.2 + 0.25 * math.sin(n / 23) + 0.06 * math.sin(n * 2.3)
        values = {
            "gen_tps": tps,
            "running_reqs": float(running),
            "queue_reqs": float(clients - running),
            "accept_len": accept,
            "kv_usage": 0.02 * running + 0.03 * math.sin(n / 40) ** 2,
            "state_usage": running * 5 / 48,
        }
        store.apply(Sample(info.id, t, "log", values))
        lines.append(decode_line(n + 120, t, running, clients - running, tps, accept))
        if n % 47 == 0:
            lines.append(text_line(n + 121, f"[{n}] Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 128"))
    lines.append(text_line(900, "WARNING: retracted 2 requests: KV cache pool is full", "warning"))
    store.apply(LogBatch(info.id, end, tuple(lines)))
    return info.id


def level(concurrency: int, tps: float, elapsed: float, requests: int, **result: Any) -> Level:
    return Level(
        result=result,
        concurrency=concurrency,
        requests=requests,
        ok=requests,
        err=0,
        elapsed_s=elapsed,
        output_tps=tps,
        steady_tps=tps * 1.03 if concurrency > 1 else None,
        avg_output=1021.0,
        ttft_p50_s=0.31 if concurrency <= 9 else (concurrency - 9) * 2.4,
        e2e_p50_s=16.6 if concurrency == 1 else 21.0 + max(0, concurrency - 9) * 2.5,
    )


LEVELS = (
    level(1, 59.8, 137.0, 8),
    level(4, 203.1, 40.3, 8),
    level(8, 361.4, 45.3, 16),
    level(16, 380.2, 86.2, 32),
    level(32, 390.0, 168.0, 64),
    level(48, 402.7, 244.1, 96),
)


def sweep(count: int, *, op_id: str, status: str = "running", **more: Any) -> Operation:
    now = time.time()
    live = {"concurrency": 16.0, "done": 11.0, "total": 32.0, "ok": 11.0, "err": 0.0, "output_tps": 371.5,
            "elapsed_s": 29.0, "eta_s": 57.0}  # fmt: skip
    fields: dict[str, Any] = {
        "id": op_id,
        "kind": "sweep",
        "target": server().id,
        "title": f"sweep {HOST}:30000",
        "started_t": now - 250,
        "t": now,
        "status": status,
        "levels": LEVELS[:count],
        "live": live if status == "running" else {},
    }
    return Operation(**{**fields, **more})


def launch(*, op_id: str, status: str = "running", steps: int = 4, **more: Any) -> Operation:
    now = time.time()
    every = (
        Step("started", "started", 0.4, "pid 5120, log /var/log/llm/sglang-30000.log"),
        Step("milestone.args", "arguments read", 9.8),
        Step("milestone.weights", "weights loaded", 74.2, "50.6 GiB"),
        Step("milestone.kv", "KV cache allocated", 78.9, "271 000 tokens"),
        Step("milestone.graphs", "CUDA graphs captured", 131.0),
        Step("milestone.ready", "first token", 150.3),
    )
    fields: dict[str, Any] = {
        "id": op_id,
        "kind": "launch",
        "target": HOST,
        "title": f"launch sglang Qwen3.6-27B on {HOST}:30000",
        "started_t": now - 80,
        "t": now,
        "status": status,
        "steps": every[:steps],
        "commands": ("/opt/sgl/bin/python -m sglang.launch_server --model-path /srv/models/Qwen3.6-27B --port 30000",),
    }
    return Operation(**{**fields, **more})


def run(run_id: str = "r-0007", **more: Any) -> Run:
    fields: dict[str, Any] = {
        "id": run_id,
        "kind": "sweep",
        "target": f"{HOST}:30000",
        "host": HOST,
        "model": "Qwen3.6-27B",
        "engine": "sglang",
        "started_at": 1_796_000_000.0,
        "ended_at": 1_796_000_721.0,
        "status": "done",
        "context": {"engine": "SGLang 0.5.16", "gpus": "1× RTX PRO 6000", "link": "via ssh, 12 ms"},
        "levels": LEVELS,
    }
    return Run(**{**fields, **more})
