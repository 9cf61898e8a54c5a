"""Lines of the HTTP server itself: uvicorn's access lines and its life-cycle messages."""

from __future__ import annotations

import re

from tokpit.domain.records import Value

_ACCESS = re.compile(
    r'(?:INFO: +)?(?P<client>[^\s"]{1,100}) - (?:"[^"]{0,20}" )?"(?P<method>[A-Z]{3,8}) (?P<path>[^"\s]{1,2000})'
    r'(?: HTTP/[\d.]+)?" (?P<status>\d{3})'
)
_LEVEL = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL): +")


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
