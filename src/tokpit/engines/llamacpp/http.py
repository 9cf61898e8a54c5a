"""llama-server's HTTP server: which path is good for what."""

from __future__ import annotations

from tokpit.engines.base import HttpFacts

FACTS = HttpFacts(health="/health", info="/props", loads="/slots", default_port=8080, extra_body={"ignore_eos": True})
