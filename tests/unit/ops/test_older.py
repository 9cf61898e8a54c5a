from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from textual.pilot import Pilot

from console_screen import console, shows, text, until
from tokpit.config.inventory import Inventory
from tokpit.domain.records import LogBatch, ServerSeen
from tokpit.domain.server import ServerInfo
from tokpit.engines.registry import engine as engine_of
from tokpit.ops.older import SLICE_LINES, Older, _parsed
from tokpit.ops.session import Session
from tokpit.ui.widgets import log_older
from tokpit.ui.widgets.log_view import LogView

LINES = 40_000
PATH_LINE = "line {n:06d} of a log that has left memory long ago, with some words to make it as long as usual"


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    """A server whose log is a file of this machine, watched from its end."""
    log = tmp_path / "server.log"
    log.write_text("".join(PATH_LINE.format(n=n) + "\n" for n in range(1, LINES + 1)))
    made = Session(Inventory(), history_path=tmp_path / "h.sqlite")
    async with made:
        made.add_host("local")
        info = ServerInfo(host="local", engine="sglang", pid=1, start_ticks=1, pgid=1, port=1, log_path=str(log))
        made.store.apply(ServerSeen(0.0, info))
        made.watch_server(info.id)
        while not made.store.servers[info.id].log.seen:
            await asyncio.sleep(0.02)
        yield made


async def test_every_line_of_the_file_is_reached_going_up_chunk_by_chunk(session: Session) -> None:
    (server_id,) = session.store.servers
    log = session.store.servers[server_id].log
    first = log.records[0]
    number = int(first.text.split()[1])
    assert number > LINES // 2, "the whole file was read at once: the test shows nothing"
    place = log.place_before(first.line)
    assert place is not None
    end, skip = place
    wanted = number - 1
    while True:
        older = await session.older_log(server_id, end, skip)
        texts = [record.text for record in older.records]
        assert texts[-1] == PATH_LINE.format(n=wanted)
        assert [int(t.split()[1]) for t in texts] == list(range(wanted - len(texts) + 1, wanted + 1))
        wanted -= len(texts)
        end, skip = older.start, 0
        if end == 0:
            break
    assert wanted == 0
    assert (await session.older_log(server_id, 0)).lines == 0


async def test_scrolling_up_in_the_console_reads_older_lines_and_f_returns_to_the_end(session: Session) -> None:
    (server_id,) = session.store.servers
    session.watch_host = lambda name: None  # type: ignore[method-assign]  # the process table would drop the server
    async with console(session, (120, 40)) as pilot:
        await shows(pilot, f"line {LINES:06d}")
        view = pilot.app.screen.query_one(LogView)
        view.focus()
        oldest = view.model.rows[0].text
        await pilot.press("g")
        await until(pilot, lambda: view.model.older_start is not None)
        assert view.model.rows[0].text < oldest
        for _ in range(40):
            if view.model.older_start == 0:
                break
            before = view.model.older_start
            await pilot.press("g")
            await until(pilot, lambda before=before: view.model.older_start != before)  # type: ignore[misc]
        await pilot.press("g")
        await shows(pilot, "line 000001")
        numbers = [row.number for row in view.model.rows]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        session.store.apply(LogBatch(server_id, 1.0, (session.store.servers[server_id].log.records[-1],), 1 << 30))
        await shows(pilot, "1 new")
        await pilot.press("f")
        await shows(pilot, f"line {LINES:06d}", "following")
        assert "000001" not in text(pilot)


async def at_the_log(pilot: Pilot[None]) -> LogView:
    await shows(pilot, f"line {LINES:06d}")
    return pilot.app.screen.query_one(LogView)


async def test_a_search_goes_on_in_the_file_where_the_answer_names_the_key(session: Session) -> None:
    session.watch_host = lambda name: None  # type: ignore[method-assign]
    async with console(session, (120, 40)) as pilot:
        view = await at_the_log(pilot)
        await pilot.press("slash", *"no such words", "enter")
        await shows(pilot, "no match in memory; o reads the file")
        assert view.model.follow
        await pilot.press("o")
        await shows(pilot, "no match up to the log's first line")
        await pilot.press("f")
        await shows(pilot, f"line {LINES:06d}", "following")
        await pilot.press("slash", *"line 000777", "enter", "o")
        await shows(pilot, "▶ine 000777", "MB further up")
        numbers = [row.number for row in view.model.rows]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        await pilot.press("o")
        await shows(pilot, "the log's first line is in memory already")


async def test_a_search_in_the_file_is_bounded_goes_on_when_asked_and_stops_at_escape(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.watch_host = lambda name: None  # type: ignore[method-assign]
    monkeypatch.setattr(log_older, "SEARCH_BYTES", (64 << 10, 64 << 10))
    monkeypatch.setattr(log_older, "SEARCH_MOST", 128 << 10)
    async with console(session, (120, 40)) as pilot:
        view = await at_the_log(pilot)
        await pilot.press("slash", *"line 000777", "enter", "o")
        await shows(pilot, "o goes on")
        stopped = view.model.older_start
        assert stopped is not None
        assert stopped > 0
        await pilot.press("o")
        await until(pilot, lambda: (view.model.older_start or 0) < stopped and not view.older.busy)
        monkeypatch.setattr(log_older, "SEARCH_MOST", 64 << 20)
        gate = asyncio.Event()
        read = session.older_log

        async def waits(*place: int, **more: int) -> Older:
            await gate.wait()
            return await read(*place, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(session, "older_log", waits)
        await pilot.press("o")
        await until(pilot, lambda: view.older.busy)
        await pilot.press("escape")
        await shows(pilot, "stopped: o goes on from here")
        gate.set()
        await pilot.press("o")
        await shows(pilot, "▶ine 000777")


async def test_older_lines_come_while_the_log_floods(session: Session) -> None:
    """Lines are written all the time, faster than a chunk of the file is read."""
    session.watch_host = lambda name: None  # type: ignore[method-assign]
    (server_id,) = session.store.servers
    path = session.store.servers[server_id].info.log_path
    assert path is not None
    written = LINES

    async def flood() -> None:
        nonlocal written
        with Path(path).open("a") as log:
            while True:
                log.write("".join(PATH_LINE.format(n=n) + "\n" for n in range(written + 1, written + 401)))
                log.flush()
                written += 400
                await asyncio.sleep(0.02)

    async with console(session, (120, 40)) as pilot:
        view = await at_the_log(pilot)
        async with asyncio.TaskGroup() as group:
            writer = group.create_task(flood())
            seen = session.store.servers[server_id].log
            await until(pilot, lambda: seen.seen > 12_000)
            oldest = view.model.rows[0].text
            await pilot.press("home")  # wherever the cursor is
            await until(pilot, lambda: view.model.older_start is not None)
            assert view.model.rows[0].text < oldest
            top = view.model.rows[view.model.top].text
            before = seen.seen
            await until(pilot, lambda: seen.seen > before + 2_000)
            assert view.model.rows[view.model.top].text == top, "the view moved while it was held"
            await pilot.press("slash", *"line 000777", "enter", "o")
            await shows(pilot, "▶ine 000777")
            writer.cancel()
        await pilot.press("end")
        await shows(pilot, f"line {written:06d}", "following")


async def test_a_long_piece_of_a_log_is_read_in_slices() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counter = asyncio.create_task(count())
    lines = [PATH_LINE.format(n=n).encode() for n in range(10_000)]
    records = await _parsed(engine_of("sglang").grammar(), lines)
    counter.cancel()
    assert len(records) == len(lines)
    assert turns >= len(lines) // SLICE_LINES - 1
