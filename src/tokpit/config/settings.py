"""The user's preferences: the top of config.toml.

theme = "tokpit-dark"
read_only = true
refresh_s = 1.0

[keys]
"server.stop" = "ctrl+x"
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tokpit.config.paths import config_dir
from tokpit.config.tomlfile import convert, read_toml
from tokpit.errors import ConfigError

ELSEWHERE = frozenset({"hosts"})
"""Tables of config.toml that other readers take."""


class RecordingPreferences(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[recording]`: the ring of the last minutes that a console keeps on disk."""

    ring_minutes: float = 30.0
    """How far back the ring reaches; 0 keeps none."""
    ring_mb: int = 200
    """Most megabytes on disk; under a flood of log lines the ring is shorter than its minutes."""


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """What a person prefers. Empty or None: the front end decides."""

    theme: str = ""
    theme_dir: str | None = None
    read_only: bool = False
    refresh_s: float = 1.0
    """Seconds between two looks at what must be polled, at least 0.2."""
    recording: RecordingPreferences = RecordingPreferences()
    keys: dict[str, str] = {}
    """Command id to key, in the words of the terminal library: `ctrl+x`, `f5`."""


def load_preferences(path: Path | None = None) -> Preferences:
    """The preferences of config.toml in the user's folder, or of `path`. Raises ConfigError."""
    file = path if path is not None else config_dir() / "config.toml"
    values = {key: value for key, value in read_toml(file).items() if key not in ELSEWHERE}
    preferences = convert(values, Preferences, path=file, table="the file")
    if preferences.refresh_s < 0.2:
        raise ConfigError(f"{file}: the file at 'refresh_s': must be at least 0.2 seconds.")
    if not 0 <= preferences.recording.ring_minutes <= 24 * 60:
        raise ConfigError(f"{file}: [recording] at 'ring_minutes': must be from 0 to 1440.")
    if not 1 <= preferences.recording.ring_mb <= 100_000:
        raise ConfigError(f"{file}: [recording] at 'ring_mb': must be from 1 to 100000.")
    used: dict[str, str] = {}
    for command, key in preferences.keys.items():
        if not key.strip():
            raise ConfigError(f"{file}: [keys] at {command!r}: the key is empty.")
        if key in used:
            raise ConfigError(f"{file}: [keys]: {key!r} is given to {used[key]!r} and to {command!r}.")
        used[key] = command
    return preferences
