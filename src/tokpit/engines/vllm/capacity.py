"""What a vLLM server can hold. Pure arithmetic.

Formulas from the engine's source: `MambaSpec.max_memory_usage_bytes` (`v1/kv_cache_interface.py`), the batch defaults
of `engine/arg_utils.py` (0.33), `get_max_concurrency_for_kv_cache_config` (`v1/core/kv_cache_utils.py`).
"""

from __future__ import annotations

from tokpit.engines.verdictkit.versions import since


def prefix_cache_on(prefix_cache: bool | None, hybrid: bool | None, version: str | None) -> bool | None:
    """Whether prefix caching is on. Not given: on, except on hybrid models up to 0.25.1; None where that is unknown."""
    if prefix_cache is not None:
        return prefix_cache
    if hybrid is False:
        return True
    if hybrid is None:
        return None
    later, earlier = since(version, "0.28"), since(version, "0.26")
    if later:
        return True
    return False if earlier is False else None


def state_pages_per_request(spec_tokens: int = 0, *, prefix_cache: bool = False) -> int:
    """Pages that one request holds in each recurrent-state group: 1 + k, or 2 + k with prefix caching (align mode)."""
    return (2 if prefix_cache else 1) + spec_tokens


def default_max_num_seqs(gpu_mem_mib: float | None, gpu_name: str = "") -> int | None:
    """`--max-num-seqs` where none is given (0.33): 1024 on GPUs of 70 GB and more (not A100, GB10), else 256."""
    if gpu_mem_mib is None:
        return None
    gib = gpu_mem_mib / 1024
    if gib >= 160 * 1e9 / 2**30:
        return 1024
    small = "a100" in gpu_name.lower() or "gb10" in gpu_name.lower()
    return 1024 if gib >= 70 and not small else 256


def running_cap(
    *,
    configured: int | None = None,
    state_blocks: int | None = None,
    kv_tokens: int | None = None,
    tokens_per_request: int | None = None,
) -> tuple[int | None, str]:
    """Most requests that can run at once, and what sets it: `configured`, `state blocks`, `kv tokens` or `unknown`.

    Each decoding request needs one state block; KV tokens bound it by the tokens a request really takes.
    """
    terms: list[tuple[int, str]] = []
    if configured is not None:
        terms.append((configured, "configured"))
    if kv_tokens is not None and tokens_per_request:
        terms.append((kv_tokens // tokens_per_request, "kv tokens"))
    if state_blocks is not None:
        terms.append((state_blocks, "state blocks"))
    return min(terms, key=lambda term: term[0]) if terms else (None, "unknown")


def offload_host_bytes(size_gib: float) -> tuple[int, int]:
    """Host memory for `--kv-offloading-size` (GiB in total over ranks): asked, and the 1.92-fold that was reported."""
    asked = round(size_gib * 2**30)
    return asked, round(asked * 1.92)
