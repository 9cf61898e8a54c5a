"""How an engine's command line is spelled, and the reading of one into words."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from tokpit.engines.base import FlagSpec
from tokpit.engines.flagkit.tables import FlagTable

_END = "--"
_NEGATIVE_NUMBER = re.compile(r"^-\d+$|^-\d*\.\d+$")


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What a command line of an engine may look like beyond `--flag value`."""

    argparse: bool = True
    """Python's argparse reads it: `--flag=value`, unambiguous prefixes, `-q8`; values do not begin with a dash."""
    underscores: bool = False
    """`--max_model_len` is `--max-model-len`."""
    dotted: bool = False
    """`--config.key value` and `-sc.key=value` set one key of a JSON flag; `.key+` appends; `-O3` is a level."""
    binary_capitals: bool = False
    """In integers with suffix `K` is 1024 (else 1000s, with `Ki` for 1024)."""
    positional: bool = False
    """The first free word is the model."""


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """One flag with its values as found on a command line, or a free word (`option` empty)."""

    tokens: tuple[str, ...]
    option: str = ""
    """As written, without an attached value."""
    name: str = ""
    """The option string meant; empty where unknown."""
    spec: FlagSpec | None = None
    values: tuple[str, ...] = ()
    attached: bool = False
    keys: tuple[str, ...] = ()
    """The path of a dotted key."""
    append: bool = False
    problem: str = ""
    """Empty, `unknown`, `ambiguous`, `spelling`, `missing-value`, `takes-no-value`, `foreign` (another version's)."""
    candidates: tuple[str, ...] = ()


def read(tokens: Sequence[str], table: FlagTable, dialect: Dialect, others: FlagTable | None = None) -> list[Word]:
    """The words of a command line (without the program), in order. `others`: flags of other versions. Never raises."""
    return _Reader(tokens, table, dialect, others).words()


class _Reader:
    def __init__(self, tokens: Sequence[str], table: FlagTable, dialect: Dialect, others: FlagTable | None) -> None:
        self.tokens = list(tokens)
        self.table = table
        self.dialect = dialect
        self.others = others
        self.at = 0

    def words(self) -> list[Word]:
        out: list[Word] = []
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token == _END and self.dialect.argparse:
                out += [Word(tokens=(rest,)) for rest in self.tokens[self.at + 1 :]]
                break
            out.append(self._option(token) if not self._is_value(token) else self._free(token))
        return out

    def _free(self, token: str) -> Word:
        self.at += 1
        return Word(tokens=(token,))

    def _is_value(self, token: str) -> bool:
        if not token.startswith("-") or len(token) == 1:
            return True
        if token in self.table.options:
            return False
        if _NEGATIVE_NUMBER.match(token):
            return True
        return " " in token.split("=", 1)[0] and not self._dotted(token)

    def _dotted(self, token: str) -> bool:
        return self.dialect.dotted and "." in token.split("=", 1)[0] and not _NEGATIVE_NUMBER.match(token)

    def _option(self, token: str) -> Word:
        option, equals, value = token, False, ""
        if self.dialect.argparse and "=" in token:
            option, _, value = token.partition("=")
            equals = True
        if self._dotted(token):
            return self._key(token, option, value if equals else None)
        level = self.table.exact("--optimization-level") if self.dialect.dotted and token.startswith("-O") else None
        if level is not None:
            word = Word(tokens=(), option="-O", name="--optimization-level", spec=level)
            return self._take(word, token[2:].removeprefix("=") or None)
        found = self._resolve(option)
        if found.spec is None and not equals and self.dialect.argparse and not token.startswith("--"):
            short = self.table.exact(token[:2])
            if short is not None and len(token) > 2 and not found.candidates:
                return self._take(Word(tokens=(), option=token[:2], name=token[:2], spec=short), token[2:])
        return self._take(found, value if equals else None)

    def _normal(self, option: str) -> str:
        return option.replace("_", "-") if option.startswith("--") else option

    def _resolve(self, option: str) -> Word:
        wanted = self._normal(option) if self.dialect.underscores else option
        if spec := self.table.exact(wanted):
            return Word(tokens=(), option=option, name=wanted, spec=spec)
        matches = self.table.prefixed(wanted) if self.dialect.argparse and len(wanted) > 1 else []
        if len(matches) == 1:
            return Word(tokens=(), option=option, name=matches[0], spec=self.table.exact(matches[0]))
        if self.others and (spec := self.others.exact(wanted)):
            return Word(tokens=(), option=option, name=wanted, spec=spec, problem="foreign", candidates=tuple(matches))
        if matches:
            specs = {id(self.table.options[match]) for match in matches}
            spec = self.table.options[matches[0]] if len(specs) == 1 and not matches[0].startswith("--no-") else None
            return Word(
                tokens=(),
                option=option,
                name=matches[0] if spec else "",
                spec=spec,
                problem="ambiguous",
                candidates=tuple(matches),
            )
        normal = self._normal(option)
        near = self.table.exact(normal) or (self.others.exact(normal) if self.others else None)
        if normal != option and near is not None:
            return Word(tokens=(), option=option, name=normal, spec=near, problem="spelling", candidates=(normal,))
        return Word(tokens=(), option=option, problem="unknown")

    def _key(self, token: str, option: str, value: str | None) -> Word:
        head, *keys = option.split(".")
        found = self._resolve(head)
        append = bool(keys) and keys[-1].endswith("+")
        if append:
            keys[-1] = keys[-1][:-1]
        self.at += 1
        taken = [token]
        if value is None and self.at < len(self.tokens):
            value = self.tokens[self.at]
            taken.append(value)
            self.at += 1
        changes = {
            "tokens": tuple(taken),
            "option": option,
            "keys": tuple(keys),
            "append": append,
            "values": () if value is None else (value,),
            "problem": found.problem or ("missing-value" if value is None else ""),
        }
        return msgspec.structs.replace(found, **changes)

    def _take(self, word: Word, attached: str | None) -> Word:
        """The word with the values that follow it, as its flag's `nargs` asks for."""
        start = self.at
        self.at += 1
        problem = word.problem
        if attached is not None:
            values: tuple[str, ...] = (attached,)
            if word.spec is not None and word.spec.nargs == 0:
                problem = problem or "takes-no-value"
        else:
            values, short = self._following(word.spec)
            problem = problem or ("missing-value" if short else "")
        return msgspec.structs.replace(
            word,
            tokens=tuple(self.tokens[start : self.at]),
            values=values,
            attached=attached is not None,
            problem=problem,
        )

    def _following(self, spec: FlagSpec | None) -> tuple[tuple[str, ...], bool]:
        nargs = "*" if spec is None else spec.nargs
        least = nargs if isinstance(nargs, int) else {None: 1, "+": 1}.get(nargs, 0)
        most = nargs if isinstance(nargs, int) else {None: 1, "?": 1}.get(nargs, len(self.tokens))
        values: list[str] = []
        while self.at < len(self.tokens) and len(values) < most:
            token = self.tokens[self.at]
            blind = not self.dialect.argparse and spec is not None and len(values) < least
            if not blind and not self._is_value(token):
                break
            values.append(token)
            self.at += 1
        return tuple(values), len(values) < least
