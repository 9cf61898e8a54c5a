"""Command lines made from a flag table, valid and spoilt, and the argparse parser that the table describes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from random import Random
from typing import Any, NoReturn

import msgspec

from tokpit.engines.base import FlagSpec
from tokpit.engines.flagkit.kinds import human_int

SPECULATION = (
    "--speculative-algorithm",
    "--speculative-num-",
    "--speculative-eagle-topk",
    "--spec-",
    "--speculative-config",
)
TEXTS = ("auto", "/models/q4", "org/Model-7B", "a b", "x=y", "0", "with_under", "UPPER")


def value(row: FlagSpec, random: Random, *, capitals: bool) -> str:
    if row.choices:
        return str(random.choice(row.choices))
    if row.type == "int":
        return str(random.choice([0, 1, 3, 16, 4096, -1]))
    if row.type in ("human", "human-auto"):
        return random.choice(["8192", "16k", "2K" if capitals else "2Ki", "1.5k", "-1"])
    if row.type == "float":
        return random.choice(["0", "0.5", "0.90", "1", "2.25", "1e-3"])
    if row.type == "json":
        return random.choice(["{}", '{"a": 1}', '{"a": {"b": [1, 2]}}'])
    return random.choice(TEXTS)


def words(row: FlagSpec, random: Random, *, underscores: bool, capitals: bool) -> list[str]:
    option = random.choice(row.flags)
    shown = option
    if underscores and option.startswith("--") and random.random() < 0.3:
        shown = "--" + option[2:].replace("-", "_")
    if row.nargs == 0:
        return [shown]
    count = row.nargs if isinstance(row.nargs, int) else {None: 1, "?": random.randint(0, 1)}.get(row.nargs, 2)
    values = [value(row, random, capitals=capitals) for _ in range(count)]
    if len(values) == 1 and random.random() < 0.3:
        return [f"{shown}={values[0]}"]
    return [shown, *values]


def shorten(word: str, random: Random) -> str:
    name, equals, rest = word.partition("=")
    if not name.startswith("--") or len(name) < 8 or "." in name:
        return word
    return name[: random.randint(6, len(name))] + equals + rest


def speculation(engine: str, options: Sequence[str], random: Random, *, flexible: bool) -> list[str]:
    steps = random.randint(1, 5)
    if engine == "sglang":
        if "--speculative-algorithm" not in options or random.random() < 0.5:
            return []
        if random.random() < 0.3:
            tree = f"--speculative-algorithm EAGLE --speculative-num-steps {steps} --speculative-eagle-topk 4"
            return [*tree.split(), "--speculative-num-draft-tokens", "8"]
        chain = f"--speculative-num-steps {steps} --speculative-algorithm NEXTN --speculative-eagle-topk=1"
        return [*chain.split(), "--speculative-num-draft-tokens", str(steps + 1)]
    config = {"method": "ngram", "num_speculative_tokens": steps, "prompt_lookup_max": 4}
    whole = ["--speculative-config", json.dumps(config)]
    if not flexible:
        return random.choice([[], whole])
    return random.choice(
        [
            [],
            whole,
            ["--speculative-config.method", "ngram", f"--speculative-config.num_speculative_tokens={steps}"],
            ["--speculative_config.method=ngram", "--speculative-config.num_speculative_tokens", str(steps)],
        ]
    )


# `flexible`: spelled as only vLLM's own parser understands, not argparse.
def line(
    engine: str, rows: Sequence[FlagSpec], random: Random, *, spoil: bool = False, flexible: bool = False
) -> list[str]:
    vllm = engine == "vllm"
    usable = [row for row in rows if row.flags[0].startswith("--") and not row.flags[0].startswith(SPECULATION)]
    usable = [
        row for row in usable if row.type != "json" and row.flags[0] not in ("--config", "--model", "--lora-modules")
    ]
    closed = {row.dest: row.choices for row in rows if row.choices}  # a deprecated alias takes its successor's values
    usable = [msgspec.structs.replace(row, choices=row.choices or closed.get(row.dest)) for row in usable]
    groups = [
        words(row, random, underscores=flexible, capitals=vllm) for row in random.sample(usable, random.randint(0, 7))
    ]
    if random.random() < 0.3:
        groups = [[shorten(group[0], random), *group[1:]] for group in groups]
    known = [option for row in rows for option in row.flags]
    groups.append(speculation(engine, known, random, flexible=flexible))
    if spoil:
        groups.append(
            random.choice([["--no-such-flag"], ["--no-such-flag=3"], ["--port", "many"], ["--port"], ["-qz", "1"]])
        )
    random.shuffle(groups)
    model = ["org/Model-7B"] if vllm else ["--model-path", "org/Model-7B"]
    return [*model, *(word for group in groups for word in group)]


def _human(capitals: bool) -> Any:
    def read(text: str) -> int:
        number = human_int(text, binary_capitals=capitals)
        if number is None:
            raise argparse.ArgumentTypeError(text)
        return number

    return read


class Quiet(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise argparse.ArgumentError(None, message)


def parser(rows: Sequence[FlagSpec], *, capitals: bool) -> argparse.ArgumentParser:
    out = Quiet(add_help=False)
    types: dict[str, Any] = {"int": int, "float": float, "human": _human(capitals), "human-auto": _human(capitals)}
    for row in rows:
        negated = [option for option in row.flags if option.startswith("--no-")]
        plain = [option for option in row.flags if option not in negated]
        if not row.flags[0].startswith("-"):
            out.add_argument(row.flags[0], nargs="?")
        elif row.nargs == 0 and negated:
            out.add_argument(*plain, dest=row.dest, action=argparse.BooleanOptionalAction)
        elif row.nargs == 0:
            out.add_argument(*row.flags, dest=row.dest, action="store_true")
        else:
            kind = types.get(row.type or "str", str)
            choices = [kind(choice) for choice in row.choices] if row.choices else None
            default = row.default if isinstance(row.default, (int, float)) else None
            out.add_argument(*row.flags, dest=row.dest, type=kind, nargs=row.nargs, choices=choices, default=default)
    return out


def parse(made: argparse.ArgumentParser, tokens: Sequence[str]) -> dict[str, Any] | None:
    """Namespace, or None where argparse refuses the line."""
    try:
        known, rest = made.parse_known_args(list(tokens))
    except (argparse.ArgumentError, argparse.ArgumentTypeError, SystemExit):
        return None
    return None if rest else vars(known)
