"""Flags that a version does not take are named before a start, with what to write instead."""

from __future__ import annotations

import shlex
from importlib import import_module

import pytest

from tokpit.engines import registry
from tokpit.engines.base import FlagSpec
from tokpit.engines.flagkit import report, tables
from tokpit.engines.flagkit.check import distance, nearest
from tokpit.engines.flagkit.renames import Renames

CASES = [
    ("sglang", "0.5.23", "--mamba-scheduler-strategy extra_buffer", "renamed", "error", "--mamba-radix-cache-strategy"),
    ("sglang", "0.5.11", "--mamba-radix-cache-strategy no_buffer", "renamed", "error", "--mamba-scheduler-strategy"),
    ("sglang", "0.5.15", "--mamba-scheduler-strategy auto", "deprecated", "warning", "--mamba-radix-cache-strategy"),
    ("sglang", "0.5.23", "--cuda-graph-max-bs 16", "renamed", "error", "--cuda-graph-max-bs-decode"),
    ("sglang", "0.4.6", "--enable_metrics", "unknown", "error", "--enable-metrics"),
    ("sglang", "0.5.11", "--mem-fraction-statik 0.8", "unknown", "error", "--mem-fraction-static"),
    ("sglang", "0.5.23", "--pp 2", "ambiguous", "error", "--pp-max-micro-batch-size"),
    ("sglang", "0.5.23", "--torchao-config int4wo", "removed", "error", None),
    ("sglang", "0.5.11", "--hicache-size 99.5", "bad-value", "error", None),
    ("sglang", "0.5.11", "--enable-metrics=true", "bad-value", "error", "--enable-metrics"),
    ("sglang", "0.5.11", "--kv-cache-dtype fp8_e4m4", "bad-value", "error", "fp8_e4m3"),
    ("sglang", "0.5.11", "--port", "bad-value", "error", None),
    ("sglang", "0.5.6", "--hicache-host-memory-fraction 0.5", "unknown", "error", None),
    ("sglang", "0.5.23", "--enable-dp-attention", "deprecated", "warning", "--attn-dp-size"),
    ("vllm", "0.19.1", "M --swap-space 4", "removed", "error", None),
    ("vllm", "0.33.0", "M --task embed", "removed", "error", "--runner"),
    ("vllm", "0.20.0", "M --swap-space 4", "removed", "error", None),
    ("vllm", "0.33.0", "M --max-num-seq 4", None, "", None),
    ("vllm", "0.33.0", "M --dtype bf16", "bad-value", "error", None),
    ("vllm", "0.33.0", "M --tensor-parallel-size two", "bad-value", "error", None),
    ("vllm", "0.33.0", "M --speculative-config '{\"method\": '", "bad-value", "error", None),
    ("vllm", "0.33.0", "M --speculative_config.method mtp -O2 --max-model-len 64k", None, "", None),
    ("vllm", "0.33.0", "M N", "unknown", "error", None),
    ("llamacpp", "b10434", "-m a --draft-max 4", "renamed", "error", "--spec-draft-n-max"),
    ("llamacpp", "b10434", "-m a --ctx_size 4096 -ngl all", None, "", None),
    ("llamacpp", "b10434", "-m a --parralel 4", "unknown", "error", "--parallel"),
]


@pytest.mark.parametrize(("engine", "version", "line", "code", "severity", "successor"), CASES)
def test_each_kind_of_trouble_is_named_with_its_remedy(
    engine: str, version: str, line: str, code: str | None, severity: str, successor: str | None
) -> None:
    issues = report.lint(engine, shlex.split(line), version)
    if code is None:
        assert issues == []
        return
    assert [(issue.code, issue.severity) for issue in issues] == [(code, severity)]
    assert issues[0].successor == successor or successor is None
    assert shlex.split(line)[-1] in issues[0].sentence or issues[0].flag in issues[0].sentence


def test_a_flag_of_a_later_version_is_said_to_come_later() -> None:
    (issue,) = report.lint("sglang", ["--hicache-host-memory-fraction", "0.5"], "0.5.11")
    assert "0.5.21 and later" in issue.sentence


def test_between_two_known_versions_only_what_both_refuse_is_certain() -> None:
    renamed_between = report.lint("sglang", ["--mamba-scheduler-strategy", "auto"], "0.5.19.post1")
    unknown_to_all = report.lint("sglang", ["--paged-attn-size", "16"], "0.5.11.post2")
    not_a_number = report.lint("vllm", ["M", "--port", "http"], "0.13.0")
    assert [(i.code, i.severity) for i in renamed_between] in ([], [("deprecated", "warning")])
    assert [(i.code, i.severity) for i in unknown_to_all] == [("unknown", "error")]
    assert [(i.code, i.severity) for i in not_a_number] == [("bad-value", "error")]


def test_without_a_version_what_no_release_takes_is_an_error_and_what_some_release_takes_is_not() -> None:
    issues = report.lint("sglang", ["--no-such-thing", "--mamba-scheduler-strategy", "auto", "--tp-size", "two"], None)
    assert [(i.flag, i.severity) for i in issues] == [
        ("--no-such-thing", "error"),
        ("--mamba-scheduler-strategy", "warning"),
        ("--tp-size", "error"),
    ]


def test_beyond_the_known_versions_a_flag_that_looks_like_a_known_one_is_a_slip() -> None:
    (issue,) = report.lint("sglang", ["--mem-fraction-statik", "0.8"], "0.9.0")
    assert (issue.severity, issue.successor) == ("error", "--mem-fraction-static")


def test_beyond_the_known_versions_an_unknown_flag_is_only_a_warning() -> None:
    (issue,) = report.lint("sglang", ["--brand-new-flag"], "0.9.0")
    assert (issue.code, issue.severity) == ("unknown", "warning")


def test_a_schema_read_on_the_host_decides_over_the_built_in_table() -> None:
    rows = [
        FlagSpec(flags=("--port",), dest="port", type="int"),
        FlagSpec(flags=("--brand-new-flag",), nargs=0, type="bool"),
    ]
    engine = registry.engine("sglang")
    assert engine.check_flags(["--brand-new-flag", "--port", "1"], "0.9.0", rows) == []
    (issue,) = engine.check_flags(["--tp-size", "2"], "0.9.0", rows)
    assert issue.severity == "error"


def test_a_whole_command_line_is_checked_without_its_program() -> None:
    assert report.lint("vllm", ["/e/bin/python", "/e/bin/vllm", "serve", "M", "-tp", "2"], "0.33.0") == []


@pytest.mark.parametrize("name", registry.names())
def test_every_name_in_the_rename_table_is_a_flag_of_some_version(name: str) -> None:
    union = tables.catalog(name).union
    renames: Renames = import_module(f"tokpit.engines.{name}.renames").RENAMES
    assert renames.chains
    named = [*(flag for chain in renames.chains for flag in chain), *renames.advice, *renames.advice.values()]
    assert [flag for flag in named if union.exact(flag) is None] == []


def test_every_removed_flag_is_either_renamed_or_said_to_be_gone() -> None:
    for engine in ("sglang", "vllm"):
        catalog = tables.catalog(engine)
        newest = catalog.versions[-1]
        gone = [name for name in catalog.union.options if newest not in catalog.seen(name) and name.startswith("--")]
        assert gone
        for name in gone:
            issues = report.lint(engine, ["/m/a", name], newest)
            codes = {issue.code for issue in issues}
            assert codes & {"renamed", "removed", "unknown"} or catalog.at(newest).prefixed(name), name


@pytest.mark.parametrize(
    ("a", "b", "edits"), [("", "abc", 3), ("kitten", "sitting", 3), ("--tp", "--tp", 0), ("abc", "acb", 2)]
)
def test_edit_distance(a: str, b: str, edits: int) -> None:
    assert distance(a, b) == distance(b, a) == edits


def test_nothing_near_is_suggested_for_something_far() -> None:
    assert nearest("--zzzzzz", ["--port", "--host"]) is None


def test_the_table_of_a_version_has_its_own_flags_only() -> None:
    old = {option for row in report.flags_table("sglang", "0.5.11") for option in row.flags}
    new = {option for row in report.flags_table("sglang", "0.5.23") for option in row.flags}
    assert "--mamba-scheduler-strategy" in old - new
    assert "--mamba-radix-cache-strategy" in new - old
    assert (len(old), len(new)) == (387, 559)
