"""Every line shape of every release gives its kind and values: at first sight, and once its layout is learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tokpit.engines.logkit.read import grammar_of

DATA = Path(__file__).parents[2] / "data" / "log_samples"
ENGINES = ("sglang", "vllm", "llamacpp")
SHAPES = [
    pytest.param(engine, entry, id=f"{engine}-{number}-{entry['kind']}")
    for engine in ENGINES
    for number, entry in enumerate(yaml.safe_load((DATA / f"{engine}.yaml").read_text(encoding="utf-8")))
]


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_the_shapes_of_all_engines_are_here():
    assert len(SHAPES) == 143


@pytest.mark.parametrize(("engine", "entry"), SHAPES)
def test_a_line_shape_gives_its_kind_and_values(engine, entry):
    grammar = grammar_of(engine)
    for _ in range(2):
        records = [*grammar.feed(entry["line"]), *grammar.flush()]
        assert len(records) == 1
        record = records[0]
        assert record.kind == entry["kind"]
        assert record.lines == (entry["line"],)
        got = {name: plain(record.fields.get(name, "missing")) for name in entry["fields"]}
        assert got == pytest.approx(entry["fields"]) if _numbers_only(entry["fields"]) else got == entry["fields"]


def _numbers_only(fields: dict[str, Any]) -> bool:
    return bool(fields) and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in fields.values())


@pytest.mark.parametrize(
    "prefix",
    [
        "engine-1  | ",
        "0: ",
        "2026-09-01T08:00:00.123456789Z ",
        "2026-09-01T08:00:00.123456789Z stdout F ",
        "Sep 01 08:00:00 gpu-7 docker[4411]: ",
        "2026-09-01T08:00:00+02:00 gpu-7 infer.service[88]: ",
        "[pod/infer-0/server] ",
        "node3 | ",
    ],
)
@pytest.mark.parametrize(("engine", "entry"), SHAPES)
def test_what_a_container_runtime_prepends_changes_nothing(engine, entry, prefix):
    if entry["line"].startswith(("Jun ", " ")):
        pytest.skip("this line has an outer prefix of its own")
    grammar = grammar_of(engine)
    record = [*grammar.feed(prefix + entry["line"]), *grammar.flush()][0]
    assert record.kind == entry["kind"]
    assert {name: plain(record.fields.get(name, "missing")) for name in entry["fields"]} == entry["fields"]


@pytest.mark.parametrize(("engine", "entry"), SHAPES)
def test_colours_change_nothing(engine, entry):
    grammar = grammar_of(engine)
    line = f"\x1b[1;33m{entry['line']}\x1b[0m"
    record = [*grammar.feed(line), *grammar.flush()][0]
    assert record.kind == entry["kind"]
    assert record.lines == (line,)
    assert "\x1b" not in record.text
