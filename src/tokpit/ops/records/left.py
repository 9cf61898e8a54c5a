"""Rings of consoles that were killed: their last minutes are kept, and the next console says so once."""

from __future__ import annotations

import zlib
from pathlib import Path

from tokpit.ops.records.recording import rings
from tokpit.store.recording.writer import segments

_CHUNK = 1 << 18
TOLD = "told"
"""File beside the rings with the names of those that were spoken of."""


def news(folder: Path) -> Path | None:
    """The newest ring in `folder` whose tokpit ended without leaving and that was not spoken of yet."""
    mark = folder / TOLD
    try:
        told = set(mark.read_text("utf-8").split()) if mark.exists() else set()
        ended = [path for path, lives, _ in rings(folder) if not lives]
        fresh = [path for path in ended if path.name not in told]
        if fresh:
            mark.write_text("\n".join(path.name for path in ended) + "\n", "utf-8")
    except OSError:
        return None
    return next((path for path in reversed(fresh) if not closed(path)), None)


def closed(ring: Path) -> bool:
    """Whether the last segment was ended in order; a killed tokpit cannot do that."""
    parts = segments(ring)
    if not parts:
        return True
    unzip = zlib.decompressobj(31)
    try:
        with parts[-1].open("rb") as stream:
            while not unzip.eof and (data := stream.read(_CHUNK)):
                while data and not unzip.eof:
                    unzip.decompress(data, _CHUNK)
                    data = unzip.unconsumed_tail
    except (OSError, zlib.error):
        return False
    return unzip.eof
