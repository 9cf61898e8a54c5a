"""SGLang's statistics lines: `Decode batch` and `Prefill batch` of every layout, as key/value pairs.

Only the first words are matched as such; the rest is `key: value` pairs whose set differs by release, model (plain,
sliding window, recurrent state) and feature (speculation, PD, DP, device timer). Unknown pairs are kept as extras.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tokpit.domain.records import Value
from tokpit.engines.logkit.values import fraction, number, truth

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
    "fwd occupancy": ("fwd_occupancy", fraction),
}
_PERCENT = frozenset({"fwd_occupancy"})
_START = re.compile(r"(Decode|Prefill) batch(?:[.,] ?| \[(\d+)\],? ?)")
_GRAPH = " graph"
_SWA_PAIR = {"tokens_used": ("full_tokens", "swa_tokens"), "token_usage": ("full_token_usage", "swa_usage")}


def batch(message: str, fields: dict[str, Value], extras: dict[str, str]) -> str | None:
    """Fill `fields` and `extras` from a statistics message; its kind, or None if it is none."""
    start = _START.match(message)
    if start is None:
        return None
    if start[2] is not None:
        fields["iter"] = int(start[2])
    pairs = message[start.end() :].rstrip(" ,").split(", ")
    known = _FIELDS
    careful = "nan" in message or ": inf" in message or ": -inf" in message
    for pair in pairs:
        key, _, text = pair.partition(": ")
        field = known.get(key)
        if field is None:
            _other(key, text, fields, extras)
            continue
        name, convert = field
        try:
            fields[name] = number(text.rstrip("%")) if careful and name not in _PERCENT else convert(text)
        except ValueError:
            _odd(name, text, fields)
    if start[1] == "Decode":
        return "decode_batch"
    if fields.get("new_seq") == 1 and fields.get("new_tokens") == 1 and not fields.get("cached_tokens"):
        fields["probe"] = True
    return "prefill_batch"


def _other(key: str, text: str, fields: dict[str, Value], extras: dict[str, str]) -> None:
    if key.endswith(_GRAPH):
        fields["graph"] = truth(text)
        fields["graph_device"] = key[: -len(_GRAPH)]
    elif not text and key.startswith("swa="):  # second half of the 0.4.9 layout, see _odd
        name = "swa_usage" if "full_token_usage" in fields else "swa_tokens"
        fields[name] = number(key[4:])
    elif key:
        extras[key] = text


def _odd(name: str, text: str, fields: dict[str, Value]) -> None:
    """A value that is no plain number: `full=900` of the 0.4.9 sliding-window layout, or text."""
    if text.startswith("full=") and name in _SWA_PAIR:
        fields[_SWA_PAIR[name][0]] = number(text[5:])
    else:
        fields[name] = number(text)
