"""What only SGLang prints."""

from __future__ import annotations

from tokpit.engines.logkit.marks import mark

MARKS = (
    mark(
        30,
        r"\b(?:Decode|Prefill) batch[,. \[]|fired up and ready to roll|sglang|launch_server|server_args=ServerArgs\("
        r"|Init torch distributed (?:begin|ends)|Load weight (?:begin|end)\b|max_total_num_tokens=|Capturing batches"
        r"|hierarchical (?:KV|Mamba) cache|Mamba Cache is allocated|KV Cache is allocated|Memory pool end\."
        r"|Scheduler hit an exception|sigquit from a child|#retracted_reqs|mem-fraction-static|HybridAttnBackend"
        r"|--(?:mamba|hicache|speculative-eagle)-|SGLANG_|mamba_(?:track_interval|ping_pong)"
        r"|is capped to \d+ by the mamba|Capture (?:cuda|[\w ]+ CUDA) graph|scheduler (?:died|is dead)",
    ),
    mark(20, r"\[(?:\d{4}-\d\d-\d\d [\d:.,]{8,15} )?(?:DisaggregationMode\.\w+ )?(?:ATTN_|MOE_)?(?:DP|PP|TP|EP|CP)\d"),
    mark(10, r"\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{3})?\] "),
    mark(1, r"Multi-thread loading"),
    mark(10, r"[Ww]atchdog timeout \(|memory capacity is unbalanced|Not enough host memory available|Auto-configed"),
)
