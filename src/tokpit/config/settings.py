"""The user's preferences: the top of config.toml.

theme = "tokpit-dark"
read_only = true
refresh_s = 1.0

[keys]
"server.stop" = "ctrl+x"
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec

from tokpit.config.paths import config_dir
from tokpit.config.tomlfile import convert, read_toml
from tokpit.domain.finding import SEVERITIES
from tokpit.errors import ConfigError

ELSEWHERE = frozenset({"hosts"})
"""Tables of config.toml that other readers take."""


class RecordingPreferences(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[recording]`: the ring of the last minutes that a console keeps on disk."""

    ring_minutes: float = 30.0
    """How far back the ring reaches; 0 keeps none."""
    ring_mb: int = 200
    """Most megabytes on disk; under a flood of log lines the ring is shorter than its minutes."""


class AlarmPreferences(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[alarms]`: which findings call for attention, when, and how."""

    enabled: bool = True
    """Whether the console watches for alarms at all."""
    every_s: float = 20.0
    """Seconds between two looks at each server."""
    severities: tuple[str, ...] = ("error", "warning")
    """Findings of these severities alarm: `error`, `warning`, `info`."""
    ignore: tuple[str, ...] = ()
    """Codes of findings that never alarm."""
    raise_after: int = 2
    """An alarm begins when its finding is there at so many looks in a row."""
    clear_after: int = 3
    """It ends when its finding is not there at so many looks in a row."""
    link_after_s: float = 30.0
    """A link that is lost for so long alarms."""
    toast: bool = True
    """Say it on screen."""
    bell: bool = True
    """Ring the terminal's bell."""
    desktop: str = "off"
    """Desktop notification through the terminal: `osc9` (iTerm2, WezTerm, kitty), `osc777` (urxvt, foot) or `off`.
    Within tmux its option `allow-passthrough` must be on."""
    command: str = ""
    """Program to run at the begin and end of an alarm, without a shell; it finds what it is about in TOKPIT_ALARM_*.
    One that is missing, fails or takes longer than 30 s is said on screen."""
    quiet: str = ""
    """Hours in which only the header tells, local time: `22:00-07:00`. What still stands at their end, and was not
    acknowledged, is told then."""


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """What a person prefers. Empty or None: the front end decides."""

    theme: str = ""
    """Theme of the console, by name; `ctrl+t` goes through them."""
    theme_dir: str | None = None
    """Another folder with theme files."""
    read_only: bool = False
    """Refuse every command that changes a host."""
    refresh_s: float = 1.0
    """Seconds between two looks at what must be polled, at least 0.2."""
    recording: RecordingPreferences = RecordingPreferences()
    alarms: AlarmPreferences = AlarmPreferences()
    keys: dict[str, str] = {}
    """Action or command to key: `ctrl+x`, `f5`, `x`, `?`. What cannot be followed is said by who binds them."""


def load_preferences(path: Path | None = None) -> Preferences:
    """The preferences of config.toml in the user's folder, or of `path`. Raises ConfigError."""
    file = path if path is not None else config_dir() / "config.toml"
    values = {key: value for key, value in read_toml(file).items() if key not in ELSEWHERE}
    keys = values.get("keys")
    for name, key in keys.items() if isinstance(keys, dict) else ():
        if not isinstance(key, str):
            raise ConfigError(f'{file}: [keys] at {name!r}: {key!r} is no key; write it as text, like "ctrl+x".')
    preferences = convert(values, Preferences, path=file, table="the file")
    if preferences.refresh_s < 0.2:
        raise ConfigError(f"{file}: the file at 'refresh_s': must be at least 0.2 seconds.")
    if not 0 <= preferences.recording.ring_minutes <= 24 * 60:
        raise ConfigError(f"{file}: [recording] at 'ring_minutes': must be from 0 to 1440.")
    if not 1 <= preferences.recording.ring_mb <= 100_000:
        raise ConfigError(f"{file}: [recording] at 'ring_mb': must be from 1 to 100000.")
    _check_alarms(preferences.alarms, file)
    return preferences


_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")


def quiet_minutes(text: str) -> tuple[int, int] | None:
    """`22:00-07:00` as minutes of the day (begin, end); None for an empty text. Raises ValueError."""
    if not text:
        return None
    found = _HOURS.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    begin, end = int(found[1]) * 60 + int(found[2]), int(found[3]) * 60 + int(found[4])
    return begin, end


def _check_alarms(alarms: AlarmPreferences, file: Path) -> None:
    def off(key: str, words: str) -> ConfigError:
        return ConfigError(f"{file}: [alarms] at {key!r}: {words}")

    for severity in alarms.severities:
        if severity not in SEVERITIES:
            raise off("severities", f"{severity!r} is none of {', '.join(SEVERITIES)}.")
    if alarms.desktop not in ("off", "osc9", "osc777"):
        raise off("desktop", f"{alarms.desktop!r} is none of off, osc9, osc777.")
    if alarms.every_s < 1:
        raise off("every_s", "must be at least 1 second.")
    if min(alarms.raise_after, alarms.clear_after) < 1:
        raise off("raise_after" if alarms.raise_after < 1 else "clear_after", "must be at least 1.")
    try:
        quiet_minutes(alarms.quiet)
    except ValueError:
        raise off("quiet", f"{alarms.quiet!r} is no time of day; write 22:00-07:00.") from None
    try:
        shlex.split(alarms.command)
    except ValueError as error:
        raise off("command", f"{error}.") from None
