"""What a sweep does, as plain data that survives JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .levels import check_levels

APIS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
MAX_PROCESSES = 64
DEFAULT_LEVELS = (1, 4, 8, 16, 32, 48)


@dataclass(frozen=True)
class Timeouts:
    """The client's own limits by phase, seconds on the host's clock; None waits for ever.

    `first_s` includes the server's queue, so it is long; a whole-request limit would cut slow levels short and make
    them look like a collapse, so there is none unless asked for.
    """

    connect_s: float = 10.0
    first_s: float | None = 900.0
    between_s: float | None = 120.0
    total_s: float | None = None


@dataclass(frozen=True)
class Slo:
    """What a good request keeps, seconds; None is not asked for. Goodput counts requests that keep all of them."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    @property
    def asked(self) -> bool:
        """Whether any limit is set."""
        return any(limit is not None for limit in (self.ttft_s, self.tpot_s, self.e2e_s))


@dataclass(frozen=True)
class Plan:
    """A sweep: one level per concurrency (closed loop), or one per rate where `rates` is given (open loop)."""

    url: str
    """Base address without /v1."""
    model: str = ""
    """Empty: the first one that /v1/models names."""
    api: str = "chat"
    """`chat` or `completions`."""
    levels: tuple[int, ...] = DEFAULT_LEVELS
    rates: tuple[float, ...] = ()
    """Offered requests/s, one level each; where given, `levels` is not used."""
    arrival: str = "poisson"
    """Open loop: `poisson` (exponential gaps) or `constant`."""
    requests: int | None = None
    """Per level; None: max(2C, 8) in a closed loop, and as many as `duration_s` takes where that is given."""
    duration_s: float | None = None
    """Starts requests for this long, then lets the running ones finish."""
    stagger_s: float = 0.0
    """Closed loop: the first requests start this far apart, on the host's clock; 0: all at once."""
    max_tokens: int = 1024
    temperature: float | None = 0.6
    top_p: float | None = 0.95
    ignore_eos: bool = False
    """Sent only when True; SGLang, vLLM and llama.cpp take it."""
    warmup: int = 1
    """Requests before the first level, outside every figure."""
    warmup_each_level: bool = False
    """As many as `warmup`, before every level: for engines that compile for new shapes."""
    prompts: str = "builtin"
    """`builtin` (eight themes), `random` (`input_tokens` long) or `rows`."""
    input_tokens: int = 512
    prompt_rows: tuple[dict[str, Any], ...] = ()
    """For `rows`: objects with `prompt`, `messages` or `turns` (user messages sent one after the other)."""
    turns: int = 1
    """Requests of one conversation, each with the answers before it; `builtin` and `random` ask follow-up questions."""
    unique_prefix: bool = True
    """A fresh mark in every prompt, so that no prefix cache can answer for the model."""
    prefix_share: float = 0.0
    """Share of each prompt, from its front, that stays before the mark (0: nothing is shared, 1: all of it)."""
    continuous_usage: bool = False
    """Asks for token counts in every chunk (vLLM; SGLang from 0.5.5): exact per-token ITL, some load on the server."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    slo: Slo = field(default_factory=Slo)
    stop_on_error: bool = False
    clock_factor: float = 1.0
    """Every duration times this: figures on the clock of a simulated host that runs this much faster."""
    processes: int = 1
    """Among how many the load is divided; 0: as many as it takes, up to half of the machine's cores."""
    max_in_flight: int = 4096
    """Open loop: arrivals beyond this wait at the client (and are reported)."""
    seed: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    """Added to every request, such as Authorization. Left out of `to_dict(secrets=False)`."""
    extra_body: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        object.__setattr__(self, "rates", tuple(float(rate) for rate in self.rates))
        object.__setattr__(self, "prompt_rows", tuple(self.prompt_rows))
        self._check()

    @property
    def endpoint(self) -> str:
        """The address that requests go to."""
        base = self.url.rstrip("/")
        return (base[:-3] if base.endswith("/v1") else base) + APIS[self.api]

    @property
    def models_url(self) -> str:
        """The address that names the models."""
        base = self.url.rstrip("/")
        return (base[:-3] if base.endswith("/v1") else base) + "/v1/models"

    def requests_at(self, concurrency: int) -> int | None:
        """How many requests a closed-loop level sends; None: as many as its duration takes."""
        if self.requests is not None or self.duration_s is not None:
            return self.requests
        return max(2 * concurrency, 8)

    def to_dict(self, *, secrets: bool = True) -> dict[str, Any]:
        """Plain data for JSON; `secrets=False` leaves the header values out."""
        data = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        if not secrets:
            data["headers"] = dict.fromkeys(self.headers, "***")
        return data

    def to_json(self) -> str:
        """One line of JSON, read again by `from_json`."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Plan:
        """A plan from plain data; raises ValueError with one sentence for what it cannot mean."""
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise ValueError(f"the plan has no setting {unknown[0]!r}")
        if "url" not in data:
            raise ValueError("the plan names no url")
        values = dict(data)
        try:
            for name, kind in (("timeouts", Timeouts), ("slo", Slo)):
                if isinstance(values.get(name), dict):
                    values[name] = kind(**values[name])
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"the plan cannot be read: {error}") from None

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """A plan from `to_json`; raises ValueError."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise ValueError(f"the plan is not JSON: {error}") from None
        if not isinstance(data, dict):
            raise ValueError("the plan is not a JSON object")
        return cls.from_dict(data)

    def with_file(self, path: str | Path) -> Plan:
        """The same plan with the prompts of a JSONL file; raises ValueError for a line that is none, OSError."""
        rows = read_rows(Path(path).read_text(encoding="utf-8"), str(path))
        return replace(self, prompts="rows", prompt_rows=tuple(rows))

    def _check(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"the url {self.url!r} does not start with http:// or https://")
        if self.api not in APIS:
            raise ValueError(f"the api is {self.api!r}: chat or completions")
        if self.arrival not in ("poisson", "constant"):
            raise ValueError(f"the arrival is {self.arrival!r}: poisson or constant")
        if self.prompts not in ("builtin", "random", "rows"):
            raise ValueError(f"the prompts are {self.prompts!r}: builtin, random or rows")
        if self.prompts == "rows" and not self.prompt_rows:
            raise ValueError("the prompt file has no prompts")
        if self.rates:
            if not all(math.isfinite(rate) and rate > 0 for rate in self.rates):
                raise ValueError("every rate must be over 0 requests/s")
            if self.requests is None and self.duration_s is None:
                raise ValueError("an open-loop level needs a number of requests or a duration")
        else:
            check_levels(list(self.levels))
        lows = (
            ("max_tokens", 1),
            ("warmup", 0),
            ("turns", 1),
            ("input_tokens", 1),
            ("max_in_flight", 1),
            ("processes", 0),
        )
        for name, low in lows:
            if getattr(self, name) < low:
                raise ValueError(f"{name} is {getattr(self, name)}: at least {low}")
        if self.processes > MAX_PROCESSES:
            raise ValueError(f"{self.processes} processes are over {MAX_PROCESSES}, the most that share one load")
        if self.requests is not None and self.requests < 1:
            raise ValueError("a level needs at least 1 request")
        if self.duration_s is not None and not self.duration_s > 0:
            raise ValueError("the duration must be over 0 s")
        if not (math.isfinite(self.stagger_s) and self.stagger_s >= 0):
            raise ValueError("the time between the first starts is 0 s or more")
        if not (math.isfinite(self.clock_factor) and self.clock_factor > 0):
            raise ValueError("the clock factor must be over 0")
        if not 0 <= self.prefix_share <= 1:
            raise ValueError("prefix_share is a share between 0 and 1")


def read_rows(text: str, name: str = "the prompt file") -> list[dict[str, Any]]:
    """The prompts of JSONL text, one object (or string) per line; raises ValueError that names the line."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            raise ValueError(f"{name}, line {number}: not JSON") from None
        if isinstance(row, str):
            row = {"prompt": row}
        if not isinstance(row, dict) or not any(_usable(row, key) for key in ("prompt", "messages", "turns")):
            raise ValueError(f"{name}, line {number}: no prompt, messages or turns in it")
        rows.append(row)
    if not rows:
        raise ValueError(f"{name} has no prompts")
    return rows


def _usable(row: dict[str, Any], key: str) -> bool:
    value = row.get(key)
    return isinstance(value, str if key == "prompt" else list) and bool(value)
