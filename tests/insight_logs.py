"""Lines of server logs, made from figures."""

from __future__ import annotations

from collections.abc import Iterable

from tokpit.domain.finding import Finding
from tokpit.insight.digest import Digest
from tokpit.insight.facts import parse_facts
from tokpit.ops.diagnose.files import digest_lines
from tokpit.ops.diagnose.run import Gathered, judge


def stamp(seconds: float) -> str:
    whole = 30_000 + int(seconds)
    return f"2026-10-02 {whole // 3600 % 24:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def decode(
    t: float,
    running: int,
    tps: float,
    *,
    queue: int = 0,
    tokens: int = 4000,
    usage: float = 0.05,
    mamba: tuple[int, float] | None = None,
    spec: tuple[float, float] | None = None,
    graph: bool = True,
    rank: str = "",
) -> str:
    if mamba is not None:
        pools = f"#full token: {tokens}, full token usage: {usage:.2f}, "
        pools += f"mamba num: {mamba[0]}, mamba usage: {mamba[1]:.2f}"
    else:
        pools = f"#token: {tokens}, token usage: {usage:.2f}"
    accept = f"accept len: {spec[0]:.2f}, accept rate: {spec[1]:.2f}, " if spec is not None else ""
    return (
        f"[{stamp(t)}{rank}] Decode batch, #running-req: {running}, {pools}, {accept}cuda graph: {graph}, "
        f"gen throughput (token/s): {tps:.2f}, #queue-req: {queue}"
    )


def prefill(
    t: float,
    new: int,
    *,
    cached: int = 0,
    running: int = 0,
    queue: int = 0,
    pending: int = 0,
    seqs: int = 1,
    usage: float = 0.05,
) -> str:
    return (
        f"[{stamp(t)}] Prefill batch, #new-seq: {seqs}, #new-token: {new}, #cached-token: {cached}, token usage: "
        f"{usage:.2f}, "
        f"#running-req: {running}, #queue-req: {queue}, #pending-token: {pending}, cuda graph: False, "
        f"input throughput (token/s): {new * 3.1:.2f}"
    )


def stats(
    t: float,
    running: int,
    tps: float,
    *,
    waiting: int = 0,
    kv: float = 12.0,
    prompt: float = 40.0,
    hits: float = 3.0,
    extra: str = "",
) -> str:
    clock = stamp(t)[5:]
    return (
        f"(APIServer pid=901) INFO {clock} [loggers.py:271] Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, "
        f"Avg generation throughput: {tps:.1f} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs{extra}, "
        f"GPU KV cache usage: {kv:.1f}%, Prefix cache hit rate: {hits:.1f}%"
    )


def spec(t: float, length: float, drafted: int, accepted: int) -> str:
    rate = 100 * accepted / drafted if drafted else 0.0
    return (
        f"(APIServer pid=901) INFO {stamp(t)[5:]} [metrics.py:101] SpecDecoding metrics: Mean acceptance length: "
        f"{length:.2f}, "
        f"Accepted throughput: {accepted / 10:.2f} tokens/s, Drafted throughput: {drafted / 10:.2f} tokens/s, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance rate: {rate / 100:.3f}, "
        f"Avg Draft acceptance rate: {rate:.1f}%"
    )


def access(path: str, status: int = 200) -> str:
    return f'INFO:     10.1.0.7:41822 - "POST {path} HTTP/1.1" {status} OK'


def digest(lines: Iterable[str], name: str = "server.log") -> Digest:
    return digest_lines(lines, name=name)[0]


def diagnosed(*logs: Iterable[str], **facts: object) -> tuple[Finding, ...]:
    """Findings on logs, each given as lines, with facts."""
    got = Gathered()
    for number, lines in enumerate(logs, 1):
        read, verdict = digest_lines(lines, name=f"{number}.log")
        got.logs.append(read)
        if verdict is not None:
            got.verdicts.append(verdict)
    got.facts, unknown = parse_facts({name: str(value) for name, value in facts.items()})
    assert not unknown
    return judge(got).findings
