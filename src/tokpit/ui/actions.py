"""The one table of what a key does: bindings, footer, help and palette are all made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from textual.binding import Binding, BindingType


@dataclass(frozen=True)
class Action:
    """`id` names an `action_...` method; `screens` where it works; `rank` decides who stays in a narrow footer."""

    id: str
    key: str
    label: str
    help: str
    screens: tuple[str, ...]
    rank: int = 5
    shown: str = ""
    """Key as written in the footer; empty: `key` itself."""
    group: str = "general"

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.label if "(" in self.id else self.id

    @property
    def key_text(self) -> str:
        """The key as people write it."""
        return self.shown or self.key


_ALL = ("cockpit", "launch", "relaunch", "sweep", "history", "earlier", "check", "diagnose", "fleet", "help")
ACTIONS: tuple[Action, ...] = (
    Action("fleet", "1", "fleet", "all hosts at a glance", ("cockpit",), 3, group="view"),
    Action("choose", "enter", "open", "open the cockpit on the host under the cursor", ("fleet",), 1),
    Action("leave", "2", "cockpit", "back to the cockpit", ("fleet",), 2),
    Action("refresh_host", "r", "refresh", "look at the host under the cursor again now", ("fleet",), 3),
    Action("launch", "l", "launch", "start a server on the selected host", ("cockpit",), 1, group="servers"),
    Action("sweep", "s", "sweep", "measure throughput over concurrency", ("cockpit",), 1, group="servers"),
    Action("relaunch", "R", "relaunch", "start the selected server again with other settings", ("cockpit",), 2, "R",
           "servers"),
    Action("check", "c", "check", "does it answer, with sense, as configured, as fast as it was?", ("cockpit",), 2,
           group="servers"),
    Action("diagnose", "d", "diagnose", "what is wrong with the server, ranked, with evidence", ("cockpit",), 2,
           group="servers"),
    Action("copy_line", "y", "copy", "copy the selected server's command line", ("cockpit",), 6, "y", "servers"),
    Action("stop_server", "x", "stop", "stop the selected server (asks first)", ("cockpit",), 3, group="servers"),
    Action("history", "h", "history", "stored runs", ("cockpit",), 2, group="servers"),
    Action("earlier", "H", "earlier", "servers that ran on this host before, and what changed", ("cockpit",),
           3, "H", "servers"),
    Action("save_profile", "P", "profile", "save the selected server as a launch profile", ("cockpit",), 7, "P",
           "servers"),
    Action("refresh_host", "r", "refresh", "look at the host again now", ("cockpit",), 6, group="servers"),
    Action("search", "slash", "search", "search the log with a regular expression", ("cockpit",), 2, "/", "log"),
    Action("find(1)", "n", "next", "next match; without a search, the next error", ("cockpit",), 7, "n", "log"),
    Action("find(-1)", "N", "previous", "previous match, or error", ("cockpit",), 8, "N", "log"),
    Action("pause", "space", "pause", "hold the log still, or follow it again", ("cockpit",), 2, "space", "log"),
    Action("follow", "f", "follow", "go to the end of the log and stay there", ("cockpit",), 4, "f", "log"),
    Action("level", "v", "level", "log shows all but polls, everything, warnings, errors", ("cockpit",), 4, "v", "log"),
    Action("window(2)", "minus", "wider", "charts show twice the time", ("cockpit",), 8, "-", "view"),
    Action("window(0.5)", "plus", "closer", "charts show half the time", ("cockpit",), 8, "+", "view"),
    Action("zoom", "z", "zoom", "the focused panel alone, and back", ("cockpit",), 5, "z", "view"),
    Action("focus_next", "tab", "panel", "next panel", ("cockpit",), 9, "tab", "view"),
    Action("start_launch", "ctrl+s", "launch", "start the server with this command line", ("launch",), 1, "^s"),
    Action("start_launch", "ctrl+s", "relaunch", "stop the server and start it with these settings", ("relaunch",), 1,
           "^s"),
    Action("copy_line", "ctrl+y", "copy", "copy the command line", ("launch", "relaunch"), 4, "^y"),
    Action("pick", "ctrl+f", "find", "choose an environment or a model that is on the host", ("launch",), 2, "^f"),
    Action("again", "enter", "launch again", "start it again: its command line in the launch form", ("earlier",), 1),
    Action("copy_line", "y", "copy", "copy its command line", ("earlier",), 3),
    Action("reload", "r", "look again", "search the host again", ("earlier",), 3),
    Action("start_sweep", "ctrl+s", "start", "start the sweep", ("sweep",), 1, "^s"),
    Action("measure", "m", "measure", "chart shows throughput, speed of one stream, TTFT, E2E",
           ("sweep", "history"), 2),
    Action("stop_or_leave", "escape", "stop / back", "stop at once and keep what was measured; then go back",
           ("sweep",), 1, "esc"),
    Action("leave", "escape", "back", "go back; a launch under way goes on",
           ("launch", "relaunch", "history", "earlier", "check", "diagnose", "help"), 1, "esc"),
    Action("pick", "space", "pick", "pick a run; two picked runs are compared", ("history",), 2, "space"),
    Action("open", "enter", "open", "show or hide evidence and arithmetic of a finding", ("diagnose",), 2, "enter"),
    Action("copy_finding", "y", "copy", "copy the finding with its evidence", ("diagnose",), 3),
    Action("again", "r", "again", "look again", ("diagnose",), 2),
    Action("again", "r", "again", "check again", ("check",), 2),
    Action("reload", "r", "reload", "read the stored runs again", ("history",), 3),
    Action("next_theme", "ctrl+t", "theme", "next theme", _ALL, 7, "^t", "view"),
    Action("command_palette", "ctrl+p", "palette", "everything by name", _ALL, 3, "^p"),
    Action("help", "question_mark", "help", "keys of this screen",
           ("cockpit", "history", "earlier", "check", "diagnose", "fleet"), 0, "?"),
    Action("quit", "q", "quit", "leave; servers and launches live on", ("cockpit", "fleet"), 0, "q"),
)  # fmt: skip


SCREENS = tuple(dict.fromkeys(screen for action in ACTIONS for screen in action.screens))
UNTYPED = frozenset({"ctrl+s", "ctrl+y", "ctrl+f", "escape"})
"""Keys that work while a field is being typed into."""


def actions_for(screen: str, keys: Mapping[str, str] | None = None) -> list[Action]:
    """Actions of a screen, in table order; `keys` (binding id to key) are a person's own."""
    actions = [a for a in ACTIONS if screen in a.screens]
    if not keys:
        return actions
    own = ((a, keys.get(binding_id(screen, a))) for a in actions)
    return [a if key is None else replace(a, key=key, shown=written(key)) for a, key in own]


def binding_id(screen: str, action: Action) -> str:
    """The id by which an action's key on a screen can be changed."""
    return f"{screen}.{action.name}"


def written(key: str) -> str:
    """A key as people write it: `^x`, `/`, `F5`."""
    if key.startswith("ctrl+"):
        return "^" + key.removeprefix("ctrl+")
    signs = {"slash": "/", "minus": "-", "plus": "+", "question_mark": "?", "escape": "esc", "comma": ",",
             "full_stop": ".", "semicolon": ";", "colon": ":"}  # fmt: skip
    return signs.get(key, key.upper() if key[:1] == "f" and key[1:].isdigit() else key)


def bindings_for(screen: str) -> list[BindingType]:
    """Textual bindings of a screen. Keys of the whole application are bound on every screen too."""
    app_wide = {"next_theme", "command_palette", "help", "quit", "history", "earlier", "save_profile", "fleet"}
    return [
        Binding(
            a.key,
            f"app.{a.id}" if a.id in app_wide else a.id,
            a.label,
            show=False,
            id=binding_id(screen, a),
            priority=a.key in UNTYPED,
        )
        for a in actions_for(screen)
    ]
