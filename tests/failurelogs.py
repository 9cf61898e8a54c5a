"""Logs of servers that failed, and of servers that did not, as text; and the two ways in which they become records."""

from __future__ import annotations

from tokpit.domain.records import LogRecord
from tokpit.domain.verdict import Verdict
from tokpit.engines.registry import engine

TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/py/lib/serve.py", line 41, in start\n    run(args)\n'
HIT = "[2026-04-01 08:00:09] Scheduler hit an exception: " + TRACEBACK
SIGQUIT = "\n[2026-04-01 08:00:10] Received sigquit from a child process. It usually means the child failed."
READY = "[2026-04-01 08:00:05] The server is fired up and ready to roll!\n"
DECODE = (
    "[2026-04-01 08:00:06] Decode batch, #running-req: 2, #token: 90, token usage: 0.01, cuda graph: True, "
    "gen throughput (token/s): 81.20, #queue-req: 0\n"
)
VLLM_STATS = (
    "(APIServer pid=7) INFO 04-01 08:00:06 [loggers.py:271] Engine 000: Avg prompt throughput: 11.0 tokens/s, "
    "Avg generation throughput: 80.5 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.4%\n"
)
VLLM_READY = "(APIServer pid=7) INFO:     Application startup complete.\n"


def core_error(text: str, proc: str = "EngineCore_DP0 pid=31") -> str:
    """An error of vLLM's engine core with its prefix on each line, and what the front end makes of it."""
    body = "\n".join(f"({proc}) ERROR 04-01 08:00:09 [core.py:708] {line}" for line in text.split("\n"))
    return (
        f"{body}\n(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {}"
    )


def one_record_a_line(log: str) -> list[LogRecord]:
    return [
        LogRecord(line=number, kind="text", text=line, lines=(line,))
        for number, line in enumerate(log.split("\n"), start=1)
    ]


def by_grammar(name: str, log: str) -> list[LogRecord]:
    grammar = engine(name).grammar()
    return [record for line in log.split("\n") for record in grammar.feed(line)] + list(grammar.flush())


def judge(name: str, log: str, exit_code: int | None = None, signal: str | None = None) -> Verdict | None:
    """The verdict through the engine; it must not depend on how the grammar folds lines."""
    plain = engine(name).verdict(one_record_a_line(log), exit_code, signal)
    folded = engine(name).verdict(by_grammar(name, log), exit_code, signal)
    assert (plain and plain.code) == (folded and folded.code)
    return plain
