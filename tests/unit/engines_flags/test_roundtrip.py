"""No flag is lost: what a command line means stays the same when it goes through canonical settings."""

from __future__ import annotations

import argparse
import json
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flaglines
from tokpit.engines import registry
from tokpit.engines.base import FlagSpec
from tokpit.engines.flagkit import dialect, tables

SGLANG = ("0.4.6", "0.5.2", "0.5.11", "0.5.15", "0.5.23")
VLLM = ("0.10.0", "0.23.0", "0.32.0", "0.33.0")
CASES = [("sglang", version) for version in SGLANG] + [("vllm", version) for version in VLLM]


@cache
def described(engine: str, version: str) -> tuple[tuple[FlagSpec, ...], argparse.ArgumentParser]:
    rows = tables.catalog(engine).at(version).rows
    return rows, flaglines.parser(rows, capitals=engine == "vllm")


@pytest.mark.parametrize(("engine", "version"), CASES)
@settings(max_examples=20, deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_a_line_that_went_through_settings_parses_to_the_same_namespace(
    engine: str, version: str, random: Random
) -> None:
    rows, oracle = described(engine, version)
    tokens = flaglines.line(engine, rows, random)
    before = flaglines.parse(oracle, tokens)
    if before is None:
        return
    made = registry.engine(engine)
    found = made.from_flags(tokens, version)
    after = flaglines.parse(oracle, list(made.to_flags(found, version)))
    assert after is not None, made.to_flags(found, version)
    assert folded(after) == folded(before)


@pytest.mark.parametrize(("engine", "version"), CASES)
@settings(max_examples=20, deadline=None)
@given(random=st.randoms(use_true_random=False), spoil=st.booleans())
def test_the_check_accepts_what_argparse_accepts_and_refuses_what_it_refuses(
    engine: str, version: str, random: Random, spoil: bool
) -> None:
    rows, oracle = described(engine, version)
    tokens = flaglines.line(engine, rows, random, spoil=spoil)
    accepted = flaglines.parse(oracle, tokens) is not None
    issues = [issue for issue in registry.engine(engine).check_flags(tokens, version) if issue.severity == "error"]
    assert (not issues) == accepted, (tokens, issues)


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.lists(
        st.one_of(
            st.text(max_size=12),
            st.sampled_from(
                [
                    "--tp",
                    "--",
                    "-",
                    "-O3",
                    "-O",
                    "-1",
                    "--port=",
                    "--a.b",
                    "-sc.x+",
                    "--speculative-config",
                    "{",
                    "=",
                    "--=",
                ]
            ),
        ),
        max_size=8,
    ),
    engine=st.sampled_from(registry.names()),
    version=st.sampled_from([None, "0.4.6", "0.5.11", "0.33.0", "b7000", "nonsense"]),
)
def test_no_text_makes_reading_or_checking_flags_raise(tokens: list[str], engine: str, version: str | None) -> None:
    made = registry.engine(engine)
    made.from_flags(tokens, version)
    made.check_flags(tokens, version)
    assert made.recognise(tokens) is None or tokens


@settings(max_examples=60, deadline=None)
@given(tokens=st.lists(st.text(min_size=1, max_size=10) | st.just("--tp-size"), max_size=8))
def test_reading_a_line_keeps_every_token_in_order(tokens: list[str]) -> None:
    tokens = [token for token in tokens if token != "--"]
    table = tables.catalog("sglang").at("0.5.11")
    words = dialect.read(tokens, table, dialect.Dialect(positional=True))
    assert [token for word in words for token in word.tokens] == tokens


def folded(namespace: dict[str, object]) -> dict[str, object]:
    out = dict(namespace)
    if isinstance(out.get("speculative_config"), str):
        out["speculative_config"] = json.loads(str(out["speculative_config"]))
    return out
