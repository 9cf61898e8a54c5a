"""What a relaunch would change: form fields against a running server's settings, and one command line against another.

Plain functions; the form is `screens.launch.RelaunchScreen`, the deed is the command `server.relaunch`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import NO_SPECULATION, LaunchSpec, Settings
from tokpit.domain.text import mask_secrets
from tokpit.errors import TokpitError, UsageError
from tokpit.ops.difference import flag_groups
from tokpit.store.masking import masked
from tokpit.transport.base import quote
from tokpit.ui import figures
from tokpit.ui.forms import LAUNCH_FIELDS, drafts, gigabytes, program_words, variables, whole

RELAUNCH_FIELDS = tuple(field for field in LAUNCH_FIELDS if field[0] not in {"program", "env"})
SAME, OLD, NEW = " ", "-", "+"


def running_values(settings: Settings) -> dict[str, str]:
    """What the form holds at first: the settings that the server runs with; nothing where the engine decided.

    Secrets are masked; `changes_of` puts them back.
    """
    given: dict[str, object] = {
        "model": settings.model,
        "port": settings.port,
        "tp": settings.tp,
        "spec_steps": settings.spec_steps,
        "draft_model": settings.draft_model,
        "spec_method": settings.spec_method,
        "spec_block": settings.spec_draft_tokens if settings.spec_method == "dflash" else None,
        "hicache_gb": f"{settings.hicache_gb:g}" if settings.hicache_gb is not None else None,
        "max_running": settings.max_running,
        "context_len": settings.context_len,
        "raw": mask_secrets(quote(settings.raw)) if settings.raw else None,
    }
    return {name: "" if value is None else str(value) for name, value in given.items()}


def changes_of(settings: Settings, fields: Mapping[str, str]) -> dict[str, Any]:
    """Settings that the form changes, by canonical name; a field that says the same is left out. Raises UsageError."""
    before = running_values(settings)
    changed = {name for name in before if fields.get(name, "").strip() != before[name]}
    changes: dict[str, Any] = {}
    if "model" in changed:
        changes["model"] = fields["model"].strip()
        if not changes["model"]:
            raise UsageError("model: needed")
    for name, label in (("port", "port"), ("tp", "tensor parallel"), ("max_running", "max running"),
                        ("context_len", "context")):  # fmt: skip
        if name in changed:
            changes[name] = whole(label, fields[name])
    if changed & {"spec_steps", "draft_model", "spec_method", "spec_block"}:
        changes |= _speculation(settings, fields, changed)
    if "hicache_gb" in changed:
        size = gigabytes("hicache GB", fields["hicache_gb"])
        changes |= {"hicache_gb": size, "hicache": True if size else None}
    if "raw" in changed:
        try:
            words = tuple(shlex.split(fields["raw"]))
        except ValueError as problem:
            raise UsageError(f"more flags: {problem}".lower()) from None
        changes["raw"] = unmasked(words, settings.raw)
    return {name: value for name, value in changes.items() if value != getattr(settings, name)}


def spec_values(spec: LaunchSpec) -> dict[str, str]:
    """What a launch form holds for a profile or an earlier server; secrets are masked, `spec_on` puts them back."""
    env = masked(spec.env)
    return {
        **running_values(spec.settings),
        "program": quote(spec.program),
        "env": " ".join(
            shlex.quote(f"{name}={value}") if value != "***" else f"{name}=***" for name, value in env.items()
        ),
    }


def spec_on(base: LaunchSpec, fields: Mapping[str, str]) -> LaunchSpec:
    """`base` as the form changes it; what the form has no field for stays. Raises UsageError."""
    settings = msgspec.structs.replace(base.settings, **changes_of(base.settings, fields))
    if not settings.model:
        raise UsageError("model: needed")
    words = fields.get("program", "")
    program = base.program if words.strip() == quote(base.program) else program_words(base.engine, words)
    env = variables(fields.get("env", ""), base.env)
    return msgspec.structs.replace(base, settings=settings, program=program, env=env)


def _speculation(settings: Settings, fields: Mapping[str, str], changed: set[str]) -> dict[str, Any]:
    """Method, steps, block and draft model hang together: all of them, where one is changed."""
    steps = whole("MTP steps", fields.get("spec_steps", ""), least=0)
    same = "spec_method" not in changed
    if same and "spec_steps" in changed and not steps and settings.spec_method != "dflash":
        return dict(NO_SPECULATION)
    if same and settings.spec_method is not None:  # it may be a word of the engine's own
        fields = {**fields, "spec_method": "dflash" if settings.spec_method == "dflash" else "draft"}
    method, block = drafts(fields, steps)
    if method is None:
        return dict(NO_SPECULATION)
    method = settings.spec_method if same and settings.spec_method is not None else method
    draft_model = fields.get("draft_model", "").strip() or None
    changes: dict[str, Any] = {"spec_method": method, "spec_steps": steps or None, "draft_model": draft_model}
    if method == "dflash" or not same:
        changes |= {"spec_draft_tokens": block, "spec_topk": settings.spec_topk if same else None}
    elif steps and settings.spec_draft_tokens is not None and (settings.spec_topk or 1) == 1:
        changes["spec_draft_tokens"] = steps + 1  # a chain: the root and one token a step
    return changes


def unmasked(words: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """`words` with each masked flag replaced by the one in `known` that is masked like it. Raises UsageError."""
    hidden = {mask_secrets(quote(group)): group for group in flag_groups(known)}
    whole_words: list[str] = []
    for group in flag_groups(words):
        masked = any("***" in word for word in group)
        found = hidden.get(" ".join(group)) if masked else group
        if found is None:
            raise UsageError(f"more flags: {' '.join(group)} stands for no value that is known")
        whole_words += found
    return tuple(whole_words)


def settings_diff(settings: Settings, changes: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, old value, new value of each changed setting (`raw` is in the command line's diff)."""
    return [
        (name.replace("_", " "), _text(getattr(settings, name)), _text(value))
        for name, value in changes.items()
        if name != "raw"
    ]


def _text(value: object) -> str:
    if value is None:
        return "engine's default"
    if isinstance(value, bool):
        return "on" if value else "off"
    return figures.number(value, 3) if isinstance(value, float) else str(value)


def command_lines(info: ServerInfo, changes: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The server's words now and with the changes. Raises UsageError for a setting that the engine cannot take."""
    from tokpit.engines.registry import engine

    known = engine(info.engine)
    recognised = known.recognise(info.argv)
    if recognised is None:
        raise UsageError("this server's command line is not one that can be started again")
    if not changes:
        return info.argv, info.argv
    settings = msgspec.structs.replace(info.settings, **changes)
    return info.argv, known.command(recognised.program, settings, info.version)


def line_diff(before: Sequence[str], after: Sequence[str]) -> list[tuple[str, str]]:
    """Flags as (sign, text): SAME, OLD or NEW, a flag with its values in one piece, secrets masked.

    Flags that only moved are the same: the new line is in its own order, followed by what it no longer has.
    """
    old, new = flags_of(before), flags_of(after)
    left = list(old)
    rows: list[tuple[str, str]] = []
    for flag in new:
        if flag in left:
            left.remove(flag)
            rows.append((SAME, flag))
            continue
        name = flag.split(" ", 1)[0]
        if (was := next((f for f in left if f.split(" ", 1)[0] == name and f not in new), None)) is not None:
            left.remove(was)
            rows.append((OLD, was))
        rows.append((NEW, flag))
    return [*rows, *((OLD, flag) for flag in left)]


def flags_of(words: Sequence[str]) -> list[str]:
    """Words of a command line as the program and then each flag with its values, quoted and masked."""
    return [mask_secrets(quote(group)) for group in flag_groups(words)]


def problem_of(info: ServerInfo, fields: Mapping[str, str]) -> tuple[dict[str, Any] | None, str]:
    """The changes and an empty text, or None and one sentence that says what is off."""
    try:
        changes = changes_of(info.settings, fields)
        command_lines(info, changes)
    except TokpitError as error:
        return None, error.message + (f" ({error.hint})" if error.hint else "")
    except (ImportError, AttributeError, TypeError, ValueError, KeyError) as error:
        return None, f"the command line cannot be built: {error}"
    return changes, ""
