"""What other programs put before a server's own line: docker, compose, Kubernetes, journald, srun, wrappers."""

from __future__ import annotations

import re

_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_OUTER = re.compile(
    rf"(?:"
    rf"[\w.-]{{1,80}} +\| "  # compose: name-1  |
    rf"|\[pod/[^\]]{{1,200}}\] "  # kubectl logs --prefix
    rf"|{_STAMP} (?:stdout|stderr) [FP] "  # container runtime interface
    rf"|{_STAMP} (?:[\w.-]{{1,80}} )?[\w.@/-]{{1,80}}\[\d+\]: "  # journalctl -o short-iso, with or without the host
    rf"|[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d [\w.-]{{1,80}} [\w.@/-]{{1,80}}(?:\[\d+\])?: "  # syslog
    rf"|[A-Z][a-z]{{2}} \d{{1,2}}, \d{{4}} @ \d\d:\d\d:\d\d\.\d{{3}} +"  # Kibana
    rf"|{_STAMP} - [\w.]{{1,80}} - [A-Z]{{4,8}} - "  # a wrapper's Python logger
    rf"|{_STAMP} (?:DEBUG|INFO|WARNING|ERROR) \d+ \[[\w.]+:\d+\] "  # another formatter of the same record
    rf"|\d{{4}}-\d\d-\d\dT[\d:.]{{8,18}}(?:Z|[+-]\d\d:?\d\d) "  # docker logs --timestamps
    rf"|\d{{1,4}}: "  # srun --label
    rf")"
)


_LEVEL = re.compile(r"\b(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")


def outer_level(prefix: str) -> str:
    """The level word that a wrapper's logger put into its prefix; empty if there is none."""
    match = _LEVEL.search(prefix)
    return match[1] if match else ""


def strip_outer(text: str) -> tuple[str, str]:
    """(prefix, rest): known outer prefixes, up to three of them stacked, cut off the front of `text`."""
    first = text[:1]
    if not first.isdigit() and first != "[" and text[3:4] != " " and "| " not in text[:90]:
        return "", text  # nothing known starts like this
    start = 0
    for _ in range(3):
        match = _OUTER.match(text, start)
        if match is None:
            break
        start = match.end()
    return text[:start], text[start:]
