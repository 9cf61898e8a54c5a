"""Launch profiles as a use case: a launch spec from a profile, and a profile from what runs or ran."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.config.profiles import Profile, load_profile, profile_path, save_profile
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import ConfigError, UsageError
from tokpit.ops.difference import flag_groups
from tokpit.ops.host import environment
from tokpit.ops.lifecycle import relaunch
from tokpit.ops.targets import resolve_server
from tokpit.store.masking import masked
from tokpit.transport.base import quote

if TYPE_CHECKING:
    from tokpit.ops.session import Session


def spec_of(profile: Profile, host: str, *, name: str = "") -> LaunchSpec:
    """The launch that a profile stands for, on a host. Raises UsageError for an engine that is not known."""
    engine_of(profile.engine)
    return LaunchSpec(
        host=host,
        engine=profile.engine,
        program=tuple(shlex.split(profile.program)),
        settings=profile.settings,
        env=profile.env,
        cwd=profile.cwd,
        log_path=profile.log_path,
        method=profile.method,
        image=profile.image,
        container_args=profile.container_args,
        name=name,
    )


def profile_spec(name: str, host: str, engine: str | None = None) -> LaunchSpec:
    """The launch of the profile `name` on a host. Raises ConfigError, UsageError where it is of another engine."""
    spec = spec_of(load_profile(name), host, name=name)
    if engine is not None and engine != spec.engine:
        raise UsageError(f"the profile {name!r} starts {spec.engine}, not {engine}")
    return spec


def overridden(spec: LaunchSpec, changes: Mapping[str, Any], raw: Sequence[str], env: Mapping[str, str]) -> LaunchSpec:
    """`spec` with what was given besides: settings, flags (one given again replaces the earlier), variables."""
    again = {group[0].partition("=")[0] for group in flag_groups(raw)}
    kept = [
        word for group in flag_groups(spec.settings.raw) if group[0].partition("=")[0] not in again for word in group
    ]
    settings = msgspec.structs.replace(spec.settings, **{**changes, "raw": (*kept, *raw)})
    return msgspec.structs.replace(spec, settings=settings, env={**spec.env, **env})


async def profile_of(session: Session, info: ServerInfo) -> tuple[Profile, tuple[str, ...]]:
    """A running server as a profile, and what was left out of it: keys and tokens do not belong into a plain file.

    Of its environment only what a launch over SSH would not have anyway is kept. Raises LaunchError for a server whose
    command line cannot be started again, HostError.
    """
    spec = await relaunch.spec_of(session, info)
    usual = await environment.process_env(await session.connected(info.host), None)
    return plain(
        Profile(
            engine=info.engine,
            program=quote(spec.program),
            version=info.version,
            cwd=spec.cwd,
            method=spec.method,
            settings=spec.settings,
            env={name: value for name, value in spec.env.items() if usual.get(name) != value},
        )
    )


def plain(profile: Profile) -> tuple[Profile, tuple[str, ...]]:
    """The profile without secrets, and the names of the flags and variables that were left out."""
    left_out: list[str] = []
    raw: list[str] = []
    for group in flag_groups(profile.settings.raw):
        if masked(group) == group and masked(quote(group)) == quote(group):
            raw += group
        else:
            left_out.append(group[0].partition("=")[0])
    hidden = masked(profile.env)
    left_out += [name for name, value in profile.env.items() if hidden[name] != value]
    env = {name: value for name, value in profile.env.items() if hidden[name] == value}
    settings = msgspec.structs.replace(profile.settings, raw=tuple(raw))
    return msgspec.structs.replace(profile, settings=settings, env=env), tuple(left_out)


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A profile that was written."""

    path: Path
    profile: Profile
    left_out: tuple[str, ...] = ()


async def save_from(session: Session, target: str, name: str, *, replace: bool = False) -> Saved:
    """Save the running server `target` as the profile `name`.

    Raises ConfigError where there is one already, UsageError, TargetError, LaunchError, HostError.
    """
    if not replace and profile_path(name).exists():
        raise ConfigError(f"{profile_path(name)} exists already; it was kept.", hint="Take another name, or --replace.")
    info = await resolve_server(session, target)
    profile, left_out = await profile_of(session, info)
    day = time.strftime("%Y-%m-%d", time.gmtime())
    remarks = [f"saved from {info.label} on {day}"]
    if left_out:
        remarks.append(f"left out, because this file is plain text: {', '.join(left_out)}")
    path = save_profile(name, profile, remarks=tuple(remarks), replace=replace)
    return Saved(path=path, profile=profile, left_out=left_out)


def settings_line(settings: Settings) -> str:
    """Settings in one line, secrets masked."""
    words = [f"{name}={value}" for name, value in masked(settings.given()).items()]
    return " ".join([*words, *masked(list(settings.raw))])
