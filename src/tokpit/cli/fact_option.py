"""`--fact KEY=VALUE`."""

from __future__ import annotations

import click

from tokpit.errors import UsageError


def pairs(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Names and values of repeated `KEY=VALUE` options. Raises UsageError."""
    found = []
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"a fact is KEY=VALUE, not {value!r}", hint="for example --fact max_running_requests=9")
        found.append((name.strip(), text.strip().strip("'\"")))
    return tuple(found)
