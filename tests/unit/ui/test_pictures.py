"""The pictures of README and docs show what this version shows."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TOOL = ROOT / "tools" / "make_pictures.py"


def test_they_are_as_they_would_be_made_now() -> None:
    done = subprocess.run(
        [sys.executable, str(TOOL), "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},  # the fixture of all tests here sets the terminal
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_other_words_places_and_colours_are_found_and_another_drawing_of_the_same_is_not() -> None:
    spec = spec_from_file_location("make_pictures", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    svg = (tool.FOLDER / "cockpit.svg").read_text(encoding="utf-8")
    known = tool.shown(svg)
    assert {"ready", "acceptance", "420.4"} & {word for piece in known for word in piece[2].split()}
    assert tool.shown(svg.replace("Fira Code", "Another Font").replace("#ff5f57", "#000000")) == known
    x, _, words, style = next(piece for piece in known if f">{piece[2]}<" in svg and piece[0] != "0")
    for other in (svg.replace(f">{words}<", ">Words<"), svg.replace(f'x="{x}"', 'x="1.5"')):
        assert tool.shown(other) != known
    assert style.startswith("fill: ")
    assert tool.shown(svg.replace(style.split(";")[0], "fill: #010203")) != known
