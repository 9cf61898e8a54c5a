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
    def words(self) -> str:
        """Label and name, so that the palette finds it by either."""
        name = self.name.replace("_", " ")
        return name if self.label in name else f"{self.label} · {name}"

    @property
    def key_text(self) -> str:
        """The key as people write it."""
        return self.shown or self.key


_ALL = ("cockpit", "launch", "relaunch", "sweep", "tune", "history", "earlier", "plan", "check", "diagnose", "fleet",
        "help")  # fmt: skip
_OPEN = ("cockpit", "fleet", "history", "check", "diagnose")
"""Screens without fields to type into."""
_GO = (*_OPEN, "sweep", "tune")
"""Where a number opens another screen: in a field it is a figure."""
_TIMED = ("cockpit", "fleet")
"""Screens whose panels can be read at another moment."""
ACTIONS: tuple[Action, ...] = (
    Action("go('fleet')", "1", "fleet", "all hosts at a glance", _GO, 3, group="screens"),
    Action("go('cockpit')", "2", "cockpit", "the main screen", _GO, 8, group="screens"),
    Action("go('history')", "3", "runs", "stored runs", _GO, 9, group="screens"),
    Action("go('diagnose')", "4", "findings", "what is wrong with the selected server", _GO, 9, group="screens"),
    Action("go('tune')", "5", "tuning", "experiments on the selected server", _GO, 9, group="screens"),
    Action("choose", "enter", "open", "open the cockpit on the host under the cursor", ("fleet",), 1),
    Action("leave", "escape", "back", "back to the cockpit", ("fleet",), 2, "esc"),
    Action("refresh_host", "r", "refresh", "look at the host under the cursor again now", ("fleet",), 6),
    Action("pick", "p", "pick", "pick the host under the cursor, or let it go", ("fleet",), 2),
    Action("pick_all", "a", "all", "pick all hosts that are shown, or none", ("fleet",), 5),
    Action("selected('check')", "c", "check", "check the picked hosts' servers, one after another", ("fleet",), 2),
    Action("selected('sweep')", "s", "sweep", "sweep the picked hosts' servers, one after another", ("fleet",), 2),
    Action("selected('stop')", "x", "stop", "stop the picked hosts' servers (asks once, lists each)", ("fleet",), 3),
    Action("filter", "slash", "filter", "show only hosts with these words: name, group, GPU, engine, model", ("fleet",),
           3, "/"),
    Action("sort", "o", "order", "order by tok/s, queue, GPU use, link, or as listed", ("fleet",), 4),
    Action("group", "g", "groups", "under the inventory's groups, or not", ("fleet",), 4),
    Action("launch", "l", "launch", "start a server on the selected host", ("cockpit",), 1, group="servers"),
    Action("sweep", "s", "sweep", "measure throughput over concurrency", ("cockpit",), 1, group="servers"),
    Action("relaunch", "R", "relaunch", "start the selected server again with other settings", ("cockpit",), 2, "R",
           "servers"),
    Action("tune", "t", "tune", "find the best settings of the selected server; it is put back at the end",
           ("cockpit",), 2, group="servers"),
    Action("check", "c", "check", "does it answer, with sense, as configured, as fast as it was?", ("cockpit",), 2,
           group="servers"),
    Action("diagnose", "d", "diagnose", "what is wrong with the server, ranked, with evidence", ("cockpit",), 2,
           group="servers"),
    Action("copy_line", "y", "copy", "copy the command line; the line or rows in view where the log has the focus",
           ("cockpit",), 6, "y", "servers"),
    Action("export", "e", "export", "write log, figures and screen into files", ("cockpit",), 6, "e", "view"),
    Action("export", "e", "export", "write the run, or two picked ones compared, as HTML, md, csv, json", ("history",),
           4),
    Action("export", "e", "export", "write the findings as a report (HTML, md) and as text", ("diagnose",), 4),
    Action("stop_server", "x", "stop", "stop the selected server (asks first)", ("cockpit",), 3, group="servers"),
    Action("history", "h", "runs", "stored runs", ("cockpit",), 2, group="servers"),
    Action("ran_before", "H", "ran before", "servers that ran on this host before, and what changed", ("cockpit",),
           3, "H", "servers"),
    Action("save_profile", "P", "profile", "save the selected server as a launch profile", ("cockpit",), 7, "P",
           "servers"),
    Action("refresh_host", "r", "refresh", "look at the host again now", ("cockpit",), 6, group="servers"),
    Action("search", "slash", "find", "find in the log by a regular expression", ("cockpit",), 2, "/", "log"),
    Action("filter", "ampersand", "filter", "show only log lines with a regular expression; !regex: only the others",
           ("cockpit",), 5, "&", "log"),
    Action("find(1)", "n", "next", "next match; without a search, the next error", ("cockpit",), 7, "n", "log"),
    Action("find(-1)", "N", "previous", "previous match, or error", ("cockpit",), 8, "N", "log"),
    Action("older", "o", "older", "on with the search above what is in memory: in the file on the host; esc stops it",
           ("cockpit",), 8, "o", "log"),
    Action("whole_line", "enter", "whole line", "all of the marked line of the log (else of the last in view), wrapped",
           ("cockpit",), 8, "enter", "log"),
    Action("pause", "space", "hold", "hold everything still, read it at one moment; go on", _TIMED, 2,
           "space", "time"),
    Action("time(-1)", "left_square_bracket", "earlier", "the moment at which all panels are read, a step back",
           _TIMED, 7, "[", "time"),
    Action("time(1)", "right_square_bracket", "later", "a step forth", _TIMED, 8, "]", "time"),
    Action("time(-12)", "left_curly_bracket", "much earlier", "twelve steps back", _TIMED, 10, "{", "time"),
    Action("time(12)", "right_curly_bracket", "much later", "twelve steps forth", _TIMED, 10, "}", "time"),
    Action("speed(-1)", "less_than_sign", "slower", "a recording plays slower", _TIMED, 11, "<", "time"),
    Action("speed(1)", "greater_than_sign", "quicker", "a recording plays quicker", _TIMED, 11, ">", "time"),
    Action("save_last", "w", "save", "save the last minutes as a recording", _TIMED, 6, "w", "time"),
    Action("acknowledge", "A", "acknowledge", "alarms of the selected server are known", ("cockpit",), 8,
           group="servers"),
    Action("record", "ctrl+r", "record", "record from now on into a file; again: end it", _TIMED, 8, "^r", "time"),
    Action("follow", "f", "follow", "go to the end of the log and stay there", ("cockpit",), 4, "f", "log"),
    Action("level", "v", "level", "log shows all but polls, everything, warnings, errors", ("cockpit",), 4, "v", "log"),
    Action("window(2)", "minus", "wider", "charts show twice the time", ("cockpit",), 8, "-", "time"),
    Action("window(0.5)", "plus", "closer", "charts show half the time", ("cockpit",), 8, "+", "time"),
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
    Action("start_tune", "ctrl+s", "plan / start", "show restarts and minutes, and ask; after the end: a new one",
           ("tune",), 1, "^s"),
    Action("measure", "m", "view", "Pareto chart, sweep curves; in a narrow terminal, reasons or report", ("tune",), 2),
    Action("stop_tune", "x", "stop", "end the experiment; the first server is put back", ("tune",), 2),
    Action("copy_line", "y", "copy", "copy the command line of what is ahead", ("tune",), 5),
    Action("export", "e", "export", "write the report into a file", ("tune",), 5),
    Action("leave", "escape", "back", "go back; an experiment under way goes on", ("tune",), 1, "esc"),
    Action("measure", "m", "measure", "chart shows throughput, speed of one stream, TTFT, E2E",
           ("sweep", "history"), 2),
    Action("overlay", "o", "overlay", "pick earlier runs to lie behind the chart", ("sweep",), 3),
    Action("stop_or_leave", "escape", "stop / back", "stop at once and keep what was measured; then go back",
           ("sweep",), 1, "esc"),
    Action("leave", "escape", "back", "go back; a launch under way goes on",
           ("launch", "relaunch", "history", "earlier", "plan", "check", "diagnose", "help"), 1, "esc"),
    Action("plan", "p", "plan", "plan a job of many requests from the run under the cursor; picked runs are compared",
           ("history",), 3),
    Action("pick", "space", "pick", "pick a run; two picked runs are compared", ("history",), 2, "space"),
    Action("open", "enter", "open", "show or hide evidence and arithmetic of a finding", ("diagnose",), 2, "enter"),
    Action("reach", "w", "what it takes", "what a rate would take: bytes, bandwidth, acceptance, slots", ("diagnose",),
           2),
    Action("copy_finding", "y", "copy", "copy the finding with its evidence", ("diagnose",), 3),
    Action("again", "r", "again", "look again", ("diagnose",), 2),
    Action("again", "r", "again", "check again", ("check",), 2),
    Action("reload", "r", "reload", "read the stored runs again", ("history",), 3),
    Action("sort", "o", "order", "order runs by start, peak rate, target, model, kind or status", ("history",), 5),
    Action("next_theme", "ctrl+t", "theme", "next theme", _ALL, 7, "^t", "view"),
    Action("command_palette", "ctrl+p", "palette", "everything by name", _ALL, 3, "^p"),
    Action("jump", "colon", "jump", "everything by name", _OPEN, 10, ":"),
    Action("tour", "T", "tour", "the first five things to know", ("cockpit",), 10),
    Action("suspend_process", "ctrl+z", "suspend", "back to the shell for a while; `fg` returns", _ALL, 12, "^z"),
    Action("help", "question_mark", "help", "keys of this screen",
           ("cockpit", "history", "earlier", "check", "diagnose", "fleet"), 0, "?"),
    Action("quit", "q", "quit", "leave; servers and launches live on", ("cockpit", "fleet"), 0, "q"),
)  # fmt: skip


SCREENS = tuple(dict.fromkeys(screen for action in ACTIONS for screen in action.screens))
UNTYPED = frozenset({"ctrl+s", "ctrl+y", "ctrl+f", "escape", "ctrl+r", "ctrl+z"})
"""Keys that work while a field is being typed into."""


def typed(key: str) -> bool:
    """Whether a field that is typed into takes the key as text."""
    if key in UNTYPED or key.startswith("ctrl+") or key in {"enter", "tab"}:
        return False
    return not (key[:1] == "f" and key[1:].isdigit())


APP_WIDE = frozenset({
    "next_theme", "command_palette", "jump", "help", "quit", "history", "go", "tour", "save_last", "record",
    "acknowledge", "suspend_process", "ran_before", "save_profile", "focus_next",
})  # fmt: skip
"""Actions of the application, bound on every screen that has them."""


def actions_for(screen: str, keys: Mapping[str, str] | None = None) -> list[Action]:
    """Actions of a screen, in table order; `keys` (binding id to key) are a person's own."""
    actions = [a for a in ACTIONS if screen in a.screens]
    if not keys:
        return actions
    own = ((a, keys.get(binding_id(screen, a))) for a in actions)
    return [a if key is None else replace(a, key=key, shown=written(key)) for a, key in own]


def key_of(app: object, where: str) -> str:
    """The key that does an action, as a person wrote it or as it is: `cockpit.launch`. Texts name keys by this."""
    screen, _, name = where.partition(".")
    return next(a.key_text for a in actions_for(screen, getattr(app, "own_keys", None)) if a.name == name)


def keycap(app: object, where: str) -> tuple[str, str]:
    """`key_of` as a span of a row."""
    return key_of(app, where), "key"


def binding_id(screen: str, action: Action) -> str:
    """The id by which an action's key on a screen can be changed."""
    return f"{screen}.{action.name}"


def written(key: str) -> str:
    """A key as people write it: `^x`, `/`, `F5`."""
    if key.startswith("ctrl+"):
        return "^" + key.removeprefix("ctrl+")
    signs = {
        "slash": "/", "minus": "-", "plus": "+", "question_mark": "?", "escape": "esc", "comma": ",", "colon": ":",
        "full_stop": ".", "semicolon": ";", "ampersand": "&", "less_than_sign": "<", "greater_than_sign": ">",
        "exclamation_mark": "!", "quotation_mark": '"', "number_sign": "#", "dollar_sign": "$", "percent_sign": "%",
        "apostrophe": "'", "left_parenthesis": "(", "right_parenthesis": ")", "asterisk": "*", "equals_sign": "=",
        "at": "@", "backslash": "\\", "circumflex_accent": "^", "underscore": "_", "grave_accent": "`",
        "vertical_line": "|", "tilde": "~", "left_square_bracket": "[", "right_square_bracket": "]",
        "left_curly_bracket": "{", "right_curly_bracket": "}",
    }  # fmt: skip
    return signs.get(key, key.upper() if key[:1] == "f" and key[1:].isdigit() else key)


def bindings_for(screen: str) -> list[BindingType]:
    """Textual bindings of a screen. Keys of the whole application are bound on every screen too."""
    return [
        Binding(
            a.key,
            f"app.{a.id}" if a.id.partition("(")[0] in APP_WIDE else a.id,
            a.label,
            show=False,
            id=binding_id(screen, a),
            priority=a.key in UNTYPED,
        )
        for a in actions_for(screen)
    ]
