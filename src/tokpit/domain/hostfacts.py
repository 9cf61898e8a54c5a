"""Facts about a host and a model that rules need; None: not known, and a rule that needs it stays quiet or asks."""

from __future__ import annotations

import msgspec


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was read on the host before a start. Bytes unless the name says otherwise."""

    mem_available_bytes: int | None = None
    mem_total_bytes: int | None = None
    cgroup_limit_bytes: int | None = None
    shm_free_bytes: int | None = None
    disk_free_bytes: int | None = None
    gpu_count: int | None = None
    gpu_names: tuple[str, ...] = ()
    gpu_mem_mib: tuple[float, ...] = ()
    gpu_free_mib: tuple[float, ...] = ()
    ports_in_use: frozenset[int] = frozenset()
    existing_paths: frozenset[str] = frozenset()
    missing_paths: frozenset[str] = frozenset()
    platform: str = "cuda"
    """`cuda`, `rocm`, `cpu`."""
    in_container: bool | None = None


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What config.json and the files of a model say."""

    architecture: str | None = None
    hybrid: bool | None = None
    """Has recurrent-state (mamba, GDN) layers."""
    layers: int | None = None
    attention_layers: int | None = None
    attention_heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    latent_dim: int | None = None
    """Values a token and layer of a latent KV cache (MLA): kv_lora_rank + qk_rope_head_dim; None: it has none."""
    max_context: int | None = None
    weight_bytes: int | None = None
    mtp_layers: int | None = None
    experts: int | None = None
