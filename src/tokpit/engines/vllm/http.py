"""vLLM's HTTP server: which path is good for what."""

from __future__ import annotations

from tokpit.engines.base import HttpFacts

# The cache is emptied in development mode only (VLLM_SERVER_DEV_MODE=1; else 404). `/load` counts nothing unless
# --enable-server-load-tracking was given, so it is no source of load.
FACTS = HttpFacts(
    health="/health",
    version="/version",
    flush="/reset_prefix_cache",
    default_port=8000,
    extra_body={"ignore_eos": True},
)
