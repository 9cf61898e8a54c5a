"""SGLang's statistics lines: `Decode batch` and `Prefill batch` of every layout, as key/value pairs.

Only the first words are matched as such; the rest is `key: value` pairs whose set differs by release, model (plain,
sliding window, recurrent state) and feature (speculation, PD, DP, device timer). Unknown pairs are kept as extras.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tokpit.domain.records import Value
from tokpit.engines.logkit.layout import Layouts, Part, is_true, percent
from tokpit.engines.logkit.values import number, truth

_Strict = Callable[[str], Value]

_FIELDS: dict[str, tuple[str, _Strict]] = {
    "#running-req": ("running_reqs", int),
    "#queue-req": ("queue_reqs", int),
    "#token": ("tokens_used", int),
    "token usage": ("token_usage", float),
    "#full token": ("full_tokens", int),
    "full token usage": ("full_token_usage", float),
    "#swa token": ("swa_tokens", int),
    "swa token usage": ("swa_usage", float),
    "mamba num": ("mamba_num", int),
    "mamba usage": ("mamba_usage", float),
    "accept len": ("accept_len", float),
    "accept rate": ("accept_rate", float),
    "cap len": ("cap_len", float),
    "block accept len": ("block_accept_len", float),
    "gen throughput (token/s)": ("gen_tps", float),
    "input throughput (token/s)": ("prompt_tps", float),
    "#new-seq": ("new_seq", int),
    "#new-token": ("new_tokens", int),
    "#cached-token": ("cached_tokens", int),
    "#pending-token": ("pending_tokens", int),
    "#replay-token": ("replay_tokens", int),
    "pre-allocated usage": ("preallocated_usage", float),
    "#prealloc-req": ("prealloc_reqs", int),
    "#unbootstrapped-req": ("prealloc_reqs", int),
    "#bootstrap-req": ("prealloc_reqs", int),
    "#transfer-req": ("transfer_reqs", int),
    "#transferring-req": ("inflight_reqs", int),
    "#inflight-req": ("inflight_reqs", int),
    "#optimistic-req": ("optimistic_reqs", int),
    "#host-receive-req": ("host_receive_reqs", int),
    "#retracted-req": ("retracted_reqs", int),
    "est. decode TFLOPS/s (per GPU)": ("est_decode_tflops", float),
    "est. prefill TFLOPS/s (per GPU)": ("est_prefill_tflops", float),
    "est. read BW (GB/s per GPU)": ("est_read_gbps", float),
    "est. write BW (GB/s per GPU)": ("est_write_gbps", float),
    "fwd occupancy": ("fwd_occupancy", percent),
}
_START = re.compile(r"(Decode|Prefill) batch(?:[.,] ?| \[(\d{1,17})\],? ?)")
_GRAPH = " graph"
_MOST_PARTS = 80
_SWA_PAIR = {"tokens_used": ("full_tokens", "swa_tokens"), "token_usage": ("full_token_usage", "swa_usage")}


def batch(message: str, fields: dict[str, Value], extras: dict[str, str], layouts: Layouts | None = None) -> str | None:
    """Fill `fields` and `extras` from a statistics message; its kind, or None if it is none.

    `layouts` learns the layout of the line where all of it was understood.
    """
    start = _START.match(message)
    if start is None:
        return None
    parts: list[Part] | None = [Part(message[: start.end()])]
    if start[2] is not None:
        fields["iter"] = int(start[2])
        parts = [Part(message[: start.start(2)], "iter"), Part(message[start.end(2) : start.end()])]
    constants: dict[str, Value] = {}
    for pair in message[start.end() :].rstrip(" ,").split(", "):
        key, _, text = pair.partition(": ")
        field = _FIELDS.get(key)
        if field is None:
            grown = _other(key, text, fields, extras)
            if grown is not None:
                constants["graph_device"] = fields["graph_device"]
            parts = None if grown is None or parts is None else parts + grown
            continue
        name, convert = field
        try:
            if "n" in text or len(text) > 17:  # nan, inf
                raise ValueError(text)
            fields[name] = convert(text.rstrip("%"))
        except ValueError:
            _odd(name, text, fields)
            parts = None
        if parts is not None:
            parts += (Part(key + ": ", name, convert), Part("%, " if text.endswith("%") else ", "))
    kind = "decode_batch" if start[1] == "Decode" else "prefill_batch"
    if layouts is not None and parts is not None and 2 < len(parts) < _MOST_PARTS:
        parts[-1] = Part(parts[-1].literal.removesuffix(", "))
        layouts.learn(kind, parts, constants)
    return kind


def mark_probe(fields: dict[str, Value]) -> None:
    """Mark the prefill of one token that a health check causes, so that it can be left out."""
    if fields.get("new_tokens") == 1 and fields.get("new_seq") == 1 and not fields.get("cached_tokens"):
        fields["probe"] = True


def _other(key: str, text: str, fields: dict[str, Value], extras: dict[str, str]) -> list[Part] | None:
    """A pair that is in no table; returns its part of the layout, None where it cannot be learned."""
    if key.endswith(_GRAPH):
        fields["graph"] = truth(text)
        fields["graph_device"] = key[: -len(_GRAPH)]
        if text in {"True", "False"}:
            return [Part(key + ": ", "graph", is_true), Part(", ")]
    elif not text and key.startswith("swa="):  # second half of the 0.4.9 layout, see _odd
        name = "swa_usage" if "full_token_usage" in fields else "swa_tokens"
        fields[name] = number(key[4:])
    elif key:
        extras[key] = text
    return None


def _odd(name: str, text: str, fields: dict[str, Value]) -> None:
    """A value that is no plain number: `full=900` of the 0.4.9 sliding-window layout, or text."""
    if text.startswith("full=") and name in _SWA_PAIR:
        fields[_SWA_PAIR[name][0]] = number(text[5:])
    else:
        fields[name] = number(text)
