"""Whatever is fed: nothing raised, nothing lost, nothing reordered within a stream, and time linear in the text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokpit.domain.text import LineSplitter, decode_line
from tokpit.engines.logkit.read import detect, grammar_of, read_log
from tokpit.engines.registry import engine as knowledge
from tokpit.engines.registry import names

ENGINES = names()
PIECES = [
    "[2026-07-01 10:00:00 TP0] ",
    "[2026-07-01 10:00:00.123] ",
    "[TP1] ",
    "[20",
    "(EngineCore pid=12) ",
    "(Worker_TP0 pid=13) ",
    "ERROR 07-01 10:00:00 [core.py:12] ",
    "INFO:     ",
    "Decode batch, ",
    "Prefill batch [7], ",
    "#running-req: ",
    "token usage: full=",
    "gen throughput (token/s): ",
    "Engine 000: Avg prompt throughput: ",
    "SpecDecoding metrics: Mean acceptance length: ",
    "Per-position acceptance rate: 0.9, ",
    "Traceback (most recent call last):",
    '  File "x.py", line 1, in f',
    "    raise ValueError",
    "ValueError: no",
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
    "usage: prog [-h]",
    "prog: error: bad",
    "0.01.123.456 I ",
    "slot print_timing: id  0 | task 1 | ",
    "prompt eval time = ",
    "Capturing batches:  24%|##| 4/17 [00:00<?, ?it/s]",
    "server_args=",
    '{"log":"',
    '","stream":"x"}',
    "<30>1 2026-07-01T10:00:00Z node app 7 - - ",
    "Jul 01 10:00:00.5 node app[7]: ",
    "nan",
    "inf%",
    "-1.5",
    "7",
    ", ",
    ": ",
    " | ",
    "\r",
    "\x1b[1m",
    "",
]
LINE = st.one_of(
    st.text(max_size=40),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=8).map("".join),
).map(lambda text: text.replace("\n", " "))


def all_records(engine: str, lines: list[str]):
    grammar = grammar_of(engine)
    records = []
    for line in lines:
        got = grammar.feed(line)
        for record in got:
            grammar.sample(record)
        records.extend(got)
    records.extend(grammar.flush())
    assert not list(grammar.flush())
    return records


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=150, deadline=None)
@given(lines=st.lists(LINE, max_size=25))
def test_no_text_raises_and_no_line_is_lost(engine, lines):
    records = all_records(engine, lines)
    held = [(record.line + offset, line) for record in records for offset, line in enumerate(record.lines)]
    assert sorted(line for _, line in held) == sorted(lines)
    for record in records:
        if record.lines:
            assert lines[record.line - 1] == record.lines[0]
        assert len(record.text) <= 5000


def is_subsequence(part: tuple[str, ...], whole: list[str]) -> bool:
    rest = iter(whole)
    return all(line in rest for line in part)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=100, deadline=None)
@given(lines=st.lists(LINE, max_size=25))
def test_a_record_holds_its_lines_in_the_order_in_which_they_came(engine, lines):
    for record in all_records(engine, lines):
        assert is_subsequence(record.lines, lines[record.line - 1 :])


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=100, deadline=None)
@given(lines=st.lists(LINE, max_size=25))
def test_without_records_of_several_lines_the_records_are_the_lines_in_order(engine, lines):
    lines = [line for line in lines if not any(word in line for word in ("Traceback", "File", "usage"))]
    assert [line for record in all_records(engine, lines) for line in record.lines] == lines


HOSTILE = {
    "one megabyte without a space": ["x" * 1_000_000],
    "one megabyte of heads": ["[2026-07-01 10:00:00] " * 45_000],
    "one megabyte of process prefixes": ["(A pid=1) INFO 07-01 10:00:00 [a.py:1] x " * 25_000],
    "one megabyte of bars": ["Loading shards:   2% Completed | 1/66 [00:00<00:16,  3.97it/s]" * 16_000],
    "one megabyte of carriage returns": ["\r" * 1_000_000],
    "one megabyte of pairs": ["[2026-07-01 10:00:00] Decode batch, " + "#running-req: 1, " * 60_000],
    "one megabyte of digits": ["[2026-07-01 10:00:00] Decode batch, #running-req: " + "9" * 1_000_000],
    "one megabyte of colour codes": ["\x1b[31m" * 200_000],
    "an echo of 300 kB": ["[2026-07-01 10:00:00] server_args=ServerArgs(" + "a=1, " * 60_000 + ")"],
    "one megabyte of pipes": ["a | " * 250_000],
    "a hundred thousand short lines": ["x"] * 100_000,
    "a traceback that never ends": ["Traceback (most recent call last):"] + ['  File "a.py", line 1'] * 20_000,
    "twenty thousand openings": ["Traceback (most recent call last):"] * 20_000,
    "a usage dump that never ends": ["usage: p"] + ["    [--x]"] * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("engine", ENGINES)
def test_hostile_input_ends_within_the_time_limit_of_a_test_and_is_kept(engine, name):
    lines = HOSTILE[name]
    records = all_records(engine, lines)
    assert [line for record in records for line in record.lines] == lines
    assert all(len(record.text) <= 5000 for record in records)


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(LINE, max_size=20))
def test_a_log_of_an_unknown_engine_is_read_without_loss(lines):
    lines = [line.rstrip("\n") for line in lines]
    records = list(read_log([line + "\n" for line in lines]))
    assert sorted(line for record in records for line in record.lines) == sorted(lines)
    assert detect(lines) in {None, *ENGINES}


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=100, deadline=None)
@given(
    data=st.lists(
        st.one_of(st.binary(max_size=60), LINE.map(lambda text: text.encode("utf-8", "replace"))), max_size=12
    )
)
def test_any_bytes_of_a_host_become_records_that_are_only_text(engine, data):
    splitter = LineSplitter()
    raws = [raw for chunk in data for raw in splitter.feed(chunk + b"\n")]
    lines = [decode_line(raw) for raw in raws]
    records = all_records(engine, lines)
    assert sorted(line for record in records for line in record.lines) == sorted(lines)
    assert all(ord(char) >= 32 or char == "\t" for record in records for char in record.text)
    assert knowledge(engine).verdict(records) is None or knowledge(engine).verdict(records).sentence
    assert isinstance(list(knowledge(engine).findings(records, 1.0)), list)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_megabyte_of_any_byte_on_one_line_is_one_record_of_bounded_text(engine):
    for byte in (b"\x00", b"\xff", b"[", b"(", b"\x1b", b"0", b"\xe2\x80\xae"):
        raw = byte * (1_000_000 // len(byte))
        records = all_records(engine, [decode_line(raw)])
        assert len(records) == 1
        assert len(records[0].text) <= 5000
