from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.color import ColorSystem
from rich.terminal_theme import TerminalTheme
from textual.color import Color

from console_feed import Recorder, fill
from console_screen import console, shows, until
from tokpit.config.themes import read_theme, shipped_folder
from tokpit.ui.palette import ON_CURSOR, SERIES, Palette, contrast
from tokpit.ui.theming import DEFAULT_THEME, all_themes

FILES = sorted(shipped_folder().glob("*.toml"))
STANDARD = TerminalTheme(
    (0, 0, 0), (255, 255, 255),
    [(0, 0, 0), (170, 0, 0), (0, 170, 0), (170, 85, 0), (0, 0, 170), (170, 0, 170), (0, 170, 170), (170, 170, 170)],
    [(85, 85, 85), (255, 85, 85), (85, 255, 85), (255, 255, 85), (85, 85, 255), (255, 85, 255), (85, 255, 255),
     (255, 255, 255)],
)  # fmt: skip
"""The sixteen colours of a console."""
THEMES = {theme.name: theme for theme in all_themes()[0]}

TEXT = (
    "fg", "dim", "title", "accent", "key", "good", "warn", "bad", "badge", "brand", "match", "axis", "stale",
    "log-error", "log-warning", "log-debug", "log-number", "log-time", "log-event", *SERIES,
)  # fmt: skip
"""Styles of words and figures; WCAG asks for 4.5:1."""


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast(Color(0, 0, 0), Color(255, 255, 255)) == pytest.approx(21)
    assert contrast(Color(119, 119, 119), Color(255, 255, 255)) == pytest.approx(4.48, abs=0.01)


def test_the_default_and_the_promised_kinds_are_there() -> None:
    promised = {"dark", "light", "high-contrast", "colour-blind", "mono"}
    assert {f"tokpit-{kind}" for kind in promised} <= set(THEMES)
    assert DEFAULT_THEME in THEMES
    assert len(FILES) >= 6


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_theme_file_is_valid_and_named_like_its_file(path: Path) -> None:
    theme, problems = read_theme(path)
    assert problems == []
    assert theme is not None
    assert theme.name == path.stem


@pytest.mark.parametrize("name", sorted(THEMES))
def test_every_style_can_be_read_on_its_background(name: str) -> None:
    theme = THEMES[name]
    fields = {
        k: str(getattr(theme, k))
        for k in ("primary", "accent", "warning", "error", "success", "foreground", "background")
    }
    palette = Palette({**fields, **theme.variables})
    floor = 7.0 if "high-contrast" in name else 4.5
    on_cursor = [f"{style}{ON_CURSOR}" for style in ("fg", "dim", "stale", "good", "warn", "bad")]
    least_of = {**dict.fromkeys(TEXT, floor), **dict.fromkeys(on_cursor, 4.5), "faint": 3.0, "mark": 3.0, "cursor": 4.5}
    for style, least in least_of.items():
        color, behind = palette[style].color, palette[style].bgcolor
        assert color is not None
        assert behind is not None
        found = contrast(Color.from_rich_color(color), Color.from_rich_color(behind))
        assert found >= least, f"{name}: {style} has contrast {found:.1f}"


@pytest.mark.parametrize("name", sorted(THEMES))
def test_in_sixteen_colours_good_warning_and_bad_are_three_and_text_can_be_read(name: str) -> None:
    theme = next(theme for theme in all_themes(sixteen=True)[0] if theme.name == name)
    fields = {k: str(getattr(theme, k)) for k in ("primary", "accent", "warning", "error", "success", "foreground",
                                                  "background")}  # fmt: skip
    palette = Palette({**fields, **theme.variables})
    seen = {}
    for style in ("good", "warn", "bad", "fg", "dim", "key", "axis", "log-time", "border"):
        color, behind = palette[style].color, palette[style].bgcolor
        assert color is not None
        assert behind is not None
        seen[style] = color.downgrade(ColorSystem.STANDARD).number
        if style != "border":
            pair = [Color(*c.downgrade(ColorSystem.STANDARD).get_truecolor(STANDARD)) for c in (color, behind)]
            assert contrast(*pair) >= 3, f"{style} cannot be read"
    if "mono" not in name:
        assert len({seen["good"], seen["warn"], seen["bad"]}) == 3


async def test_a_terminal_of_sixteen_colours_gets_the_themes_made_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textual.constants.COLOR_SYSTEM", "standard")
    async with console(Recorder(), (80, 24)) as pilot:
        warn = pilot.app.palette["warn"].color  # type: ignore[attr-defined]  # the console's
        assert warn.downgrade(ColorSystem.STANDARD).number == 11, "not bright yellow"


async def test_a_theme_can_be_asked_for() -> None:
    session = Recorder()
    fill(session.store, seconds=20)
    async with console(session, (80, 24), theme="tokpit-light") as pilot:
        assert pilot.app.theme == "tokpit-light"
        await shows(pilot, "ready")


async def test_the_theme_key_goes_through_all_of_them_and_repaints_the_panels() -> None:
    session = Recorder()
    fill(session.store, seconds=20)
    async with console(session, (80, 24)) as pilot:
        await shows(pilot, "ready")
        first = pilot.app.theme
        worn = {}
        for _ in THEMES:
            palette = pilot.app.palette  # type: ignore[attr-defined]
            await pilot.press("ctrl+t")
            await until(pilot, lambda palette=palette: pilot.app.palette is not palette)  # type: ignore[attr-defined,misc]
            panel = pilot.app.screen.query_one("#header")
            worn[pilot.app.theme] = panel.render_line(0)._segments[0].style
            await shows(pilot, "ready")
        assert worn.keys() == THEMES.keys()
        assert len(set(worn.values())) >= len(THEMES) - 1, "a panel keeps the colours of another theme"
        assert pilot.app.theme == first


async def test_no_color_leaves_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    session = Recorder()
    fill(session.store, seconds=20)
    async with console(session, (80, 24)) as pilot:
        await shows(pilot, "ready")
        assert pilot.app.no_color
        for strip in pilot.app.screen._compositor.render_strips():
            for segment in strip.apply_filter(pilot.app._filters[-1], Color.parse("black")):
                color = segment.style.color if segment.style else None
                if color is not None and color.triplet is not None:
                    assert len(set(color.triplet)) == 1, f"{segment.text!r} is coloured"


async def test_an_unknown_theme_is_said_and_the_default_is_worn() -> None:
    async with console(Recorder(), theme="no-such-theme") as pilot:
        await shows(pilot, "no theme is called 'no-such-theme'")


def test_a_broken_file_does_not_take_the_others_down(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("name = ")
    (tmp_path / "good.toml").write_text('name = "good"\nprimary = "#336699"\n')
    themes, problems = all_themes([tmp_path])
    assert "good" in {theme.name for theme in themes}
    assert len(problems) == 1
    assert "bad.toml" in problems[0]


async def test_a_theme_that_is_edited_is_seen_at_once_and_a_mistake_said_once(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "themes"
    folder.mkdir(parents=True)
    mine = folder / "mine.toml"
    mine.write_text('name = "mine"\nprimary = "#112233"\nbackground = "#000000"\n')
    session = Recorder()
    fill(session.store)
    async with console(session, theme="mine") as pilot:
        app: Any = pilot.app
        assert app.theme == "mine"
        await until(pilot, lambda: app.palette.background == Color.parse("#000000"))
        mine.write_text('name = "mine"\nprimary = "#112233"\nbackground = "#220033"\n')
        await until(pilot, lambda: app.palette.background == Color.parse("#220033"))
        mine.write_text('name = "mine"\nprimary = "#11"\n')
        said = "primary: '#11' is no colour: write #rgb"
        await until(pilot, lambda: any(said in notice.message for notice in app._notifications))
        assert app.palette.background == Color.parse("#220033"), "the last good one did not stay"
        (folder / "another.toml").write_text('name = "another"\nprimary = "#445566"\n')
        await until(pilot, lambda: "another" in app._names)
        assert sum(said in notice.message for notice in app._notifications) == 1
