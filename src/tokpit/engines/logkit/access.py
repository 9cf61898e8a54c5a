"""Lines of the HTTP server itself: uvicorn's access lines and its life-cycle messages."""

from __future__ import annotations

import re

from tokpit.domain.records import Value

_ACCESS = re.compile(
    r'(?:INFO: +)?(?P<client>[^\s"]{1,100}) - (?:"[^"]{0,20}" )?"(?P<method>[A-Z]{3,8}) (?P<path>[^"\s]{1,2000})'
    r'(?: HTTP/[\d.]+)?" (?P<status>\d{3})'
)
_LEVEL = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL): +")


_GLOG = re.compile(r"(?:\[rank\d{1,5}\]:)?\[([IWEF])\d{3,4} \d\d:\d\d:\d\d")
_GLOG_LEVELS = {"I": "info", "W": "warning", "E": "error", "F": "error"}


def native_level(text: str) -> str:
    """Level of a line that C++ code of torch wrote, `[rank3]:[W305 03:55:35.2 socket.cpp:462]`; empty for others."""
    match = _GLOG.match(text) if text.startswith("[") else None
    return _GLOG_LEVELS[match[1]] if match else ""


def access(text: str) -> dict[str, Value] | None:
    """Fields `client`, `method`, `path`, `status` of an access line, None for any other line."""
    match = _ACCESS.match(text)
    if match is None:
        return None
    client, method, path, status = match.groups()
    return {"client": client, "method": method, "path": path, "status": int(status)}


def uvicorn(text: str) -> tuple[str, str] | None:
    """Level word and message of a line like `INFO:     Started server process [12]`; None for any other line."""
    match = _LEVEL.match(text)
    return None if match is None else (match[1], text[match.end() :])
