"""Whether there is a terminal for the console, and the sentence that says what is missing."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from tokpit.errors import UsageError

_STREAMS = (("output", "stdout"), ("input", "stdin"), ("error output", "stderr"))


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is one; it may have been closed by who started tokpit."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def need_terminal(what: str, hint: str) -> None:
    """Raises UsageError where the console could not be seen (it is drawn on stderr) or not be typed to."""
    missing = [name for name, attribute in _STREAMS if not is_terminal(getattr(sys, attribute))]
    if len(missing) == len(_STREAMS) or "output" in missing:
        raise UsageError(f"{what} needs a terminal", hint=hint)
    if missing:
        raise UsageError(
            f"{what} needs a terminal; its standard {' and '.join(missing)} is a file, a pipe or closed", hint=hint
        )
    if os.environ.get("TERM") == "dumb":
        raise UsageError(
            f"{what} needs a terminal that can place its cursor; this one says that it cannot (TERM=dumb)",
            hint=f"if it can, put TERM=xterm-256color before tokpit; {hint}",
        )
