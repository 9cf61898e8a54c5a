"""llama-server's HTTP server: which path is good for what."""

from __future__ import annotations

from tokpit.engines.base import HttpFacts

FACTS = HttpFacts(
    health="/health",
    info="/props",
    loads="/slots",
    default_port=8080,
    extra_body={"ignore_eos": True},
    # It promises to keep a connection (`Keep-Alive: max=100`) and closes it after a stream (b11434): the next request
    # over it, sent at once, would be told as a reset.
    headers={"Connection": "close"},
)
