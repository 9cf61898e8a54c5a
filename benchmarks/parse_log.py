"""How fast a mixed server log becomes records, against reading the same file line by line and doing nothing.

    python benchmarks/parse_log.py [--lines N] [--engine sglang|vllm|llamacpp]

One core, one process. Prints lines per second, with and without metric samples, the same lines as `docker logs -t`
gives them, and the ratio to the plain loop. Where sgtop (a monitor of SGLang that reads the same log) is installed, its
patterns run over the same file in the same run, with the number of statistics lines that each of the two reads.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from tokpit.engines.logkit.read import grammar_of

PATHS = ("/v1/chat/completions", "/v1/completions", "/health", "/metrics")


def stamp(i: int) -> str:
    i //= 10
    return f"{i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}"


def sglang_line(rng: random.Random, i: int) -> str:
    head = f"[2026-07-{1 + i // 864_000 % 28:02d} {stamp(i)}{rng.choice(('', ' TP0', ' DP1 TP1'))}]"
    pick = rng.random()
    if pick < 0.30:
        return (
            f"{head} Decode batch, #running-req: {rng.randrange(64)}, #full token: {rng.randrange(99999)}, full token"
            f" usage: {rng.random():.2f}, mamba num: {rng.randrange(200)}, mamba usage: {rng.random():.2f}, accept len:"
            f" {1 + 3 * rng.random():.2f}, accept rate: {rng.random():.2f}, cuda graph: True, gen throughput (token/s):"
            f" {900 * rng.random():.2f}, #queue-req: {rng.randrange(9)}"
        )
    if pick < 0.45:
        return (
            f"{head} Prefill batch, #new-seq: {rng.randrange(9)}, #new-token: {rng.randrange(9999)}, #cached-token:"
            f" {rng.randrange(999)}, full token usage: 0.10, mamba usage: 0.20, #running-req: {rng.randrange(9)},"
            f" #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): {rng.random():.2f}"
        )
    if pick < 0.75:
        return f'{head} INFO:     10.0.{i % 250}.7:{40000 + i % 9999} - "POST {rng.choice(PATHS)} HTTP/1.1" 200 OK'
    if pick < 0.9:
        return f"{head} Receive: obj=GenerateReqInput(rid='{i:032x}', sampling_params={{'max_new_tokens': 128}})"
    return f"request {i} took a while; cache page {rng.randrange(99)} was written back to the host tier by worker 3"


def vllm_line(rng: random.Random, i: int) -> str:
    head = f"(APIServer pid=77) INFO 07-{1 + i // 864_000 % 28:02d} {stamp(i)} "
    pick = rng.random()
    if pick < 0.12:
        return (
            f"{head}[loggers.py:259] Engine 000: Avg prompt throughput: {999 * rng.random():.1f} tokens/s, Avg"
            f" generation throughput: {999 * rng.random():.1f} tokens/s, Running: {rng.randrange(64)} reqs, Waiting: 0"
            f" reqs, GPU KV cache usage: {99 * rng.random():.1f}%, Prefix cache hit rate: {99 * rng.random():.1f}%"
        )
    if pick < 0.2:
        return (
            f"{head}[metrics.py:101] SpecDecoding metrics: Mean acceptance length: {1 + rng.random():.2f}, Accepted"
            f" throughput: 63.00 tokens/s, Drafted throughput: 65.20 tokens/s, Accepted: {rng.randrange(900)} tokens,"
            f" Drafted: 952 tokens, Per-position acceptance rate: 0.966, 0.801, Avg Draft acceptance rate: 88.6%"
        )
    if pick < 0.65:
        client = f"10.0.{i % 250}.7:{40000 + i % 9999}"
        return f'(APIServer pid=77) INFO:     {client} - "POST {rng.choice(PATHS)} HTTP/1.1" 200 OK'
    return f"{head}[logger.py:43] Received request cmpl-{i:032x}: params: SamplingParams(n=1, temperature=0.7)"


def llamacpp_line(rng: random.Random, i: int) -> str:
    head = f"{i // 60}.{i % 60:02d}.123.456 I "
    pick = rng.random()
    if pick < 0.3:
        rate_text = f"{99 * rng.random():.2f}"
        return f"{head}slot print_timing: id  {i % 4} | task {i} | n_gen = 512, tg = {rate_text} t/s, tg_3s = 61.2 t/s"
    if pick < 0.6:
        return f"{head}slot      release: id  {i % 4} | task {i} | stop processing: n_tokens = 1673, truncated = 0"
    return f"{head}srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 200"


MAKERS = {"sglang": sglang_line, "vllm": vllm_line, "llamacpp": llamacpp_line}


def rate(path: Path, engine: str | None, *, sampled: bool = False) -> float:
    """Lines per second of one pass over the file; `engine` None is the plain loop."""
    grammar = grammar_of(engine) if engine else None
    count = 0
    with path.open(encoding="utf-8") as lines:
        start = time.process_time()
        if grammar is None:
            for _ in lines:
                count += 1
        else:
            feed, sample = grammar.feed, grammar.sample
            for line in lines:
                count += 1
                for record in feed(line.rstrip("\n")):
                    if sampled:
                        sample(record)
    return count / (time.process_time() - start)


def peer(path: Path) -> str:
    """What sgtop's own patterns do with the file, one after the other on each line as its reader does."""
    try:
        from sgtop import server  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return ""
    patterns = (server.DECODE_RE, server.PREFILL_RE, server.REQUEST_RE, server.ERROR_RE)
    best, read = 0.0, 0
    for _ in range(2):
        count = read = 0
        with path.open(encoding="utf-8") as lines:
            start = time.process_time()
            for line in lines:
                count += 1
                for at, pattern in enumerate(patterns):
                    if pattern.search(line):
                        read += at < 2
                        break
        best = max(best, count / (time.process_time() - start))
    return f"sgtop     {best:10,.0f} lines/s, {read:,} statistics lines read"


def statistics(path: Path, engine: str) -> int:
    """How many statistics lines tokpit reads in the file."""
    grammar = grammar_of(engine)
    with path.open(encoding="utf-8") as lines:
        return sum(r.kind.endswith(("_batch", "stats")) for line in lines for r in grammar.feed(line.rstrip("\n")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--engine", choices=sorted(MAKERS), action="append")
    options = parser.parse_args()
    for engine in options.engine or sorted(MAKERS):
        rng = random.Random(7)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "server.log")
            lines = [MAKERS[engine](rng, i) + "\n" for i in range(options.lines)]
            path.write_text("".join(lines), encoding="utf-8")
            boxed = Path(folder, "docker.log")
            boxed.write_text(
                "".join(f"2026-07-01T10:00:00.{i:09d}Z {s}" for i, s in enumerate(lines)), encoding="utf-8"
            )
            plain = max(rate(path, None) for _ in range(3))
            parsed = max(rate(path, engine) for _ in range(3))
            prefixed = max(rate(boxed, engine) for _ in range(3))
            sampled = max(rate(path, engine, sampled=True) for _ in range(2))
            other = peer(path) if engine == "sglang" else ""
            ours = statistics(path, engine) if other else 0
        print(
            f"{engine:9} {parsed:10,.0f} lines/s parsed, {prefixed:10,.0f} behind docker's stamps,"
            f" {sampled:10,.0f} with samples, plain loop {plain:12,.0f}"
            f" (1/{plain / parsed:.0f})"
        )
        if other:
            print(f"{other}; tokpit reads {ours:,}")


if __name__ == "__main__":
    main()
