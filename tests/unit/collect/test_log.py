from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import msgspec
import pytest

from collect_tools import Kept, until
from tokpit.collect import log
from tokpit.collect.backlog import Stamps
from tokpit.collect.log import LogCounters, watch_log
from tokpit.domain.records import Facts, LogBatch, LogRecord, Mark, Sample
from tokpit.domain.server import ServerInfo
from tokpit.transport.base import HostSpec
from tokpit.transport.local import LocalHost

DECODE = (
    "[2026-03-04 10:00:{second:02d} TP0] Decode batch, #running-req: {running}, #token: 900, token usage: 0.10, "
    "cuda graph: True, gen throughput (token/s): {rate:.2f}, #queue-req: 0\n"
)
LIMITS = (
    "[2026-03-04 09:59:00 TP0] max_total_num_tokens=40960, chunked_prefill_size=4096, max_prefill_tokens=16384, "
    "max_running_requests=9, context_len=8192\n"
)
RETRACT = (
    "[2026-03-04 10:00:30 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_token_ratio: "
    "0.5 -> 0.9\n"
)


def decode(second: int, rate: float = 50.0, running: int = 2) -> str:
    return DECODE.format(second=second, rate=rate, running=running)


class Watched:
    """A log that is written by the test and watched."""

    def __init__(self, path: Path, host: LocalHost, server: ServerInfo, kept: Kept, **options: int) -> None:
        self.path, self.kept, self.counters = path, kept, LogCounters()
        info = msgspec.structs.replace(server, log_path=str(path))
        self.task = asyncio.create_task(watch_log(host, info, kept, counters=self.counters, **options))

    def write(self, text: str | bytes) -> None:
        with self.path.open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)

    @property
    def records(self) -> list[LogRecord]:
        return [record for batch in self.kept.of(LogBatch) for record in batch.records]

    async def end(self) -> None:
        self.task.cancel()
        (result,) = await asyncio.gather(self.task, return_exceptions=True)
        assert isinstance(result, asyncio.CancelledError), result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "the log.txt"


async def test_lines_become_records_samples_facts_and_marks(
    path: Path, host: LocalHost, server: ServerInfo, kept: Kept
) -> None:
    path.write_text("")
    watched = Watched(path, host, server, kept)
    watched.write(LIMITS + decode(1) + decode(2, 61.5) + RETRACT)
    await until(lambda: len(watched.records) >= 4)
    await watched.end()
    assert [record.line for record in watched.records] == [1, 2, 3, 4]
    assert watched.records[0].kind == "milestone.limits"
    rates = [sample.values["gen_tps"] for sample in kept.of(Sample) if "gen_tps" in sample.values]
    assert 61.5 in rates
    assert {sample.source for sample in kept.of(Sample)} == {"log"}
    known = {key: value for fact in kept.of(Facts) for key, value in fact.values.items()}
    assert (known["max_running_requests"], known["max_total_num_tokens"]) == (9, 40960)
    assert "ts" not in known
    assert [mark.kind for mark in kept.of(Mark)] == ["retraction"]
    assert kept.of(LogBatch)[-1].offset == path.stat().st_size
    counters = watched.counters
    assert (counters.lines, counters.records, counters.bytes) == (4, 4, path.stat().st_size)


async def test_a_long_log_begins_at_its_tail_and_facts_come_from_its_head(
    path: Path, host: LocalHost, server: ServerInfo, kept: Kept
) -> None:
    path.write_text(LIMITS + "".join(decode(n % 60) for n in range(400)) + decode(59, 77.0))
    watched = Watched(path, host, server, kept, backlog_bytes=2000)
    await until(lambda: watched.records and watched.counters.offset == path.stat().st_size)
    watched.write("tail of the file\n")
    await until(lambda: watched.records[-1].text == "tail of the file")
    await watched.end()
    assert len(watched.records) < 20
    assert {record.kind for record in watched.records[:-1]} == {"decode_batch"}
    known = {key: value for fact in kept.of(Facts) for key, value in fact.values.items()}
    assert known["max_running_requests"] == 9


async def test_old_lines_are_placed_at_the_time_they_were_written(
    path: Path, host: LocalHost, server: ServerInfo, kept: Kept
) -> None:
    path.write_text("".join(decode(n, 50.0 + n) for n in range(0, 50, 10)))
    written = time.time() - 600
    os.utime(path, (written, written))
    watched = Watched(path, host, server, kept)
    await until(lambda: kept.of(Sample))
    await watched.end()
    times = {sample.values["gen_tps"]: sample.t for sample in kept.of(Sample) if "gen_tps" in sample.values}
    assert times[90.0] == pytest.approx(written, abs=5)
    assert times[90.0] - times[70.0] == pytest.approx(20.0, abs=0.01)


async def test_a_traceback_comes_whole_once_the_log_is_silent(
    path: Path, host: LocalHost, server: ServerInfo, kept: Kept
) -> None:
    path.write_text("")
    watched = Watched(path, host, server, kept)
    watched.write(
        'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    main()\nValueError: no\n'
    )
    await until(lambda: watched.records)
    await watched.end()
    (record,) = watched.records
    assert (record.text, len(record.lines)) == ("ValueError: no", 4)
    assert kept.of(Mark)


async def test_a_last_line_without_an_ending_is_shown_after_a_while(
    path: Path, host: LocalHost, server: ServerInfo, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "IDLE_S", 0.1)
    monkeypatch.setattr(log, "UNFINISHED_S", 0.2)
    path.write_text("")
    watched = Watched(path, host, server, kept)
    watched.write("whole\npanic: half a li")
    await until(lambda: len(watched.records) == 2)
    watched.write("\nnext\n")
    await until(lambda: watched.records[-1].text == "next")
    await watched.end()
    assert [record.text for record in watched.records][:2] == ["whole", "panic: half a li"]


async def test_a_rotated_log_goes_on_from_its_beginning(
    path: Path, host: LocalHost, server: ServerInfo, kept: Kept
) -> None:
    path.write_text("one\ntwo\n")
    watched = Watched(path, host, server, kept)
    await until(lambda: len(watched.records) == 2)
    path.rename(path.with_suffix(".1"))
    path.write_text("three\n")
    await until(lambda: len(watched.records) == 3)
    await watched.end()
    assert [record.text for record in watched.records] == ["one", "two", "three"]
    assert watched.counters.turns == 1


async def test_hostile_bytes_are_only_text(path: Path, host: LocalHost, server: ServerInfo, kept: Kept) -> None:
    path.write_text("")
    watched = Watched(path, host, server, kept, backlog_bytes=10 << 20)
    watched.write(b"\xff\xfe \x1b]0;owned\x07 \xe2\x80\xae[/red]\n" + b"x" * 3_000_000 + b"\nend\n")
    await until(lambda: watched.records and watched.records[-1].text == "end")
    await watched.end()
    text = "".join(line for record in watched.records for line in record.lines)
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert text.count("x") == 3_000_000


async def test_a_fault_in_a_grammar_costs_no_line(
    path: Path, host: LocalHost, server: ServerInfo, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokpit.engines.registry import engine

    kind = type(engine("sglang").grammar())
    feed = kind.feed

    def faulty(self: object, line: str) -> object:
        if "bad" in line:
            raise RuntimeError("a bug")
        return feed(self, line)  # type: ignore[arg-type]  # the grammar itself

    monkeypatch.setattr(kind, "feed", faulty)
    path.write_text("")
    watched = Watched(path, host, server, kept)
    watched.write("good\nbad\ngood again\n")
    await until(lambda: len(watched.records) == 3)
    await watched.end()
    assert [record.text for record in watched.records] == ["good", "bad", "good again"]
    assert watched.counters.errors == 1


async def test_many_lines_come_in_few_batches(path: Path, host: LocalHost, server: ServerInfo, kept: Kept) -> None:
    path.write_text("")
    watched = Watched(path, host, server, kept, backlog_bytes=10 << 20)
    watched.write("".join(decode(n % 60) for n in range(5000)))
    await until(lambda: len(watched.records) == 5000)
    await watched.end()
    assert len(kept.of(LogBatch)) < 100
    assert [record.line for record in watched.records] == list(range(1, 5001))


async def test_a_retraction_storm_is_not_a_storm_of_marks(
    path: Path, host: LocalHost, server: ServerInfo, kept: Kept
) -> None:
    path.write_text("")
    watched = Watched(path, host, server, kept)
    watched.write(RETRACT * 200)
    await until(lambda: len(watched.records) == 200)
    await watched.end()
    assert 1 <= len(kept.of(Mark)) <= 5


async def test_a_server_without_a_log_is_told(host: LocalHost, server: ServerInfo, kept: Kept) -> None:
    await watch_log(host, server, kept)
    assert "no log" in str(kept.of(Facts)[0].values["log_note"])


async def test_a_log_that_does_not_exist_yet_is_waited_for(
    path: Path, host: LocalHost, server: ServerInfo, kept: Kept
) -> None:
    watched = Watched(path, host, server, kept)
    await asyncio.sleep(0.3)
    path.write_text("first\n")
    await until(lambda: watched.records)
    await watched.end()
    assert [record.text for record in watched.records] == ["first"]


async def test_samples_carry_the_hosts_clock(path: Path, server: ServerInfo, kept: Kept) -> None:
    host = LocalHost(HostSpec(name="here", local=True, clock_factor=1000.0))
    await host.connect()
    path.write_text("")
    watched = Watched(path, host, server, kept)
    await asyncio.sleep(0.3)
    watched.write(decode(1) + decode(2))
    await until(lambda: kept.of(Sample))
    assert kept.of(Sample)[-1].t > time.time() + 60
    await watched.end()
    await host.close()


def test_records_without_stamps_have_no_times_but_the_last_write() -> None:
    plain = [LogRecord(1, "text", "a"), LogRecord(2, "text", "b")]
    assert Stamps().times(plain, 99.0) == [None, 99.0]
    assert Stamps().times([], 99.0) == []


def test_times_never_fall_where_processes_print_out_of_order() -> None:
    stamps = ("2026-01-01 00:00:10", "2026-01-01 00:00:09", None, "2026-01-01 00:00:12")
    records = [LogRecord(n, "text", "x", {"ts": stamp} if stamp else {}) for n, stamp in enumerate(stamps)]
    assert Stamps().times(records, 112.0) == [110.0, 110.0, 110.0, 112.0]
