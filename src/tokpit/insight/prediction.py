"""What a server will hold, before it is started: weights a GPU, and the most KV tokens that the memory has room for.

Upper bounds from config.json and the weight files: activations, CUDA graphs, a draft model and recurrent state come
off, by amounts that only a start shows.
"""

from __future__ import annotations

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.settings import Settings

_GIB = 2**30
_ONE_BYTE = ("fp8", "float8", "int8")
_USUAL_FRACTION = 0.9
_AT_LOAD = frozenset({"fp8", "bitsandbytes", "torchao", "int8wo", "w8a8_int8", "w8a8_fp8", "mxfp4", "rtn"})
"""Quantizations that may be made while loading, so that the files are larger than what the GPU holds."""


def predicted(settings: Settings, model: ModelFacts, host: HostFacts) -> tuple[str, ...]:
    """Sentences with their arithmetic; nothing where config.json, weights or GPUs are not known."""
    ranks = (settings.tp or 1) * (settings.pp or 1)
    if not model.weight_bytes or not host.gpu_mem_mib or host.platform == "cpu":
        return ()
    each = model.weight_bytes / ranks
    total = min(host.gpu_mem_mib) * 2**20
    weights = f"weights: {each / _GIB:,.1f} GiB a GPU of {total / _GIB:,.1f} GiB"
    if ranks > 1:
        weights += f" ({model.weight_bytes / _GIB:,.1f} GiB / {ranks} ranks)"
    token = kv_bytes_per_token(settings, model)
    if (settings.quantization or "").lower() in _AT_LOAD:
        return (f"{weights}, before {settings.quantization} where the files do not hold it yet",)
    if token is None:
        return (weights,)
    fraction = settings.mem_fraction or _USUAL_FRACTION
    room = fraction * total - each
    share = f"{fraction:g} x {total / _GIB:,.1f} GiB" + ("" if settings.mem_fraction else " (the usual share)")
    sums = f"({share} - {each / _GIB:,.1f} GiB weights) / {token / 1024:,.1f} KiB a token and GPU"
    if room < token:
        return (weights, f"no room is left for KV cache: {sums}")
    tokens = int(room / token)
    said = f"KV cache: at most {tokens:,} tokens, less activations, graphs, state and draft model: {sums}"
    if settings.context_len:
        said += f"; {tokens // settings.context_len:,} requests of the full context of {settings.context_len:,}"
    return (weights, said)


def kv_bytes_per_token(settings: Settings, model: ModelFacts) -> float | None:
    """KV bytes that one token takes on one GPU; None where config.json does not tell.

    2 (K and V) x attention layers x KV heads a rank x head size x bytes a value; a latent cache (MLA) is one vector a
    layer and is not split over ranks.
    """
    layers = model.attention_layers if model.attention_layers is not None else model.layers
    if not layers:
        return None
    size = 1 if (settings.kv_dtype or "").lower().startswith(_ONE_BYTE) else 2
    stage = layers / (settings.pp or 1)
    if model.latent_dim:
        return stage * model.latent_dim * size
    heads = model.kv_heads or model.attention_heads
    if not heads or not model.head_dim:
        return None
    return 2 * stage * max(1, heads / (settings.tp or 1)) * model.head_dim * size
