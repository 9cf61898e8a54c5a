"""Earlier deployments: what a host and tokpit's own history remember, in time, and how it differs from what runs."""

from __future__ import annotations

import difflib
import hashlib
import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import RemoteFailed, StoreError, UsageError
from tokpit.ops.diagnose.searched import searched
from tokpit.ops.difference import Change, differences
from tokpit.ops.host import environment
from tokpit.ops.host.environments import find_environments
from tokpit.ops.host.remembered import Deployment, deployments
from tokpit.probes.deployments import BUDGET_S, deployments_script, parse_pieces
from tokpit.probes.environments import Environment, Found
from tokpit.store.masking import masked

if TYPE_CHECKING:
    from tokpit.ops.session import Session
    from tokpit.transport.base import Host


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier deployment beside a running server: what changed from then to now, likeliest cause first."""

    server: ServerInfo
    deployment: Deployment
    changes: tuple[Change, ...]
    akin: bool = True
    """The models are the same or variants of one another."""


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What was found: deployments oldest first, remarks on places without any, what runs, what is installed."""

    host: str
    deployments: tuple[Deployment, ...]
    remarks: tuple[str, ...]
    running: tuple[ServerInfo, ...]
    found: Found
    compared: tuple[Compared, ...] = ()
    cut: bool = False


async def look_back(session: Session, host_name: str, *, compare: bool = False) -> Past:
    """Search a host's traces of earlier servers; read-only, about ten seconds at most on the host. Raises HostError."""
    host = await session.connected(host_name)
    answer = await host.run(deployments_script(searched()), timeout_s=BUDGET_S * 6.0)
    pieces, cut = parse_pieces(answer.out)
    if cut and not pieces and answer.status != 0:
        raise RemoteFailed(f"{host.name}: earlier deployments could not be looked for", status=answer.status)
    made, remarks = deployments(pieces)
    own = await _tokpits(session, host)
    found = await find_environments(session, host_name)
    running = await session.find(host_name)
    every = tuple(sorted((with_versions(one, found) for one in (*made, *own)), key=lambda one: one.order))
    compared = []
    if compare:
        for server in running:
            env = await environment.process_env(host, server.pid)
            compared += [compared_with(one, server, env) for one in every if not same(one, server)]
    return Past(
        host=host.name,
        deployments=every,
        remarks=remarks,
        running=running,
        found=found,
        compared=tuple(compared),
        cut=cut,
    )


async def _tokpits(session: Session, host: Host) -> list[Deployment]:
    """tokpit's own launches: the records on the host, and those of this machine's history."""
    from tokpit.engines.registry import recognise
    from tokpit.transport.detached import read_states

    made: dict[tuple[int, int], Deployment] = {}
    for state in await read_states(host):
        known = recognise(state.argv)
        if known is not None:
            made[state.pid, state.start_ticks] = Deployment(
                source="tokpit",
                where=state.log_path,
                engine=known.engine,
                settings=known.settings,
                t=state.started_at or None,
                argv=state.argv,
                state=f"by {state.method}",
            )
    try:
        launches = await (await session.history()).launches(100, host=host.name)
    except StoreError:
        launches = ()
    for launch in launches:
        started = launch.state
        key = (started.pid, started.start_ticks) if started is not None else (0, int(launch.t))
        made[key] = Deployment(
            source="tokpit",
            where=launch.log_path,
            engine=launch.spec.engine,
            settings=launch.spec.settings,
            t=launch.t,
            argv=started.argv if started is not None else (),
            env=launch.spec.env,
            image=launch.spec.image,
            state=", ".join(filter(None, (f"by {launch.spec.method}", launch.outcome))),
            version=launch.spec.version,
            notes=(launch.detail,) if launch.detail else (),
        )
    return list(made.values())


def key_of(one: Deployment) -> str:
    """Six hexadecimal digits by which a deployment can be named again: of its source, place and command line."""
    words = one.argv or (msgspec.json.encode(one.settings).decode(),)
    return hashlib.sha256("\0".join((one.source, one.where, one.engine, one.image, *words)).encode()).hexdigest()[:6]


def spec_of(one: Deployment, host: str) -> LaunchSpec:
    """The launch that would bring a deployment back, on `host`.

    Of settings that an engine printed, those that it chose itself are left to it again.
    """
    settings = one.settings
    program: tuple[str, ...] = ()
    if one.resolved:
        settings = msgspec.structs.replace(settings, raw=(), **dict.fromkeys(_CHOSEN - {"served_name"}))
        if settings.spec_method == "eagle" and settings.draft_model is None:
            settings = msgspec.structs.replace(settings, spec_method="mtp")  # see compared_with
    elif (known := engine_of(one.engine).recognise(one.argv)) is not None and not one.image:
        program = known.program
    return LaunchSpec(
        host=host,
        engine=one.engine,
        program=program,
        settings=settings,
        env=one.env,
        method="docker" if one.image else "setsid",
        image=one.image,
    )


async def earlier_spec(session: Session, host_name: str, key: str) -> LaunchSpec:
    """The launch of the earlier deployment whose key begins with `key`. Raises UsageError, HostError."""
    past = await look_back(session, host_name)
    fitting = [one for one in past.deployments if key and key_of(one).startswith(key.lower())]
    if len({key_of(one) for one in fitting}) != 1:
        why = "more than one earlier server fits" if fitting else "no earlier server is called so"
        raise UsageError(f"{key}: {why} on {past.host}", hint=f"the names are in: tokpit history {past.host}")
    return spec_of(fitting[-1], past.host)


def with_versions(one: Deployment, found: Found) -> Deployment:
    """The deployment with what its environment holds now, and whether that was installed after it ran."""
    place = _environment(one, found)
    if place is None:
        return one
    package = next((p for p in place.packages if p.version == place.engines.get(one.engine)), None)
    if package is None:
        return one
    installed = package.installed_at
    return msgspec.structs.replace(
        one,
        version_now=package.version,
        changed_since=installed is not None and one.t is not None and installed > one.t + 60,
    )


def _environment(one: Deployment, found: Found) -> Environment | None:
    words = [word for word in one.argv[:2] if word.startswith("/")]
    for word in words:
        prefix = posixpath.dirname(posixpath.dirname(word))
        for place in found.environments:
            if place.prefix == prefix:
                return place
    with_it = [place for place in found.environments if one.engine in place.engines]
    return with_it[0] if len(with_it) == 1 and not one.image and not words else None


_FIRST = (
    *("engine", "version", "model", "quantization", "dtype", "spec_method", "spec_steps", "spec_topk"),
    *("spec_draft_tokens", "draft_model", "tp", "CUDA_VISIBLE_DEVICES", "dp", "pp", "kv_dtype", "max_running"),
    *("state_slots", "mamba_strategy", "mamba_ratio", "context_len", "mem_fraction", "kv_tokens", "hicache"),
    *("hicache_gb", "kv_offload_gib", "prefix_cache", "chunked_prefill", "page_size"),
)
"""What decides the speed of a server, most first; everything else comes after, in its own order."""
_DECISIVE = _FIRST.index("max_running") + 1
_CHOSEN = frozenset(
    {"mem_fraction", "max_running", "chunked_prefill", "kv_tokens", "page_size", "served_name", "context_len", "dtype"}
)
"""Settings that an engine chooses itself, so that a value in its print does not mean that it was given."""
_OFF = frozenset(
    {"spec_method", "spec_steps", "quantization", "hicache", "hicache_gb", "draft_model", "kv_dtype", "tp", "dp", "pp"}
)
"""Settings whose absence in a complete print means that the feature was off."""
UNKNOWN_VERSION = "not known, its environment was changed since"
_PLACE = frozenset({"port", "listen", "served_name", "metrics"})
"""Settings that say where a server is, not how fast."""


def compared_with(one: Deployment, server: ServerInfo, env: dict[str, str]) -> Compared:
    """The changes from a deployment to a running server whose environment is `env`."""
    then, now = _plain(one.settings), _plain(server.settings)
    changes: list[Change] = []
    if one.engine != server.engine:
        changes.append(Change("engine", one.engine, server.engine))
        then, now = (msgspec.structs.replace(settings, raw=()) for settings in (then, now))
    if one.resolved:
        now = msgspec.structs.replace(now, raw=())
        if (then.spec_method, now.spec_method) == ("eagle", "mtp") and then.draft_model is None:
            then = msgspec.structs.replace(then, spec_method="mtp")  # SGLang turns NEXTN into EAGLE before it prints
    version = one.version or (None if one.changed_since else one.version_now)
    if version != server.version and (version or one.changed_since) and one.engine == server.engine:
        changes.append(Change("version", version or UNKNOWN_VERSION, server.version))
    for change in differences(then, now):
        if one.resolved and change.after is None and change.name in _CHOSEN:
            continue
        if one.resolved and change.before is None and change.name not in _OFF:
            continue
        changes.append(change)
    for name in ("CUDA_VISIBLE_DEVICES",):
        if one.env.get(name) != env.get(name) and (one.env or one.argv):
            changes.append(Change(name, one.env.get(name), env.get(name)))
    rank = {name: at for at, name in enumerate(_FIRST)}
    changes.sort(
        key=lambda change: (
            change.name in _PLACE,
            change.before == UNKNOWN_VERSION,
            rank.get(change.name, len(rank)),
        )
    )
    return Compared(
        server=server,
        deployment=one,
        changes=tuple(changes),
        akin=_akin(one.settings.model, server.settings.model),
    )


def _plain(settings: Settings) -> Settings:
    """Settings without those that say what holds anyway."""
    drop: dict[str, None] = {name: None for name in ("tp", "dp", "pp") if getattr(settings, name) == 1}
    if not settings.hicache:
        drop |= dict.fromkeys(("hicache", "hicache_gb", "hicache_ratio", "hicache_write_policy", "hicache_io_backend"))
    return msgspec.structs.replace(settings, **drop)


def _akin(one: str | None, other: str | None) -> bool:
    """Whether two models are the same or variants of one: `/m/Qwen3.6-27B-AWQ` and `Qwen/Qwen3.6-27B`."""
    if not one or not other:
        return True
    a, b = (name.rstrip("/").rpartition("/")[2].lower() for name in (one, other))
    return a.startswith(b) or b.startswith(a) or difflib.SequenceMatcher(None, a, b).ratio() > 0.8


def same(one: Deployment, server: ServerInfo) -> bool:
    """Whether this is the trace of the running server itself."""
    if one.argv and masked(one.argv) == masked(server.argv):  # a stored command line has no secrets
        return True
    return bool(server.log_path) and one.source == "log" and one.where == server.log_path


def explanations(compared: Sequence[Compared]) -> tuple[str, ...]:
    """Sentences on what could explain another speed: of servers of this model only, strongest first, newest first."""
    order = {name: at for at, name in enumerate(_FIRST)}
    said: dict[str, tuple[bool, int]] = {}
    for pair in sorted(compared, key=lambda pair: -pair.deployment.order):
        for change in pair.changes if pair.akin else ():
            if order.get(change.name, 99) < _DECISIVE:
                text = f"{change.text} ({pair.deployment.source} {pair.deployment.where})"
                said.setdefault(text, (change.before == UNKNOWN_VERSION, order[change.name]))
    return tuple(sorted(said, key=lambda text: said[text]))
