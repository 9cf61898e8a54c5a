"""Options for canonical settings, shared by launch and relaunch: one row a setting, one place for help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tokpit.domain.settings import NO_SPECULATION
from tokpit.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: tuple[tuple[str, str, type, str], ...] = (  # option, canonical setting, type, help
    ("--model", "model", str, "Model path or name."),
    ("--served-name", "served_name", str, "Name the server answers to."),
    ("--listen", "listen", str, "Address to listen on."),
    ("--port", "port", int, "Port (default: the engine's)."),
    ("--tp", "tp", int, "Tensor-parallel size: GPUs per replica."),
    ("--dp", "dp", int, "Data-parallel size: replicas."),
    ("--pp", "pp", int, "Pipeline-parallel size."),
    ("--context", "context_len", int, "Context length in tokens."),
    ("--max-running", "max_running", int, "Most requests running at once."),
    ("--mem-fraction", "mem_fraction", float, "Share of GPU memory for weights and cache, 0..1."),
    ("--dtype", "dtype", str, "Weight and activation type."),
    ("--kv-dtype", "kv_dtype", str, "KV-cache type."),
    ("--quantization", "quantization", str, "Quantization method."),
    ("--mtp-steps", "spec_steps", int, "Draft steps of the model's own MTP head; 0 switches speculation off."),
    (
        "--spec-method",
        "spec_method",
        str,
        "Speculation method: mtp, eagle, eagle3, ngram, draft, or dflash; a version that lacks it says so.",
    ),
    ("--draft-model", "draft_model", str, "Draft model path or name."),
    ("--draft-block", "spec_draft_tokens", int, "Tokens that dflash drafts at once, with the verified one."),
    (
        "--hicache-gb",
        "hicache_gb",
        float,
        "Host-memory cache in GB (per rank, or KV offload in total: as the engine counts).",
    ),
    ("--state-slots", "state_slots", int, "Recurrent-state (mamba) slots."),
    ("--mamba-strategy", "mamba_strategy", str, "Recurrent-state strategy: auto, no_buffer, extra_buffer."),
    ("--reasoning-parser", "reasoning_parser", str, "Reasoning parser."),
    ("--tool-parser", "tool_parser", str, "Tool-call parser."),
)


def setting_options(command: F) -> F:
    """Add an option for each canonical setting to a click command."""
    for option, _, kind, text in reversed(_OPTIONS):
        command = click.option(option, type=kind, default=None, help=text)(command)
    return command


def given_settings(values: dict[str, Any], *, running: bool = False) -> dict[str, Any]:
    """The settings given among a command's option values, by canonical name; `--mtp-steps` implies the method.

    `running`: they change a server, whose own method may be the one that an option is for.
    """
    names = {option.lstrip("-").replace("-", "_"): setting for option, setting, _, _ in _OPTIONS}
    given = {names[name]: value for name, value in values.items() if name in names and value is not None}
    method = given.get("spec_method", "dflash" if running else None)
    if given.get("spec_draft_tokens") is not None and method != "dflash":
        raise UsageError("--draft-block is the block of dflash", hint="add --spec-method dflash --draft-model PATH")
    steps = given.get("spec_steps")
    if steps == 0:
        given |= NO_SPECULATION
    elif steps is not None:
        given.setdefault("spec_method", "mtp")
    return given
