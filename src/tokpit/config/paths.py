"""The user's folders, by the rules of the platform; each can be moved by an environment variable."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

APP = "tokpit"


def config_dir() -> Path:
    """Inventory, preferences, themes, profiles: what a person edits. TOKPIT_CONFIG_DIR moves it."""
    return _folder("TOKPIT_CONFIG_DIR", platformdirs.user_config_path(APP, appauthor=False))


def state_dir() -> Path:
    """History, recordings, audit: what tokpit writes and must keep. TOKPIT_STATE_DIR moves it."""
    return _folder("TOKPIT_STATE_DIR", platformdirs.user_state_path(APP, appauthor=False))


def cache_dir() -> Path:
    """What can be made again. TOKPIT_CACHE_DIR moves it."""
    return _folder("TOKPIT_CACHE_DIR", platformdirs.user_cache_path(APP, appauthor=False))


def _folder(variable: str, default: Path) -> Path:
    value = os.environ.get(variable)
    return Path(value).expanduser() if value else default
