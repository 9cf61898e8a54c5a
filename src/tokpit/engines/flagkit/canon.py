"""Canonical settings to flags and back, for all that is one setting, one flag; engines add what is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tokpit.domain.settings import Settings
from tokpit.engines.flagkit.dialect import Dialect, Word, read
from tokpit.engines.flagkit.kinds import human_int, to_float
from tokpit.engines.flagkit.renames import Renames
from tokpit.engines.flagkit.tables import Catalog, FlagTable, Pick
from tokpit.errors import UsageError


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A setting and the option strings that stand for it, the preferred spelling first.

    `kind`: `str`, `int`, `float`; `on` (switch that means True), `off` (switch that means False), `both` (`--x`,
    `--no-x`). Option strings of all versions are listed; which one is written depends on the version's table.
    """

    setting: str
    options: tuple[str, ...]
    kind: str = "str"


class Map:
    """The rules of one engine with its dialect, catalog and renames."""

    def __init__(
        self, title: str, rules: Iterable[Rule], dialect: Dialect, catalog: Callable[[], Catalog], renames: Renames
    ) -> None:
        self.title = title
        self.renames = renames
        self.rules = tuple(rules)
        self.dialect = dialect
        self.catalog = catalog
        self._by_setting = {rule.setting: rule for rule in self.rules}
        self._by_option = {option: rule for rule in self.rules for option in rule.options}

    def words(self, flags: Sequence[str], version: str | None) -> list[Word]:
        """The command line read with this version's flags; other versions' flags are understood too."""
        catalog = self.catalog()
        return read(flags, catalog.at(version), self.dialect, catalog.union)

    def rule_of(self, word: Word) -> Rule | None:
        """The rule that a word falls under."""
        if word.spec is None or word.keys or word.problem in ("missing-value", "takes-no-value"):
            return None
        return next((self._by_option[option] for option in word.spec.flags if option in self._by_option), None)

    def value_of(self, word: Word, rule: Rule) -> object | None:
        """The canonical value of a word, or None where it has none (then the word stays as it is)."""
        if rule.kind in ("on", "off", "both"):
            negated = word.name.startswith("--no-")
            if negated and rule.kind != "both":
                return None
            return negated if rule.kind == "off" else not negated
        if len(word.values) != 1:
            return None
        text = word.values[0]
        if rule.kind == "int":
            if word.spec is not None and word.spec.type == "human-auto" and text.strip().lower() == "auto":
                return -1
            return human_int(text, binary_capitals=self.dialect.binary_capitals)
        if rule.kind == "float":
            return to_float(text)
        return text

    def take(self, words: Iterable[Word]) -> tuple[dict[str, object], list[Word]]:
        """Settings by name, and the words that no rule covers, in order. The last of several wins, as in argparse."""
        given: dict[str, object] = {}
        rest: list[Word] = []
        model_seen = False
        for word in words:
            if not word.option and self.dialect.positional and not model_seen:
                model_seen = True
                given["model"] = word.tokens[0]
                continue
            rule = self.rule_of(word)
            value = None if rule is None else self.value_of(word, rule)
            if rule is None or value is None:
                rest.append(word)
            elif rule.setting != "model" or not model_seen:
                given[rule.setting] = value
        return given, rest

    def option(self, setting: str, table: Pick) -> str:
        """The option string for a setting in this version. Raises UsageError naming the versions that have one."""
        rule = self._by_setting.get(setting)
        if rule is None:
            raise UsageError(f"{self.title} has no setting for {setting}")
        return self.pick(rule.options, table, setting)

    def pick(self, options: Sequence[str], table: Pick, what: str) -> str:
        """The first of the options that this version takes. Raises UsageError naming the versions that have one."""
        for option in options:
            if table.exact(option):
                return option
        raise UsageError(
            f"{self.title} {table.wanted or table.sampled} has no setting for {what}",
            hint=f"{options[0]}: {self.catalog().span(*options)}",
        )

    def give(self, values: Mapping[str, object], table: Pick) -> list[str]:
        """Flags for the settings that have a rule, in the order of the rules."""
        out: list[str] = []
        for rule in self.rules:
            value = values.get(rule.setting)
            if value is None:
                continue
            if rule.kind in ("on", "off", "both"):
                out += self._switch(rule, bool(value), table)
            else:
                out += [self.pick(rule.options, table, rule.setting), number(value)]
        return out

    def _switch(self, rule: Rule, value: bool, table: Pick) -> list[str]:
        if rule.kind == "both":
            option = self.pick(rule.options, table, rule.setting)
            return [option] if value else [f"--no-{option[2:]}"]
        return [self.pick(rule.options, table, rule.setting)] if value is (rule.kind == "on") else []


def number(value: object) -> str:
    """A value as a flag's text: whole floats keep their point, so that they read back as what they were."""
    return repr(value) if isinstance(value, float) else str(value)


def settings(given: Mapping[str, object], rest: Iterable[Word]) -> Settings:
    """Settings from canonical values and leftover words."""
    raw = tuple(token for word in rest for token in word.tokens)
    return msgspec.structs.replace(Settings(raw=raw), **given)


def refuse(title: str, given: Mapping[str, object], names: Mapping[str, str]) -> None:
    """Raise UsageError for the first given setting that this engine cannot take; `names` says what to do instead."""
    for name, hint in names.items():
        if given.get(name) is not None:
            raise UsageError(f"{title} has no setting for {name}", hint=hint)


def has(table: FlagTable, *options: str) -> bool:
    """Whether the table has one of the options."""
    return any(table.exact(option) for option in options)
