"""A batch job: something that a cluster's queue runs for a user."""

from __future__ import annotations

import msgspec

ALIVE = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING"})
WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "REQUEUE_FED"})


class BatchJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job as the queue tells it. Times are UTC seconds, durations seconds; None: not known or without limit."""

    id: str
    name: str = ""
    state: str
    """The queue's own word, such as `PENDING`, `RUNNING`, `TIMEOUT`, `NODE_FAIL`."""
    reason: str = ""
    """Why it waits, in the queue's words."""
    partition: str = ""
    user: str = ""
    nodes: tuple[str, ...] = ()
    """The node of the batch script first."""
    address: str = ""
    """Where the first node is reached from the login host."""
    submitted_at: float | None = None
    start_at: float | None = None
    """When it began, or is expected to."""
    time_left_s: float | None = None
    limit_s: float | None = None
    log_path: str = ""

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.state in ALIVE

    @property
    def waiting(self) -> bool:
        """Whether it will run."""
        return self.state in WAITING


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a batch job asks the queue for. Empty: the queue's default."""

    partition: str = ""
    nodes: int = 1
    gpus: str = ""
    """Of each node, as the queue writes it: `8`, `h100:4`."""
    time_limit: str = ""
    account: str = ""
    args: tuple[str, ...] = ()
    """More options, word for word: `--qos=high`."""
