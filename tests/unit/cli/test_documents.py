"""What is generated from the commands and the configuration is current, and works."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tokpit.cli.context import Options
from tokpit.cli.main import tokpit

ROOT = Path(__file__).resolve().parents[3]


def invoke(*words: str) -> str:
    done = CliRunner().invoke(tokpit, words, obj=Options(), prog_name="tokpit")
    assert done.exit_code == 0, done.output
    return done.output


def test_the_configuration_reference_is_what_the_structs_say() -> None:
    render = runpy.run_path(str(ROOT / "tools" / "make_config.py"))["render"]
    assert (ROOT / "docs" / "configuration.md").read_text() == render(), "run: python tools/make_config.py"


def test_every_key_of_the_reference_has_a_meaning_in_words() -> None:
    for line in (ROOT / "docs" / "configuration.md").read_text().splitlines():
        if line.startswith("| `") and line.count("|") == 5:
            assert len(line.split("|")[-2].split()) >= 2, line


def test_the_manual_page_names_every_command_and_its_options() -> None:
    from tokpit.cli.main import _COMMANDS

    page = invoke("man").replace("\\-", "-")
    for name in _COMMANDS:
        assert f'.SS "tokpit {name}' in page, name
    for option in ("--mtp-steps", "--from", "TOKPIT_STATE_DIR", ".B 130"):
        assert option in page


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not here")
def test_the_manual_page_is_roff_without_a_complaint() -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww"], input=invoke("man"), capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert "Print the completion script" in " ".join(done.stdout.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_completion_script_for_each_shell(shell: str) -> None:
    script = invoke("completion", shell)
    assert "_TOKPIT_COMPLETE" in script
    assert shell != "fish" or 'string split --max 1 ","' in script, "texts end at their first comma"


@pytest.mark.parametrize(
    ("words", "index", "expected"),
    [("tokpit re", 1, {"record", "replay", "relaunch"}), ("tokpit gp", 1, {"gpu-rack-7"}),
     ("tokpit record cut --f", 3, {"--from"}), ("tokpit --th", 1, {"--theme"}),
     ("tokpit --theme tokpit-d", 2, {"tokpit-dark"})],
)  # fmt: skip
def test_commands_options_and_hosts_are_completed(tmp_path: Path, words: str, index: int, expected: set[str]) -> None:
    (tmp_path / "hosts.toml").write_text('[hosts.gpu-rack-7]\naddress = "10.0.0.7"\n')
    env = {
        **os.environ, "_TOKPIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(index),
        "TOKPIT_CONFIG_DIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src"),
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "tokpit"], env=env, capture_output=True, text=True, timeout=50)
    found = {line.split(",", 1)[1] for line in done.stdout.splitlines()}
    assert expected <= found, done.stderr


def test_every_command_has_a_line_in_the_table_and_a_text_of_its_own() -> None:
    from tokpit.cli.main import _COMMANDS

    shown = invoke("--help")
    for name, (_, text) in _COMMANDS.items():
        assert text in " ".join(shown.split()), name
        assert len(invoke(name, "--help").split()) > 12, name
