from __future__ import annotations

from pathlib import Path

import pytest

from tokpit.config.paths import cache_dir, config_dir, state_dir
from tokpit.config.settings import Preferences, load_preferences
from tokpit.errors import ConfigError


def test_folders_can_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"TOKPIT_{name}_DIR", str(tmp_path / name))
    assert (config_dir(), state_dir(), cache_dir()) == tuple(tmp_path / n for n in ("CONFIG", "STATE", "CACHE"))


def test_folders_differ_and_carry_the_programs_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.delenv(f"TOKPIT_{name}_DIR", raising=False)
    folders = {config_dir(), state_dir(), cache_dir()}
    assert len(folders) == 3
    assert all("tokpit" in str(folder) for folder in folders)


def test_missing_file_is_the_defaults(tmp_path: Path) -> None:
    assert load_preferences(tmp_path / "config.toml") == Preferences()


def test_preferences_are_read_beside_hosts(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('theme = "slate"\nread_only = true\nrefresh_s = 2\n[keys]\n"server.stop" = "f9"\n[hosts.a]\n')
    assert load_preferences(file) == Preferences(
        theme="slate", read_only=True, refresh_s=2.0, keys={"server.stop": "f9"}
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('them = "x"', ["config.toml", "'them'", "'theme'"]),
        ("read_only = 1", ["'read_only'", "bool"]),
        ("refresh_s = 0.01", ["'refresh_s'", "0.2"]),
        ("[keys]\na = 3", ["[keys]", "'a'", "3 is no key", "ctrl+x"]),
    ],
)
def test_complaint_names_the_key(tmp_path: Path, text: str, parts: list[str]) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_preferences(file)
    said = f"{caught.value.message} {caught.value.hint}"
    assert [part for part in parts if part not in said] == []
