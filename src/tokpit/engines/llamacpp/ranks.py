"""llama.cpp serves from one node; its RPC workers are another program, which tokpit does not start."""

from __future__ import annotations

from tokpit.errors import UsageError

FLAGS: dict[str, int] = {}
HEAD = ""


def rank_flags(version: str | None, *, nodes: int, rank: str, head: str, port: int) -> tuple[str, ...]:
    """See Engine."""
    raise UsageError(f"llama.cpp cannot serve from {nodes} nodes", hint="launch one server a node")
