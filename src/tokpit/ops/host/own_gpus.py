"""The user's own table of memory bandwidths: `gpus.toml` in the configuration folder.

[bandwidth]                  # GB/s by words of the GPU's name
"RTX 4090 48GB" = 1008
"""

from __future__ import annotations

from pathlib import Path

from tokpit.config.paths import config_dir
from tokpit.config.tomlfile import read_toml, unknown_key
from tokpit.errors import ConfigError


def own_bandwidths(path: Path | None = None) -> dict[str, float]:
    """GB/s by name; empty where there is no file. Raises ConfigError for a file that is off."""
    file = path or config_dir() / "gpus.toml"
    tables = read_toml(file)
    for key in tables:
        if key != "bandwidth":
            raise unknown_key(file, "the file", key, ("bandwidth",))
    found: dict[str, float] = {}
    for name, value in (tables.get("bandwidth") or {}).items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise ConfigError(f"{file}: bandwidth of {name!r} is a number of GB/s above 0, not {value!r}.")
        found[name] = float(value)
    return found
