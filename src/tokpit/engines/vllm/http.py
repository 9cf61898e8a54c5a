"""vLLM's HTTP server: which path is good for what."""

from __future__ import annotations

from tokpit.engines.base import HttpFacts

FACTS = HttpFacts(
    health="/health",
    version="/version",
    loads="/load",
    flush="/reset_prefix_cache",
    default_port=8000,
    extra_body={"ignore_eos": True},
)
