"""A panel whose rows may be more than fit: it moves by keys and wheel and says where it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from tokpit.ui.text import Row
from tokpit.ui.widgets.panel import Panel


class ScrolledPanel(Panel, can_focus=True):
    """Subclasses give `all_rows`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "scroll(-1000000)", show=False),
        Binding("end", "scroll(1000000)", show=False),
    ]
    top = 0
    _count = 0

    def all_rows(self, width: int) -> Sequence[Row]:
        """Every row at that width."""
        return []

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The rows in view."""
        rows = self.all_rows(width)
        self._count = len(rows)
        self.top = max(0, min(self.top, len(rows) - height))
        return rows[self.top : self.top + height]

    def place(self) -> Row:
        """`↑↓ 1-6 of 14` where not everything fits."""
        width, height = self.inner_size()
        count = len(self.all_rows(width))
        if count <= height:
            return []
        top = max(0, min(self.top, count - height))
        return [(f"↑↓ {top + 1}-{top + height} of {count}", "dim")]

    def action_scroll(self, step: int) -> None:
        """Line by line."""
        self.top = max(0, min(self.top + step, max(0, self._count - self.inner_size().height)))
        self.redraw()

    def action_page(self, step: int) -> None:
        """Page by page."""
        self.action_scroll(step * max(1, self.inner_size().height - 1))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Three lines."""
        event.stop()
        self.action_scroll(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Three lines."""
        event.stop()
        self.action_scroll(3)
