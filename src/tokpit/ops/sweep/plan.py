"""What was asked of a sweep, in words, as the load generator's plan. Every wrong word is one sentence."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tokpit.errors import UsageError

DEFAULT_LEVELS = "1,4,8,16,32,48"
FIND_LEVELS = "1..256x2"
KEY_NAME = "TOKPIT_API_KEY"
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-zµ]*)", re.IGNORECASE)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PLAIN = (
    *("api", "requests", "max_tokens", "temperature", "top_p", "warmup", "duration_s", "arrival", "prompts"),
    *("input_tokens", "prompt_rows", "turns", "prefix_share", "unique_prefix", "seed", "timeouts", "stop_on_error"),
    *("continuous_usage", "ignore_eos", "warmup_each_level", "max_in_flight", "processes", "stagger_s"),
)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep as it was asked for. `fields` are fields of load.plan.Plan, without url, model, levels and rates."""

    levels: tuple[int, ...]
    rates: tuple[float, ...] = ()
    fields: dict[str, Any] = {}
    headers: dict[str, str] = {}
    dataset: str = "builtin"
    source: str = "auto"
    """`here`, `host`, `auto` or `hosts`."""
    from_hosts: tuple[str, ...] = ()
    repeat: int = 1
    find: bool = False
    flush: bool = False

    @property
    def title(self) -> str:
        """The levels, in words."""
        if self.find:
            return f"the highest C that meets the SLO, up to {max(self.levels)}"
        if self.rates:
            return f"{', '.join(f'{rate:g}' for rate in self.rates)} req/s"
        return f"C = {', '.join(map(str, self.levels))}"


def read_args(args: Mapping[str, Any]) -> Asked:
    """The arguments of `sweep.start` checked and read. Raises UsageError with one sentence for a wrong one."""
    from tokpit.load.levels import parse_levels
    from tokpit.load.plan import Plan, Slo, Timeouts

    find = bool(args.get("find"))
    fields = {"processes": 0, **{name: args[name] for name in _PLAIN if args.get(name) is not None}}
    try:
        levels = tuple(parse_levels(str(args.get("levels") or (FIND_LEVELS if find else DEFAULT_LEVELS))))
        rates = read_rates(args.get("rates"))
        fields["slo"] = Slo(**read_slo(str(args.get("slo") or "")))
        if args.get("timeout_s") is not None:
            fields["timeouts"] = Timeouts(total_s=float(args["timeout_s"]))
        dataset = str(args.get("dataset") or "builtin")
        fields.update(read_dataset(dataset))
        if args.get("turns") is None and fields.get("prompt_rows"):
            fields["turns"] = max(len(row["turns"]) if row.get("turns") else 1 for row in fields["prompt_rows"])
        repeat = int(args.get("repeat") or 1)
        if repeat < 1:
            raise ValueError(f"--repeat is {repeat}: at least 1")
        if find:
            _check_find(fields["slo"].asked, rates, repeat)
            levels = tuple(sorted(levels))
        # The generator's own checks, before anything is connected to.
        Plan(url="http://checked", levels=levels, rates=rates, **fields)
    except ValueError as error:
        raise UsageError(f"the sweep cannot run as asked: {error}", hint="see: tokpit sweep --help") from error
    source = str(args.get("source") or "auto").strip()
    from_hosts = () if source in ("here", "host", "auto") else read_hosts(source)
    return Asked(
        levels=levels,
        rates=rates,
        fields=fields,
        headers=read_headers(args.get("headers") or ()),
        dataset=dataset,
        source="hosts" if from_hosts else source,
        from_hosts=from_hosts,
        repeat=repeat,
        find=find,
        flush=bool(args.get("flush")),
    )


def read_hosts(text: str) -> tuple[str, ...]:
    """Host names of `gpu2,gpu3`. Raises UsageError for an empty or a repeated one."""
    names = tuple(word.strip() for word in text.split(","))
    if not all(names):
        raise UsageError(f"the load cannot come from {text!r}", hint="--from takes here, host, auto or HOST,HOST,...")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"--from names {twice} twice", hint="a host takes one share; --procs divides it further")
    return names


def _check_find(slo: bool, rates: Sequence[float], repeat: int) -> None:
    if not slo:
        raise ValueError("--find looks for the highest concurrency that meets the SLO, so it needs --slo")
    if rates:
        raise ValueError("--find looks for a concurrency: it does not go with --rate")
    if repeat > 1:
        raise ValueError("--find chooses its own levels: it does not go with --repeat")


def read_seconds(text: str) -> float:
    """Seconds of `500ms`, `20s`, `1.5 s` or `2m`. Raises ValueError where the unit is missing or unknown."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no time: write it with its unit, such as 500ms or 20s")
    unit = match[2].lower().replace("µ", "u")
    if unit not in _SECONDS:
        what = f"has the unit {match[2]!r}" if unit else "has no unit"
        raise ValueError(f"the time {text!r} {what}: write ms or s behind it, such as 500ms or 20s")
    seconds = float(match[1]) * _SECONDS[unit]
    if not seconds > 0 or not math.isfinite(seconds):
        raise ValueError(f"the time {text!r} must be over 0")
    return seconds


def read_slo(text: str) -> dict[str, float]:
    """Limits of `ttft=500ms,tpot=30ms,e2e=20s` by field of load.plan.Slo. Raises ValueError."""
    limits: dict[str, float] = {}
    for part in filter(None, (word.strip() for word in text.split(","))):
        name, equals, value = part.partition("=")
        key = f"{name.strip().lower()}_s"
        if not equals or key not in ("ttft_s", "tpot_s", "e2e_s"):
            raise ValueError(f"{part!r} is no limit of an SLO: write ttft=500ms, tpot=30ms or e2e=20s")
        if key in limits:
            raise ValueError(f"the SLO names {name.strip()} twice")
        limits[key] = read_seconds(value)
    return limits


def read_rates(value: object) -> tuple[float, ...]:
    """Offered requests per second of `2,5.5`, or of numbers. Raises ValueError."""
    words: list[Any] = []
    if isinstance(value, str):
        words = value.split(",") if value.strip() else []
    elif isinstance(value, (list, tuple)):
        words = list(value)
    elif value is not None:
        words = [value]
    rates: list[float] = []
    for word in words:
        try:
            rate = float(word)
        except ValueError:
            raise ValueError(
                f"{str(word).strip()!r} is no rate: write requests per second, such as 2 or 0.5,1,2"
            ) from None
        if not (math.isfinite(rate) and rate > 0):
            raise ValueError(f"the rate {str(word).strip()} must be over 0 requests/s")
        if rate in rates:
            raise ValueError(f"the rate {rate:g} is given twice")
        rates.append(rate)
    return tuple(rates)


def read_dataset(text: str) -> dict[str, Any]:
    """Plan fields for `builtin`, `random:N` (N prompt tokens) or a JSONL file. Raises ValueError."""
    from tokpit.load.plan import read_rows

    kind, colon, count = text.partition(":")
    if text == "builtin":
        return {}
    if kind == "random":
        if colon and not (count.isascii() and count.isdigit() and int(count) > 0):
            raise ValueError(f"the dataset {text!r} has no prompt length: write random:512 for 512 tokens")
        return {"prompts": "random", **({"input_tokens": int(count)} if colon else {})}
    path = Path(text).expanduser()
    try:
        rows = read_rows(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise ValueError(f"the dataset {text!r} is neither builtin nor random:N nor a file that exists") from None
    except UnicodeDecodeError:
        raise ValueError(f"the dataset {text} is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"the dataset {text} cannot be read: {error.strerror}") from None
    return {"prompts": "rows", "prompt_rows": tuple(rows)}


def read_headers(lines: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Headers of `NAME: VALUE` lines, with the API key of the environment. Raises UsageError.

    A key on the command line is seen by everybody on this machine, so it is refused there.
    """
    pairs = lines.items() if isinstance(lines, Mapping) else [_header(line) for line in lines]
    headers = dict(pairs)
    key = os.environ.get(KEY_NAME)
    if key:
        if not key.isprintable() or not key.isascii():
            raise UsageError(f"the API key in {KEY_NAME} has characters that a header cannot carry")
        headers.setdefault("Authorization", f"Bearer {key}")
    return headers


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or _HEADER.fullmatch(name) is None or not value.isprintable():
        raise UsageError("a header is not NAME: VALUE", hint="such as --header 'X-Team: search'")
    if name.lower() in ("authorization", "api-key", "x-api-key", "proxy-authorization"):
        raise UsageError(
            f"the header {name} carries a secret, and everybody on this machine can read a command line",
            hint=f"put the key into the environment variable {KEY_NAME}",
        )
    return name, value
