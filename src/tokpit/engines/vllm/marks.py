"""What only vLLM prints."""

from __future__ import annotations

from tokpit.engines.logkit.marks import mark

MARKS = (
    mark(
        30,
        r"\b(?:Avg prompt throughput|SpecDecoding metrics|Speculative metrics: Draft|KV Transfer metrics: )"
        r"|Engine \d{3}: |Engines Aggregated: |\bMFU: [\d.]+ TF|GPU KV cache size|vllm|VLLM_|\bvLLM\b|EngineCore"
        r"|gpu[-_]memory[-_]utilization|max[-_](?:num[-_]seqs|model[-_]len)|Engine core init|Capturing CUDA graph"
        r"|No available shared memory broadcast block|WorkerProc|AsyncLLM|Iteration\(\d+\): \d+ context",
    ),
    mark(20, r"\((?:APIServer|ApiServer|EngineCore|Worker|VllmWorker|DPCoordinator|RayWorkerWrapper)\w*[^()]* pid=\d"),
    mark(10, r"\b(?:DEBUG|INFO|WARNING|ERROR) +\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[?[\w./]+:\d+\]"),
    mark(1, r"^(?:INFO|ERROR|WARNING): {2,}"),
)
