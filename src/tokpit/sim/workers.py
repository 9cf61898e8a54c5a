"""Worker processes with SGLang's titles, which end with their engine: each waits on a pipe that the engine holds."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path


def _ignore_term() -> None:
    # A stop reaches the whole group; the workers serve on while their engine drains.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Workers:
    """The engine's children, and the links under `proc/` by which a process listing finds them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def main_pid(self) -> int | None:
        """The process that holds the device memory."""
        return self._children[0].pid if self._children else None

    def start(self, *titles: str) -> None:
        """Start one process a title; its command line is the title and nothing else."""
        program = shutil.which("cat", path="/bin:/usr/bin") or "/bin/cat"
        for title in titles:
            child = subprocess.Popen(
                [title],
                executable=program,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=_ignore_term,  # noqa: PLW1509  # this process has one thread
            )
            self._children.append(child)
            self.register(child.pid)

    def register(self, pid: int) -> None:
        """Make a process visible in the simulated host's process listing."""
        with suppress(OSError):
            (self._root / "proc" / str(pid)).symlink_to(f"/proc/{pid}")

    def end(self) -> None:
        """End all workers and take the links away."""
        for child in self._children:
            child.kill()
            child.wait()
            assert child.stdin is not None
            child.stdin.close()
        for pid in (os.getpid(), *(c.pid for c in self._children)):
            with suppress(OSError):
                (self._root / "proc" / str(pid)).unlink()
        self._children.clear()
