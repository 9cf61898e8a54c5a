"""Every line shape of every release gives its kind and values: at first sight, and once its layout is learned."""

from __future__ import annotations

import json
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
        "Sep 01 08:00:00.512321 gpu-7 infer.sh[4411]: ",
        "1788249600.512321 gpu-7 infer.sh[4411]: ",
        "<30>1 2026-09-01T08:00:00.5Z gpu-7 infer 4411 - - ",
        "infer.1.x7c9@gpu-7    | ",
        "2026-09-01 08:00:00.512\t",
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


@pytest.mark.parametrize(("engine", "entry"), SHAPES)
def test_a_json_object_around_a_line_changes_nothing(engine, entry):
    line = json.dumps({"log": entry["line"] + "\n", "stream": "stdout", "time": "2026-09-01T08:00:00.5Z"})
    grammar = grammar_of(engine)
    record = [*grammar.feed(line), *grammar.flush()][0]
    assert record.kind == entry["kind"]
    assert record.lines == (line,)
    assert {name: plain(record.fields.get(name, "missing")) for name in entry["fields"]} == entry["fields"]


@pytest.mark.parametrize(
    "line",
    [
        '{"log": "torn',
        '{"log": 7, "stream": "stdout"}',
        '{"message": "alone"}',
        '{"a": {"log": "x"}}',
        '{"log":' * 2000 + "}",
        '{"log": "\\u001b[31mred\\u001b[0m \\ud800", "stream": "x"}',
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_only_looks_like_a_wrapped_line_is_kept_as_text(engine, line):
    records = [*grammar_of(engine).feed(line)]
    assert [(record.kind, record.lines) for record in records] == [("text", (line,))]
    assert "\x1b" not in records[0].text


STATS = (
    "Engine 003: Avg prompt throughput: nan tokens/s, Avg generation throughput: 61.0 tokens/s, Running: 2 reqs, "
    "Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: nan%"
)


@pytest.mark.parametrize(
    "before",
    [
        "infer-7c9d main ",
        "node-3 some tool> ",
        "level=info container=vllm ",
        "(RayWorkerWrapper pid=413, ip=10.0.0.7) ",
        "(EngineCore_DP0 pid=12) (RayWorkerWrapper pid=413, ip=10.0.0.7) ",
    ],
)
def test_a_head_is_found_behind_a_prefix_of_no_known_form(before):
    (record,) = grammar_of("vllm").feed(f"{before}INFO 2026-09-01 10:00:00,123 [loggers.py:259] {STATS}")
    assert record.kind == "stats"
    assert (record.fields["engine"], record.fields["gen_tps"], record.fields["prompt_tps"]) == (3, 61.0, None)
    assert record.fields["ts"] == "2026-09-01 10:00:00"


def test_a_service_named_as_the_engine_is_a_prefix_all_the_same():
    (record,) = grammar_of("llamacpp").feed(
        "llama-1  | slot print_timing: id  3 | task 12 |        eval time =    0.00 ms /     1 tokens (    0.00 ms per "
        "token,      inf tokens per second)"
    )
    assert record.kind == "gen_timing"
    assert record.fields["gen_tps"] is None


def test_a_headless_line_behind_a_prefix_is_told_without_it_whichever_the_prefix():
    said = "the cache was written back to the host tier"
    for prefix in ("Sep 01 08:00:00 gpu-7 infer[12]: ", "2026-09-01T08:00:00.5Z ", "Jul 1, 2026 @ 10:00:00.123 "):
        (record,) = grammar_of("sglang").feed(prefix + said)
        assert (record.kind, record.text, record.lines) == ("text", said, (prefix + said,))


def test_two_records_of_which_the_first_has_no_head_are_read_as_the_second():
    (record,) = grammar_of("sglang").feed(
        "a wrapper says: [2026-09-01 08:00:00 TP0] Load weight begin. avail mem=9.10 GB"
    )
    assert record.kind == "milestone.load_begin"
