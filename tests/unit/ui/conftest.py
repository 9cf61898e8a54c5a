"""The console's tests draw the same whatever terminal runs them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_FILTERS", "TEXTUAL_COLOR_SYSTEM", "TMUX", "STY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("TOKPIT_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("TOKPIT_STATE_DIR", str(tmp_path / "state"))
