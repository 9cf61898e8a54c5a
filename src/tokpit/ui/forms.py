"""Form fields to launch specs and sweep plans: plain functions, so that a wrong entry is a sentence and not a crash."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.errors import TokpitError, UsageError
from tokpit.transport.base import HostSpec, quote

LAUNCH_FIELDS: tuple[tuple[str, str, str], ...] = (
    ("program", "environment", "folder or program; empty: found on the host"),
    ("model", "model", "path on the host, or repository name"),
    ("port", "port", ""),
    ("tp", "tensor parallel", "GPUs"),
    ("spec_steps", "MTP steps", "0 or empty: no speculation"),
    ("draft_model", "draft model", "path; empty: the model's own heads"),
    ("spec_method", "draft method", "dflash, eagle3, draft; empty: mtp"),
    ("spec_block", "draft block", "dflash: tokens drafted at once"),
    ("hicache_gb", "hicache GB", "host memory for the cache, per rank"),
    ("max_running", "max running", "requests at once"),
    ("context_len", "context", "tokens"),
    ("raw", "more flags", "as on a command line"),
    ("env", "variables", "NAME=VALUE ..., for this server alone"),
)
SWEEP_FIELDS: tuple[tuple[str, str, str, str], ...] = (
    ("levels", "concurrency levels", "1,4,8,16,32,48", "comma separated"),
    ("requests", "requests per level", "", "empty: 2 x the level, at least 8"),
    ("max_tokens", "output tokens", "1024", "per request"),
)


DRAFT_METHODS = ("mtp", "eagle", "eagle3", "draft", "dflash", "ngram")

FOUND = "‹the engine found on the host›"


def whole(name: str, text: str, *, least: int = 1) -> int | None:
    """A whole number or None for an empty field. Raises UsageError."""
    text = text.strip().replace("_", "")
    if not text:
        return None
    if not text.isdecimal() or int(text) < least:
        raise UsageError(f"{name}: {text!r} is not a whole number of at least {least}")
    return int(text)


def gigabytes(name: str, text: str) -> float | None:
    """A number of GB or None. Raises UsageError."""
    text = text.strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise UsageError(f"{name}: {text!r} is not a number of GB")
    return value


def launch_spec(host: str, engine: str, fields: Mapping[str, str], *, program: tuple[str, ...]) -> LaunchSpec:
    """The spec that the form stands for. Raises UsageError with the field's name."""
    if not fields.get("model", "").strip():
        raise UsageError("model: needed")
    port = whole("port", fields.get("port", ""))
    if port is not None and port > 65_535:
        raise UsageError(f"port: {port} is above 65535")
    steps = whole("MTP steps", fields.get("spec_steps", ""), least=0)
    hicache = gigabytes("hicache GB", fields.get("hicache_gb", ""))
    method, block = drafts(fields, steps)
    try:
        raw = tuple(shlex.split(fields.get("raw", "")))
    except ValueError as problem:
        raise UsageError(f"more flags: {problem}".lower()) from None
    settings = Settings(
        model=fields["model"].strip(),
        port=port,
        tp=whole("tensor parallel", fields.get("tp", "")),
        spec_method=method,
        spec_steps=steps or None,
        spec_draft_tokens=block,
        draft_model=fields.get("draft_model", "").strip() or None,
        hicache=True if hicache else None,
        hicache_gb=hicache,
        max_running=whole("max running", fields.get("max_running", "")),
        context_len=whole("context", fields.get("context_len", "")),
        raw=raw,
    )
    env = variables(fields.get("env", ""))
    return LaunchSpec(host=host, engine=engine, program=program, settings=settings, env=env)


def variables(text: str, known: Mapping[str, str] | None = None) -> dict[str, str]:
    """`NAME=VALUE` words; a masked value stands for the one in `known`. Raises UsageError."""
    env: dict[str, str] = {}
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise UsageError(f"variables: {problem}".lower()) from None
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"variables: {word!r} is not NAME=VALUE")
        if value == "***":
            if known is None or name not in known:
                raise UsageError(f"variables: {name} stands for no value that is known")
            value = known[name]
        env[name] = value
    return env


def drafts(fields: Mapping[str, str], steps: int | None) -> tuple[str | None, int | None]:
    """Method and block of speculation. Raises UsageError for a word, a block or a model without its method."""
    method = fields.get("spec_method", "").strip().lower() or ("mtp" if steps else None)
    if method is not None and method not in DRAFT_METHODS:
        raise UsageError(f"draft method: {method!r} is none of {', '.join(DRAFT_METHODS)}")
    block = whole("draft block", fields.get("spec_block", ""), least=2)
    if block is not None and method != "dflash":
        raise UsageError("draft block: it is the block of the draft method dflash")
    if fields.get("draft_model", "").strip() and method is None:
        raise UsageError("draft model: say how it drafts in the field draft method")
    return method, block


def program_words(engine_name: str, text: str) -> tuple[str, ...]:
    """The words that start the engine: one word is an environment folder, several are the program itself.

    Empty: the launch looks for the engine on the host. Raises UsageError.
    """
    from tokpit.engines.registry import engine

    try:
        words = tuple(shlex.split(text))
    except ValueError as problem:
        raise UsageError(f"environment: {problem}".lower()) from None
    if len(words) != 1:
        return words
    return engine(engine_name).default_program(words[0].rstrip("/"), None)


def command_line(spec: LaunchSpec) -> str:
    """The command line of a spec. Raises UsageError for a setting that the engine cannot take."""
    from tokpit.engines.registry import engine

    known = engine(spec.engine)
    if spec.program:
        return quote(known.command(spec.program, spec.settings, spec.version))
    start = f"{spec.image}, " if spec.image else ""
    return f"{start}{FOUND} {quote(known.to_flags(spec.settings, spec.version))}"


def described(make: Callable[[], LaunchSpec]) -> tuple[LaunchSpec | None, str]:
    """The spec and its command line; or None and one sentence that says what is off."""
    try:
        spec = make()
        return spec, command_line(spec)
    except TokpitError as error:
        return None, error.message + (f" ({error.hint})" if error.hint else "")
    except (ImportError, AttributeError, TypeError, ValueError, KeyError) as error:
        return None, f"the command line cannot be built: {error}"


def preview(host: str, engine_name: str, fields: Mapping[str, str]) -> tuple[LaunchSpec | None, str]:
    """`described` of a form that starts from nothing."""

    def make() -> LaunchSpec:
        return launch_spec(host, engine_name, fields, program=program_words(engine_name, fields.get("program", "")))

    return described(make)


def first_values(spec: HostSpec | None, engine_name: str) -> dict[str, str]:
    """What the form holds at first: the host's program of that engine, the engine's usual port."""
    values = {"program": spec.programs.get(engine_name, "") if spec else ""}
    try:
        from tokpit.engines.registry import engine

        values["port"] = str(engine(engine_name).http.default_port)
    except (TokpitError, ImportError, AttributeError):
        values["port"] = ""
    return values


def sweep_plan(fields: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of `sweep.start`: `levels`, `requests` (None: by concurrency), `max_tokens`. Raises UsageError."""
    levels = []
    for part in fields.get("levels", "").replace(" ", ",").split(","):
        if part:
            level = whole("concurrency levels", part)
            if level is not None:
                levels.append(level)
    if not levels:
        raise UsageError("concurrency levels: at least one is needed")
    max_tokens = whole("output tokens", fields.get("max_tokens", ""))
    if max_tokens is None:
        raise UsageError("output tokens: needed")
    return {
        "levels": ",".join(map(str, levels)),
        "requests": whole("requests per level", fields.get("requests", "")),
        "max_tokens": max_tokens,
    }
