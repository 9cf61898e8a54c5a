from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from console_feed import Recorder, access_line, decode_line, fill, text_line
from console_screen import console, rows, shows, text, until
from tokpit.domain.records import LogBatch, LogRecord
from tokpit.store.live import LogRing
from tokpit.ui.widgets.log_model import LogModel
from tokpit.ui.widgets.log_view import LogView


def batch(lines: Sequence[LogRecord], t: float = 0.0) -> LogBatch:
    return LogBatch("server", t, tuple(lines))


def ring(*lines: LogRecord, capacity: int = 1000) -> LogRing:
    made = LogRing(capacity)
    made.extend(batch(lines))
    return made


def numbered(count: int, start: int = 1) -> list[LogRecord]:
    return [text_line(n, f"line {n}", "error" if n % 10 == 0 else "info") for n in range(start, start + count)]


def test_following_shows_the_tail_and_paused_stays_while_lines_come() -> None:
    log, model = ring(*numbered(50)), LogModel()
    model.feed(log)
    assert [line.text for line in model.window(3)[1]] == ["line 48", "line 49", "line 50"]
    model.pause(3)
    log.extend(batch(numbered(20, 51)))
    model.feed(log)
    assert [line.text for line in model.window(3)[1]] == ["line 48", "line 49", "line 50"]
    assert model.unseen == 20
    model.resume()
    assert model.window(3)[1][-1].text == "line 70"


def test_scrolling_up_pauses_and_reaching_the_end_follows_again() -> None:
    model = LogModel()
    model.feed(ring(*numbered(50)))
    model.scroll(-5, 10)
    assert not model.follow
    assert model.window(10)[1][-1].text == "line 45"
    model.scroll(100, 10)
    assert model.follow


def test_level_filter_keeps_only_that_level_and_new_lines_obey_it() -> None:
    log, model = ring(*numbered(40)), LogModel()
    model.feed(log)
    model.set_level("error")
    log.extend(batch(numbered(10, 41)))
    model.feed(log)
    assert [line.number for line in model.rows] == [10, 20, 30, 40, 50]
    model.set_level("all")
    assert len(model.rows) == 50


def test_search_goes_from_match_to_match_and_around_the_end() -> None:
    model = LogModel()
    model.feed(ring(*numbered(100)))
    assert model.search(r"line [357]0$") == ""
    hits = []
    for _ in range(4):
        assert model.find(-1, 10)
        hits.append(model.rows[model.hit or 0].text)
    assert hits == ["line 70", "line 50", "line 30", "line 70"]


def test_a_broken_expression_is_searched_as_text_and_said() -> None:
    model = LogModel()
    model.feed(ring(text_line(1, "loss (nan"), text_line(2, "fine")))
    assert "plain text" in model.search("(nan")
    assert model.find(1, 5)
    assert model.hit == 0


def test_a_search_without_match_says_so_and_moves_nothing() -> None:
    model = LogModel()
    model.feed(ring(*numbered(20)))
    model.search("absent")
    assert not model.find(1, 5)
    assert model.follow


def test_a_record_of_several_lines_is_shown_line_by_line() -> None:
    trace = LogRecord(
        7, "traceback", "ValueError: no", lines=("Traceback:", "  File x", "ValueError: no"), level="error"
    )
    model = LogModel()
    model.feed(ring(trace))
    assert [(line.number, line.text) for line in model.rows] == [
        (7, "Traceback:"),
        (8, "  File x"),
        (9, "ValueError: no"),
    ]


def test_memory_is_bounded_and_a_held_view_keeps_its_place_when_old_rows_leave() -> None:
    log, model = ring(capacity=500), LogModel(keep=200)
    for start in range(1, 2000, 50):
        log.extend(batch(numbered(50, start)))
        model.feed(log)
        if start == 1901:
            model.pause(10)
            held = model.window(10)[1][0].text
    assert len(model.rows) <= 220
    assert model.window(10)[1][0].text == held


def test_more_lines_than_the_ring_holds_between_two_looks_do_not_break_it() -> None:
    log, model = ring(capacity=100), LogModel()
    log.extend(batch(numbered(1000)))
    model.feed(log)
    assert [model.rows[0].number, model.rows[-1].number] == [901, 1000]


def test_another_server_starts_a_fresh_view() -> None:
    model = LogModel()
    model.feed(ring(*numbered(5)))
    model.feed(ring(text_line(1, "other")))
    assert [line.text for line in model.rows] == ["other"]


async def test_space_holds_the_log_and_f_follows_again() -> None:
    session = Recorder()
    server_id = fill(session.store)
    async with console(session) as pilot:
        await shows(pilot, "following")
        await pilot.press("space")
        await shows(pilot, "paused")
        session.store.apply(LogBatch(server_id, time.time(), (text_line(5000, "a late line"),)))
        await shows(pilot, "1 new")
        assert "a late line" not in text(pilot)
        await pilot.press("f")
        await shows(pilot, "a late line", "following")


async def test_slash_searches_and_n_goes_on_and_escape_closes() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session) as pilot:
        await shows(pilot, "following")
        await pilot.press("slash", *"prefill", "enter")
        await shows(pilot, "/prefill", "paused", "▶")
        view = pilot.app.screen.query_one(LogView)
        first = view.model.hit
        await pilot.press("N")
        assert view.model.hit is not None
        assert first is not None
        assert view.model.hit < first
        await pilot.press("n")
        assert view.model.hit == first
        await pilot.press("slash", "escape")
        await until(pilot, lambda: "/prefill" not in text(pilot))
        assert not pilot.app.screen.query_one("#search").display


async def test_keys_typed_into_the_search_line_are_text_not_commands() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session) as pilot:
        await shows(pilot, "following")
        await pilot.press("slash", *"qlsx")
        assert pilot.app.screen.query_one("#search").value == "qlsx"  # type: ignore[attr-defined]
        assert pilot.app.is_running
        assert session.calls == []


def test_polls_are_hidden_and_counted_but_a_failed_poll_and_other_requests_are_shown() -> None:
    model = LogModel()
    log = ring(
        access_line(1, "/metrics"),
        access_line(2, "/v1/loads?include=core"),
        access_line(3, "/metrics", 503),
        access_line(4, "/v1/chat/completions"),
        text_line(5, "GET /metrics 200 said by somebody else"),
    )
    model.feed(log)
    assert [line.number for line in model.rows] == [3, 4, 5]
    assert model.polls == 2
    model.set_level("all")
    assert [line.number for line in model.rows] == [1, 2, 3, 4, 5]


def test_the_count_of_hidden_polls_follows_what_leaves_the_view() -> None:
    log, model = ring(capacity=500), LogModel(keep=100)
    for start in range(1, 1000, 20):
        log.extend(batch([access_line(start, "/metrics"), *numbered(19, start + 1)]))
        model.feed(log)
    model.set_level("all")
    assert model.polls == sum(line.poll for line in model.rows)
    assert len(model.rows) <= 120


def test_without_a_search_n_goes_from_error_to_error_and_a_traceback_is_one() -> None:
    trace = LogRecord(
        3, "traceback", "ValueError: no", lines=("Traceback:", "  File x", "ValueError: no"), level="error"
    )
    model = LogModel()
    model.feed(ring(text_line(1, "fine"), text_line(2, "bad", "error"), trace, text_line(6, "fine")))
    hits = []
    for _ in range(3):
        assert model.find(1, 2)
        hits.append(model.rows[model.hit or 0].number)
    assert hits == [2, 3, 2]


async def test_n_without_a_search_shows_the_error_and_says_so_where_there_is_none() -> None:
    session = Recorder()
    server_id = fill(session.store)
    async with console(session) as pilot:
        await shows(pilot, "following")
        await pilot.press("n")
        await shows(pilot, "no error in the log")
        batch = (text_line(6000, "CUDA error: an illegal memory access", "error"), *numbered(9, 6001))
        session.store.apply(LogBatch(server_id, time.time(), batch))
        await pilot.press("N")
        await shows(pilot, "▶UDA error", "paused")


async def test_v_goes_from_all_but_polls_to_everything_to_warnings_to_errors() -> None:
    session = Recorder()
    server_id = fill(session.store)
    session.store.apply(LogBatch(server_id, time.time(), (access_line(5000, "/health"), access_line(5001, "/version"))))
    async with console(session) as pilot:
        assert "GET /health" not in await shows(pilot, "2 polls hidden", "Decode batch")
        await pilot.press("v")
        await shows(pilot, "everything", "GET /health", "GET /version")
        await pilot.press("v")
        await shows(pilot, "warnings and errors", "retracted 2 requests")
        assert "Decode batch" not in text(pilot)
        await pilot.press("v")
        await shows(pilot, "no line of this level")
        await pilot.press("v")
        await shows(pilot, "2 polls hidden", "Decode batch")


async def test_levels_have_colours_and_figures_are_marked() -> None:
    session = Recorder()
    server_id = fill(session.store)
    batch = (text_line(6000, "CUDA error: out of memory", "error"), decode_line(6001, time.time(), 3, 0, 99.5, 3.1))
    session.store.apply(LogBatch(server_id, time.time(), batch))
    async with console(session) as pilot:
        await shows(pilot, "out of memory")
        view = pilot.app.screen.query_one(LogView)
        body = view.body(260, 10)
        styles = {style for row in body for word, style in row if "out of memory" in word}
        assert styles == {"log-error"}
        spans = [span for row in body for span in row]
        assert ("99.50", "log-number") in spans
        assert ("0.17", "log-number") not in spans, "a number that nobody read is marked as a figure"


async def test_long_lines_can_be_moved_sideways() -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, (80, 24)) as pilot:
        await shows(pilot, "following")
        assert "accept len" not in text(pilot)
        pilot.app.screen.query_one(LogView).focus()
        await pilot.press(*["right"] * 7)
        await shows(pilot, "accept len")


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_z_gives_the_log_the_whole_screen_and_back(size: tuple[int, int]) -> None:
    session = Recorder()
    fill(session.store)
    async with console(session, size) as pilot:
        await shows(pilot, "following")
        pilot.app.screen.query_one(LogView).focus()
        before = text(pilot).count("Decode batch")
        await pilot.press("z")
        await until(pilot, lambda: text(pilot).count("Decode batch") > before)
        assert "hosts" not in rows(pilot)[2]
        await pilot.press("z")
        await shows(pilot, "hosts")
