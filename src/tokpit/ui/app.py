"""The console: themes, the session's questions, and which screen is open. Drawing is in the panels, acting in ops."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from tokpit.errors import TokpitError
from tokpit.ui.actions import actions_for
from tokpit.ui.app_actions import AppActions
from tokpit.ui.clock import Clock
from tokpit.ui.key_order import KeysInOrder
from tokpit.ui.keymap import own_keys
from tokpit.ui.palette import Palette
from tokpit.ui.screens.base import PumpedScreen, attempt, tell
from tokpit.ui.screens.cockpit import Cockpit
from tokpit.ui.session_protocol import ConfirmRequest, SessionLike
from tokpit.ui.theming import DEFAULT_THEME, LOOK_S, ThemeFiles, all_themes
from tokpit.ui.view import View

SLOW_MODULES = ("asyncssh", "aiohttp")


class TokpitApp(AppActions, KeysInOrder, App[None]):
    """See the module docstring. The session's life belongs to the caller."""

    TITLE = "tokpit"
    ENABLE_COMMAND_PALETTE = True
    CSS = """
    Screen { background: $background; color: $foreground; }
    Toast { background: $panel; }
    DataTable { background: $background; }
    DataTable:focus { background-tint: $background 0%; }
    DataTable > .datatable--header { background: $background; color: $text-muted; text-style: none; }
    DataTable:focus > .datatable--cursor, DataTable > .datatable--cursor,
    OptionList:focus > .option-list--option-highlighted {
        background: $primary 30%; color: $foreground; text-style: bold; }
    Input > .input--placeholder { color: $text-muted; text-style: italic; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+t", "next_theme", "theme", show=False),
        Binding("ctrl+q", "quit", "quit", show=False, priority=True),
    ]

    def __init__(
        self,
        session: SessionLike,
        *,
        host: str | None = None,
        theme: str | None = None,
        theme_folders: Sequence[Path] = (),
        chart_engine: str = "auto",
        keys: Mapping[str, str] | None = None,
        tour: bool = False,
        sixteen: bool | None = None,
    ) -> None:
        """`sixteen`: colours for a terminal that has no more than that many; None: as the terminal is."""
        super().__init__()
        self._tour, self._painted = tour, False
        self.own_keys, self._problems = own_keys(keys or {})
        """A person's own keys by binding id."""
        self.session = session
        self.view = View(session, Clock(session), host or next(iter(session.host_specs), None))
        self.palette = Palette({})
        self.plotext_ready = False
        self.loaded: Callable[[], object] = lambda: None
        """Called once every module that is needed has been imported."""
        self._chart_engine = chart_engine
        self.busy: set[str] = set()
        """Commands under way, by id and target."""
        self.problems: dict[str, str] = {}
        """Why a command failed the last time, by its id."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watched: set[str] = set()
        self._host_chosen = False
        sixteen = self.console.color_system == "standard" if sixteen is None else sixteen
        themes, problems = all_themes(theme_folders, sixteen=sixteen)
        self._problems += problems
        for found in themes:
            self.register_theme(found)
        self._names = [found.name for found in themes]
        self._theme_files = ThemeFiles(self, theme_folders, sixteen=sixteen, said=problems)
        wanted = theme or DEFAULT_THEME
        if wanted in self.available_themes:
            self.theme = wanted
        elif theme:
            self._problems.append(f"no theme is called {theme!r}; there are {', '.join(self._names)}")

    # Life ----------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Paint first, then connect."""
        if (player := self.view.player) is not None:
            player.changed = self.redraw_screens
        self.session.confirm = self.ask_confirm
        self.session.prompt = self.ask_text
        self.theme_changed_signal.subscribe(self, lambda _: self._new_palette())
        self._new_palette()
        self.set_keymap(self.own_keys)
        self.push_screen(Cockpit(self.view, chart_engine=self._chart_engine))
        self.call_after_refresh(self._after_first_paint)

    def report(self, problem: str, *, hint: str = "") -> None:
        """Say this, once the first screen is painted."""
        if self._painted:
            tell(self, problem, hint=hint, bad=True)
        else:
            self._problems.append(f"{problem}\n{hint}" if hint else problem)

    def _after_first_paint(self) -> None:
        self._painted = True
        self.set_interval(LOOK_S, self._theme_files.look)
        for problem in self._problems:
            tell(self, problem, bad=True)
        self._spawn(self._connect())
        if self._tour:
            self.action_tour()

    async def _connect(self) -> None:
        # These imports take about half a second each: in a thread, after the first paint, so that keys keep working.
        await asyncio.to_thread(_import_all, SLOW_MODULES)
        for name in self.session.host_specs:
            self._call(self.session.watch_host, name)
        await asyncio.to_thread(_import_all, ("plotext._kernel.terminal",))
        self.plotext_ready = True
        self.loaded()

    def _call(self, method: Any, *args: Any) -> None:
        """Call a session method that may be plain or a coroutine; its error becomes a notice."""
        try:
            result = method(*args)
        except TokpitError as error:
            tell(self, error.message, hint=error.hint, bad=True)
            return
        if inspect.isawaitable(result):
            self._spawn(self._awaited(result))

    async def _awaited(self, result: Any) -> None:
        try:
            await result
        except TokpitError as error:
            tell(self, error.message, hint=error.hint, bad=True)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Commands ------------------------------------------------------------------------------

    def start_command(self, command_id: str, *, then: Callable[[Any], None] | None = None, **args: Any) -> None:
        """Run a command. It belongs to the session's supervisor, so that it ends in order with the session.

        The same command is not asked for twice: a second key press while the first is under way only says so.
        `then` gets its result, None where it failed.
        """
        target = args.get("server_id") or args.get("target") or getattr(args.get("spec"), "host", "")
        key = f"{command_id} {target}"
        if key in self.busy:
            tell(self, "already under way")
            return
        self.busy.add(key)
        work = self._command(key, command_id, args, then)
        supervisor = getattr(self.session, "supervisor", None)
        if supervisor is not None:
            supervisor.start(f"command:{key}", work)
        else:
            self._spawn(work)

    async def _command(
        self, key: str, command_id: str, args: dict[str, Any], then: Callable[[Any], None] | None
    ) -> None:
        result = None
        try:
            result = await attempt(self, command_id, **args)
        finally:
            self.busy.discard(key)
            if then is not None:
                then(result)

    async def ask_confirm(self, request: ConfirmRequest) -> bool:
        """The session's question before a change."""
        from tokpit.ui.screens.modals import ConfirmScreen

        return bool(await self._answer(ConfirmScreen(request)))

    async def ask_text(self, kind: str, question: str) -> str | None:
        """The session's question for a password, a passphrase or a host key."""
        from tokpit.ui.screens.modals import PromptScreen

        answer = await self._answer(PromptScreen(kind, question))
        return answer if isinstance(answer, str) else None

    async def _answer(self, screen: Screen[Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(result: Any) -> None:
            if not future.done():
                future.set_result(result)

        # Commands run outside any widget; what is pushed must know the running application.
        with self._context():
            self.push_screen(screen, done)
        return await future

    # Selection -----------------------------------------------------------------------------

    def select(self, host: str, server_id: str | None) -> None:
        """Look at another host or server."""
        self.view.host, self.view.server_id = host, server_id
        self._host_chosen = server_id is None
        self._watch(server_id)
        if isinstance(self.screen, PumpedScreen):
            self.screen.redraw_all()

    def follow_selection(self) -> None:
        """Choose the first server of the host while none is chosen, and the successor of one that has left the list."""
        view = self.view
        if view.host is None:
            view.host = next(iter(view.store.hosts), None)
        state = view.host_state
        if state is None:
            return
        if view.server_id not in state.server_ids:
            alive = [i for i in state.server_ids if view.store.servers[i].alive]
            chosen = next(iter(alive or state.server_ids), None)
            if chosen is None:
                view.server_id = None
            elif view.server_id is not None or not self._host_chosen:
                self.select(state.name, chosen)
        self._watch(view.server_id)

    def _watch(self, server_id: str | None) -> None:
        if server_id is not None and server_id not in self._watched and server_id in self.view.store.servers:
            self._watched.add(server_id)
            self._call(self.session.watch_server, server_id)

    def watch_all(self) -> None:
        """Watch every live server of every host."""
        for server_id, server in list(self.view.store.servers.items()):
            if server.alive:
                self._watch(server_id)

    def refresh_host(self, host: str) -> None:
        """Look for servers on the host again now."""
        find = getattr(self.session, "find", None)
        if callable(find):
            self._call(find, host)

    # Screens -------------------------------------------------------------------------------

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: Textual's own commands, every action of the screen, every theme."""
        yield from (c for c in super().get_system_commands(screen) if c.title in {"Theme", "Screenshot"})
        # Not at the top, where an enter without a word would take it.
        yield SystemCommand("quit tokpit", "leave; servers and launches live on", self.action_quit)
        name = type(screen).__name__.removesuffix("Screen").lower()
        for action in actions_for(name, self.own_keys):
            if action.id not in {"command_palette", "quit"}:
                yield SystemCommand(f"{action.words}  ({action.key_text})", action.help, self._presser(action.key))

    def _presser(self, key: str) -> Any:
        return lambda: self.simulate_key(key)

    # Themes --------------------------------------------------------------------------------

    def themes_are(self, names: list[str]) -> None:
        """The themes through which `next_theme` goes."""
        self._names = names

    def action_next_theme(self) -> None:
        """The next of tokpit's own themes."""
        if self._names:
            here = self._names.index(self.theme) if self.theme in self._names else -1
            self.theme = self._names[(here + 1) % len(self._names)]
            tell(self, f"theme {self.theme}")

    def _new_palette(self) -> None:
        self.palette = Palette(self.theme_variables)
        self.redraw_screens()

    def redraw_screens(self) -> None:
        """Everything anew."""
        for screen in self.screen_stack:
            if isinstance(screen, PumpedScreen):
                screen.redraw_all()


def _import_all(names: Sequence[str]) -> None:
    for name in names:
        import_module(name)
