"""Versions as hosts report them are ordered and matched to a table."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tokpit.engines import registry
from tokpit.engines import version as versions
from tokpit.engines.flagkit import tables


def test_versions_sort_as_they_were_released() -> None:
    order = [
        "0.4.6",
        "0.4.6.post1",
        "0.4.6.post5",
        "0.5.0.dev3",
        "0.5.0rc1",
        "0.5.0",
        "0.5.2",
        "0.5.11",
        "v0.10.0",
        "1",
    ]
    assert sorted(order, key=lambda text: versions.parse(text) or pytest.fail(text)) == order
    assert all(versions.compare(a, b) == -1 for a, b in pairwise(order))


@pytest.mark.parametrize(
    ("left", "right"), [("0.5.0", "0.5"), ("0.32.0+cpu", "0.32.0"), ("v0.5.11", "0.5.11"), ("0.5.0-rc.1", "0.5.0rc1")]
)
def test_spellings_of_one_version_are_equal(left: str, right: str) -> None:
    assert versions.compare(left, right) == 0


@pytest.mark.parametrize("text", ["", None, "unknown", "main", "git-abc"])
def test_what_is_no_version_is_none_and_counts_as_newest(text: str | None) -> None:
    assert versions.parse(text) is None
    assert versions.at_least(text, "99.0")


def test_a_nightly_counts_as_the_release_it_leads_to() -> None:
    assert versions.at_least("0.5.14.dev12+gabc", "0.5.14")
    assert not versions.at_least("0.5.13.post1", "0.5.14")


@pytest.mark.parametrize(
    ("engine", "version", "table", "certain"),
    [
        ("sglang", "0.5.11", "0.5.11", True),
        ("sglang", "0.5.11.post2", "0.5.11", False),
        ("sglang", "0.4.7", "0.4.6.post5", False),
        ("sglang", "0.3.0", "0.4.6", False),
        ("sglang", "9.9", "0.5.23", False),
        ("sglang", None, "0.5.23", False),
        ("vllm", "0.11.2.dev123+gabc", "0.11.2", False),
        ("vllm", "0.13.0", "0.12.0", False),
        ("vllm", "0.32.0+cpu", "0.32.0", True),
        ("llamacpp", "b10434", "b10434", True),
    ],
)
def test_a_version_gets_the_nearest_table_at_or_below(
    engine: str, version: str | None, table: str, certain: bool
) -> None:
    pick = tables.catalog(engine).at(version)
    assert (pick.sampled, pick.certain) == (table, certain)


@pytest.mark.parametrize("said", ["9235 (d14ce3dab)", "0.6.0-dev (build 9235, commit unknown)"])
def test_the_build_of_llama_server_is_read_from_what_it_prints(tmp_path: Path, said: str) -> None:
    binary = tmp_path / "llama-server"
    binary.write_text(f"#!/bin/sh\necho 'version: {said}' >&2\necho 'built with Clang 17 for x (y)' >&2\n")
    binary.chmod(0o755)
    argv = registry.engine("llamacpp").version_command(str(binary))
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "b9235\n"
