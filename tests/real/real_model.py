"""Write a tiny model into a folder: `real_model.py FOLDER dense` (no weights) or `real_model.py FOLDER hybrid`.

The dense one is a Qwen3 whose weights the engines make up (`--load-format dummy`). The hybrid one is a Qwen3-Next with
recurrent layers and a draft head, and has weights under which the length of accepted drafts is known beforehand:

* every block adds nothing to the residual stream (its output projection is zero), so that what a token becomes
  depends on that token alone;
* words have unit vectors for embeddings, and the output head sends each word to its successor on a ring of words;
* the draft head's projection does the same, except at the words of `stumbles`, where it names a wrong successor.

A draft of several steps therefore goes right up to the next stumble, and `accepted_length` can be counted.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

VOCABULARY, CONTEXT, HIDDEN, HEAD = 768, 4096, 64, 64
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
END = SPECIAL.index("<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = (
    "ash bay cab dew elm fig gum hay ivy jar keg log map net oak pen rag sky tar urn vat wax yak zip arc bed cup den "
    "egg fan gap hat ink jam kit lid mud nut oil pad rib saw tea van web bow cod dam eel fur gas hut ice jet key lap "
    "mop nib owl peg rod sum tin vow"
).split()
"""One word for each dimension of the hidden state: the ring that the hybrid model walks for ever."""

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": HEAD,
    "max_position_embeddings": CONTEXT,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "bos_token_id": 0,
    "eos_token_id": END,
    "torch_dtype": "bfloat16",
}
DENSE = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "tie_word_embeddings": True,
    **_SIZES,
}
LAYERS = ("linear_attention", "linear_attention", "linear_attention", "full_attention")
HYBRID = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "num_hidden_layers": len(LAYERS),
    "layer_types": LAYERS,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 64,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 64,
    "partial_rotary_factor": 0.25,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": False,
    **_SIZES,
}


def stumbles() -> frozenset[int]:
    """Places on the ring at which the draft head is wrong: a quarter of them, drawn once and for all."""
    return frozenset(random.Random(11).sample(range(len(WORDS)), len(WORDS) // 4))


def accepted_length(steps: int = 3) -> float:
    """Tokens a verification yields on average with drafts of `steps` tokens, walking the ring for ever."""
    wrong, place, taken, rounds = stumbles(), 0, 0, 5000
    for _ in range(rounds):
        right = 0
        while right < steps and (place + right) % len(WORDS) not in wrong:
            right += 1
        taken += right + 1
        place = (place + right + 1) % len(WORDS)
    return taken / rounds


def write_tokenizer(folder: Path) -> Any:
    """A byte-level tokenizer that knows each word of `WORDS` as one token, and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator([" " + " ".join(WORDS)] * 50, trainer)
    made.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "eos_token": SPECIAL[END],
        "pad_token": SPECIAL[0],
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": END, "pad_token_id": 0}))
    return made


def hybrid_weights(ring: list[int]) -> dict[str, Any]:
    """All tensors of the hybrid model; `ring`: the token of each word."""
    import torch

    torch.manual_seed(3)
    made: dict[str, torch.Tensor] = {}
    key = HYBRID["linear_num_key_heads"] * HYBRID["linear_key_head_dim"]
    value = HYBRID["linear_num_value_heads"] * HYBRID["linear_value_head_dim"]
    heads, groups = HYBRID["num_attention_heads"] * HEAD, HYBRID["num_key_value_heads"] * HEAD

    def noise(name: str, *shape: int) -> None:
        made[name] = 0.02 * torch.randn(*shape)

    def fill(name: str, number: float, *shape: int) -> None:
        made[name] = torch.full(shape, number)

    def layer(at: str, kind: str) -> None:
        for norm in ("input_layernorm", "post_attention_layernorm"):
            fill(f"{at}.{norm}.weight", 0, HIDDEN)
        if kind == "full_attention":
            noise(f"{at}.self_attn.q_proj.weight", 2 * heads, HIDDEN)
            noise(f"{at}.self_attn.k_proj.weight", groups, HIDDEN)
            noise(f"{at}.self_attn.v_proj.weight", groups, HIDDEN)
            fill(f"{at}.self_attn.o_proj.weight", 0, HIDDEN, heads)
            for norm in ("q_norm", "k_norm"):
                fill(f"{at}.self_attn.{norm}.weight", 0, HEAD)
        else:
            state = f"{at}.linear_attn"
            noise(f"{state}.in_proj_qkvz.weight", 2 * (key + value), HIDDEN)
            noise(f"{state}.in_proj_ba.weight", 2 * HYBRID["linear_num_value_heads"], HIDDEN)
            noise(f"{state}.conv1d.weight", 2 * key + value, 1, HYBRID["linear_conv_kernel_dim"])
            fill(f"{state}.dt_bias", 1, HYBRID["linear_num_value_heads"])
            fill(f"{state}.A_log", 0, HYBRID["linear_num_value_heads"])
            fill(f"{state}.norm.weight", 1, HYBRID["linear_value_head_dim"])
            fill(f"{state}.out_proj.weight", 0, HIDDEN, value)
        noise(f"{at}.mlp.gate.weight", HYBRID["num_experts"], HIDDEN)
        noise(f"{at}.mlp.shared_expert_gate.weight", 1, HIDDEN)
        for expert in ("shared_expert", *(f"experts.{n}" for n in range(HYBRID["num_experts"]))):
            noise(f"{at}.mlp.{expert}.gate_proj.weight", HYBRID["moe_intermediate_size"], HIDDEN)
            noise(f"{at}.mlp.{expert}.up_proj.weight", HYBRID["moe_intermediate_size"], HIDDEN)
            fill(f"{at}.mlp.{expert}.down_proj.weight", 0, HIDDEN, HYBRID["moe_intermediate_size"])

    for number, kind in enumerate(LAYERS):
        layer(f"model.layers.{number}", kind)
    layer("mtp.layers.0", "full_attention")
    for norm in ("model.norm", "mtp.norm", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden"):
        fill(f"{norm}.weight", 0, HIDDEN)

    unit = torch.eye(HIDDEN)
    # Tokens that are no word of the ring (bytes of a prompt, specials) stand for some word of it.
    embedding = unit[torch.arange(VOCABULARY) % HIDDEN]
    embedding[torch.tensor(ring)] = unit
    head = torch.zeros(VOCABULARY, HIDDEN)
    for place, token in enumerate(ring):
        head[token, place - 1] = 4.0
    draft = torch.eye(HIDDEN)
    for place in stumbles():
        draft[:, place] = unit[(place + HIDDEN // 2) % HIDDEN]
    made["model.embed_tokens.weight"], made["lm_head.weight"] = embedding, head
    made["mtp.fc.weight"] = torch.cat([draft, torch.zeros(HIDDEN, HIDDEN)], dim=1)
    return {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in made.items()}


def main(folder: Path, kind: str) -> None:
    """Write the model; config.json comes last, so that a folder which has one is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = write_tokenizer(folder)
    if kind == "hybrid":
        from safetensors.torch import save_file

        ring = [tokenizer.token_to_id(f"\u0120{word}") for word in WORDS]
        assert len(WORDS) == HIDDEN == len(set(ring)), "a word is not one token"
        assert 2.4 < accepted_length() < 2.9, accepted_length()
        save_file(hybrid_weights(ring), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(HYBRID if kind == "hybrid" else DENSE, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
