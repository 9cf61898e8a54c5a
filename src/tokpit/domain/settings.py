"""Canonical settings: what people change on a server, under one name for every engine and version.

`None` means "not given: the engine decides". Engines translate to and from their own flags; what has no canonical
name stays in `raw`, word for word and in order, so that no flag is ever lost.
"""

from __future__ import annotations

import msgspec

from tokpit.domain.job import BatchRequest


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of one server. Counts unless the name says otherwise; `_gb` is 1e9 bytes, `_gib` 2**30 bytes."""

    model: str | None = None
    served_name: str | None = None
    listen: str | None = None
    port: int | None = None
    tp: int | None = None
    dp: int | None = None
    pp: int | None = None
    context_len: int | None = None
    max_running: int | None = None
    mem_fraction: float | None = None
    kv_tokens: int | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    quantization: str | None = None
    page_size: int | None = None
    prefix_cache: bool | None = None
    chunked_prefill: int | None = None
    spec_method: str | None = None
    """Canonical: `mtp`, `eagle`, `eagle3`, `ngram`, `draft`, `dflash`, or an engine's own word."""
    spec_steps: int | None = None
    """Draft steps: MTP steps, num_speculative_tokens."""
    spec_topk: int | None = None
    spec_draft_tokens: int | None = None
    draft_model: str | None = None
    hicache: bool | None = None
    hicache_gb: float | None = None
    """Host-memory cache asked for, as the engine counts it: per rank for SGLang."""
    hicache_ratio: float | None = None
    hicache_write_policy: str | None = None
    hicache_io_backend: str | None = None
    kv_offload_gib: float | None = None
    """Host-memory KV offload in total over ranks (vLLM)."""
    mamba_strategy: str | None = None
    state_slots: int | None = None
    mamba_ratio: float | None = None
    reasoning_parser: str | None = None
    tool_parser: str | None = None
    metrics: bool | None = None
    raw: tuple[str, ...] = ()
    """Flags without a canonical name, as given, in order."""

    def given(self) -> dict[str, object]:
        """The settings that were given (without `raw`), by canonical name."""
        return {
            name: value
            for name in self.__struct_fields__
            if name != "raw" and (value := getattr(self, name)) is not None
        }


NO_SPECULATION: dict[str, None] = dict.fromkeys(
    ("spec_method", "spec_steps", "spec_topk", "spec_draft_tokens", "draft_model")
)
"""Changes that switch speculation off, with everything that hangs on it."""


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to start a server. `program` is the command that runs the engine's entry point.

    Examples of `program`: `("/opt/venv/bin/python", "-m", "sglang.launch_server")`, `("/opt/venv/bin/vllm", "serve")`.
    """

    host: str
    engine: str
    program: tuple[str, ...]
    settings: Settings
    version: str | None = None
    env: dict[str, str] = {}
    cwd: str | None = None
    log_path: str | None = None
    method: str = "setsid"
    """How it is detached: `setsid`, `systemd`, `tmux`, `docker`, `slurm`."""
    image: str = ""
    """Image of a launch in a container."""
    container_args: tuple[str, ...] = ()
    """More words for `docker run`."""
    batch: BatchRequest = BatchRequest()
    """What a launch by Slurm asks for."""
    ranks: tuple[str, ...] = ()
    """More hosts that serve together with `host`, in the order of their ranks."""
    head: str = ""
    """Address of `host` as those reach it; empty: as in the inventory."""
    name: str = ""


class LaunchState(msgspec.Struct, frozen=True, kw_only=True):
    """What a launch writes on the host, so that any other tokpit can find, verify and stop the server."""

    version: int = 1
    engine: str
    pid: int
    pgid: int
    start_ticks: int
    argv: tuple[str, ...]
    log_path: str
    port: int
    method: str = "setsid"
    """As in `LaunchSpec`; `adopted` for a server that tokpit did not start."""
    handle: str = ""
    """Name of the unit, tmux session or container."""
    boot_id: str = ""
    started_at: float = 0.0
    by: str = ""
    group: str = ""
    """A word that the ranks of one server over several hosts have in common."""
    rank: int = 0
    ranks: tuple[str, ...] = ()
    """The hosts of all ranks, as whoever started them knew them."""
    env_names: tuple[str, ...] = ()
    """Names only: values may be secrets."""
