"""The bond between the simulated host and the processes in it: they end when it ends, however it ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

SOCKET = "owner.sock"
VARIABLE = "TOKPIT_SIM_ROOT"


async def watch_owner(root: Path) -> None:
    """End this process at once when the host's server process has gone (its socket closes, whatever killed it)."""
    try:
        reader, writer = await asyncio.open_unix_connection(str(root / SOCKET))
        await reader.read()
        writer.close()
    except OSError:
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def sandbox_pids(root: Path) -> list[int]:
    """Processes that were started inside the sandbox, found by the variable in their environment."""
    needle = f"{VARIABLE}={root}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if needle in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def kill_all(root: Path, within_s: float = 5.0) -> list[int]:
    """Kill every process of the sandbox and wait for them; returns those that are left (normally none)."""
    deadline = time.monotonic() + within_s
    while left := sandbox_pids(root):
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return left
        time.sleep(0.02)
    return []


def clean(root: Path) -> None:
    """Kill every process of the sandbox and remove its folder."""
    kill_all(root)
    shutil.rmtree(root, ignore_errors=True)
