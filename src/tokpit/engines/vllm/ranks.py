"""vLLM on several nodes without Ray: every node runs the same command with its rank, all but the first headless.

Source: `AsyncEngineArgs` from 0.11.2 on (`--nnodes`, `--node-rank`, `--master-addr`, `--master-port`), `--headless`
from 0.9.2 on.
"""

from __future__ import annotations

from tokpit.engines.version import at_least
from tokpit.errors import UsageError

FLAGS = {"--nnodes": 1, "--node-rank": 1, "--master-addr": 1, "--master-port": 1, "--headless": 0}
HEAD = "--master-addr"


def rank_flags(version: str | None, *, nodes: int, rank: str, head: str, port: int) -> tuple[str, ...]:
    """See Engine."""
    if version is not None and not at_least(version, "0.11.2"):
        raise UsageError(
            f"vLLM {version} serves from several nodes only on a Ray cluster", hint="0.11.2 is the first that does not"
        )
    words = ("--nnodes", str(nodes), "--node-rank", rank, "--master-addr", head, "--master-port", str(port))
    return words if rank == "0" else (*words, "--headless")
