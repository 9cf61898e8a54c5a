"""A person's own keys: entries of the configuration to binding ids, a sentence for each that cannot be followed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from textual.keys import KEY_ALIASES, Keys, _character_to_key

from tokpit.ui.actions import ACTIONS, SCREENS, UNTYPED, Action, actions_for, binding_id

COMMANDS = {
    "server.launch": "launch", "server.relaunch": "relaunch", "server.stop": "stop_server", "server.check": "check",
    "sweep.start": "sweep", "sweep.stop": "stop_or_leave", "tune.start": "tune", "tune.stop": "stop_tune",
}  # fmt: skip
"""Command ids, which the configuration may use instead of action names."""


def own_keys(wanted: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """A person's keys as binding ids, and one sentence for each entry that cannot be followed.

    An entry is named by an action (`stop_server`), an action on one screen (`cockpit.stop_server`) or a command
    (`server.stop`); the key is in Textual's words (`ctrl+x`, `f5`, `x`).
    """
    keys: dict[str, str] = {}
    problems: list[str] = []
    for entry, given in wanted.items():
        key = plain(given)
        screen, _, rest = entry.partition(".") if entry not in COMMANDS else ("", "", "")
        name = COMMANDS.get(entry) or (rest if rest and screen in SCREENS else entry)
        screens = (screen,) if screen in SCREENS and rest else SCREENS
        found = [(s, a) for s in screens for a in actions_for(s) if a.name == name]
        if not found:
            near = get_close_matches(entry, [*{a.name for a in ACTIONS}, *COMMANDS], 1)
            problems.append(
                f"[keys] {entry!r}: there is no such action" + (f"; {near[0]!r} is like it" if near else "")
            )
            continue
        if not _is_key(key):
            problems.append(f"[keys] {entry!r}: {given!r} is no key; write it like ctrl+x, f5, x, ? or slash")
            continue
        if why := _taken(key, found):
            problems.append(f"[keys] {entry!r}: {why}")
            continue
        if len(key) == 1 and any(a.key in UNTYPED for _, a in found):
            problems.append(
                f"[keys] {entry!r}: {key!r} could not be typed into a field any more; use ctrl or a function key"
            )
            continue
        keys |= {binding_id(s, a): key for s, a in found}
    problems += _clashes(keys)
    return keys, problems


def plain(given: str) -> str:
    """A key as it arrives: `?` as `question_mark`, `F5` as `f5`, `Ctrl+X` as `ctrl+x`."""
    key = given.strip()
    return _character_to_key(key) if len(key) == 1 else key.lower()


MOVES = frozenset({"up", "down", "left", "right", "pageup", "pagedown", "home", "end", "j", "k"})
_SENT_AS = {"ctrl+i": "tab", "ctrl+m": "enter", "ctrl+h": "backspace", "ctrl+left_square_bracket": "escape"}


def _taken(key: str, found: Iterable[tuple[str, Action]]) -> str:
    """Why a key never reaches an action, whatever the screen; empty: it does."""
    if key in _SENT_AS:
        return f"terminals send {key!r} as {_SENT_AS[key]!r}; give another key"
    if key in MOVES or (key in {"g", "G"} and any(screen == "cockpit" for screen, _ in found)):
        return f"{key!r} moves in the log and in lists; give another key"
    if key in {"ctrl+q", "ctrl+c"} and any(action.id != "quit" for _, action in found):
        return f"{key!r} leaves tokpit or copies; give another key"
    if key in {"escape", "tab", "shift+tab"} and any(action.key != key for _, action in found):
        return f"{key!r} closes what is open or goes from panel to panel; give another key"
    return ""


def _clashes(keys: dict[str, str]) -> list[str]:
    """Drop the person's keys that another action of the same screen has, with a sentence for each."""
    problems: list[str] = []
    for screen in SCREENS:
        while clash := _first_clash(screen, actions_for(screen, keys)):
            mine, other = clash if binding_id(screen, clash[0]) in keys else clash[::-1]
            keys.pop(binding_id(screen, mine))
            problems.append(f"[keys] {mine.name!r}: on the {screen} {mine.key!r} is the key of {other.name!r}")
    return list(dict.fromkeys(problems))


def _first_clash(screen: str, actions: Iterable[Action]) -> tuple[Action, Action] | None:
    taken: dict[str, Action] = {}
    for action in actions:
        if action.key in taken:
            return action, taken[action.key]
        taken[action.key] = action
    return None


_NAMED = frozenset(key.value for key in Keys) | frozenset(KEY_ALIASES)
_SIGNS = frozenset({"slash", "minus", "plus", "question_mark", "comma", "full_stop", "semicolon", "colon", "space"})


_SIGNED = frozenset(_character_to_key(chr(n)) for n in range(33, 127))
"""Names of the characters of a keyboard."""


def _is_key(key: str) -> bool:
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    if not modifiers and last in _SIGNED:
        return True
    if any(word not in {"ctrl", "shift", "alt"} for word in modifiers):
        return False
    return (len(last) == 1 and last.isprintable() and not last.isspace()) or last in _NAMED or last in _SIGNS
