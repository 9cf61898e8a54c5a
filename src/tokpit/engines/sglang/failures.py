"""Why an SGLang server failed: its signatures and what its log looks like (releases 0.4.6 to 0.5.23)."""

from __future__ import annotations

import re

from tokpit.engines.sglang.signatures import BUGS, CONFIG, DEATH, MEMORY
from tokpit.engines.verdictkit.course import Dialect
from tokpit.engines.verdictkit.flags import FLAGS
from tokpit.engines.verdictkit.shared_gpu import CPU_FALLBACK, GPU
from tokpit.engines.verdictkit.shared_hub import MODEL
from tokpit.engines.verdictkit.shared_nccl import INTERNAL_PORTS, RANKS
from tokpit.engines.verdictkit.shared_python import PYTHON
from tokpit.engines.verdictkit.shared_system import HTTP_PORT, SYSTEM

SIGNATURES = (
    *FLAGS,
    *CONFIG,
    *MEMORY,
    *BUGS,
    *INTERNAL_PORTS,
    *HTTP_PORT,
    *GPU,
    *MODEL,
    *PYTHON,
    *RANKS,
    *SYSTEM,
    *DEATH,
    *CPU_FALLBACK,
)

DIALECT = Dialect(
    signatures=SIGNATURES,
    phases=tuple(
        (re.compile(pattern), phase)
        for pattern, phase in (
            (r"^Init torch distributed begin", "distributed"),
            (r"^Load weight begin|Loading safetensors checkpoint|^Multi-thread loading", "load"),
            (
                r"^Load weight end|^Mamba Cache is allocated|^KV Cache is allocated|^Memory pool end|^Allocating .* "
                r"(?:host memory|KV host pool)",
                "memory",
            ),
            (r"^Capture .*(?:cuda|CUDA) graph begin|^Capturing batches", "capture"),
            (r"^max_total_num_tokens=|^Started server process|Application startup complete|^Uvicorn running", "http"),
            (r"The server is fired up and ready to roll", "ready"),
        )
    ),
    life=re.compile(
        r"^(?:Decode|Prefill) batch|\"POST /\S+ HTTP/[\d.]+\" 200|The server is fired up and ready to roll"
    ),
    boot=re.compile(r"^server_args="),
    early=re.compile(
        r"^(?:Init torch distributed begin|Load weight begin|Mamba Cache is allocated|Memory pool end|Allocating "
        r"[\d.]+ GB host memory for hierarchical \w+)"
    ),
    death=re.compile(
        r"hit an exception: |[Rr]eceived sigquit|SIGQUIT received|scheduler (?:died|is dead)|^Subprocess \S+ "
        r"\(pid=\d+\) crashed|"
        r"[Ww]atchdog timeout \((?!.*soft=True)|^Killed$|Segmentation fault|^Aborted|Initialization failed\. warmup "
        r"error|: error: (?:unrec|argu|ambig)|"
        r"Out of memory: Killed process"
    ),
    wrapper=re.compile(
        r"^(?:\S*Error|Exception): (?:Rank \d+ scheduler|Initialization failed|Capture cuda graph failed|Received "
        r"sigquit)|^(?:EOFError|ConnectionResetError|BrokenPipeError)\b"
    ),
    facts=re.compile(r"['\"]?(?P<key>\w+)['\"]?\s*[=:]\s*(?P<value>'[^']*'|\"[^\"]*\"|[^,\s})]+)"),
    echo=re.compile(r"^server_args="),
)
