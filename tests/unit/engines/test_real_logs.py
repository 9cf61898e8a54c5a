"""Excerpts of logs that real engines wrote: every line's kind and fields, as they were read by eye.

`NAME.log` is the excerpt, `NAME.json` has one `[line, kind, fields]` a record. The first word of a name is the engine.
Run this file as a program to write the expectations anew, and read what changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tokpit.collect.backlog import Stamps
from tokpit.engines.logkit.read import read_log
from tokpit.engines.registry import engine

LOGS = sorted((Path(__file__).parents[2] / "data" / "real_logs").glob("*.log"))
VERDICTS = {
    "llamacpp-broken-model": "WEIGHTS_CORRUPT",
    "llamacpp-no-model": "MODEL_PATH_MISSING",
    "llamacpp-port-in-use": "PORT_IN_USE",
    "sglang-port-in-use": "PORT_IN_USE",
    "vllm-context-too-long": "CTX_TOO_LONG",
    "vllm-unknown-flag": "FLAG_UNRECOGNIZED",
}


def rows(path: Path) -> list[list[object]]:
    lines = path.read_text().splitlines()
    read = [[r.line, r.kind, r.fields] for r in read_log(lines, path.name.partition("-")[0])]
    return json.loads(json.dumps(read))  # type: ignore[no-any-return]  # tuples become lists, as in the file


def test_there_are_excerpts_of_starts_loads_and_failures() -> None:
    assert len(LOGS) > 6


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_each_line_is_read_as_it_was(path: Path) -> None:
    wanted = json.loads(path.with_suffix(".json").read_text())
    for got, row in zip(rows(path), wanted, strict=True):
        assert got == row


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_failures_are_told_and_others_are_not(path: Path) -> None:
    name = path.name.partition("-")[0]
    told = engine(name).verdict(list(read_log(path.read_text().splitlines(), name)))
    assert (told and told.code) == VERDICTS.get(path.stem)


def test_stamps_that_count_from_a_programs_start_give_times_as_well() -> None:
    path = next(path for path in LOGS if path.stem == "llamacpp-load")
    records = list(read_log(path.read_text().splitlines(), "llamacpp"))
    times = dict(zip((record.kind for record in records), Stamps().times(records, 100.0), strict=True))
    ready, slots = times["milestone.ready"], times["milestone.slots"]
    assert ready is not None
    assert slots is not None
    assert round(ready - slots, 3) == 0.012
    assert times["slot_line"] == 100.0


if __name__ == "__main__":
    for path in LOGS:
        body = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows(path))
        path.with_suffix(".json").write_text(f"[\n{body}\n]\n")
        sys.stdout.write(f"{path.stem}\n")
