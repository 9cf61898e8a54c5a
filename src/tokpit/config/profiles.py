"""Launch profiles: one TOML file each in the user's `profiles` folder, settings under canonical names.

    # ~/.config/tokpit/profiles/qwen-mtp.toml
    engine = "sglang"
    program = "/opt/venvs/sglang"       # environment folder or command; without it, what the host offers
    [settings]
    model = "/models/Qwen3.6-27B"
    tp = 2
    spec_steps = 3
    raw = ["--watchdog-timeout", "900"] # flags without a canonical name, as they are
    [env]
    CUDA_VISIBLE_DEVICES = "0,1"

A profile names no host: it can be launched on any.
"""

from __future__ import annotations

import difflib
import re
import shlex
from pathlib import Path

import msgspec
import tomli_w

from tokpit.config.paths import config_dir
from tokpit.config.tomlfile import convert, read_toml
from tokpit.domain.settings import Settings
from tokpit.errors import ConfigError, UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_METHODS = ("setsid", "systemd", "tmux", "docker", "slurm")


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything of a launch but the host. Fields as in `domain.settings.LaunchSpec`."""

    engine: str
    note: str = ""
    program: str = ""
    """Environment folder, or the words that start the engine, as a shell would read them."""
    version: str | None = None
    """What it was saved from; only told, never asked for."""
    cwd: str | None = None
    log_path: str | None = None
    method: str = "setsid"
    image: str = ""
    container_args: tuple[str, ...] = ()
    settings: Settings = Settings()
    env: dict[str, str] = {}


class Profiles(msgspec.Struct, frozen=True):
    """The profiles that can be used, by name, and a sentence for each file that cannot."""

    profiles: dict[str, Profile]
    problems: tuple[str, ...] = ()


def folder() -> Path:
    """Where the profiles lie."""
    return config_dir() / "profiles"


def profile_path(name: str) -> Path:
    """The file of a profile. Raises UsageError for a name that is none."""
    if not _NAME.match(name):
        raise UsageError(
            f"{name!r} cannot be the name of a profile.", hint="Letters, digits, dot, dash and underscore, at most 64."
        )
    return folder() / f"{name}.toml"


def load_profiles() -> Profiles:
    """Every profile of the user's folder; a file that is off costs only itself."""
    found: dict[str, Profile] = {}
    problems: list[str] = []
    for path in sorted(folder().glob("*.toml")):
        try:
            found[path.stem] = _read(path)
        except ConfigError as error:
            problems.append(f"{error.message} {error.hint}".strip())
    return Profiles(found, tuple(problems))


def load_profile(name: str) -> Profile:
    """One profile. Raises ConfigError where there is none of that name or its file is off, UsageError."""
    path = profile_path(name)
    if not path.exists():
        names = [other.stem for other in sorted(folder().glob("*.toml"))]
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        if near:
            hint = f"Did you mean {near[0]!r}?"
        elif names:
            hint = f"There are: {', '.join(names)}."
        else:
            hint = f"Save one from a running server: tokpit profiles {name} --from HOST:PORT"
        raise ConfigError(f"No profile is called {name!r} in {folder()}.", hint=hint)
    return _read(path)


def _read(path: Path) -> Profile:
    values = read_toml(path)
    settings = convert(values.pop("settings", {}), Settings, path=path, table="[settings]")
    if settings.spec_steps and settings.spec_method is None:
        settings = msgspec.structs.replace(settings, spec_method="mtp")  # steps alone are those of the model's own head
    known = set(Profile.__struct_fields__) - {"settings"}
    profile = convert(values, Profile, path=path, table="the file", known=known | {"settings"}, settings=settings)
    if profile.method not in _METHODS:
        raise ConfigError(f"{path}: method {profile.method!r} is none.", hint=f"Known: {', '.join(_METHODS)}.")
    try:
        shlex.split(profile.program)
    except ValueError as error:
        raise ConfigError(f"{path}: program cannot be read as a shell would: {error}.") from error
    for name in profile.env:
        if not name.isidentifier():
            raise ConfigError(f"{path}: [env]: {name!r} is no name of a variable.")
    return profile


def profile_text(profile: Profile) -> str:
    """The profile as its file holds it; what is not given is left out."""
    values = msgspec.to_builtins(profile)
    values.pop("settings", None)
    settings = {**profile.settings.given(), **({"raw": list(profile.settings.raw)} if profile.settings.raw else {})}
    ordered = {key: value for key, value in values.items() if key != "env" and value is not None}
    return tomli_w.dumps({**ordered, "settings": settings, **({"env": profile.env} if profile.env else {})})


def save_profile(name: str, profile: Profile, *, remarks: tuple[str, ...] = (), replace: bool = False) -> Path:
    """Write a profile's file, `remarks` as comments at its head. Raises ConfigError where it exists, UsageError."""
    path = profile_path(name)
    text = "".join(f"# {remark}\n" for remark in remarks) + profile_text(profile)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if replace else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigError(
            f"{path} exists already; it was kept.", hint="Take another name, or add --replace."
        ) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
    return path
