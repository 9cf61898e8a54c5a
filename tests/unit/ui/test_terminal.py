"""The real program in tmux."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tmux_screen import RECORDING, TMUX, Terminal, stand_in
from tokpit.ops.records.recording import rings

pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not here")

REPLAY = ("replay", "--paused", "--at", "+15s", str(RECORDING))


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.close()


@pytest.fixture
def flood(tmp_path: Path, unused_port: int) -> Iterator[subprocess.Popen[bytes]]:
    process = stand_in(tmp_path, rate=20_000, port=unused_port)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_it_starts_takes_every_size_and_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    terminal.open(*REPLAY)
    terminal.shows("SIMULATED", "208.1 tok/s", "PAUSE", "q quit")
    for width, height in ((200, 50), (20, 5), (5, 2), (1, 1), (80, 24)):
        terminal.resize(width, height)
    shown = terminal.shows("SIMULATED", "208.1 tok/s", "PAUSE", "q quit")
    assert "Traceback" not in shown
    terminal.keys("q")
    shown = terminal.shows("ended with 0")
    assert "SIMULATED" not in shown, "the alternate screen was not left"


def test_what_is_pasted_presses_no_key(terminal: Terminal) -> None:
    terminal.open(*REPLAY)
    terminal.shows("PAUSE")
    terminal.paste("q\nx\n1\nq")
    terminal.keys("Space")
    shown = terminal.shows("PLAY")
    assert "fleet  1 host" not in shown


def test_ctrl_z_gives_the_shell_back_and_fg_the_console(terminal: Terminal) -> None:
    terminal.open(shell=True)
    terminal.keys("PS1='shell> '", "Enter")
    terminal.shows("shell>")
    terminal.keys(shlex.join([sys.executable, "-m", "tokpit", *REPLAY]), "Enter")
    terminal.shows("PAUSE", "q quit")
    terminal.keys("C-z")
    terminal.shows("shell>", "Stopped")
    terminal.keys("fg", "Enter")
    terminal.shows("PAUSE", "208.1 tok/s", "q quit")
    terminal.keys("Space")
    terminal.shows("PLAY")
    terminal.keys("q")
    terminal.until(lambda shown: "PLAY" not in shown and "shell>" in shown)


@pytest.mark.parametrize(
    "env",
    [{"TERM": "xterm"}, {"TERM": "screen"}, {"TERM": "xterm", "LC_ALL": "C", "LANG": "C"}, {"NO_COLOR": "1"}],
    ids=["xterm", "screen", "no-utf8-locale", "no-color"],
)
def test_old_terminals_and_bare_locales_show_the_same(terminal: Terminal, env: dict[str, str]) -> None:
    terminal.open(*REPLAY, env=env)
    shown = terminal.shows("SIMULATED", "208.1 tok/s", "PAUSE", "q quit")
    assert "●" in shown
    assert "┤" in shown
    if "NO_COLOR" in env:
        coloured = terminal.tmux("capture-pane", "-p", "-e")
        # Shades of grey: the last 24 of 256, and the ends of the scale.
        assert {int(n) for n in re.findall(r"[34]8;5;(\d+)", coloured)} <= {
            0,
            7,
            8,
            15,
            16,
            59,
            102,
            145,
            188,
            231,
            *range(232, 256),
        }
        assert not re.search(r"[34]8;2;", coloured)


def choose(terminal: Terminal, model: str) -> None:
    """Select a server among those that run on this machine."""
    terminal.shows(model)
    for _ in range(30):
        shown = terminal.text()
        if model in shown.splitlines()[0]:
            return
        terminal.keys("j")
        terminal.until(lambda now, before=shown: now.splitlines()[:2] != before.splitlines()[:2])  # type: ignore[misc]
    raise AssertionError(terminal.text())


def test_a_log_that_floods_neither_stops_the_screen_nor_the_keys(
    terminal: Terminal, flood: subprocess.Popen[bytes]
) -> None:
    terminal.open("local", size=(120, 40))
    choose(terminal, "Flood-1B")
    terminal.shows("following", "Decode batch")
    terminal.keys("Space")
    terminal.shows("HELD")
    terminal.keys("Space")
    terminal.until(lambda shown: "HELD" not in shown and "following" in shown)
    terminal.keys("1")
    terminal.shows("fleet")
    terminal.keys("2")
    terminal.shows("following", "Decode batch")
    assert flood.poll() is None
    terminal.keys("q")
    terminal.shows("ended with 0")
    assert flood.poll() is None, "leaving ended the server"


def test_after_kill_9_it_starts_again_and_what_was_recorded_is_there(
    terminal: Terminal, flood: subprocess.Popen[bytes]
) -> None:
    terminal.open("local", size=(120, 40))
    choose(terminal, "Flood-1B")
    terminal.shows("Decode batch")
    kept = terminal.folder / "state" / "rings"
    terminal.until(lambda _: any(size > 2000 for _, _, size in rings(kept)))
    os.kill(terminal.pid(), signal.SIGKILL)
    terminal.shows("ended with 137")
    terminal.close()
    again = Terminal(terminal.folder)
    again.open("local", size=(120, 40))
    try:
        again.shows("ended here without leaving", "tokpit record save")
        choose(again, "Flood-1B")
        again.shows("following", "Decode batch")
        assert sorted(lives for _, lives, _ in rings(kept)) == [False, True]
    finally:
        again.close()
    assert flood.poll() is None


def test_what_is_typed_ahead_goes_where_it_would_have_gone(terminal: Terminal) -> None:
    terminal.open(*REPLAY)
    terminal.shows("PAUSE", "q quit")
    terminal.keys("-l", "/retract")  # r, e and t are keys of the cockpit
    terminal.shows(" retract")
    terminal.keys("Escape", "1")  # in one piece
    terminal.shows("fleet  1 host")
    assert not (terminal.folder / "state" / "exports").exists()


def test_a_copy_within_tmux_is_in_its_buffer(terminal: Terminal) -> None:
    terminal.open(*REPLAY)
    terminal.shows("PAUSE", "q quit")
    terminal.keys("y")
    terminal.shows("copied the command line", "tmux's buffer")
    terminal.until(lambda _: "sglang.launch_server" in terminal.tmux("show-buffer"))


def test_told_to_end_it_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    terminal.open(*REPLAY)
    terminal.shows("SIMULATED", "PAUSE", "q quit")
    os.kill(terminal.pid(), signal.SIGTERM)
    shown = terminal.shows("ended with 0")
    assert "SIMULATED" not in shown, "the alternate screen was not left"


def test_a_terminal_that_is_closed_ends_it(terminal: Terminal) -> None:
    terminal.open(*REPLAY)
    terminal.shows("PAUSE", "q quit")
    pid = terminal.pid()
    terminal.close()
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        time.sleep(0.05)


def test_it_is_as_large_as_its_terminal_whatever_a_shell_exports(terminal: Terminal) -> None:
    terminal.open(*REPLAY, size=(110, 35), env={"COLUMNS": "80", "LINES": "24"})
    terminal.until(lambda shown: "q quit" in "".join(shown.splitlines()[-1:]) and len(shown.splitlines()) == 35)
    terminal.resize(100, 30)
    terminal.until(lambda shown: "q quit" in "".join(shown.splitlines()[-1:]) and len(shown.splitlines()) == 30)
