"""What is painted: rows that changed, and nothing of a panel that is as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.app import App, ComposeResult
from textual.geometry import Region

from tokpit.ui.palette import Palette
from tokpit.ui.text import Line, Row
from tokpit.ui.widgets.panel import Panel

FRAME = 1


class Words(Panel):
    """Shows `words`, one a row, and keeps which of its rows were to be painted."""

    def __init__(self) -> None:
        super().__init__()
        self.words = ["one", "two", "three"]
        self.asked: list[tuple[Region, ...]] = []

    def heading(self, width: int) -> tuple[Row, Row]:
        return [("words", "title")], []

    def body(self, width: int, height: int) -> Sequence[Row]:
        return [[(word, "fg")] for word in self.words]

    def refresh(self, *regions: Region, **how: Any) -> Words:
        if not how:
            self.asked.append(regions)
        super().refresh(*regions, **how)
        return self


class Shown(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.palette = Palette({})

    def compose(self) -> ComposeResult:
        yield Words()


def painted(app: App[None]) -> list[str]:
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


async def test_rows_that_are_as_before_are_not_painted_again() -> None:
    app = Shown()
    async with app.run_test(size=(60, 12)) as pilot:
        panel = app.query_one(Words)
        await pilot.pause()
        before = [panel.render_line(y) for y in range(12)]
        panel.asked.clear()
        panel.redraw()
        assert panel.asked == []
        panel.words[1] = "two and a half"
        panel.redraw()
        assert panel.asked == [(Region(0, FRAME + 1, 60, 1),)]
        after = [panel.render_line(y) for y in range(12)]
        assert [y for y in range(12) if after[y] is not before[y]] == [FRAME + 1]
        assert "two and a half" in painted(app)[FRAME + 1]


async def test_rows_that_come_and_go_are_painted() -> None:
    app = Shown()
    async with app.run_test(size=(60, 12)) as pilot:
        panel = app.query_one(Words)
        panel.framed = False
        panel.redraw()
        await pilot.pause()
        for words, rows in (([], [0, 1, 2]), (["new"], [0]), (["new", "", "newer"], [1, 2]), (["new"], [1, 2])):
            panel.asked.clear()
            panel.words = words
            panel.redraw()
            assert [region.y for regions in panel.asked for region in regions] == rows
            await pilot.pause()
            assert [line.strip() for line in painted(app)][:3] == [*words, "", "", ""][:3]


async def test_another_size_or_palette_paints_everything() -> None:
    app = Shown()
    async with app.run_test(size=(60, 12)) as pilot:
        panel = app.query_one(Words)
        await pilot.pause()
        await pilot.resize_terminal(40, 8)
        await pilot.pause()
        assert all(len(line) <= 40 for line in painted(app))
        assert "three" in painted(app)[FRAME + 2]
        panel.asked.clear()
        panel.notify_style_update()
        panel.redraw()
        assert () in panel.asked


async def test_what_is_drawn_holds_no_ring_that_only_the_collector_frees() -> None:
    app = Shown()
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        line = app.query_one(Words).render_line(FRAME)
        assert isinstance(line, Line)
        assert line.divide([line.cell_length]) == [line]
        assert not line._divide_cache
        assert [part.cell_length for part in line.divide([20, line.cell_length])] == [20, line.cell_length - 20]
