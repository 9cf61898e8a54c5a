"""An escape and a key right behind it are two keys.

A terminal sends alt and a key as an escape and the key, so that Textual takes `esc` `1`, typed quickly or come in one
piece over a slow link, for a character that some keyboards have there, and drops the escape of `esc` `/`. Who leaves a
form and goes on must not lose either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from textual import events
from textual._xterm_parser import XTermParser

ESC = "\x1b"
_SHIFT_TAB = "\x1b\t"
"""Of the Linux console."""


class TwoKeys(XTermParser):
    """The parser of what a terminal sends, without alt."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        found = list(super()._sequence_to_key_events(sequence))
        behind = len(sequence) == 2 and sequence[0] == ESC and sequence != _SHIFT_TAB
        if found and behind:
            found = list(super()._sequence_to_key_events(sequence[1]))
        if found and (behind or alt):
            yield events.Key("escape", ESC)
        yield from found


def part_escapes(own_keys: Mapping[str, str]) -> None:
    """Read keys so from now on, unless a person has keys with alt. The driver makes its parser itself, by this name."""
    if any("alt+" in key for key in own_keys.values()):
        return
    try:
        from textual.drivers import linux_driver
    except ImportError:  # not a system with terminals of this kind
        return
    linux_driver.XTermParser = TwoKeys  # type: ignore[attr-defined]  # imported there, and used by this name
