from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from console_screen import console, shows, text, until
from tokpit.config.inventory import Inventory
from tokpit.domain.records import LogBatch, ServerSeen
from tokpit.domain.server import ServerInfo
from tokpit.ops.session import Session
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
