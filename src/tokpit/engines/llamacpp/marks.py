"""What only llama-server prints."""

from __future__ import annotations

from tokpit.engines.logkit.marks import mark

MARKS = (
    mark(
        30,
        r"slot +(?:print_timing|release|launch_slot_|update_slots|load_model|get_availabl)\b|\bsrv +\w+: |\bllama_"
        r"|ggml|GGML|llama-server|prompt processing, n_tokens|\btg_3s =|all slots are idle|\bn_ctx_slot\b|\bgguf\b"
        r"|(?:prompt )?eval time =.* ms per token|draft acceptance(?: rate)? = |build(?:_info)?: b?\d+ ?\(",
    ),
    mark(20, r"(?:^|[\s|\]])\[?\d{1,7}\.\d\d\.\d{3}\.\d{3}\]? [IWED] "),
    mark(10, r"couldn't bind (?:HTTP )?server socket|error: invalid argument: -|exiting due to model loading error"),
)
