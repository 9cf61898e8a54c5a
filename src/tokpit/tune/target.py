"""Which servers can be tuned at all."""

from __future__ import annotations

from tokpit.domain.server import ServerInfo
from tokpit.errors import UsageError

_BY_HAND = "measure each start yourself: tokpit sweep, then tokpit compare"


def check_target(info: ServerInfo) -> None:
    """Raises UsageError where starts cannot follow each other on one port of one host."""
    if info.container is not None:
        raise UsageError(
            f"{info.label} runs in container {info.container}, and what made it (image, mounts, GPUs, restart policy) "
            "is not on its command line: it could not be put back as it was, so it is not touched",
            hint=f"start the model outside a container (tokpit launch --env-dir ...) and tune that, or {_BY_HAND}",
        )
    if info.job is not None:
        raise UsageError(
            f"{info.label} is batch job {info.job.id}: each restart would wait in the queue, and the node may be given "
            "to somebody else meanwhile, so it is not touched",
            hint=f"tune inside one allocation, with its node as the host, or {_BY_HAND}",
        )
    if info.ranks:
        raise UsageError(
            f"{info.label} is one server over {len(info.ranks)} hosts: an experiment takes servers of one host only",
            hint=f"change it with tokpit relaunch, and {_BY_HAND}",
        )
