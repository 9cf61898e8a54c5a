"""What a hybrid model with draft steps asks of the kernel package, as far as the tiny hybrid model needs it.

Its blocks add nothing to the residual stream (see real_model.py), so an operator inside a block only has to return
something of the right shape. The index operators of speculation decide which tokens are kept, and are done in full,
for chains: one candidate a step (`--speculative-eagle-topk 1`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Inside a block: shapes.


def causal_conv1d_fn_cpu(x: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
    return x


causal_conv1d_update_cpu = causal_conv1d_fn_cpu
fused_rmsnorm_gated_cpu = causal_conv1d_fn_cpu


def fused_gdn_gating_cpu(_decay: Tensor, a: Tensor, b: Tensor, *_args: Any) -> tuple[Tensor, Tensor]:
    return a[None].float(), b[None].float()


def chunk_gated_delta_rule_cpu(*, v: Tensor, **_kwargs: Any) -> tuple[Tensor, None, None]:
    return torch.zeros_like(v), None, None


def fused_sigmoid_gating_delta_rule_update_cpu(*, v: Tensor, **_kwargs: Any) -> Tensor:
    return torch.zeros_like(v)


def extend_attention_cpu(_q: Tensor, _k: Any, _v: Any, out: Tensor, *_args: Any) -> None:
    out.zero_()


def decode_attention_cpu(
    _q: Tensor, _kc: Tensor, _vc: Tensor, _ks: float, _vs: float, out: Tensor, *_args: Any
) -> None:
    out.zero_()


def build_draft_decode_metadata_cpu(pool: Tensor, requests: Tensor, *_args: Any) -> Tensor:
    return pool[requests]


def copy_all_layer_kv_cache_cpu(*_args: Any) -> None:
    """Nothing is ever read from the cache."""


# Between a draft and its verification: indices.


def _rows(pool: Tensor, requests: Tensor, starts: Tensor, ends: Tensor) -> list[Tensor]:
    return [pool[r, s:e] for r, s, e in zip(requests.tolist(), starts.tolist(), ends.tolist(), strict=True)]


def assign_extend_cache_locs_cpu(
    requests: Tensor, pool: Tensor, starts: Tensor, ends: Tensor, out: Tensor, *_args: Any
) -> None:
    slots = torch.cat(_rows(pool, requests, starts, ends))
    out[: len(slots)] = slots.to(out.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    requests: Tensor, pool: Tensor, lengths: Tensor, out: Tensor, _pool_len: int, topk: int, steps: int
) -> None:
    assign_extend_cache_locs_cpu(requests, pool, lengths, lengths + topk * steps, out.view(-1))


def assign_req_to_token_pool_cpu(
    requests: Tensor, pool: Tensor, starts: Tensor, ends: Tensor, slots: Tensor, *_args: Any
) -> None:
    rows = _rows(pool, requests, starts, ends)
    for row, part in zip(rows, slots[: sum(map(len, rows))].split([len(row) for row in rows]), strict=True):
        row.copy_(part)


def fill_bonus_tokens_cpu(tokens: Tensor, lengths: Tensor, bonus: Tensor, width: int) -> None:
    bonus.copy_(tokens.view(-1, width).gather(1, lengths.long()[:, None] - 1)[:, 0])


def fill_accept_out_cache_loc_cpu(accepted: Tensor, slots: Tensor, out: Tensor) -> None:
    kept = slots[accepted[accepted >= 0].long()]
    out[: len(kept)] = kept


def build_tree_kernel_efficient_cpu(
    _parents: Tensor,
    _selected: Tensor,
    lengths: Tensor,
    _mask: Tensor,
    positions: Tensor,
    index: Tensor,
    after: Tensor,
    beside: Tensor,
    topk: int,
    _depth: int,
    tokens: int,
    _mode: int,
) -> None:
    """A chain: each draft token follows the one before it. The mask stays empty, since attention is not computed."""
    assert topk == 1, "only chains of drafts"
    steps = torch.arange(tokens)
    positions.view(-1, tokens).copy_(lengths[:, None] + steps)
    index.copy_(torch.arange(index.numel()).view_as(index))
    after.copy_(torch.where(steps < tokens - 1, steps + 1, -1).expand_as(after))
    beside.fill_(-1)


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    target_predict: Tensor,
    **_kwargs: Any,
) -> None:
    """Drafts count as far as they agree with the model; the model's own next token comes on top."""
    rows, width = candidates.shape
    wanted = target_predict.view(rows, width)
    agrees = (candidates[:, 1:] == wanted[:, :-1]).long().cumprod(dim=1)
    accepted = agrees.sum(dim=1).clamp(max=accept_index.shape[1] - 1)
    accept_token_num.copy_(accepted)
    places = torch.arange(accept_index.shape[1])
    kept = places <= accepted[:, None]
    accept_index.copy_(torch.where(kept, retrive_index[:, : len(places)], -1))
    predicts[retrive_index[:, : len(places)][kept].long()] = wanted[:, : len(places)][kept].to(predicts.dtype)


# Operators that other modules define for GPUs: what takes their place there, by module.


def _gated(hidden: Tensor, weight: Tensor, shared: Tensor) -> Tensor:
    return torch.sigmoid(hidden.float() @ weight.float().view(-1, 1)).to(shared.dtype) * shared


def _add_gated(hidden: Tensor, weight: Tensor, shared: Tensor, total: Tensor) -> None:
    total += _gated(hidden, weight, shared)


def _keep_no_state(*_args: Any, **_kwargs: Any) -> None:
    """Nothing is ever read from a recurrent state."""


class _Platform:
    """This machine, said to have the matrix unit (AMX) without which the attention backend of CPUs is not offered."""

    has_amx = True

    def __getattr__(self, name: str) -> Any:
        from sglang.srt.runtime_context import get_platform

        return getattr(get_platform(), name)


REPLACED: dict[str, dict[str, Any]] = {
    "sglang.srt.arg_groups.overrides": {"get_platform": _Platform},
    "sglang.srt.speculative.draft_utils": {"cpu_has_amx_support": lambda: True},
    "sglang.kernels.ops.attention.fla.fused_norm_gate": {"_use_cpu": True},
    "sglang.kernels.ops.attention.fla.layernorm_gated": {"_use_cpu": True},
    "sglang.kernels.ops.elementwise.elementwise": {
        "fused_gate_sigmoid_mul": _gated,
        "fused_gate_sigmoid_mul_add": _add_gated,
    },
    "sglang.kernels.ops.mamba.mamba_state_scatter_triton": {
        "fused_mamba_state_scatter_with_mask": _keep_no_state,
        "fused_conv_window_scatter_with_mask": _keep_no_state,
        "_conv_multi_eligible": lambda _pairs: False,
    },
}
OPERATORS: dict[str, Any] = {name: value for name, value in globals().items() if name.endswith("_cpu")}
