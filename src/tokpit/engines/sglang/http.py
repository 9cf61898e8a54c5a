"""SGLang's HTTP server: which path is good for what."""

from __future__ import annotations

from tokpit.engines.base import HttpFacts

FACTS = HttpFacts(
    health="/health",
    info="/server_info",
    loads="/v1/loads",
    flush="/flush_cache",
    default_port=30000,
    health_variable="SGLANG_HEALTH_CHECK_TIMEOUT",
    extra_body={"ignore_eos": True},
)
