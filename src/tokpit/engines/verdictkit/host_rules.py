"""Rules that every engine shares: flags against GPUs, model, ports, paths, memory and environment of the host."""

from __future__ import annotations

import difflib
import re
from pathlib import PurePosixPath

from tokpit.domain.verdict import Fix, RuleAnswer
from tokpit.engines.verdictkit.ask import Ask, answer, fix

_PATHS = re.compile(r"^(?:CUDA_HOME|CUDA_PATH|CUDA_ROOT|HF_HOME|HF_HUB_CACHE|TRITON_CACHE_DIR|TMPDIR|CC|CXX|CUDACXX)$")
_UNEQUAL = 0.1


def _ranks(ask: Ask) -> int:
    return (ask.settings.tp or 1) * (ask.settings.pp or 1)


def _nodes(ask: Ask) -> int:
    return max(1, ask.flag_int("--nnodes", "-n") or 1)


def visible_gpus(ask: Ask) -> int | None:
    """GPUs that the server will see: those of the host, or fewer by CUDA_VISIBLE_DEVICES; None where not known."""
    listed = ask.env.get("CUDA_VISIBLE_DEVICES")
    if listed is not None and listed.strip() not in {"", "all"}:
        return len([part for part in listed.split(",") if part.strip() and part.strip() != "-1"])
    return ask.host.gpu_count


def ranks_fit_gpus(ask: Ask) -> RuleAnswer | None:
    """More ranks than GPUs cannot start."""
    gpus = visible_gpus(ask)
    if gpus is None or ask.host.platform == "cpu":
        return None
    here = -(-_ranks(ask) // _nodes(ask))
    if gpus == 0 or here <= gpus:
        return None
    tp = max(1, gpus // (ask.settings.pp or 1))
    return answer(
        "TP_EXCEEDS_GPUS",
        "error",
        f"{here} ranks on this host need {here} GPUs, and {gpus} are visible.",
        f"tp {ask.settings.tp or 1} x pp {ask.settings.pp or 1} / {_nodes(ask)} node(s) = {here} > {gpus}",
        (fix(f"tp {tp}", tp=tp),),
    )


def heads_divide(ask: Ask) -> RuleAnswer | None:
    """Attention heads must be a multiple of tp; KV heads a multiple or a divisor of it."""
    tp = ask.settings.tp or 1
    heads, kv = ask.model.attention_heads, ask.model.kv_heads

    def fits(size: int) -> bool:
        return (heads is None or heads % size == 0) and (kv is None or kv % size == 0 or size % kv == 0)

    if tp < 2 or fits(tp):
        return None
    best = next(size for size in (64, 32, 16, 8, 4, 2, 1) if size <= tp and fits(size))
    bad_heads = heads is not None and heads % tp != 0
    what, count = ("attention heads", heads) if bad_heads else ("KV heads", kv)
    assert count is not None
    return answer(
        "TP_NOT_DIVISIBLE",
        "error",
        f"The model's {count} {what} cannot be split over tp {tp}.",
        f"{count} % {tp} = {count % tp}; the largest power of two up to {tp} that fits is {best}",
        (fix(f"tp {best}", tp=best),),
    )


def gpus_alike(ask: Ask) -> RuleAnswer | None:
    """GPUs of one tensor-parallel group should be alike, and equally free."""
    need = _ranks(ask)
    total, free = ask.host.gpu_mem_mib[:need], ask.host.gpu_free_mib[:need]
    if need < 2 or len(total) < need:
        return None
    if min(total) < max(total) * (1 - _UNEQUAL):
        return answer(
            "UNBALANCED_GPUS",
            "warning",
            "The GPUs differ in size: the smallest sets what every rank can hold.",
            f"smallest {min(total) / 1024:.1f} GiB, largest {max(total) / 1024:.1f} GiB",
        )
    if len(free) == need and min(free) < max(free) * (1 - _UNEQUAL):
        return answer(
            "UNBALANCED_GPUS",
            "warning",
            "The GPUs are not equally free: another process occupies one of them.",
            f"least free {min(free) / 1024:.1f} GiB, most free {max(free) / 1024:.1f} GiB",
        )
    return None


def weights_fit(ask: Ask) -> RuleAnswer | None:
    """The weights of one rank must fit its GPU with room for a KV cache."""
    size, need = ask.model.weight_bytes, _ranks(ask)
    memory = ask.host.gpu_mem_mib[:need]
    if not size or not memory or ask.flag("--cpu-offload-gb") is not None:
        return None
    each, smallest = size / need, min(memory) * 2**20
    limit = smallest * (ask.settings.mem_fraction or 0.95)
    if each < limit:
        return None
    ranks = next((n for n in (1, 2, 4, 8, 16) if size / n < limit * 0.9), None)
    fixes = (fix(f"tp {ranks}", tp=ranks),) if ranks and ranks <= (ask.host.gpu_count or 0) else ()
    return answer(
        "WEIGHTS_TOO_LARGE",
        "error",
        "The weights do not fit the GPUs: more ranks, or a quantised checkpoint.",
        f"{size / 2**30:.1f} GiB / {need} = {each / 2**30:.1f} GiB a GPU >= {limit / 2**30:.1f} GiB usable",
        fixes,
    )


def port_is_free(ask: Ask, default: int) -> RuleAnswer | None:
    """A busy port costs the whole load time, since most engines bind it last."""
    port = ask.settings.port or default
    if port < 1024 and ask.host.in_container is False:
        return answer("PORT_PERMISSION", "warning", f"Port {port} is below 1024: only root may listen there.")
    if port not in ask.host.ports_in_use:
        return None
    free = next(p for p in range(port + 1, port + 2000) if p not in ask.host.ports_in_use)
    return answer(
        "PORT_IN_USE",
        "error",
        f"Port {port} is in use on the host: the server would load for minutes and then fail to listen.",
        fixes=(fix(f"port {free}", port=free),),
    )


def paths_exist(ask: Ask) -> RuleAnswer | None:
    """Model paths must be there, as the launch user sees them."""
    for name in ("model", "draft_model"):
        path = getattr(ask.settings, name)
        if path is None or path not in ask.host.missing_paths:
            continue
        near = difflib.get_close_matches(path, sorted(ask.host.existing_paths), n=3, cutoff=0.6)
        folder = str(PurePosixPath(path).parent)
        near = near or sorted(p for p in ask.host.existing_paths if str(PurePosixPath(p).parent) == folder)[:3]
        hint = f" Near it: {', '.join(near)}." if near else ""
        return answer(
            "MODEL_PATH_MISSING",
            "error",
            f"{path} does not exist on this host; the engine would take it for a hub name.{hint}",
            fixes=tuple(Fix(label=f"use {other}", settings={name: other}) for other in near),
        )
    return None


def context_fits_model(ask: Ask) -> RuleAnswer | None:
    """A context beyond the model's own is refused (or gives nonsense)."""
    asked, limit = ask.settings.context_len, ask.model.max_context
    if asked is None or limit is None or asked <= limit:
        return None
    return answer(
        "CTX_TOO_LONG",
        "error",
        f"The context asked for ({asked}) is longer than the model's own ({limit}).",
        f"{asked} > {limit}",
        (fix(f"context {limit}", context_len=limit),),
    )


def environment_is_well_formed(ask: Ask) -> RuleAnswer | None:
    """Path-like variables hold one path: no colon in front, no empty element, nothing unexpanded."""
    for name, value in ask.env.items():
        if _PATHS.match(name) and (value.startswith(":") or "::" in value or value.endswith(":") or "$" in value):
            clean = value.strip(":")
            fixes = (Fix(label=f"{name}={clean}", env={name: clean}),) if "$" not in clean and ":" not in clean else ()
            return answer(
                "ENV_MALFORMED", "error", f"{name}={value!r} is malformed: it must be one plain path.", fixes=fixes
            )
        if name in {"PATH", "LD_LIBRARY_PATH"} and "$" in value:
            return answer("ENV_MALFORMED", "warning", f"{name} holds an unexpanded variable: {value!r}.")
    return None


def cache_is_where_it_is_looked_for(ask: Ask) -> RuleAnswer | None:
    """The library appends /hub to HF_HOME by itself; with a path that ends so, the cache is missed."""
    home = ask.env.get("HF_HOME", "").rstrip("/")
    if not home.endswith("/hub") or "HF_HUB_CACHE" in ask.env:
        return None
    parent = home.removesuffix("/hub")
    return answer(
        "HF_HOME_SUFFIX",
        "warning",
        f"HF_HOME={home} ends in /hub, and the library appends /hub again: models are looked for in {home}/hub.",
        fixes=(Fix(label=f"HF_HOME={parent}", env={"HF_HOME": parent}),),
    )


def gpu_is_there(ask: Ask) -> RuleAnswer | None:
    """A GPU engine on a host without a usable GPU runs on the CPU, or not at all."""
    if ask.flag("--device") == "cpu" or ask.host.gpu_count != 0 or ask.host.platform == "cpu":
        return None
    return answer(
        "RUNNING_ON_CPU", "warning", "No GPU is visible on this host: the server will run on the CPU, or not at all."
    )


SHARED = (
    ranks_fit_gpus,
    heads_divide,
    weights_fit,
    gpus_alike,
    paths_exist,
    context_fits_model,
    environment_is_well_formed,
    cache_is_where_it_is_looked_for,
    gpu_is_there,
)
