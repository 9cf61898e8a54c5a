"""The walk-through prints what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tokpit.cli.context import Options
from tokpit.cli.main import tokpit

DOC = Path(__file__).resolve().parents[3] / "docs" / "walk-through.md"
LEFT_OUT = "..."


def shown() -> list[tuple[str, list[str]]]:
    """Commands and the lines that are said to follow."""
    found: list[tuple[str, list[str]]] = []
    for line in DOC.read_text(encoding="utf-8").splitlines():
        if line.startswith("        $ "):
            found.append((line[10:], []))
        elif line.startswith("        ") and found:
            found[-1][1].append(line[8:])
    return found


@pytest.mark.parametrize(("command", "lines"), shown(), ids=lambda one: one[:60] if isinstance(one, str) else "")
def test_each_command_prints_what_stands_below_it(
    command: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DOC.parent)
    program, *words = shlex.split(command)
    assert program == "tokpit"
    done = CliRunner().invoke(tokpit, words, obj=Options(), prog_name="tokpit")
    assert done.exit_code == 0, done.output
    assert lines
    at = re.escape("\n".join(lines)).replace(re.escape(LEFT_OUT), r"(?s:.*?)")
    assert re.search(at, done.output), f"{done.output}\n-- is not --\n" + "\n".join(lines)


def test_there_are_commands_of_both_sessions() -> None:
    assert [sum(word in command for command, _ in shown()) for word in ("concurrency.csv", "gap.log")] == [1, 2]
