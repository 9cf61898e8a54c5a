"""The console says what it lacks instead of drawing where nobody sees it, or waiting for keys that cannot come."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest

from tokpit.cli.terminal import need_terminal
from tokpit.errors import UsageError


@pytest.mark.parametrize(
    ("off", "said"),
    [
        ({"stdout", "stdin", "stderr"}, "^the cockpit needs a terminal$"),
        ({"stdout"}, "^the cockpit needs a terminal$"),
        ({"stdin"}, "its standard input is a file, a pipe or closed"),
        ({"stderr"}, "its standard error output is a file"),
        ({"TERM"}, "cannot [(]TERM=dumb[)]"),
        (set(), ""),
    ],
)
def test_what_is_missing_is_named(off: set[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "dumb" if "TERM" in off else "xterm")
    with os.fdopen(theirs, "w") as terminal, Path(os.devnull).open() as nothing:
        for name in ("stdin", "stdout", "stderr"):
            monkeypatch.setattr(sys, name, nothing if name in off else terminal)
        if said:
            with pytest.raises(UsageError, match=said):
                need_terminal("the cockpit", "say why")
        else:
            need_terminal("the cockpit", "say why")
    os.close(ours)


def test_a_stream_that_was_closed_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(UsageError, match="needs a terminal"):
        need_terminal("the cockpit", "say why")
