from __future__ import annotations

from pathlib import Path

import pytest

from tokpit.config.themes import is_colour, load_themes, read_theme, shipped_folder

GOOD = 'name = "moss"\nprimary = "#3a5"\nbackground = "#0c110e"\n[variables]\nchart-series-1 = "#3a5f4b"\n'


def test_shipped_themes_are_all_sound() -> None:
    loaded = load_themes()
    assert loaded.problems == ()
    assert len(loaded.themes) == len(list(shipped_folder().glob("*.toml"))) > 0


def test_theme_file_gives_the_fields_of_a_theme(tmp_path: Path) -> None:
    (tmp_path / "moss.toml").write_text(GOOD)
    spec, problems = read_theme(tmp_path / "moss.toml")
    assert problems == []
    assert spec is not None
    arguments = spec.arguments()
    assert arguments["primary"] == "#3a5"
    assert arguments["variables"] == {"chart-series-1": "#3a5f4b"}
    assert "secondary" not in arguments


def test_every_fault_of_a_file_is_told_with_its_key(tmp_path: Path) -> None:
    file = tmp_path / "off.toml"
    file.write_text(
        'name = ""\nprimary = "greenish"\nerror = "#12345"\ntext_alpha = 3.0\n'
        '[variables]\nchart-series-1 = "x"\nUp = "a"\n'
    )
    spec, problems = read_theme(file)
    assert spec is None
    assert {problem.key for problem in problems} == {
        "name", "primary", "error", "text_alpha", "variables.chart-series-1", "variables.Up",
    }  # fmt: skip
    assert all(str(file) in str(problem) for problem in problems)


def test_misspelt_key_points_at_the_right_one(tmp_path: Path) -> None:
    file = tmp_path / "off.toml"
    file.write_text('name = "x"\nprimary = "#fff"\nbackgrond = "#000"\n')
    _, problems = read_theme(file)
    assert "'backgrond'" in problems[0].why
    assert "'background'" in problems[0].why


def test_file_that_is_off_costs_only_itself_and_later_folders_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKPIT_CONFIG_DIR", str(tmp_path / "user"))
    for folder, colour in ((tmp_path / "user" / "themes", "#111"), (tmp_path / "more", "#222")):
        folder.mkdir(parents=True)
        (folder / "moss.toml").write_text(GOOD.replace("#3a5", colour, 1))
    (tmp_path / "more" / "broken.toml").write_text("name = ")
    loaded = load_themes([tmp_path / "more", tmp_path / "missing"])
    assert loaded.themes["moss"].primary == "#222"
    assert [problem.file.name for problem in loaded.problems] == ["broken.toml", "missing"]


@pytest.mark.parametrize(
    "text", ["#abc", "#abcd", "#A1B2C3", "#a1b2c3d4", "ansi_bright_red", "#123 40%", "ansi_default"]
)
def test_colours_are_known(text: str) -> None:
    assert is_colour(text)


@pytest.mark.parametrize(
    "text", ["", "#12", "#12345", "#ggg", "red-ish", "ansi_purple", "#123 x", "#123 4% 5%", "#fff\n"]
)
def test_other_words_are_no_colours(text: str) -> None:
    assert not is_colour(text)
