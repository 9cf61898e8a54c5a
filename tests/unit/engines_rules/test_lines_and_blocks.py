"""Prefixes come off, processes keep their names, and errors are grouped with their frames."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failurelogs import one_record_a_line
from tokpit.domain.records import LogRecord
from tokpit.engines.registry import engine, names
from tokpit.engines.verdictkit.blocks import blocks
from tokpit.engines.verdictkit.lines import read, read_line


@pytest.mark.parametrize(
    ("raw", "text", "proc", "level"),
    [
        ("(Worker_TP1 pid=5) ERROR 04-01 08:00:00 [m.py:9] ValueError: x", "ValueError: x", "Worker_TP1", "error"),
        ("(VllmWorker rank=0 pid=2) INFO 04-01 08:00:00 [m.py:9] ok", "ok", "VllmWorker", "info"),
        ("INFO 04-01 08:00:00 metrics.py:367] ok", "ok", "", "info"),
        ("ERROR:    [Errno 98] busy", "[Errno 98] busy", "", "error"),
        ("[2026-04-01 08:00:00 DP1 TP0 EP0] hello", "hello", "DP1 TP0 EP0", ""),
        ("[2026-04-01 08:00:00 DisaggregationMode.DECODE TP1] hello", "hello", "DisaggregationMode.DECODE TP1", ""),
        ("[TP0] hello", "hello", "TP0", ""),
        ("[2026-04-01 08:00:00.123] hello", "hello", "", ""),
        ("2026-04-01T08:00:00+02:00 unit.name[163]: hello", "hello", "", ""),
        ("Apr  1 08:00:00 node7 serve[163]: hello", "hello", "", ""),
        ("infer-1   | [42] 0.21.223.737 E slot x: hello", "slot x: hello", "", "error"),
        ("0: [rank3]:[W401 08:00:00.1 s.cpp:4] hello", "hello", "rank3", "warning"),
        ("2026-04-01 08:00:00,531 - __main__ - WARNING - [2026-04-01 08:00:00 TP0] hello", "hello", "TP0", "warning"),
        ("2026-04-01 08:00:00 ERROR 1519 [mixin.py:287] hello", "hello", "", "error"),
        ("RuntimeError: plain", "RuntimeError: plain", "", ""),
    ],
)
def test_prefixes_come_off(raw: str, text: str, proc: str, level: str) -> None:
    line = read_line(1, raw)
    assert (line.text, line.proc, line.level) == (text, proc, level)


def test_a_traceback_with_a_prefix_on_each_line_is_one_block() -> None:
    log = "\n".join(
        f"(EngineCore_DP0 pid=3) ERROR 04-01 08:00:00 [core.py:7] {text}"
        for text in ("Traceback (most recent call last):", '  File "/a.py", line 1, in f', "    g()", "ValueError: bad")
    )
    (block,) = blocks(read(one_record_a_line(log)))
    assert (block.type, block.head.text, len(block.frames)) == ("ValueError", "ValueError: bad", 3)


def test_interleaved_tracebacks_keep_their_own_frames() -> None:
    log = "\n".join(
        f"(Worker_TP{rank} pid={rank}) ERROR 04-01 08:00:00 [m.py:7] {text}"
        for text in ("Traceback (most recent call last):", '  File "/{}.py", line 1, in f', "ValueError: bad")
        for rank in (0, 1)
    )
    found = blocks(read(one_record_a_line(log)))
    assert [(block.head.proc, len(block.frames)) for block in found] == [("Worker_TP0", 2), ("Worker_TP1", 2)]


def test_a_message_keeps_its_own_lines_and_no_later_record() -> None:
    log = "Exception: first\nsecond of it\n[2026-04-01 08:00:00] next event\nthird"
    (block,) = blocks(read(one_record_a_line(log)))
    assert block.message == "Exception: first\nsecond of it"


@pytest.mark.parametrize(
    "line",
    ["UserWarning: x", "DeprecationWarning: y", "an error occurred while retrying", "0 errors", "no Error here: fine"],
)
def test_warnings_and_words_open_no_block(line: str) -> None:
    assert blocks(read(one_record_a_line(line))) == []


def test_records_out_of_order_are_put_in_order() -> None:
    records = [LogRecord(line=3, kind="text", text="c"), LogRecord(line=1, kind="text", text="a\n", lines=("a", "b"))]
    assert [line.text for line in read(records)] == ["a", "b", "c"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=200), max_size=30), st.sampled_from(names()), st.none() | st.integers(-20, 255))
def test_any_text_is_judged_without_an_error(texts: list[str], name: str, exit_code: int | None) -> None:
    records = [LogRecord(line=n, kind="text", text=text, lines=(text,)) for n, text in enumerate(texts, start=1)]
    verdict = engine(name).verdict(records, exit_code)
    assert verdict is None or verdict.code


PIECES = (
    "Traceback (most recent call last):",
    '  File "/a.py", line 1, in f',
    "ValueError: {} {0} {x!r} %s",
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
    "Killed",
    "[2026-04-01 08:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    "server_args=ServerArgs(port=1)",
    "non-default args: {'port': 1}",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.",
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25), st.sampled_from(names()))
def test_any_order_of_error_lines_is_judged_without_an_error(texts: list[str], name: str) -> None:
    engine(name).verdict(one_record_a_line("\n".join(texts)), 1)
