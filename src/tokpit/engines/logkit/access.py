"""Lines of the HTTP server itself: uvicorn's access lines and its life-cycle messages."""

from __future__ import annotations

import re

from tokpit.domain.records import Value

_ACCESS = re.compile(
    r'(?:INFO: +)?([^\s"]{1,100}) - (?:"[^"]{0,20}" )?"([A-Z]{3,8}) ([^"\s]{1,2000})(?: HTTP/[\d.]+)?" (\d{3})'
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
    fields: dict[str, Value] = {}
    return fields if add_access(text, 0, fields) else None


def add_access(text: str, start: int, fields: dict[str, Value]) -> bool:
    """Add the fields of the access line that begins at `start`; whether there is one."""
    match = _ACCESS.match(text, start)
    if match is None:
        return False
    fields["client"], fields["method"], fields["path"], status = match.groups()
    fields["status"] = int(status)
    return True


def uvicorn(text: str) -> tuple[str, str] | None:
    """Level word and message of a line like `INFO:     Started server process [12]`; None for any other line."""
    match = _LEVEL.match(text)
    return None if match is None else (match[1], text[match.end() :])
