"""Flags against the engines' own parsers, in venvs that TOKPIT_REAL_VLLM and TOKPIT_REAL_SGLANG name or ours."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import real_install

import flaglines
from tokpit.domain.settings import Settings
from tokpit.engines import registry
from tokpit.engines.base import FlagSpec
from tokpit.engines.flagkit import dump, tables

pytestmark = [pytest.mark.real, pytest.mark.timeout(540)]
ENGINES = ("sglang", "vllm")
LINES = 300
# Reads command lines from standard input, prints for each the namespace or why it was refused.
ORACLE = """
import contextlib, io, os, sys, json, argparse
engine = sys.argv[1]
out = os.dup(1); os.dup2(2, 1)
if engine == "sglang":
    made = argparse.ArgumentParser(prog="sglang serve")
    attribute("ServerArgs", "sglang.srt.server_args").add_cli_args(made)
else:
    make = attribute("make_arg_parser", "vllm.entrypoints.common.cli_args",
                     "vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
    made = make(attribute("FlexibleArgumentParser", "vllm.utils.argparse_utils", "vllm.utils")(prog="vllm serve"))
answers = []
for line in json.load(open(sys.argv[2])):
    noise = io.StringIO()
    try:
        with contextlib.redirect_stderr(noise):
            space = vars(made.parse_args(list(line)))
        answers.append({key: repr(value) if plain(value) == "<computed>" else plain(value)
                        for key, value in space.items()})
    except BaseException as error:
        answers.append({"refused": (noise.getvalue() or repr(error)).strip().splitlines()[-1]})
with os.fdopen(out, "w") as stream:
    stream.write(json.dumps(answers))
stream = None
os._exit(0)
"""


def python_of(engine: str) -> tuple[str, dict[str, str]]:
    folder = os.environ.get(f"TOKPIT_REAL_{engine.upper()}") or getattr(real_install, engine)()
    own = real_install.sglang_env() if engine == "sglang" else real_install.vllm_env()
    return str(Path(folder) / "bin" / "python"), {**os.environ, **own, "VLLM_LOGGING_LEVEL": "ERROR"}


def run(argv: list[str], env: Mapping[str, str], text: str = "") -> str:
    done = subprocess.run(argv, input=text, env=env, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module", params=ENGINES)
def installed(request: pytest.FixtureRequest) -> tuple[str, str, list[FlagSpec]]:
    """Engine, its version, and the schema by its own parser."""
    python, env = python_of(request.param)
    version, rows = dump.parse_dump(run([*dump.command(python, request.param, "parser")], env, dump.script()))
    assert version is not None
    return request.param, version, rows


def test_reading_sources_finds_the_flags_that_the_parser_has(installed: tuple[str, str, list[FlagSpec]]) -> None:
    engine, version, rows = installed
    python, env = python_of(engine)
    found, by_source = dump.parse_dump(run([*dump.command(python, engine, "source")], env, dump.script()))
    names = {option: row for row in rows for option in row.flags}
    sourced = {option: row for row in by_source for option in row.flags}
    assert found == version
    assert set(sourced) == set(names)
    switches = {option for option, row in names.items() if row.nargs == 0}
    assert {option for option, row in sourced.items() if row.nargs == 0} == switches
    wrong = {
        option: (row.choices, names[option].choices)
        for option, row in sourced.items()
        if row.choices
        and not set(row.choices) >= {choice for choice in names[option].choices or () if choice != "None"}
    }
    assert not wrong


def test_the_version_command_prints_the_version_alone(installed: tuple[str, str, list[FlagSpec]]) -> None:
    engine, version, _ = installed
    python, env = python_of(engine)
    assert run([*registry.engine(engine).version_command(python)], env).strip() == version


def test_the_built_in_table_is_the_installed_parser(installed: tuple[str, str, list[FlagSpec]]) -> None:
    engine, version, rows = installed
    pick = tables.catalog(engine).at(version)
    if not pick.certain:
        pytest.skip(f"no table for {engine} {version}")
    assert set(pick.options) == {option for row in rows for option in row.flags if option.startswith("-")}
    mine = {option: (row.type, row.nargs) for option, row in pick.options.items()}
    theirs = {option: (row.type, row.nargs) for row in rows for option in row.flags if option.startswith("-")}
    assert mine == theirs


def test_lines_mean_the_same_before_and_after_canonical_settings(
    installed: tuple[str, str, list[FlagSpec]], tmp_path: Path
) -> None:
    engine, version, rows = installed
    python, env = python_of(engine)
    made, random = registry.engine(engine), Random(20)
    lines = [
        flaglines.line(engine, rows, random, spoil=number % 5 == 0, flexible=engine == "vllm")
        for number in range(LINES)
    ]
    turned = [list(made.to_flags(made.from_flags(line, version), version)) for line in lines]
    file = tmp_path / "lines.json"
    one = made.to_flags(Settings(model="m", tp=16), version)
    ranks = [[*one, *made.rank_flags(version, nodes=2, rank=rank, head="10.0.0.5", port=29600)] for rank in ("0", "1")]
    file.write_text(json.dumps(lines + turned + ranks))
    script = dump.script().partition('if __name__ == "__main__":')[0] + ORACLE
    program = tmp_path / "oracle.py"
    program.write_text(script)
    answers = json.loads(run([python, str(program), engine, str(file)], env))
    before, after, ranked = answers[:LINES], answers[LINES : 2 * LINES], answers[2 * LINES :]
    assert [(one.get("nnodes"), one.get("node_rank")) for one in ranked] == [(2, 0), (2, 1)], ranked
    assert {one.get("dist_init_addr") or f"{one.get('master_addr')}:{one.get('master_port')}" for one in ranked} == {
        "10.0.0.5:29600"
    }
    assert [bool(one.get("headless")) for one in ranked] == [False, engine == "vllm"]
    accepted = [number for number in range(LINES) if "refused" not in before[number]]
    assert len(accepted) > LINES // 3
    changed = [
        (lines[number], turned[number], difference(before[number], after[number]))
        for number in accepted
        if folded(before[number]) != folded(after[number])
    ]
    assert not changed, changed[:3]
    verdicts = [
        (line, answer, [issue.sentence for issue in issues])
        for line, answer in zip(lines, before, strict=True)
        if bool(issues := [issue for issue in made.check_flags(line, version, rows) if issue.severity == "error"])
        != ("refused" in answer)
    ]
    reasons = [(answer.get("refused"), sentences) for _, answer, sentences in verdicts]
    assert not verdicts, "\n".join(map(str, reasons))


def folded(namespace: dict[str, Any]) -> dict[str, Any]:
    out = dict(namespace)
    if out.get("model_tag") is not None:
        out["model"] = out.pop("model_tag")
    return out


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    names = {*before, *after}
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}
