"""The real program in a real terminal: tmux on a socket of its own."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORDING = ROOT / "tests" / "data" / "demo.tokrec"
TMUX = shutil.which("tmux")


class Terminal:
    """One tmux server with one pane; `text` is what a person would see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._socket = str(folder / f"tmux-{secrets.token_hex(4)}.sock")
        self.env = {
            "PYTHONPATH": str(ROOT / "src"),
            "TOKPIT_STATE_DIR": str(folder / "state"),
            "TOKPIT_CONFIG_DIR": str(folder / "config"),
        }
        (folder / "state").mkdir(exist_ok=True)
        (folder / "state" / "tour-seen").touch()

    def tmux(self, *words: str) -> str:
        done = subprocess.run([TMUX or "tmux", "-S", self._socket, *words], capture_output=True, text=True, timeout=20)
        return done.stdout

    def open(
        self, *words: str, size: tuple[int, int] = (80, 24), shell: bool = False, env: Mapping[str, str] = {}
    ) -> None:
        """Run `tokpit WORDS` (or a shell) in a pane of that size."""
        settings = [f"{key}={value}" for key, value in {**self.env, **env}.items()]
        command = ["env", *settings, *(["bash", "--norc"] if shell else [sys.executable, "-m", "tokpit", *words])]
        # The pane outlives the program, so that its last words can be read.
        line = shlex.join(command) + "; echo ended with $?; exec sleep 1000"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), line)
        self.resize(*size)

    def close(self) -> None:
        self.tmux("kill-server")

    def text(self) -> str:
        return self.tmux("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def paste(self, text: str) -> None:
        """As a terminal does it that brackets what is pasted."""
        self.tmux("set-buffer", text)
        self.tmux("paste-buffer", "-p")

    def resize(self, width: int, height: int) -> None:
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    def until(self, holds: Callable[[str], object]) -> str:
        """Wait until what is on screen is as it should be; the test's own time limit ends it otherwise."""
        started = time.monotonic()
        while not holds(shown := self.text()):
            assert time.monotonic() - started < 40, "it never came:\n" + shown
            time.sleep(0.05)
        return shown

    def shows(self, *words: str) -> str:
        return self.until(lambda shown: all(word in shown for word in words))

    def pid(self) -> int:
        """The tokpit that runs in the pane."""
        pane = self.tmux("list-panes", "-F", "#{pane_pid}").split()[0]
        found = [int(pane)]
        while found:
            parent = found.pop()
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
            for child in map(int, children):
                if b"tokpit" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return child
                found.append(child)
        raise AssertionError("no tokpit runs:\n" + self.text())


def stand_in(folder: Path, *, rate: int, port: int, hybrid: bool = False) -> subprocess.Popen[bytes]:
    """A process that tokpit takes for an SGLang server: its command line, and a log that grows by `rate` lines/s.

    `hybrid`: its lines are those of a model with recurrent layers and drafts, twice as long.
    """
    package = folder / "sglang"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(_WRITER)
    words = [sys.executable, "-m", "sglang.launch_server", "--model-path", "/m/Flood-1B", "--port", str(port)]
    env = {**os.environ, "PYTHONPATH": str(folder), "RATE": str(rate), "HYBRID": "1" if hybrid else ""}
    with (folder / "server.log").open("wb") as out:
        return subprocess.Popen(words, stdout=out, stderr=out, env=env, cwd=folder)


_WRITER = r"""
import os, sys, time
rate = int(os.environ["RATE"])
out = open(1, "wb", buffering=0)
out.write(b"[2026-11-30 07:00:00] The server is fired up and ready to roll!\n")
line = (
    b"[%s TP0] Decode batch, #running-req: 7, #token: %d, token usage: 0.17, cuda graph: True, "
    b"gen throughput (token/s): 301.50, #queue-req: 0\n"
)
if os.environ["HYBRID"]:
    line = (
        b"[%s TP0] Decode batch, #running-req: 7, #full token: %d, full token usage: 0.17, mamba num: 14, "
        b"mamba usage: 0.22, accept len: 3.12, accept rate: 0.78, cuda graph: True, "
        b"gen throughput (token/s): 301.50, #queue-req: 0\n"
    )
began, written = time.monotonic(), 0
parent = os.getppid()
while os.getppid() == parent:
    due = int((time.monotonic() - began) * rate) - written
    if due > 0:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S").encode()
        out.write(b"".join(line % (stamp, written + n) for n in range(due)))
        written += due
    time.sleep(0.02)
"""
