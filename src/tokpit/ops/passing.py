"""Escape sequences that a terminal behind tmux or screen shall get."""

from __future__ import annotations

from collections.abc import Mapping

SCREEN_PIECE = 76
"""screen takes no longer strings at once."""


def passed_on(sequence: str, environment: Mapping[str, str]) -> str:
    """The sequence as tmux or screen, if tokpit runs in one, hand it on to their own terminal.

    tmux: DCS `tmux;` with each ESC doubled, taken where its option `allow-passthrough` is on. screen: DCS, in pieces.
    """
    if environment.get("TMUX"):
        return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if environment.get("STY"):
        pieces = (sequence[at : at + SCREEN_PIECE] for at in range(0, len(sequence), SCREEN_PIECE))
        return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    return sequence
