"""What differs between two sets of settings, flag by flag, as a person would say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.domain.text import MASK
from tokpit.store.masking import masked


class Change(msgspec.Struct, frozen=True):
    """One difference; None: not given, the engine decides."""

    name: str
    before: str | None
    after: str | None

    @property
    def text(self) -> str:
        """`name: before -> after`, secrets masked."""
        before, after = (
            "not given" if value is None else masked({self.name: value})[self.name]
            for value in (self.before, self.after)
        )
        other = " (another one)" if before == after != "not given" else ""
        return f"{self.name}: {before} -> {after}{other}"


def differences(before: Settings, after: Settings) -> tuple[Change, ...]:
    """Canonical settings first, in their own order, then flags without a canonical name."""
    old, new = before.given(), after.given()
    found = [
        Change(name, _word(old.get(name)), _word(new.get(name)))
        for name in Settings.__struct_fields__
        if name != "raw" and old.get(name) != new.get(name)
    ]
    return (*found, *map_differences(flags_of(before.raw), flags_of(after.raw)))


def map_differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    """Differences of two mappings, by name."""
    names = dict.fromkeys((*before, *after))
    changes = (Change(name, before.get(name), after.get(name)) for name in names)
    return tuple(change for change in changes if change.before != change.after and not _hidden(change))


def launch_differences(before: LaunchSpec, after: LaunchSpec) -> tuple[Change, ...]:
    """What one launch has otherwise than another: settings, then environment."""
    return (*differences(before.settings, after.settings), *map_differences(before.env, after.env))


def in_words(changes: Sequence[Change]) -> str:
    """Changes in a line, for the title of what makes them."""
    return ", ".join(change.text for change in changes) or "the same settings"


def _hidden(change: Change) -> bool:
    """Whether one side was stored without its secret, so that nobody can tell whether it is another one."""
    if change.before is None or change.after is None or MASK not in f"{change.before} {change.after}".split():
        return False
    return bool(masked({change.name: change.before}) == masked({change.name: change.after}))


def flags_of(words: Sequence[str]) -> dict[str, str]:
    """Flags with the words that follow each, `--flag=value` taken apart; a flag given twice keeps all its words."""
    found: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("-") and not _negative(word):
            name, equals, value = word.partition("=")
            found[name] = " ".join(filter(None, (found.get(name), value))) if equals else found.get(name, "")
        elif name:
            found[name] = f"{found[name]} {word}".strip()
        else:
            found[word] = ""
    return {key: value or "on" for key, value in found.items()}


def flag_groups(words: Sequence[str]) -> list[list[str]]:
    """A command line as the program's words and then each flag with its values, in order."""
    groups: list[list[str]] = [[]]
    for word in words:
        if word.startswith("-") and len(word) > 1 and not _negative(word) and word != "-m":
            groups.append([])
        groups[-1].append(word)
    return [group for group in groups if group]


def _negative(word: str) -> bool:
    return word[1:2].isdigit() or word[1:2] == "."


def _word(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
