"""What other programs put around a server's own line: docker, compose, Kubernetes, journald, srun, log shippers."""

from __future__ import annotations

import json
import re

_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_COMPOSE = r"[\w.@-]{1,80} +\| "
_TAG = r"[\w.@/-]{1,80}"
_POD = re.compile(r"\[pod/[^\]]{1,200}\] ")  # kubectl logs --prefix
_NAMED = re.compile(
    rf"{_COMPOSE}"  # name-1  |
    rf"|[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{{1,6}})? [\w.-]{{1,80}} {_TAG}(?:\[\d+\])?: "  # syslog
    rf"|[A-Z][a-z]{{2}} \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{{1,6}})? [A-Z]{{2,5}} "
    rf"(?:[\w.-]{{1,80}} )?{_TAG}\[\d+\]: "  # journalctl -o short-full
    rf"|[A-Z][a-z]{{2}} \d{{1,2}}, \d{{4}} @ \d\d:\d\d:\d\d\.\d{{3}} +"  # Kibana
)
_STAMPED = re.compile(
    rf"{_COMPOSE}"
    rf"|{_STAMP} (?:(?:stdout|stderr) [FP] "  # container runtime interface
    rf"|(?:[\w.-]{{1,80}} )?{_TAG}\[\d+\]: "  # journalctl -o short-iso, with or without the host
    rf"|- [\w.]{{1,80}} - [A-Z]{{4,8}} - "  # a wrapper's Python logger
    rf"|(?:DEBUG|INFO|WARNING|ERROR) \d+ \[[\w.]+:\d+\] )"  # another formatter of the same record
    rf"|\d{{4}}-\d\d-\d\dT[\d:.]{{8,18}}(?:Z|[+-]\d\d:?\d\d) "  # docker logs --timestamps
    rf"|{_STAMP}\t"  # log shippers
    rf"|\d{{9,10}}\.\d{{6}} (?:[\w.-]{{1,80}} )?{_TAG}\[\d+\]: "  # journalctl -o short-unix
    rf"|\d{{1,4}}: "  # srun --label
)


_FRAMED = re.compile(rf"<\d{{1,3}}>1 {_STAMP}(?: \S{{1,255}}){{4}} (?:-|\[[^\]]{{0,500}}\]) ")  # RFC 5424
_WRAPPED = ("log", "message", "MESSAGE", "msg")
"""Keys under which docker's json-file driver, `journalctl -o json` and log shippers keep the line itself."""


def unwrap(text: str) -> str | None:
    """The line inside a JSON object that another program wrote around it; None where `text` is no such object."""
    try:
        page = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(page, dict):
        return None
    inner = next((page[key] for key in _WRAPPED if isinstance(page.get(key), str)), None)
    return None if inner is None or len(page) < 2 else inner.rstrip("\r\n").replace("\n", " ")


_LEVEL = re.compile(r"\b(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")


def outer_level(prefix: str) -> str:
    """The level word that a wrapper's logger put into its prefix; empty if there is none."""
    match = _LEVEL.search(prefix)
    return match[1] if match else ""


def strip_outer(text: str) -> tuple[str, str]:
    """(prefix, rest): known outer prefixes, up to three of them stacked, cut off the front of `text`."""
    start = outer_end(text)
    return text[:start], text[start:]


def outer_end(text: str) -> int:
    """Where what other programs put before the line ends; 0 where they put nothing."""
    first = text[:1]
    if not first.isdigit() and first not in {"[", "<"} and text[3:4] != " " and "| " not in text[:90]:
        return 0  # nothing known starts like this
    start = 0
    for _ in range(3):
        first = text[start : start + 1]
        if first in {"[", "<"}:
            match = (_POD if first == "[" else _FRAMED).match(text, start)
        else:
            match = (_STAMPED if first.isdigit() else _NAMED).match(text, start)
        if match is None:
            break
        start = match.end()
    return start
