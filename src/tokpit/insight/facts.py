"""Facts that rules work on: figures of a server, its host, its model and its client, under one name each.

They come from a person (`max_running_requests=9`), from a log or from stored records. None: not known, and a rule that
needs it stays quiet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import get_args, get_type_hints

import msgspec

from tokpit.insight.fact_names import ALIASES, root_counted, spellings


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Counts unless the name says otherwise; `_gb` is 1e9 bytes; `_tps` tok/s; shares are fractions 0..1."""

    # server
    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    hybrid: bool | None = None
    tp: int | None = None
    dp: int | None = None
    dp_attention: bool | None = None
    max_running_requests: int | None = None
    """The cap that the server works with, as its log says."""
    configured_max_running: int | None = None
    """The cap that was asked for, on the command line or as its API repeats it."""
    state_slots: int | None = None
    slots_per_request: int | None = None
    slot_choices: tuple[float, ...] | None = None
    """Slots that a request of this engine may reserve, by setting; given by whoever knows the engine."""
    state_usage: tuple[float, ...] | None = None
    """Printed usages of the state pool."""
    kv_tokens: int | None = None
    kv_pool_gb: float | None = None
    """Of the KV pool on one GPU, which holds `kv_tokens`."""
    state_pool_gb: float | None = None
    """Of the state slots on one GPU."""
    spec_state_gb: float | None = None
    """Of the intermediate states that draft tokens need, on one GPU."""
    stream_tokens: float | None = None
    """Context of the one stream whose rate is judged, tokens."""
    context_len: int | None = None
    block_size: int | None = None
    graph_max_batch: int | None = None
    graph_off: bool | None = None
    """Graphs were switched off by a flag."""
    prefix_cache: bool | None = None
    # workload
    input_tokens: float | None = None
    output_tokens: float | None = None
    requested_output: float | None = None
    shared_prefix_tokens: float | None = None
    unique_prompts: int | None = None
    prompts: int | None = None
    # speculation
    accept_len: float | None = None
    accept_rate: float | None = None
    per_position: tuple[float, ...] | None = None
    draft_tokens: float | None = None
    """Tokens proposed a step, the root not counted."""
    drafted_tokens: float | None = None
    """Draft tokens proposed in all, as the server counts them; `accepted_tokens` those of them that were accepted."""
    accepted_tokens: float | None = None
    baseline_tps: float | None = None
    """One stream without speculation."""
    spec_tps: float | None = None
    """One stream with speculation."""
    single_tps: float | None = None
    """One stream as it runs now."""
    remembered_tps: float | None = None
    """What somebody remembers or expects of one stream."""
    # model and hardware
    weights_gb: float | None = None
    weights_each_gb: float | None = None
    """On one GPU, as a log tells it after loading; `weights_gb` is this times `tp` where nobody says otherwise."""
    active_gb: float | None = None
    """Of a mixture of experts: weights read for one token."""
    gpu: str | None = None
    gpus: int | None = None
    experts: int | None = None
    """Of a mixture of experts; 1 or None: it is none, or not known."""
    params_b: float | None = None
    """Parameters of the model, in billions (1e9)."""
    active_params_b: float | None = None
    """Of a mixture of experts: those that one token passes."""
    weight_bits: float | None = None
    bandwidth_gbps: float | None = None
    """Memory bandwidth of one GPU in GB/s, where it is not to be looked up by name."""
    peak_tflops: float | None = None
    """Dense 16-bit matrix rate of one GPU, where it is not to be looked up by name."""
    # host
    hicache_gb: float | None = None
    mem_available_gb: float | None = None
    mem_total_gb: float | None = None
    cgroup_limit_gb: float | None = None
    hicache_total_gb: float | None = None
    """Host memory that the host cache takes in all, computed by whoever knows the engine."""
    hicache_pools: int | None = None
    hicache_ranks: int | None = None
    hicache_reserve_gb: float | None = None
    swap_used_gb: float | None = None
    swap_in_mbps: float | None = None
    cpu_steal: float | None = None
    """Share of processor time that the hypervisor gave to others."""
    mem_pressure: float | None = None
    """Share of time in which something waited for memory (PSI, some, 10 s)."""
    gpu_numa: int | None = None
    cpu_numa: int | None = None
    """Node of the GPU, and of the processors on which the server runs."""
    orphans: int | None = None
    orphan_gpu_gb: float | None = None
    # GPU telemetry
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    temp_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    requested_power_limit_w: float | None = None
    throttle: str | None = None
    throttle_share: float | None = None
    """Time that a thermal or hardware slowdown was active / time measured."""
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    gpu_util: float | None = None
    gpu_poll_ms: tuple[float, ...] | None = None
    """How long polls of the GPUs took, one after the other; infinity: unanswered."""
    # client and its figures
    concurrency: int | None = None
    client_limit: int | None = None
    """Connections that the client allows."""
    client_tps: float | None = None
    server_tps: float | None = None
    client_tokens: float | None = None
    server_tokens: float | None = None
    client_in_flight: int | None = None
    client_completed: int | None = None
    server_running: int | None = None
    server_queued: int | None = None
    tokens_last_minute: float | None = None
    loop_lag_ms: float | None = None
    client_cpu: float | None = None
    peak_tps: float | None = None
    mean_tps: float | None = None
    itl_ms: float | None = None
    ttft_s: float | None = None
    tokens_per_chunk: float | None = None
    requests: int | None = None
    ok: int | None = None
    err: int | None = None
    rejected: int | None = None
    total_output_tokens: float | None = None
    failure_elapsed_s: tuple[float, ...] | None = None
    stream_silent_s: float | None = None
    usage_reported: bool | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    """Tokens during the measurement, not since the server started."""
    tier_prompt_tokens: float | None = None
    """Prompt tokens whose cache tier was counted; the next ones are those of them that were found in each tier."""
    gpu_hit_tokens: float | None = None
    host_hit_tokens: float | None = None
    storage_hit_tokens: float | None = None
    host_load_gb: float | None = None
    """Moved from host to GPU (of one rank, where ranks count for themselves), and the time of these copies."""
    host_load_s: float | None = None
    host_store_gb: float | None = None
    host_store_s: float | None = None
    host_cache_usage: float | None = None
    host_state_usage: float | None = None
    host_dropped_tokens: float | None = None
    """Tokens that left the GPU's cache without a copy on the host."""
    evicted_tokens: float | None = None
    """Tokens that left the GPU's cache."""
    prefill_tps: float | None = None
    """Prompt tokens that the server computes a second while it does nothing else."""
    prompt_kind: str | None = None
    preemptions: float | None = None
    window_s: float | None = None
    kv_usage: float | None = None
    # experiments
    decode_alone_tps: float | None = None
    decode_mixed_tps: float | None = None
    prefill_alone_tps: float | None = None
    prefill_mixed_tps: float | None = None


FIELDS: tuple[str, ...] = Facts.__struct_fields__
_KINDS = {name: next(a for a in get_args(hint) if a is not type(None)) for name, hint in get_type_hints(Facts).items()}
_NUMBER = re.compile(r"([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*([a-zA-Z%/]*)", re.I)
_UNANSWERED = frozenset({"none", "null", "inf", "timeout"})
_SCALE = {"k": 1e3, "m": 1e6, "%": 0.01}
_BYTES = {"mb": 1e-3, "mib": 2**20 / 1e9, "gb": 1.0, "gib": 2**30 / 1e9, "tb": 1e3, "tib": 2**40 / 1e9, "g": 1.0}


def kind_of(name: str) -> str:
    """What a fact's value is, in words: `number`, `whole number`, `yes or no`, `word`, `list of numbers`."""
    words = {int: "whole number", float: "number", bool: "yes or no", str: "word"}
    return words.get(_KINDS[name], "list of numbers")


def canonical(name: str) -> str | None:
    """The field of a fact's name, aliases and spellings included (see `fact_names`); None for an unknown one."""
    return next((known for key in spellings(name) if (known := key if key in FIELDS else ALIASES.get(key))), None)


def nearest(name: str) -> tuple[str, ...]:
    """The facts whose names are most like this one, the likest first, three at most."""
    key = next(spellings(name))
    found = get_close_matches(key, [*FIELDS, *ALIASES], 8, 0.6)
    inside = [known for known in FIELDS if len(key) > 2 and key in known]
    return tuple(dict.fromkeys(ALIASES.get(known, known) for known in (*found, *inside)))[:3]


def parse_facts(given: Mapping[str, str]) -> tuple[Facts, tuple[str, ...]]:
    """Facts from texts, and what no rule knows. Units are understood: `19K`, `54 GB`, `50 GiB`, `72%`, `26.7 tok/s`.

    Raises ValueError with a sentence for a value that is not of its kind.
    """
    values: dict[str, object] = {}
    unknown: list[str] = []
    for name, text in given.items():
        field = canonical(name)
        if field is None:
            unknown.append(name)
            continue
        value = _value(field, text.strip())
        if isinstance(value, float) and root_counted(name):
            value -= 1
        values[field] = value
    return Facts(**values), tuple(unknown)  # type: ignore[arg-type]  # each value is of its field's kind


def _value(field: str, text: str) -> object:
    kind = _KINDS[field]
    if kind is str:
        return text
    if kind is bool:
        return text.lower() not in ("0", "false", "no", "off", "")
    if kind in (int, float):
        number = _number(field, text)
        return round(number) if kind is int else number
    words = [word for word in re.split(r"[,;\s]+", text.strip("[]()")) if word]
    return tuple(math.inf if word.lower() in _UNANSWERED else _number(field, word) for word in words)


def _number(field: str, text: str) -> float:
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(f"{field} is a number, not {text!r}")
    if match[1].startswith("-"):
        raise ValueError(f"{field} cannot be negative: {text!r}")
    value, unit = float(match[1].replace(",", "")), match[2].lower()
    if field.endswith("_gb"):
        return value * _BYTES.get(unit, 1.0)
    return value * _SCALE.get(unit, 1.0)


def merged(lower: Facts, upper: Facts) -> Facts:
    """Facts of both; where both know one, that of `upper`."""
    changes = {name: value for name in FIELDS if (value := getattr(upper, name)) is not None}
    return msgspec.structs.replace(lower, **changes)
