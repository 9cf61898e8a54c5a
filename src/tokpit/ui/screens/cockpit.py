"""The main screen: hosts and servers, what the selected server does, its log."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from tokpit.transport.base import quote
from tokpit.ui.actions import bindings_for, keycap
from tokpit.ui.charts.panel import LIVE_CHARTS, ChartPanel
from tokpit.ui.screens.base import copy, tell
from tokpit.ui.screens.timekeys import TimedScreen
from tokpit.ui.text import Row, row_width, safe, wrap_row
from tokpit.ui.view import View
from tokpit.ui.widgets.flags import FlagsPanel
from tokpit.ui.widgets.footer import Footer
from tokpit.ui.widgets.hardware import GpuPanel, MemoryPanel
from tokpit.ui.widgets.header import Header, link_trouble
from tokpit.ui.widgets.log_view import LogView
from tokpit.ui.widgets.panel import Panel
from tokpit.ui.widgets.timebar import TimeBar
from tokpit.ui.widgets.tree import HostTree

FLAGS_MIN_ROWS = 6
WINDOWS_S = (60.0, 7200.0)


class Empty(Panel):
    """Shown in place of charts and log while there is no server to show."""

    framed = False

    def __init__(self, view: View) -> None:
        super().__init__(id="empty")
        self.view = view

    def topics(self) -> Sequence[str]:
        """Everything about the host."""
        return ("hosts", *self.view.topics("host"))

    def body(self, width: int, height: int) -> Sequence[Row]:
        """What is known, and what to press."""
        lines = [line for sentence in self._sentences() for line in wrap_row(sentence, max(8, width - 4))]
        rows: list[Row] = [[] for _ in range(max(0, (height - len(lines)) // 2))]
        for line in lines:
            pad = max(0, (width - row_width(line)) // 2)
            rows.append([(" " * pad, "fg"), *line])
        return rows

    def _sentences(self) -> list[Row]:
        host, state = self.view.host, self.view.host_state
        if host is None or not (host := safe(host)):
            return [[("no host selected", "bold")], [], [("start with ", "dim"), ("tokpit HOST", "fg")]]
        trouble = link_trouble(state.link if state else None)
        again: Row = [
            keycap(self.app, "cockpit.refresh_host"),
            (" tries now, ", "dim"),
            keycap(self.app, "cockpit.fleet"),
            (" shows all hosts", "dim"),
        ]
        if trouble:
            return [[("no link to ", "fg"), (host, "bold")], [], [(trouble, "bad")], [], again]
        if state is None or not self.view.linked():
            return [[("connecting to ", "fg"), (host, "bold"), (" …", "fg")]]
        if self.view.past is not None:
            said: Row = [("nothing was known of a server on ", "fg"), (host, "bold"), (" at this moment", "fg")]
            return [
                said,
                [],
                [
                    keycap(self.app, "cockpit.later"),
                    (" later, ", "dim"),
                    keycap(self.app, "cockpit.pause"),
                    (" goes on", "dim"),
                ],
            ]
        if state.memory is None and state.gpus is None:
            return [[("looking for servers on ", "fg"), (host, "bold"), (" …", "fg")]]
        return [
            [("no server found on ", "fg"), (host, "bold")],
            [],
            [
                ("press ", "dim"),
                keycap(self.app, "cockpit.launch"),
                (" to launch one, ", "dim"),
                keycap(self.app, "cockpit.refresh_host"),
                (" to look again, ", "dim"),
                keycap(self.app, "cockpit.ran_before"),
                (" to see what ran here before", "dim"),
            ],
        ]


class Cockpit(TimedScreen):
    """See the module docstring. Panels fold by size: the larger the terminal, the more charts."""

    BINDINGS = [  # noqa: RUF012 - as Textual has it
        *bindings_for("cockpit"),
        *(Binding(key, f"log('{key}')", show=False) for key in ("pageup", "pagedown", "home", "end")),
    ]
    AUTO_FOCUS = "#tree"
    CSS = """
    Cockpit #left { width: 26; }
    Cockpit #charts { layout: grid; grid-size: 2 2; grid-gutter: 0; height: 10; }
    Cockpit #search { display: none; height: 1; border: none; padding: 0 1; background: $panel; }
    Cockpit #search.open { display: block; }
    Cockpit .zoomed-away { display: none; }
    """

    def __init__(self, view: View, *, chart_engine: str = "auto") -> None:
        super().__init__(view)
        self._charts = [ChartPanel(view, spec, engine=chart_engine) for spec in LIVE_CHARTS]
        self._shown: tuple[str, ...] = ()
        self._folded_for: tuple[object, ...] = ()
        self._zoomed: Panel | None = None
        self._asked = "search"
        """What the line below the log is for: `search` or `filter`."""

    def compose(self) -> ComposeResult:
        """Header, tree and hardware left, charts and log right, keys below."""
        yield Header(self.view)
        with Horizontal(id="middle"):
            with Vertical(id="left"):
                yield HostTree(self.view)
                yield FlagsPanel(self.view)
                yield GpuPanel(self.view)
                yield MemoryPanel(self.view)
            with Vertical(id="right"):
                yield Empty(self.view)
                with Vertical(id="charts"):
                    yield from self._charts
                yield LogView(self.view)
                yield Input(placeholder="regular expression; enter searches, esc closes", id="search", compact=True)
        yield TimeBar(self.view)
        yield Footer("cockpit")

    def on_mount(self) -> None:
        """The tree has the focus first."""
        super().on_mount()
        self.fold()

    def on_resize(self, event: events.Resize) -> None:
        """Fold or unfold."""
        self.fold()

    def before_pump(self) -> None:
        """Select the first server found; fold panels by what there is to show."""
        super().before_pump()
        self.console.follow_selection()
        self.fold()

    # Folding -------------------------------------------------------------------------------

    def fold(self) -> None:
        """Give each panel its place for the present size and data; does nothing when neither has changed."""
        width, height = self.size
        has_server = self.view.server is not None
        gpus = self.query_one(GpuPanel)
        wanted = tuple(c.spec.id for c in self._charts if c.spec.always or c.has_data(self.view.server))
        key = (
            width,
            height,
            has_server,
            wanted,
            gpus.wanted_rows(),
            self.query_one(HostTree).wanted_rows(),
            self._zoomed,
            self.query_one(TimeBar).wanted(),
        )
        if key == self._folded_for or not width:
            return
        self._folded_for = key
        rows = height - 3 - self.query_one(TimeBar).wanted()
        left = 25 if width < 100 else 32 if width < 160 else 38 if width < 240 else 48
        self.query_one("#left").styles.width = left
        self.query_one("#left").display = self._zoomed is None and width >= 60
        self._fold_left(rows, gpus)
        columns, lines = grid_for(width - left, rows, len(wanted))
        shown = wanted[: columns * lines]
        for panel in self._charts:
            panel.display = panel.spec.id in shown and self._zoomed in (None, panel)
        charts = self.query_one("#charts")
        charts.display = has_server and bool(shown) and (self._zoomed is None or isinstance(self._zoomed, ChartPanel))
        log = self.query_one(LogView)
        log.display = has_server and self._zoomed in (None, log)
        self.query_one(Empty).display = not has_server
        if self._zoomed is not None:
            columns, lines = 1, 1
            charts.styles.height = "1fr"
        else:
            charts.styles.height = chart_height(rows, lines)
        charts.styles.grid_size_columns = columns
        charts.styles.grid_size_rows = lines
        _fill_last_row(self._charts, shown if self._zoomed is None else (), columns)

    def _fold_left(self, rows: int, gpus: GpuPanel) -> None:
        memory, tree, flags = self.query_one(MemoryPanel), self.query_one(HostTree), self.query_one(FlagsPanel)
        frame = 2 if memory.roomy else 1
        memory_rows = 3 + frame
        room = min(gpus.wanted_rows() + frame, rows - memory_rows - max(7, rows // 3))
        gpu_rows = max(2, gpus.used_rows(room - frame) + frame)
        memory.styles.height, gpus.styles.height = memory_rows, gpu_rows
        rest = rows - memory_rows - gpu_rows - (tree.wanted_rows() + frame)
        flags.display = rest >= FLAGS_MIN_ROWS and self.view.server is not None
        tree.styles.height = tree.wanted_rows() + frame if flags.display else "1fr"

    # Actions -------------------------------------------------------------------------------

    def on_host_tree_chosen(self, message: HostTree.Chosen) -> None:
        """Another host or server."""
        self.console.select(message.host, message.server_id)

    def action_launch(self) -> None:
        """The launch screen for the selected host."""
        self.console.open_launch()

    def action_relaunch(self) -> None:
        """The relaunch screen for the selected server."""
        self.console.open_relaunch()

    def action_copy_line(self) -> None:
        """The selected server's command line, or what the log shows, to the terminal's clipboard."""
        log = self.query_one(LogView)
        if log.has_focus and log.model.rows:
            copy(self.console, log.chosen_text(), "the line" if log.model.hit is not None else "the rows in view")
        elif self.view.server is None or not self.view.server.info.argv:
            tell(self.console, "no command line is known: no server is selected, or its process could not be read")
        else:
            copy(self.console, quote(self.view.server.info.argv), "the command line")

    def action_check(self) -> None:
        """Check the selected server."""
        self.console.open_check()

    def action_diagnose(self) -> None:
        """What is wrong with the selected server."""
        self.console.open_diagnose()

    def action_sweep(self) -> None:
        """The sweep screen for the selected server."""
        self.console.open_sweep()

    def action_tune(self) -> None:
        """The tune screen."""
        self.console.open_tune()

    def action_stop_server(self) -> None:
        """Stop the selected server; the gate asks."""
        if self.view.server is None or self.view.server_id is None:
            tell(self.console, "no server is selected")
            return
        self.console.start_command("server.stop", server_id=self.view.server_id)

    def action_refresh_host(self) -> None:
        """Look at the host again."""
        if self.view.host is not None:
            self.console.refresh_host(self.view.host)

    def moved(self) -> None:
        """The log goes to the same moment."""
        log = self.query_one(LogView)
        if self.view.past is None:
            log.action_follow()
        else:
            log.go_to(self.view.now())

    def action_follow(self) -> None:
        """The end of the log, and everything else as it is now."""
        if self.view.past is not None:
            self.release()
        self.query_one(LogView).action_follow()

    def action_level(self) -> None:
        """Next log level."""
        self.query_one(LogView).next_level()

    def action_find(self, step: int) -> None:
        """Next or previous match."""
        self.query_one(LogView).find(step)

    def action_older(self) -> None:
        """On with the search in the log's file on the host."""
        self.query_one(LogView).older.search()

    def action_log(self, key: str) -> None:
        """These keys move the log wherever the cursor is."""
        log = self.query_one(LogView)
        moves = {"home": log.action_top, "end": log.action_follow}
        moves[key]() if key in moves else log.action_page(-1 if key == "pageup" else 1)

    def action_whole_line(self) -> None:
        """The marked record of the log with all that is in it."""
        from tokpit.ui.screens.line import LineScreen

        record = self.query_one(LogView).chosen_record()
        if record:
            self.app.push_screen(LineScreen(record))
        else:
            tell(self.console, "there is no line in the log")

    def on_log_view_opened(self) -> None:
        """A second click is like enter."""
        self.action_whole_line()

    def action_export(self) -> None:
        """Log, figures and screen, into files."""
        from tokpit.ui.exporting import export_cockpit

        export_cockpit(self.console, self.view, self.query_one(LogView).model)

    def action_window(self, factor: float) -> None:
        """Charts show more or less time."""
        self.view.window_s = min(WINDOWS_S[1], max(WINDOWS_S[0], self.view.window_s * factor))
        for panel in self._charts:
            panel.redraw()

    def now_keys(self) -> Sequence[tuple[str, str, str]]:
        """The line that is typed, a panel alone, a search in the file, held time: what enter and escape do."""
        if self.query_one("#search", Input).has_class("open"):
            return ("enter", "enter", self._asked), ("escape", "esc", "close, all lines")
        if self.query_one(LogView).older.busy:
            return (("escape", "esc", "stop reading"),)
        if self._zoomed is not None:
            return (("escape", "esc", "all panels"),)
        if self.view.past is not None:
            return (("escape", "esc", "back to now"),)
        return ()

    def action_zoom(self) -> None:
        """The focused panel (the log, or the first chart) alone; again: all panels."""
        if self._zoomed is not None:
            self._zoomed = None
        else:
            focused = self.focused
            self._zoomed = focused if isinstance(focused, (LogView, ChartPanel)) else self._charts[0]
        self.fold()
        self.redraw_all()

    def action_search(self) -> None:
        """Open the line for a pattern to search."""
        self._open_line("search", "regular expression; enter searches, esc closes")

    def action_filter(self) -> None:
        """Open the line for a pattern to filter by."""
        self._open_line("filter", "regex keeps lines, !regex drops them, empty: all")

    def _open_line(self, asked: str, hint: str) -> None:
        line = self.query_one("#search", Input)
        self._asked = asked
        kept = self.query_one(LogView).model.kept
        line.value = kept.pattern if asked == "filter" and kept is not None else ""
        line.placeholder = hint
        line.add_class("open")
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search or filter; the line closes, `n` and `N` go on."""
        log = self.query_one(LogView)
        (log.filter if self._asked == "filter" else log.search)(event.value)
        self._close_search()

    def on_key(self, event: events.Key) -> None:
        """Escape closes the line and forgets the pattern; then it ends a search in the file, a zoom, held time."""
        line = self.query_one("#search", Input)
        if event.key != "escape":
            return
        event.stop()
        if line.has_class("open"):
            line.value = ""
            log = self.query_one(LogView)
            (log.filter if self._asked == "filter" else log.search)("")
            self._close_search()
        elif self.query_one(LogView).older.cancel():
            pass
        elif self._zoomed is not None:
            self.action_zoom()
        elif self.view.past is not None:
            self.release()

    def _close_search(self) -> None:
        self.query_one("#search", Input).remove_class("open")
        self.query_one(LogView).focus()


def grid_for(width: int, rows: int, count: int) -> tuple[int, int]:
    """Columns and lines of charts for that room: all `count` of them where it allows cells of at least 27 x 5.

    Rather two lines than three, three columns than four, and no gap; three lines only where each has eight rows.
    """
    most = max(1, min(4, count, width // (36 if width >= 140 else 27)))
    lines = 1 if rows < 18 else 3 if chart_height(rows, 3) >= 24 else 2

    def worth(grid: tuple[int, int]) -> tuple[int, bool, bool, bool, int, int]:
        columns, used = grid
        whole = count % columns == 0 or columns * used < count
        return min(count, columns * used), used <= 2, columns <= 3, whole, -used, -columns

    return max(((c, r) for c in range(1, most + 1) for r in range(1, lines + 1)), key=worth)


def chart_height(rows: int, lines: int) -> int:
    """Rows of the chart area."""
    if lines == 1:
        return max(5, min(14, rows // 3))
    return max(10, min(15 * lines, rows * (13 if lines > 2 else 11) // 20))


def _fill_last_row(charts: Sequence[ChartPanel], shown: Sequence[str], columns: int) -> None:
    """The last chart of an unfinished row takes the rest of it, so that no box is empty."""
    rest = len(shown) % columns if columns else 0
    for panel in charts:
        last = bool(shown) and panel.spec.id == shown[-1]
        panel.styles.column_span = columns - rest + 1 if last and rest else 1
