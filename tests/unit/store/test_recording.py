from __future__ import annotations

import gzip
import json
import time
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console_feed import ARGV, HOST, fill, launch, run, server, sweep, text_line
from tokpit.domain.hostspec import HostSpec
from tokpit.domain.records import ActionRecord, LogBatch, LogRecord, Record, ServersRecord
from tokpit.domain.text import mask_secrets
from tokpit.errors import StoreError, UsageError
from tokpit.ops.records.recording import cut, moment
from tokpit.store.live import LiveStore
from tokpit.store.past import state
from tokpit.store.recording import writer
from tokpit.store.recording.format import Decoder, Encoder, Head, suspicious
from tokpit.store.recording.reader import Clocks, Recording
from tokpit.store.recording.writer import SEGMENT_S, FileSink, Ring, join, segments

T0 = 1_796_000_000.0
HEAD = Head(hosts=(HostSpec(name=HOST, clock_factor=10.0),), clocks={HOST: 5000.0})


def feed() -> list[tuple[float, Record]]:
    """Every kind of record, one each 0.1 s."""
    heard: list[Record] = []
    store = LiveStore()
    store.listen(heard.append)
    fill(store, seconds=60, end=T0 + 60)
    for record in (
        launch(op_id="launch-1"),
        *(sweep(n, op_id="sweep-1") for n in range(1, 5)),
        ActionRecord(t=T0, host=HOST, command="server.stop", title="stop it", lines=("kill 1",), outcome="done"),
        run(),
    ):
        store.apply(record)
    return [(T0 + n / 10, record) for n, record in enumerate(heard)]


def written(path: Path, records: list[tuple[float, Record]], *, every: int = 1000, end: bool = True) -> Path:
    sink = FileSink(path)
    for at, record in records:
        if not sink.begun or (records.index((at, record)) % every == 0):
            sink.begin(at, HEAD, [])
        sink.write([(at, record)], 0)
    if end:
        sink.close(records[-1][0])
    sink._stream.close()
    return path


def test_what_is_written_is_read_again_record_by_record(tmp_path: Path) -> None:
    records = feed()
    back = list(Recording(written(tmp_path / "a.tokrec", records)).records())
    assert [at for at, _ in back] == pytest.approx([at for at, _ in records])
    hidden = [(at, r) for at, r in records if isinstance(r, ServersRecord)]
    assert [r for _, r in back if not isinstance(r, ServersRecord)] == [
        r for _, r in records if not isinstance(r, ServersRecord)
    ]
    assert len(hidden) == sum(isinstance(r, ServersRecord) for _, r in back)


def test_no_secret_is_in_the_file(tmp_path: Path) -> None:
    assert "sk-feed-secret" in ARGV
    records = feed()
    line = "curl -H 'Authorization: Bearer sk-in-log' --hf-token hf_inlog HF_TOKEN=hf_env"
    records.append((T0 + 99, LogBatch(server().id, T0, (text_line(1, line), text_line(2, "decode token usage: 0.1")))))
    text = gzip.decompress(written(tmp_path / "a.tokrec", records).read_bytes()).decode()
    for secret in ("sk-feed-secret", "sk-in-log", "hf_inlog", "hf_env"):
        assert secret not in text
    assert "***" in text
    assert "decode token usage: 0.1" in text


@given(st.text(alphabet="abkpstweinor_-=: \"'APIKEYTOKNSCRWDſKİıi", max_size=60))
def test_a_line_that_is_spared_the_search_for_secrets_holds_none(text: str) -> None:
    for form in (text, msgspec.json.encode({"text": text}).decode()):
        if not suspicious(form):
            assert mask_secrets(text) == text


@given(st.lists(st.text(alphabet="abkpstweinor_-=: \"'APIKEYTOKNSCRWDſKİıi", max_size=60), max_size=5))
def test_lines_of_a_batch_are_masked_each_as_it_would_be_alone(texts: list[str]) -> None:
    records = tuple(LogRecord(n, "text", text, lines=(f"INFO {text}",)) for n, text in enumerate(texts, 1))
    line = Decoder().line(Encoder().record(T0, LogBatch("s", T0, records)))
    back = Decoder().record(line)
    assert isinstance(back, LogBatch)
    assert [(one.text, *one.lines) for one in back.records] == [
        (mask_secrets(text), mask_secrets(f"INFO {text}")) for text in texts
    ]


@pytest.mark.parametrize(
    "line",
    [
        "(APIServer pid=41) INFO 08-03 10:00:00 [loggers.py:271] Engine 000: Avg prompt throughput: 1.0 tokens/s",
        "Decode batch, #running-req: 8, #full token: 9, full token usage: 0.31, cuda graph: True",
        '{"full_token_usage":0.31,"full_tokens":9,"new_tokens":1}',
    ],
)
def test_what_most_lines_of_a_server_hold_is_not_taken_for_a_secret(line: str) -> None:
    assert not suspicious(line)


def test_the_writer_rests_between_slices_so_that_a_screen_is_drawn_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, rests = [0.0], []

    def later() -> float:
        clock[0] += 0.003  # each look at the clock finds that a record took so long
        return clock[0]

    monkeypatch.setattr(writer.time, "monotonic", later)
    monkeypatch.setattr(writer.time, "sleep", rests.append)
    sink = FileSink(tmp_path / "a.tokrec")
    sink.begin(T0, HEAD, [])
    sink.write([(T0, LogBatch("s", T0, (text_line(n, "a line"),))) for n in range(50)], 0)
    sink.close(T0)
    assert len(rests) == 50
    assert min(rests) > 0.005


@pytest.mark.parametrize("secret", ["--api-key sk1", "hf_token='sk1'", "X_API_KEY=sk1", "Authorization: Basic sk1"])
def test_known_forms_of_secrets_are_searched_for(secret: str) -> None:
    assert suspicious(secret)
    assert suspicious(msgspec.json.encode({"text": secret}).decode())


def test_a_file_cut_off_anywhere_gives_what_is_there_and_says_so(tmp_path: Path) -> None:
    records = feed()
    whole = written(tmp_path / "a.tokrec", records).read_bytes()
    counts = []
    for share in (0.2, 0.5, 0.9):
        part = tmp_path / f"{share}.tokrec"
        part.write_bytes(whole[: int(len(whole) * share)])
        recording = Recording(part)
        counts.append(len(list(recording.records())))
        assert "its end is missing" in " ".join(recording.problems)
        assert "its end is missing" in " ".join(recording.summary().problems)
    assert 0 < counts[0] < counts[1] < counts[2] < len(records)


def test_a_damaged_part_costs_that_part_alone(tmp_path: Path) -> None:
    records = feed()
    path = written(tmp_path / "a.tokrec", records, every=10)
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 2
    raw[middle : middle + 40] = b"\xff" * 40
    path.write_bytes(raw)
    recording = Recording(path)
    back = list(recording.records())
    assert back[-1][1] == records[-1][1]
    assert len(records) - 21 <= len(back) < len(records)
    assert "damaged near byte" in " ".join(recording.problems)


def test_damage_in_a_small_file_costs_what_is_behind_it(tmp_path: Path) -> None:
    records = feed()
    path = written(tmp_path / "a.tokrec", records)
    whole = list(Recording(path).records())
    raw = bytearray(path.read_bytes())
    raw[len(raw) * 3 // 4] ^= 0xFF
    path.write_bytes(raw)
    recording = Recording(path)
    known = len(whole) // 4
    assert list(recording.records())[:known] == whole[:known]
    assert "damaged at byte" in " ".join(recording.problems)


def test_one_that_was_never_ended_is_read_and_said(tmp_path: Path) -> None:
    recording = Recording(written(tmp_path / "a.tokrec", feed(), end=False))
    assert len(list(recording.records())) == len(feed())
    assert recording.problems


def lines(path: Path, *made: dict[str, Any]) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(one) + "\n" for one in made).encode()))
    return path


def test_a_newer_format_is_said_and_what_is_known_is_read(tmp_path: Path) -> None:
    head = {"k": "head", "at": T0, "r": {"format": "tokpit-recording", "version": 7, "tokpit": "9.1", "new": 1}}
    mark = {"k": "mark", "at": T0 + 1, "r": {"server": "s", "t": 1, "kind": "x", "text": "y", "colour": "red"}}
    other = {"k": "smell", "at": T0 + 2, "r": {"nose": 1}}
    path = lines(tmp_path / "a.tokrec", head, mark, other, {"k": "end", "at": T0 + 3, "r": {}})
    recording = Recording(path)
    assert [r.kind for _, r in recording.records()] == ["x"]  # type: ignore[union-attr]
    said = " ".join(recording.summary().problems)
    assert "newer tokpit (9.1, format 7" in said
    assert "smell" in said


@pytest.mark.parametrize(
    "data", [b"", b"root:x:0:0\n", gzip.compress(b"{}\n"), gzip.compress(b"\0" * 1000), gzip.compress(b'{"k":"mark"')]
)
def test_a_file_of_something_else_is_refused_with_a_sentence(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tokrec").write_bytes(data)
    with pytest.raises(StoreError, match="is no recording of tokpit"):
        Recording(tmp_path / "a.tokrec").summary()


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        Recording(tmp_path / "none.tokrec").summary()


def test_a_line_made_to_explode_is_left_out_without_filling_memory(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tokpit.store.recording.reader.LONGEST_LINE", 1 << 20)
    head = json.dumps({"k": "head", "at": T0, "r": {"format": "tokpit-recording", "version": 1}}).encode()
    mark = json.dumps({"k": "mark", "at": T0, "r": {"server": "s", "t": 1, "kind": "x", "text": "y"}}).encode()
    (tmp_path / "a.tokrec").write_bytes(
        zlib.compress(head + b"\n" + b"0" * (50 << 20) + b"\n" + mark + b"\n", wbits=31)
    )
    assert len(list(Recording(tmp_path / "a.tokrec").records())) == 1


def test_levels_told_before_are_not_told_again() -> None:
    encoder, decoder = Encoder(), Decoder()
    raws = [encoder.record(T0, sweep(n, op_id="sweep-1")) for n in (3, 3, 4)]
    assert len(raws[1]) < len(raws[0]) * 0.7
    back = [decoder.record(decoder.line(raw)) for raw in raws]
    assert [len(op.levels) for op in back] == [3, 3, 4]  # type: ignore[union-attr]
    assert back[2].levels == sweep(4, op_id="x").levels  # type: ignore[union-attr]


def test_the_state_of_a_store_brings_an_empty_one_to_the_same_words() -> None:
    store, other = LiveStore(), LiveStore()
    for _, record in feed():
        store.apply(record)
    for record in state(store):
        other.apply(record)
    assert list(state(other)) == list(state(store))


def test_the_ring_keeps_its_minutes_and_its_bytes(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "ring", minutes=3)
    for minute in range(10):
        at = T0 + minute * SEGMENT_S
        assert ring.due(at)
        ring.begin(at, HEAD, [])
        assert not ring.due(at + 1)
        ring.write([(at + 1, text_batch(minute))], 0)
    ring.close(T0 + 600)
    path = join(tmp_path / "ring", tmp_path / "saved.tokrec")
    kept = [record.records[0].text for _, record in Recording(path).records() if isinstance(record, LogBatch)]
    assert kept == [f"minute {n}" for n in (5, 6, 7, 8, 9)]
    small = Ring(tmp_path / "small", minutes=60, max_bytes=20_000)
    for n in range(40):
        if small.due(T0 + n):
            small.begin(T0 + n, HEAD, [])
        small.write([(T0 + n, noise(n))], 0)
    small.close(T0 + 40)
    assert sum(part.stat().st_size for part in segments(tmp_path / "small")) < 30_000
    assert list(Recording(join(tmp_path / "small", tmp_path / "s.tokrec")).records())[-1][1] == noise(39)


def text_batch(minute: int) -> LogBatch:
    return LogBatch("s", T0, (text_line(1, f"minute {minute}"),))


def noise(n: int) -> LogBatch:
    import random

    letters = random.Random(n)
    return LogBatch("s", T0, tuple(text_line(k, f"{letters.getrandbits(256):x}") for k in range(20)))


def test_saving_never_writes_over_a_file_and_an_empty_ring_is_a_sentence(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "ring")
    with pytest.raises(StoreError, match="nothing has been recorded"):
        join(tmp_path / "ring", tmp_path / "a.tokrec")
    ring.begin(T0, HEAD, [])
    ring.write([], 0)
    join(tmp_path / "ring", tmp_path / "a.tokrec")
    ring.close(T0 + 1)
    with pytest.raises(StoreError, match="exists already"):
        join(tmp_path / "ring", tmp_path / "a.tokrec")


def test_a_part_begins_with_what_was_known_and_holds_only_its_time(tmp_path: Path) -> None:
    source = written(tmp_path / "a.tokrec", feed())
    whole = Recording(source).summary()
    part = cut(source, tmp_path / "b.tokrec", start="+2s", end="+4s")
    assert (part.start, part.end) == pytest.approx((whole.start + 2, whole.start + 4), abs=0.11)
    assert part.problems == ()
    store = LiveStore()
    for _, record in Recording(tmp_path / "b.tokrec").records():
        store.apply(record)
    assert store.servers[server().id].facts == {"max_running_reqs": 9}
    # Ten seconds of the host's clock to one of ours.
    assert Clocks(part).now(HOST, part.start) == pytest.approx(5020.0, abs=1.1)
    with pytest.raises(StoreError, match="exists already"):
        cut(source, tmp_path / "b.tokrec", start="+1s")
    for start, end in (("+4s", "+2s"), ("2031-01-01T00:00", ""), ("soon", "")):
        with pytest.raises(UsageError):
            cut(source, tmp_path / "c.tokrec", start=start, end=end)
    assert not (tmp_path / "c.tokrec").exists()


def test_times_as_people_write_them(tmp_path: Path) -> None:
    whole = Recording(written(tmp_path / "a.tokrec", feed())).summary()
    day = time.strftime("%Y-%m-%d", time.gmtime(whole.start))
    clock = time.strftime("%H:%M:%S", time.gmtime(whole.start + 2))
    assert moment("+1m30s", whole) == whole.start + 90
    assert moment("-2s", whole) == whole.end - 2
    assert moment(clock, whole) == int(whole.start + 2)
    assert moment(f"{day}T{clock}", whole) == int(whole.start + 2)


def test_past_midnight_a_time_of_day_is_the_next_days(tmp_path: Path) -> None:
    late = 1_796_083_190.0  # 23:59:50
    records: list[tuple[float, Record]] = [(late + n, text_batch(n)) for n in range(20)]
    whole = Recording(written(tmp_path / "a.tokrec", records)).summary()
    assert moment("00:00:05", whole) == late + 15
