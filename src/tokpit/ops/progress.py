"""Snapshots of an operation under way, published into the live store so that every front end sees the same."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from tokpit.domain.records import Operation, Step
from tokpit.domain.run import Level
from tokpit.errors import TokpitError
from tokpit.store.live import LiveStore


class Progress:
    """One operation. `now` is the host's clock, so that elapsed times are the host's."""

    def __init__(
        self,
        store: LiveStore,
        *,
        kind: str,
        target: str,
        title: str,
        now: Callable[[], float],
        commands: tuple[str, ...] = (),
        operation_id: str | None = None,
    ) -> None:
        self._store, self._now = store, now
        t = now()
        self.operation = Operation(
            id=operation_id or f"{kind}-{secrets.token_hex(4)}",
            kind=kind,
            target=target,
            title=title,
            started_t=t,
            t=t,
            commands=commands,
        )
        store.apply(self.operation)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start, on the host's clock."""
        return self._now() - self.operation.started_t

    def update(self, **changes: Any) -> None:
        """Publish a snapshot with these fields changed."""
        self.operation = msgspec.structs.replace(self.operation, t=self._now(), **changes)
        self._store.apply(self.operation)

    def step(self, kind: str, label: str, detail: str = "") -> None:
        """Add a step that was reached now."""
        self.steps((*self.operation.steps, Step(kind, label, self.elapsed_s, detail)))

    def steps(self, steps: tuple[Step, ...]) -> None:
        """Replace the steps."""
        self.update(steps=steps)

    def level(self, level: Level) -> None:
        """Add a finished level."""
        self.update(levels=(*self.operation.levels, level), live={}, errors={})

    def done(self, **result: str) -> None:
        """The operation succeeded."""
        self.update(status="done", result={**self.operation.result, **result})

    def stopped(self, why: str) -> None:
        """The operation was stopped by the user; what it has so far stays."""
        self.update(status="stopped", error=why)

    def failed(self, error: BaseException) -> None:
        """The operation failed."""
        hint = error.hint if isinstance(error, TokpitError) else ""
        self.update(status="failed", error=str(error) or type(error).__name__, hint=hint)
