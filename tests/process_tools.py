"""What tests ask about processes of this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie; who reaps an orphan differs between machines."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:  # gone, perhaps between the opening and the reading
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def until_gone(pid: int) -> None:
    """Return when the process has ended; the test's time limit is the check."""
    while alive(pid):
        await asyncio.sleep(0.05)
