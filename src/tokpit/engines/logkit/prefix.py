"""What other programs put before a server's own line: docker, compose, Kubernetes, journald, srun, wrappers."""

from __future__ import annotations

import re

_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_COMPOSE = r"[\w.-]{1,80} +\| "
_TAG = r"[\w.@/-]{1,80}"
_POD = re.compile(r"\[pod/[^\]]{1,200}\] ")  # kubectl logs --prefix
_NAMED = re.compile(
    rf"{_COMPOSE}"  # name-1  |
    rf"|[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d [\w.-]{{1,80}} {_TAG}(?:\[\d+\])?: "  # syslog
    rf"|[A-Z][a-z]{{2}} \d{{1,2}}, \d{{4}} @ \d\d:\d\d:\d\d\.\d{{3}} +"  # Kibana
)
_STAMPED = re.compile(
    rf"{_COMPOSE}"
    rf"|{_STAMP} (?:(?:stdout|stderr) [FP] "  # container runtime interface
    rf"|(?:[\w.-]{{1,80}} )?{_TAG}\[\d+\]: "  # journalctl -o short-iso, with or without the host
    rf"|- [\w.]{{1,80}} - [A-Z]{{4,8}} - "  # a wrapper's Python logger
    rf"|(?:DEBUG|INFO|WARNING|ERROR) \d+ \[[\w.]+:\d+\] )"  # another formatter of the same record
    rf"|\d{{4}}-\d\d-\d\dT[\d:.]{{8,18}}(?:Z|[+-]\d\d:?\d\d) "  # docker logs --timestamps
    rf"|\d{{1,4}}: "  # srun --label
)


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
    if not first.isdigit() and first != "[" and text[3:4] != " " and "| " not in text[:90]:
        return 0  # nothing known starts like this
    start = 0
    for _ in range(3):
        first = text[start : start + 1]
        if first == "[":
            match = _POD.match(text, start)
        else:
            match = (_STAMPED if first.isdigit() else _NAMED).match(text, start)
        if match is None:
            break
        start = match.end()
    return start
