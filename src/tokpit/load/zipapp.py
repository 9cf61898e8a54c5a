"""Packs this room into one file that any Python from 3.9 with aiohttp runs."""

from __future__ import annotations

import io
import zipfile
from importlib.resources import files
from pathlib import Path

PACKAGE = "tokpit_load"
_LEFT_OUT = ("zipapp.py",)
_MAIN = f"import sys\nfrom {PACKAGE}.agent import main\nsys.exit(main())\n"
_SHEBANG = b"#!/usr/bin/env python3\n"


def build() -> bytes:
    """The bytes of the file; the same bytes for the same sources, so that a hash tells whether a host has it."""
    # The package is asked for its own files, so that this works from a wheel, a checkout and a zip alike.
    sources = {
        entry.name: entry.read_bytes()
        for entry in files(__package__ or "tokpit.load").iterdir()
        if entry.name.endswith(".py") and entry.name not in _LEFT_OUT
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        for name in sorted(sources):
            _add(archive, f"{PACKAGE}/{name}", sources[name])
    return _SHEBANG + buffer.getvalue()


def write(path: str | Path) -> Path:
    """Writes `build()` to `path` and returns it; raises OSError."""
    target = Path(path)
    target.write_bytes(build())
    return target


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, date_time=(2020, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    archive.writestr(info, data)
