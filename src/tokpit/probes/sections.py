"""Sections in a probe's output: what comes before the first marker (a login banner, rc-file noise) is not read."""

from __future__ import annotations

_MARK = "@@tokpit "


def mark(name: str) -> str:
    """Shell words that begin a section; `name` is plain letters."""
    return f"echo '{_MARK}{name}'"


def status_mark(name: str) -> str:
    """Shell words that end a section with the exit status of the command before them."""
    return f'echo "{_MARK}{name} $?"'


def sections(output: str) -> dict[str, str]:
    """Section name -> its text, CR at line ends removed; the last of a name wins. Names keep their argument."""
    found: dict[str, str] = {}
    name, lines = "", list[str]()
    for line in output.split("\n"):
        line = line.removesuffix("\r")
        # A command whose output lacks the last newline leaves the marker in the middle of a line.
        head, sep, tail = line.partition(_MARK)
        if not sep:
            lines.append(line)
            continue
        if head:
            lines.append(head)
        if name:
            found[name] = "\n".join(lines)
        name, lines = tail.strip(), []
    if name:
        found[name] = "\n".join(lines)
    return found


def status_of(found: dict[str, str], name: str) -> int | None:
    """The exit status that `status_mark(name)` wrote; None where the output was cut before it."""
    for key in found:
        word, _, number = key.partition(" ")
        if word == name and number.lstrip("-").isdecimal():
            return int(number)
    return None
