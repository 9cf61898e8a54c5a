"""Progress of operations on stderr: one line a step or level, as they come."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from tokpit.domain.records import Operation
from tokpit.domain.text import sanitize

if TYPE_CHECKING:
    from tokpit.ops.gate import ConfirmRequest
    from tokpit.ops.session import Session


@asynccontextmanager
async def show_operations(session: Session) -> AsyncIterator[None]:
    """Print new steps and levels of every operation while the context is open; a question gets lines of its own."""
    printer = _Printer(session)
    task = asyncio.create_task(printer.loop())
    ask = session.confirm

    async def confirm(request: ConfirmRequest) -> bool:
        assert ask is not None
        printer.look()
        printer.clear()
        printer.quiet = True
        try:
            return await ask(request)
        finally:
            printer.quiet = False

    session.confirm = confirm if ask is not None else None
    try:
        yield
    finally:
        session.confirm = ask
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        printer.look()
        printer.clear()


class _Printer:
    """Remembers what was printed of each operation."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._steps: dict[str, set[tuple[str, str]]] = {}
        self._levels: dict[str, int] = {}
        self._version = -1
        self._live = sys.stderr.isatty()
        self._columns = shutil.get_terminal_size().columns if self._live else 10_000
        """What a log says of a milestone gets one line of a terminal; the log has the rest."""
        self._dirty = False
        self._said: dict[str, str] = {}
        self.quiet = False
        """Nothing is printed: the person is asked something."""

    async def loop(self) -> None:
        while True:
            if not self.quiet:
                self.look()
            await asyncio.sleep(0.2)

    def look(self) -> None:
        version = self._session.store.version("ops")
        if version == self._version:
            return
        self._version = version
        for operation in list(self._session.store.operations.values()):
            self._print(operation)

    def clear(self) -> None:
        if self._dirty:
            click.echo("\r\x1b[K", err=True, nl=False)
            self._dirty = False

    def _print(self, operation: Operation) -> None:
        if operation.id not in self._steps:
            self._steps[operation.id] = set()
            self._line(operation.title)
        seen = self._steps[operation.id]
        for step in operation.steps:
            if (step.kind, step.label) not in seen:
                seen.add((step.kind, step.label))
                text = f"  {step.elapsed_s:7.1f} s  {step.label}" + (f"  {_cut(step.detail)}" if step.detail else "")
                self._line(text if step.kind == "started" else _cut(text, self._columns))
        for level in operation.levels[self._levels.get(operation.id, 0) :]:
            self._line(
                f"  C={level.concurrency:4d} n={level.requests:5d} | {level.ok} ok {level.err} err | "
                f"{level.output_tps:8.1f} tok/s | avg_out={level.avg_output:6.0f} | {level.elapsed_s:.1f} s"
            )
        self._levels[operation.id] = len(operation.levels)
        for kind, first in operation.errors.items():
            known = (f"error {len(operation.levels)}", kind)
            if known not in seen:
                seen.add(known)
                self._line(f"  C={operation.live.get('concurrency', 0):4.0f} {kind}: {_cut(first)}")
        for name in ("stuck", "behind", "note"):
            said = operation.result.get(name, "")
            # "No progress for 70 s since X" is news once, not every second.
            if said and said.rpartition(" since ")[2] != self._said.get(name, "").rpartition(" since ")[2]:
                self._line(f"  {operation.t - operation.started_t:7.1f} s  {said}")
            self._said[name] = said
        if operation.live and self._live and operation.status == "running":
            live = operation.live
            text = (
                f"  C={live.get('concurrency', 0):4.0f}  {live.get('done', 0):.0f}/{live.get('total', 0):.0f}  "
                f"{live.get('output_tps', 0):.1f} tok/s  {live.get('elapsed_s', 0):.0f} s"
            )
            self._show(text)
        elif self._live and operation.status == "running" and "phase" in operation.result:
            self._show(f"  {operation.t - operation.started_t:7.1f} s  ... {operation.result['phase']}")

    def _show(self, text: str) -> None:
        """A line that is written over by the next."""
        click.echo(f"\r\x1b[K{sanitize(text)}", err=True, nl=False)
        self._dirty = True

    def _line(self, text: str) -> None:
        self.clear()
        click.echo(sanitize(text), err=True)


def _cut(text: str, width: int = 200) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
