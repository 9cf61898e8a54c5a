"""Constants of the simulated machine and where each comes from; nothing else.

"Measured" means: reported for one NVIDIA RTX PRO 6000 Blackwell running SGLang 0.5.11 with Qwen3.6-27B in bf16,
multi-token prediction and a 150 GB hierarchical cache. "Derived" means arithmetic on measured figures. "Assumed"
means: plausible, chosen for the simulation, and no claim about that hardware.
"""

from __future__ import annotations

VERSION = "0.5.11"
MODEL_NAME = "Qwen3.6-27B"
MODEL_PATH = "/models/Qwen3.6-27B"
MODEL_CLASS = "Qwen3_5ForConditionalGeneration"

# The sweep: concurrency, requests, elapsed seconds, output tokens per second of the whole run. Measured.
OUTPUT_TOKENS = 1024
TABLE: tuple[tuple[int, int, float, float], ...] = (
    (1, 8, 133.8, 61.2),
    (4, 8, 39.5, 207.2),
    (8, 16, 44.3, 369.7),
    (16, 32, 85.2, 384.5),
    (32, 64, 166.9, 392.7),
    (48, 96, 240.3, 409.0),
)

# Decode step time by running requests, milliseconds. Derived: elapsed x acceptance / (waves x tokens) = 52, 62, 69, 69,
# less the share of prefill and of the client's own time, which come on top again when it is measured here.
STEP_MS: tuple[tuple[int, float], ...] = ((1, 52.0), (4, 61.5), (8, 68.5), (9, 68.5))
STEP_MS_PER_MORE = 0.9  # Assumed: each request beyond the last measured point.
PLAIN_STEP_MS = 37.0  # Derived: 26.7 tok/s measured without speculation, one token a step.

SPEC_STEPS = 3  # SGLang's own choice where none is given: 3 steps, top-k 1, 4 draft tokens.
ACCEPT_LEN = 3.2  # Measured.
STATE_SLOTS = 48  # Measured.
RUNNING_CAP = 9  # Measured; 48 slots // 5 slots a request.
START_S = 150.0  # Measured: launch to ready, with both host pools.

# GPU. Name and memory as the driver prints them; bandwidth from the data sheet.
GPU_NAME = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
GPU_MEM_MIB = 97887
GPU_UUID = "GPU-5a17b3c2-90de-4f61-8b7a-2c6d1e04f9aa"
GPU_BUS_ID = "00000000:41:00.0"
GPU_POWER_LIMIT_W = 600.0
DRIVER_VERSION = "580.95.05"

# Host memory: the measured start pinned 150.00 + 150.10 GB; the total is assumed from that.
HOST_MEM_TOTAL_BYTES = 540_583_432_192
HOST_MEM_OTHERS_BYTES = 38_654_705_664  # Assumed: the system and the processes of others.
HICACHE_RESERVE_BYTES = 10 * 1024**3  # SGLang keeps 10 GiB free.
HICACHE_GB = 150

# Sizes, GiB as SGLang prints them ("GB"). 54 GB of weights: measured. State sizes: derived from public pool lines.
WEIGHTS_GIB = 50.34
DRAFT_GIB = 0.81
SSM_GIB_PER_SLOT = 3.30 / 48
CONV_GIB_PER_SLOT = 0.26 / 48
KV_BYTES_PER_TOKEN = 65_536  # 16 attention layers x 2 x 4 heads x 256 x 2 bytes.
CONTEXT_LEN = 262_144
MAMBA_HOST_GB_OVER = 0.10  # Measured: 150.10 GB for 150 asked, because whole states are allocated.

PREFILL_BASE_S = 0.02  # Assumed.
PREFILL_TPS = 6000.0  # Assumed.

# Flags of the measured server, as far as they were reported; the rest is what the parser fills in.
FLAGS: tuple[str, ...] = (
    "--served-model-name", MODEL_NAME, "--tp-size", "1", "--mem-fraction-static", "0.85",
    "--mamba-scheduler-strategy", "extra_buffer", "--max-mamba-cache-size", str(STATE_SLOTS),
    "--speculative-algorithm", "NEXTN", "--speculative-num-steps", str(SPEC_STEPS),
    "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", str(SPEC_STEPS + 1),
    "--enable-hierarchical-cache", "--hicache-size", str(HICACHE_GB), "--enable-metrics",
)  # fmt: skip
