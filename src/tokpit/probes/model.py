"""What the files of a model say: config.json and the sizes of its weight files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tokpit.domain.hostfacts import ModelFacts

_SCRIPT = r"""
model=%s
if [ ! -d "$model" ]; then
  case $model in /*|./*|../*|~*) [ -e "$model" ] && echo file || echo missing;; esac
  hub=${HF_HUB_CACHE:-${HF_HOME:-$HOME/.cache/huggingface}/hub}
  ref=$(printf '%%s' "$model" | sed 's,/,--,g')
  for d in "$hub/models--$ref/snapshots"/*; do [ -f "$d/config.json" ] && model=$d; done
fi
[ -d "$model" ] || exit 0
echo dir
for f in "$model"/*.safetensors "$model"/*.bin "$model"/*.gguf; do
  [ -e "$f" ] && printf 'weight %%s\n' "$(wc -c <"$f" | tr -d ' ')"
done
[ -f "$model/config.json" ] && { echo config; head -c 300000 "$model/config.json"; }
exit 0
"""

_STATE_LAYERS = re.compile(r"linear_attention|mamba|gated_delta|recurrent|\bssm\b")


def model_script(model: str) -> str:
    """POSIX sh that prints what `parse_model` reads, for a model folder or a name in the Hugging Face cache."""
    import shlex

    return _SCRIPT % shlex.quote(model)


def parse_model(text: str) -> tuple[ModelFacts, bool]:
    """The facts, and whether the model was named as a path that does not exist."""
    head, _, config = text.partition("\nconfig\n")
    lines = head.splitlines()
    weights = [int(line.split()[1]) for line in lines if re.fullmatch(r"weight \d+", line)]
    try:
        page = json.loads(config) if config else {}
    except ValueError:
        page = {}
    facts = from_config(page if isinstance(page, dict) else {}, weight_bytes=sum(weights) or None)
    return facts, "missing" in lines


def from_config(config: Mapping[str, Any], *, weight_bytes: int | None = None) -> ModelFacts:
    """ModelFacts from a config.json as Hugging Face writes it; text settings of a multimodal model are looked into."""
    text = config.get("text_config")
    inner: Mapping[str, Any] = text if isinstance(text, dict) else config
    architectures = config.get("architectures")
    kinds = inner.get("layer_types") or inner.get("layers_block_type") or inner.get("hybrid_override_pattern")
    hybrid: bool | None = None
    attention: int | None = None
    if isinstance(kinds, list):
        states = [kind for kind in kinds if _STATE_LAYERS.search(str(kind))]
        hybrid, attention = bool(states), len(kinds) - len(states)
    elif any(key.startswith(("linear_num_", "mamba_", "ssm_")) for key in inner):
        hybrid = True
    elif inner:
        hybrid = False
    heads = _count(inner, "num_attention_heads")
    hidden = _count(inner, "hidden_size")
    latent = _count(inner, "kv_lora_rank")
    return ModelFacts(
        architecture=str(architectures[0]) if isinstance(architectures, list) and architectures else None,
        hybrid=hybrid,
        layers=_count(inner, "num_hidden_layers"),
        attention_layers=attention,
        attention_heads=heads,
        kv_heads=_count(inner, "num_key_value_heads"),
        head_dim=_count(inner, "head_dim") or (hidden // heads if hidden and heads else None),
        latent_dim=latent + (_count(inner, "qk_rope_head_dim") or 0) if latent else None,
        max_context=_count(inner, "max_position_embeddings"),
        weight_bytes=weight_bytes,
        mtp_layers=_count(inner, "num_nextn_predict_layers") or _count(inner, "mtp_num_hidden_layers"),
        experts=_count(inner, "num_experts") or _count(inner, "n_routed_experts"),
    )


def _count(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
