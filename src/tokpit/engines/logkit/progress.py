"""A start, followed by its log: which steps are done, which phase it is in, and whether it moves at all."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.domain.records import LogRecord, Step
from tokpit.engines.base import Milestone

_HARMLESS = frozenset({"failure.retract", "failure.draining", "failure.shm_wait", "failure.queue_full"})
_WARNED = 3
"""vLLM says that a worker does not answer once a minute: once is normal while it compiles, three times is not."""


_WORK = frozenset({"decode_batch", "prefill_batch", "stats", "spec", "spec_v0", "iteration", "slot_line", "live_rate"})
"""Kinds that a server prints at work; a warm-up prints a few of them as well."""
_SERVES = 4


class StartTracker:
    """Pure: records and times in, steps out. `t` is seconds on the host's clock, `started_t` when it was started."""

    def __init__(self, milestones: Sequence[Milestone], started_t: float | None = None) -> None:
        self._known = {milestone.kind: milestone for milestone in milestones}
        self._start = started_t
        self._steps: list[Step] = []
        self._seen: set[str] = set()
        self._current: Milestone | None = None
        self._moved_t = started_t
        self._bar: tuple[object, object] | None = None
        self._waits = 0
        self._work = 0
        self.detail = ""
        """The bar under way, `6/8`, or empty."""
        self.failure: LogRecord | None = None
        """The first failure line of the start."""

    @property
    def steps(self) -> list[Step]:
        """The milestones seen, each at its first time, in the order in which they came."""
        return list(self._steps)

    @property
    def current(self) -> Milestone | None:
        """The newest milestone; None before the first."""
        return self._current

    @property
    def phase(self) -> str:
        """Phase of the newest milestone; `starting` before the first, `failed` once a failure was logged."""
        if self.failure is not None:
            return "failed"
        return self._current.phase if self._current is not None else "starting"

    @property
    def label(self) -> str:
        """What it is doing, in words; empty before the first milestone."""
        return self._current.label if self._current is not None else ""

    @property
    def ready_hint(self) -> bool:
        """Whether the log says ready and nothing before it says otherwise. A hint: only a served request proves it,
        since a server whose port was taken prints the same (its warm-up request reached the other server).
        """
        return self.failure is None and self._current is not None and self._current.phase == "ready"

    def observe(self, record: LogRecord, t: float) -> bool:
        """Take one record seen at `t`; whether the start moved on."""
        if self._start is None:
            self._start = t
        if self._moved_t is None:
            self._moved_t = t
        kind = record.kind
        if kind.startswith("failure."):
            return self._failed(record)
        milestone = self._known.get(kind)
        if milestone is not None:
            self._reach(milestone, record, t)
            return True
        if kind.startswith("progress."):
            bar = (record.fields.get("what") or kind, record.fields.get("done"))
            self.detail = f"{record.fields.get('done')}/{record.fields.get('total')}"
            if bar == self._bar:
                return False
            self._bar = bar
            self._moved_t = t
            return True
        if kind in _WORK:
            self._work += 1
            self._moved_t = t
            return False
        if kind.startswith("milestone."):  # a step of a step: it shows that the start moves
            self._moved_t = t
            return True
        return False

    def _failed(self, record: LogRecord) -> bool:
        if record.kind == "failure.shm_wait":
            self._waits += 1
        elif record.kind not in _HARMLESS and self.failure is None:
            self.failure = record
        return False

    def _reach(self, milestone: Milestone, record: LogRecord, t: float) -> None:
        self._moved_t = t
        self._waits = self._work = 0
        self.detail = ""
        if milestone.kind not in self._seen:
            self._seen.add(milestone.kind)
            elapsed = t - (self._start if self._start is not None else t)
            self._steps.append(Step(milestone.kind, milestone.label, elapsed, record.text[:200]))
        self._current = milestone

    def stuck(self, now: float) -> str | None:
        """A sentence with the usual cause where nothing moved for longer than is usual, else None.

        None as well for a log that shows a server at work: its start is over, whether or not its log tells of it.
        """
        current = self._current
        if self._work >= _SERVES or (self._work and current is None):
            return None
        if self.failure is not None or (current is not None and current.phase == "ready") or self._moved_t is None:
            return None
        silent = now - self._moved_t
        usual = current.usual_s if current is not None else 120.0
        if silent <= usual and self._waits < _WARNED:
            return None
        where = f"“{current.label}”" if current is not None else "the first line of its log"
        bar = f" at {self.detail}" if self.detail else ""
        cause = f" Usual cause: {current.stuck_hint}." if current is not None and current.stuck_hint else ""
        return f"No progress for {_span(silent)} since {where}{bar} (usually at most {_span(usual)}).{cause}"

    def unfinished(self) -> str | None:
        """A sentence that says where the log ends, if that is within a start that has not failed; else None."""
        current = self._current
        if current is None or current.phase == "ready" or self.failure is not None or self._work:
            return None
        bar = f" at {self.detail}" if self.detail else ""
        cause = f"; usual cause: {current.stuck_hint}" if current.stuck_hint else ""
        return (
            f"The log ends in “{current.label}”{bar}, which usually takes at most {_span(current.usual_s)}: without a "
            f"new line for longer, the start is stuck there{cause}."
        )


def _span(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60:02d} s"
