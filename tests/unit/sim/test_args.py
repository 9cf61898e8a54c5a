"""The engine's command line, as its own parser takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokpit.sim import args


def test_unknown_flag_ends_with_usage_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        args.parse(["--model-path", "m", "--hicache-siz-e", "3"], "launch_server.py")

    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith("usage: launch_server.py")
    assert said.rstrip().endswith("launch_server.py: error: unrecognized arguments: --hicache-siz-e 3")


def test_fraction_of_a_gigabyte_is_no_host_cache_size(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        args.parse(["--model-path", "m", "--hicache-size", "99.5"], "launch_server.py")

    assert "argument --hicache-size: invalid int value: '99.5'" in capsys.readouterr().err


def test_short_forms_and_human_numbers_are_taken() -> None:
    parsed = args.parse(["--model", "m", "--tp", "2", "--context-length", "32k"], "launch_server.py")

    assert (parsed.tp_size, parsed.context_length, parsed.port) == (2, 32000, 30000)


def test_config_file_gives_way_to_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("model-path: /m/a\nport: 31000\nenable-metrics: true\ndisable-radix-cache: false\n")

    parsed = args.parse(["--config", str(file), "--port", "32000"], "launch_server.py")

    assert (parsed.model_path, parsed.port, parsed.enable_metrics, parsed.disable_radix_cache) == (
        "/m/a",
        32000,
        True,
        False,
    )
