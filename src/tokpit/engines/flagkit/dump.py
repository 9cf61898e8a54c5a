"""Reading an engine's flag schema on its host: the script to run there, and its answer."""

from __future__ import annotations

import json
from importlib import resources

from tokpit.engines.base import FlagSpec
from tokpit.engines.flagkit.tables import spec_of

MARK = "TOKPIT-FLAGS "
"""Start of the answer's line; everything else in the output is noise of imports."""

_PARTS = ("host_source", "host_vllm", "host_dump")

ROUTES = ("source", "parser", "auto")
"""`source`: under a second, computed choices unknown. `parser`: exact, tens of seconds. `auto`: parser, else source."""


def script() -> str:
    """The text of the self-contained script (standard library only) that prints the schema."""
    folder = resources.files("tokpit.engines.flagkit")
    texts = [folder.joinpath(f"{name}.py").read_text(encoding="utf-8") for name in _PARTS]
    lines = [line for text in texts for line in text.splitlines()]
    own = ("from __future__", "from tokpit")
    return (
        "\n".join(["from __future__ import annotations", *(line for line in lines if not line.startswith(own))]) + "\n"
    )


def command(python: str, engine: str, route: str = "auto") -> tuple[str, ...]:
    """argv that runs the script given on standard input with the engine's own python."""
    return (python, "-", engine, route)


def parse_dump(text: str) -> tuple[str | None, list[FlagSpec]]:
    """Version (None: not installed as a distribution) and schema from the script's output.

    Raises ValueError with the script's own reason where there is no schema in it.
    """
    lines = [line for line in text.splitlines() if line.startswith(MARK)]
    if not lines:
        raise ValueError("the schema script printed no answer")
    answer = json.loads(lines[-1][len(MARK) :])
    if not isinstance(answer, dict):
        raise ValueError("the schema script printed no answer")
    rows = [row for row in answer.get("rows") or [] if isinstance(row, dict) and row.get("flags")]
    if not rows:
        raise ValueError("; ".join(map(str, answer.get("problems") or ["the schema is empty"])))
    version = answer.get("version")
    return (version if isinstance(version, str) else None), [spec_of(row) for row in rows]
