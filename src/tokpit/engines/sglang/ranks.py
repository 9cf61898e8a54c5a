"""SGLang on several nodes: every node runs the same command with its rank; tp x pp is divided among the nodes.

Source: `ServerArgs` of 0.4.6 to 0.5.23 (`--nnodes`, `--node-rank`, `--dist-init-addr HOST:PORT`). Only the first node
serves HTTP in earnest; the others answer `/health` of their own.
"""

from __future__ import annotations

FLAGS = {"--nnodes": 1, "--node-rank": 1, "--dist-init-addr": 1}
HEAD = "--dist-init-addr"


def rank_flags(version: str | None, *, nodes: int, rank: str, head: str, port: int) -> tuple[str, ...]:
    """See Engine; every version that is known has these."""
    return ("--nnodes", str(nodes), "--node-rank", rank, "--dist-init-addr", f"{head}:{port}")
