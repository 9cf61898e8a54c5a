"""Level lists: "1,4,8", "1-8", "4..64x2", "10..50+10" and any mix of them."""

from __future__ import annotations

import re

MAX_LEVEL = 8192
MAX_LEVELS = 64

_RANGE = re.compile(r"(\d+)\s*(?:-|\.\.)\s*(\d+)(?:\s*([x*+])\s*(\d+))?")


def parse_levels(text: str) -> list[int]:
    """The concurrency levels that `text` names, in its order.

    `1,4,8` is a list, `1-8` (or `1..8`) every number, `4..64x2` times two up to 64, `10..50+10` plus ten up to 50.
    Raises ValueError with one sentence for anything else, for levels below 1 or over 8192, and for repeats.
    """
    levels: list[int] = []
    tight = re.sub(r"\s*(\.\.|[-x*+])\s*", r"\1", text.strip().strip(",; "))
    for part in re.split(r"\s*[,;]\s*|\s+", tight) if tight else ():
        levels.extend(_part(part, text))
        if len(levels) > MAX_LEVELS:
            raise ValueError(f"{text!r} gives more than {MAX_LEVELS} levels: a sweep of that many would take hours")
    return check_levels(levels)


def check_levels(levels: list[int]) -> list[int]:
    """`levels` unchanged if a sweep can run them; raises ValueError otherwise."""
    if not levels:
        raise ValueError("no level given: name at least one concurrency, such as 1,4,8")
    if len(levels) > MAX_LEVELS:
        raise ValueError(f"{len(levels)} levels are more than the {MAX_LEVELS} that a sweep takes")
    seen: set[int] = set()
    for level in levels:
        if level < 1:
            raise ValueError(f"level {level} is not possible: concurrency starts at 1")
        if level > MAX_LEVEL:
            raise ValueError(f"level {level} is over {MAX_LEVEL}, the most that one client opens at once")
        if level in seen:
            raise ValueError(f"level {level} is given twice")
        seen.add(level)
    return levels


def _part(part: str, text: str) -> list[int]:
    if part.isascii() and part.isdigit():
        return [int(part)]
    match = _RANGE.fullmatch(part)
    if match is None:
        shown = repr(part) if part else "an empty item"
        raise ValueError(f"cannot read {shown} in the levels {text!r}: write them as 1,4,8 or 1-8 or 4..64x2")
    low, high, sign, step = int(match[1]), int(match[2]), match[3], int(match[4] or 1)
    if low > high:
        raise ValueError(f"the range {part!r} runs backwards: write the smaller level first")
    if low < 1:
        raise ValueError(f"level {low} is not possible: concurrency starts at 1")
    if sign == "+" and step < 1:
        raise ValueError(f"the range {part!r} needs a step of at least 1")
    if sign in ("x", "*") and step < 2:
        raise ValueError(f"the range {part!r} needs a factor of at least 2")
    values: list[int] = []
    value = low
    while value <= high and len(values) <= MAX_LEVELS:
        values.append(value)
        value = value * step if sign in ("x", "*") else value + step
    return values
