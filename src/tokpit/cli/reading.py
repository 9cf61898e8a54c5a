"""How far a large file is read, on one line of a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tokpit.domain.text import sanitize

_EVERY_S = 0.2
_AFTER_S = 1.0
"""Nobody needs to see a file that is read in no time."""


@contextmanager
def reading() -> Iterator[Callable[[str, int, int], None] | None]:
    """Something to call with a path, the bytes read and the bytes in all; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    began = time.monotonic()
    last = began
    shown = False

    def tell(path: str, read: int, size: int) -> None:
        nonlocal last, shown
        now = time.monotonic()
        if now - began < _AFTER_S or now - last < _EVERY_S:
            return
        last, shown = now, True
        share = f"{read / size:4.0%} of {size / 1e6:,.0f} MB" if size else f"{read / 1e6:,.0f} MB"
        click.echo(
            f"\r\033[Kreading {sanitize(Path(path).name)}: {share}, {read / 1e6 / (now - began):.0f} MB/s",
            err=True,
            nl=False,
        )

    try:
        yield tell
    finally:
        if shown:
            click.echo("\r\033[K", err=True, nl=False)
