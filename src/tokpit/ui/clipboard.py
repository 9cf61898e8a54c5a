"""The clipboard of the terminal that a person sits at, also from within tmux and screen."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tokpit.ops.passing import passed_on

if TYPE_CHECKING:
    from tokpit.ui.app import TokpitApp

MAX_BYTES = 65_536
"""Terminals drop longer OSC 52 sequences, some without a word."""
TMUX_S = 5.0


def put(console: TokpitApp, text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Put text on the clipboard by OSC 52; the name of what else has it now, or an empty text.

    tmux takes OSC 52 of programs within it only where `set-clipboard` is `on`, which it is not by itself; its command
    `load-buffer -w` (3.2 and later) sets its buffer and its terminal's clipboard in any case.
    """
    console.copy_to_clipboard(text)
    if environment.get("TMUX") and (tmux := shutil.which("tmux")):
        console.run_worker(_load_buffer(tmux, text), exit_on_error=False)
        return "tmux's buffer"
    if environment.get("STY") and console._driver is not None:
        sequence = f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07"
        console._driver.write(passed_on(sequence, environment))
    return ""


async def _load_buffer(tmux: str, text: str) -> None:
    nothing = asyncio.subprocess.DEVNULL
    for words in (("load-buffer", "-w", "-"), ("load-buffer", "-")):  # before 3.2 there is no -w
        process = await asyncio.create_subprocess_exec(
            tmux, *words, stdin=asyncio.subprocess.PIPE, stdout=nothing, stderr=nothing
        )
        try:
            async with asyncio.timeout(TMUX_S):
                await process.communicate(text.encode())
        except TimeoutError:
            process.kill()
            await process.wait()
            return
        if process.returncode == 0:
            return
