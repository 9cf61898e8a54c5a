"""Which program a command line really starts: past `env`, `nice` and their kind, past python and its options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

_PYTHON = re.compile(r"^(?:python|pypy)[\d.]*t?$")
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*=")
# Programs that replace themselves by the next one, with their options that take a separate value. Programs that stay
# as parents (sudo, timeout, time, tini, uv, conda, a shell) are no engine: their child is found by its own line.
_WRAPPERS: dict[str, frozenset[str]] = {
    "env": frozenset({"-u", "--unset", "-C", "--chdir"}),
    "nice": frozenset({"-n", "--adjustment"}),
    "ionice": frozenset({"-c", "--class", "-n", "--classdata"}),
    "chrt": frozenset({"-T", "-P", "-D"}),
    "numactl": frozenset(
        {
            "-N",
            "-C",
            "-m",
            "-p",
            "-i",
            "-l",
            "--cpunodebind",
            "--physcpubind",
            "--membind",
            "--preferred",
            "--interleave",
        }
    ),
    "taskset": frozenset(),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "setsid": frozenset(),
    "nohup": frozenset(),
    "exec": frozenset({"-a"}),
}
_LONE_NUMACTL = frozenset({"-l", "--localalloc"})


class Start(msgspec.Struct, frozen=True):
    """A started program. `end` is the number of leading words up to and including its name."""

    name: str
    """Module (`sglang.launch_server`), or path of the script or executable."""
    end: int
    module: bool = False
    python: str | None = None

    @property
    def base(self) -> str:
        """File name without folders; the module's name where it is a module."""
        return self.name if self.module else PurePosixPath(self.name).name


def start_of(argv: Sequence[str]) -> Start | None:
    """The program behind wrappers and interpreter; None for `python -c`, an empty line, and lines that end early."""
    at = 0
    while at < len(argv):
        base = PurePosixPath(argv[at]).name
        if base in _WRAPPERS:
            at = _past_wrapper(argv, at, base)
        elif _PYTHON.match(base):
            return _python(argv, at)
        else:
            return Start(argv[at], at + 1)
    return None


def _past_wrapper(argv: Sequence[str], at: int, base: str) -> int:
    valued = _WRAPPERS[base] - (_LONE_NUMACTL if base == "numactl" else frozenset())
    at += 1
    while at < len(argv):
        word = argv[at]
        if word == "--":
            at += 1
            break
        if word in valued:
            at += 2
        elif word.startswith("-") or (base == "env" and _ASSIGNMENT.match(word)):
            at += 1
        else:
            break
    if base == "taskset" or (base == "chrt" and at < len(argv) and argv[at].isdigit()):
        at += 1  # the CPU mask or list, the priority
    return at


def _python(argv: Sequence[str], at: int) -> Start | None:
    python = argv[at]
    at += 1
    while at < len(argv):
        word = argv[at]
        if word == "-m":
            return Start(argv[at + 1], at + 2, module=True, python=python) if at + 1 < len(argv) else None
        if word.startswith("-m") and len(word) > 2:
            return Start(word[2:], at + 1, module=True, python=python)
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            at += 2
        elif word == "-" or (
            word.startswith("-") and not word.startswith("--") and "c" in word[1:] and word[1] not in "XW"
        ):
            return None
        elif word.startswith("-"):
            at += 1
        else:
            return Start(word, at + 1, python=python)
    return None


def beside(script: str) -> str | None:
    """The interpreter in the folder of a console script: `/opt/venv/bin/vllm` -> `/opt/venv/bin/python`."""
    folder, slash, _ = script.rpartition("/")
    return f"{folder}/python" if slash else None


def version_command(python: str, distribution: str) -> tuple[str, ...]:
    """argv that prints the installed version of a distribution: reads its metadata, imports nothing of it."""
    code = f"import importlib.metadata as m;print(m.version({distribution!r}))"
    return (python, "-c", code)
