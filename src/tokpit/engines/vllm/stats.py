"""vLLM's periodic lines: engine statistics of every layout, speculation, iterations, MFU, KV transfer."""

from __future__ import annotations

import re

from tokpit.domain.records import Value
from tokpit.engines.logkit.layout import Layouts, Part, floats, percent
from tokpit.engines.logkit.table import Found
from tokpit.engines.logkit.values import fraction, number, real

_ENGINE = re.compile(r"(?:Engine (\d{1,6})|(\d{1,6}) Engines Aggregated): ?")
_FIGURES = {
    "Avg prompt throughput": "prompt_tps",
    "Avg prompt tput": "prompt_tps",
    "Avg generation throughput": "gen_tps",
    "Avg generation tput": "gen_tps",
    "Running": "running_reqs",
    "Reqs Running": "running_reqs",
    "Waiting": "queue_reqs",
    "Pending": "queue_reqs",
    "Swapped": "swapped_reqs",
    "Deferred": "deferred_reqs",
    "Preemptions": "preemptions",
    "KV fetch": "kv_fetch_waiting",
    "Corrupted": "corrupted_reqs",
}
_SHARES = {
    "Prefix cache hit rate": "prefix_hit_rate",
    "External prefix cache hit rate": "external_prefix_hit_rate",
    "MM cache hit rate": "mm_hit_rate",
}
_KV = re.compile(r"([A-Z]\w{0,30}) KV cache (?:usage|used)$")
_FETCH = {"in progress": "kv_fetch_in_progress", "completed waiting": "kv_fetch_done_waiting"}
_SPEC = {
    "Mean acceptance length": "accept_len",
    "Accepted throughput": "accepted_tps",
    "Drafted throughput": "drafted_tps",
    "Accepted": "accepted_tokens",
    "Drafted": "drafted_tokens",
}
_RATES = frozenset({"Draft acceptance rate", "Avg Draft acceptance rate"})
_CONSTANT = ("engine", "engines_aggregated", "kv_device")
_SPEC_V0 = {
    "Draft acceptance rate": "accept_rate",
    "System efficiency": "system_efficiency",
    "Number of speculative tokens": "num_spec_tokens",
    "Number of accepted tokens": "accepted_tokens",
    "Number of draft tokens": "drafted_tokens",
    "Number of emitted tokens": "emitted_tokens",
}
_ITERATION = re.compile(
    r"Iteration\((\d{1,17})\): (\d{1,17}) context requests, (\d{1,17}) context tokens, "
    r"(\d{1,17}) generation requests, (\d{1,17}) generation tokens, iteration elapsed time: ([\d.]+) ms"
    r"(?:, [A-Z]\w* KV cache usage: ([\d.]+|nan)%)?"
)
_MFU = re.compile(r"MFU: ([\d.]+) TF/s/\w+ ([\d.]+) GB/s/\w+")
_V0_HITS = re.compile(r"Prefix cache hit rate: GPU: ([\d.]+|nan)%(?:, CPU: ([\d.]+|nan)%)?")
_WORTH = ("Avg ", "Engine ", "Spec", "Iteration(", "MFU: ", "KV Transfer ", "Prefix ", "Diffusion")


def periodic(message: str, extras: dict[str, str], layouts: Layouts | None = None) -> Found | None:
    """Kind and fields of a periodic line, None for any other message.

    `layouts` learns the layout of the line where all of it was understood.
    """
    if not message.startswith(_WORTH) and not message[:1].isdigit():
        return None
    fields: dict[str, Value] = {}
    head = _ENGINE.match(message)
    whole = message
    if head is not None:
        if head[1] is not None:
            fields["engine"] = int(head[1])
        else:
            fields["engines_aggregated"] = int(head[2])
        message = message[head.end() :]
    if message.startswith("Avg prompt t"):
        kind, parts = "stats", _stats(message, fields, extras)
    elif message.startswith("SpecDecoding metrics: "):
        kind, parts = "spec", _spec(message[22:], fields, extras)
    else:
        return _seldom(message, fields, extras)
    if layouts is not None and parts is not None:
        before = whole[: len(whole) - len(message)] + ("SpecDecoding metrics: " if kind == "spec" else "")
        constants: dict[str, Value] = {k: fields[k] for k in _CONSTANT if k in fields}
        parts[-1] = Part(parts[-1].literal.removesuffix(", "))
        layouts.learn(kind, [Part(before), *parts], constants)
    return Found(kind, fields)


_Parts = list[Part] | None


def _figure(parts: _Parts, key: str, text: str, name: str) -> tuple[_Parts, float | int | None]:
    """A figure with its unit, `12.0 tokens/s`; returns the parts of the layout with it, and the number."""
    word, space, unit = text.partition(" ")
    value = number(word)
    if parts is None or value is None:
        return None, value
    convert = int if isinstance(value, int) else float
    return [*parts, Part(key + ": ", name, convert), Part(f"{space}{unit}, ")], value


def _share(parts: _Parts, key: str, text: str, name: str) -> tuple[_Parts, float | None]:
    """A percentage; returns the parts of the layout with it, and the fraction."""
    value = fraction(text)
    if parts is None or value is None or not text.endswith("%"):
        return None, value
    return [*parts, Part(key + ": ", name, percent), Part("%, ")], value


def _stats(message: str, fields: dict[str, Value], extras: dict[str, str]) -> _Parts:
    parts: _Parts = []
    for pair in message.rstrip(". ").split(", "):
        key, _, text = pair.partition(": ")
        name = _FIGURES.get(key)
        if name is not None:
            parts, fields[name] = _figure(parts, key, text, name)
        elif key in _SHARES:
            parts, fields[_SHARES[key]] = _share(parts, key, text, _SHARES[key])
        elif not text:
            word, _, rest = key.partition(" ")
            if rest in _FETCH:
                fields[_FETCH[rest]] = number(word)
            elif key:
                extras[key] = ""
            parts = None
        else:
            device = _KV.match(key)
            if device is None:
                extras[key] = text
                parts = None
            elif device[1] == "CPU" and "kv_usage" in fields:
                parts, fields["cpu_kv_usage"] = _share(parts, key, text, "cpu_kv_usage")
            else:
                fields["kv_device"] = device[1]
                parts, fields["kv_usage"] = _share(parts, key, text, "kv_usage")
    return parts


def _spec(message: str, fields: dict[str, Value], extras: dict[str, str]) -> _Parts:
    positions: list[float] | None = None
    parts: _Parts = []
    for pair in message.rstrip(". ").split(", "):
        key, _, text = pair.partition(": ")
        if not text:
            value = real(key)
            if positions is not None and value is not None:
                positions.append(value)
            elif positions is None and key:
                extras[key] = ""
                parts = None
        elif key in _SPEC:
            parts, fields[_SPEC[key]] = _figure(parts, key, text, _SPEC[key])
        elif key in _RATES:
            parts, fields["accept_rate"] = _share(parts, key, text, "accept_rate")
        elif key == "Per-position acceptance rate":
            first = real(text)
            positions = [] if first is None else [first]
            if parts is not None:
                parts = [*parts, Part(key + ": ", "per_position_accept", floats), Part(", ")]
        else:
            extras[key] = text
            parts = None
    if positions:
        fields["per_position_accept"] = tuple(positions)
    return parts


def _seldom(message: str, fields: dict[str, Value], extras: dict[str, str]) -> Found | None:
    if message.startswith("Speculative metrics: "):
        for pair in message[21:].rstrip(". ").split(", "):
            key, _, text = pair.partition(": ")
            if key in _SPEC_V0:
                fields[_SPEC_V0[key]] = number(text)
            elif key:
                extras[key] = text
        return Found("spec_v0", fields)
    if message.startswith("KV Transfer metrics: "):
        for pair in message[21:].split(", "):
            key, _, text = pair.partition("=")
            value = number(text)
            if value is None:
                extras[key] = text
            else:
                fields[key] = value
        return Found("kv_transfer", fields)
    match = _ITERATION.match(message)
    if match is not None:
        names = ("iter", "context_reqs", "context_tokens", "generation_reqs", "generation_tokens")
        fields.update({name: int(text) for name, text in zip(names, match.groups()[:5], strict=True)})
        fields["iteration_ms"] = real(match[6])
        if match[7] is not None:
            fields["kv_usage"] = fraction(match[7])
        return Found("iteration", fields)
    match = _MFU.match(message)
    if match is not None:
        fields["tflops_per_device"] = real(match[1])
        fields["read_write_gbps_per_device"] = real(match[2])
        return Found("mfu", fields)
    match = _V0_HITS.match(message)
    if match is not None:
        fields["prefix_hit_rate"] = fraction(match[1])
        return Found("stats_v0_prefix", fields)
    return None
