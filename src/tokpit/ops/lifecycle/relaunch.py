"""Relaunch: stop a server and start it with changed settings; where the new one fails, the earlier one comes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.domain.text import mask_secrets
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import EndedAtOnce, HostError, LaunchError, StartFailed, UsageError
from tokpit.ops.difference import Change, in_words, launch_differences
from tokpit.ops.gate import Prepared
from tokpit.ops.host import environment
from tokpit.ops.lifecycle import launch, leftovers, managers, methods, ready, stop, turn
from tokpit.ops.lifecycle.launch import Launched, Plan
from tokpit.ops.progress import Progress
from tokpit.ops.targets import resolve_server
from tokpit.transport.base import Host, quote

if TYPE_CHECKING:
    from tokpit.ops.session import Session

log = logging.getLogger(__name__)

_FIND_S = 60.0


class Relaunch(msgspec.Struct, frozen=True, kw_only=True):
    """What a relaunch will do: the server that runs, how it is stopped, what takes its place, what goes back."""

    info: ServerInfo
    job: stop.Job
    after: Plan
    before: Plan
    changes: tuple[Change, ...]
    rollback: bool | None
    """None: ask once it is needed."""
    timeout_s: float
    clear: bool | None = None
    """What becomes of what a failed start leaves where the earlier server stays down; None asks then."""

    @property
    def unit(self) -> managers.Manager | None:
        """The unit that keeps the earlier server, if it is not one that tokpit itself made."""
        manager = self.job.manager
        return manager if manager is not None and not manager.name.startswith("tokpit-") else None


async def prepare(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`server.relaunch`: args are `target` or `server_id`, `changes` (canonical settings), `env`, `rollback`, `force`.

    `plan`: what takes its place, made before and started as it is, instead of `changes`, `env` and `force`.
    `rollback`: True starts the earlier server again where the new one fails, False does not, None asks then. `clear`:
    the same of what the new one leaves where the earlier one is not started again.
    Raises LaunchError where the server cannot be started again from its command line, UsageError, StopError, HostError.
    """
    info = await resolve_server(session, args.get("server_id") or args["target"])
    changes = dict(args.get("changes") or {})
    unknown = set(changes) - set(Settings.__struct_fields__)
    if unknown:
        raise UsageError(f"unknown setting: {', '.join(sorted(unknown))}")
    if info.job is not None:
        from tokpit.ops.lifecycle import relaunch_job

        return await relaunch_job.prepare(session, info, info.job, args)
    if info.ranks:
        from tokpit.ops.lifecycle import relaunch_ranks

        return await relaunch_ranks.prepare(session, info, args)
    host = session.host(info.host)
    old = await spec_of(session, info)
    after: Plan | None = args.get("plan")
    if after is None:
        env = {**old.env, **(args.get("env") or {})}
        new = msgspec.structs.replace(old, settings=msgspec.structs.replace(info.settings, **changes), env=env)
        after = await launch.plan(session, new, force=bool(args.get("force")), replacing=info)
    before = exactly(host, old, info.argv, info.port or after.port, after.platform)
    plan = Relaunch(
        info=info,
        job=await stop.plan(host, info),
        after=after,
        before=before,
        changes=launch_differences(old, after.spec),
        rollback=args.get("rollback"),
        timeout_s=args.get("timeout_s") or 1800.0,
        clear=args.get("clear"),
    )

    async def work() -> Launched:
        return await run(session, host, plan)

    return Prepared(
        title=f"relaunch {info.label} with {in_words(plan.changes)}",
        host=host.name,
        run=work,
        lines=(
            *(f"# {change.text}" for change in plan.changes),
            *plan.job.lines,
            f"# was: {mask_secrets(quote(info.argv))}",
            await methods.shown_line(host, after.spec, after.argv, "LOG", after.handle),
        ),
        warnings=(*after.warnings, *_warnings(plan)),
        typed_word=str(info.port or info.pid),
    )


async def spec_of(session: Session, info: ServerInfo) -> LaunchSpec:
    """How a running server was started, as far as it can be started so again.

    Raises LaunchError where its command line is not one that can, or where it runs in a container; UsageError for a
    batch job or one of several ranks; HostError.
    """
    if info.job is not None:
        raise UsageError(
            f"{info.label} is job {info.job.id}: a queue gives no place back at once, so this does not take jobs",
            hint="tokpit relaunch, stop, check, sweep and diagnose do",
        )
    if info.ranks:
        raise UsageError(
            f"{info.label} is one server over {len(info.ranks)} hosts: this takes servers of one host only",
            hint="tokpit relaunch, stop, check, sweep and diagnose do",
        )
    host = session.host(info.host)
    recognised = engine_of(info.engine).recognise(info.argv)
    if recognised is None:
        raise LaunchError(f"{info.label}: its command line is not one that can be started again")
    if info.container is not None:
        raise LaunchError(
            f"{info.label}: it runs in container {info.container}, where paths and environment are the container's own",
            hint="stop it and launch it with --method docker --image IMAGE",
        )
    return LaunchSpec(
        host=info.host,
        engine=info.engine,
        program=recognised.program,
        settings=info.settings,
        version=info.version,
        env=await environment.process_env(host, info.pid),
        cwd=info.cwd or None,
        log_path=None,
        method=await methods.method_of(host, info),
    )


def exactly(host: Host, spec: LaunchSpec, argv: tuple[str, ...], port: int, platform: str) -> Plan:
    """A start with this very command line, whatever the checks would say: it has run here before."""
    return Plan(spec=spec, argv=argv, port=port, handle=methods.handle(spec, port, host.now()), platform=platform)


def _warnings(plan: Relaunch) -> tuple[str, ...]:
    if plan.unit is None:
        return ()
    return (
        f"{plan.unit.label} is stopped, and the new server runs outside it: the unit keeps its earlier flags and "
        "starts with them at the next boot, unless it is edited",
    )


async def run(session: Session, host: Host, plan: Relaunch) -> Launched:
    """Stop, start, and go back where that fails and is wanted. Raises LaunchError that says how both went."""
    attempt = leftovers.Attempt()

    async def begin() -> Launched:
        return await launch.start(session, await _logged(host, plan.after), timeout_s=plan.timeout_s, attempt=attempt)

    async def unmade(error: LaunchError) -> LaunchError:
        if not isinstance(error, (StartFailed, EndedAtOnce)):
            return error
        return await leftovers.after(session, host, attempt, error, wanted=plan.clear)

    async def back_lines() -> tuple[str, ...]:
        if plan.unit is not None:
            return (quote(plan.unit.command("start")),)
        return (await methods.shown_line(host, plan.before.spec, plan.before.argv, "LOG", "NAME"),)

    steps = turn.Turn(
        info=plan.info,
        end=lambda: stop.stop(session, host, plan.job, term_wait_s=stop.TERM_WAIT_S),
        begin=begin,
        clear=lambda: leftovers.clear_all(session, host, attempt),
        unmade=unmade,
        back=lambda: bring_back(session, host, plan.info, plan.before, plan.unit, timeout_s=plan.timeout_s),
        back_lines=back_lines,
        rollback=plan.rollback,
    )
    return await turn.run(session, steps)


async def _logged(host: Host, plan: Plan) -> Plan:
    log_path = await environment.default_log_path(host, plan.spec)
    return msgspec.structs.replace(plan, spec=msgspec.structs.replace(plan.spec, log_path=log_path))


async def bring_back(
    session: Session, host: Host, info: ServerInfo, before: Plan, unit: managers.Manager | None, *, timeout_s: float
) -> float:
    """Start an earlier server again, through its unit where it has one; seconds until it was ready.

    `info`: how it was known. Raises LaunchError, HostError.
    """
    if unit is None:
        return (await launch.start(session, await _logged(host, before), timeout_s=timeout_s)).ready_s
    await managers.ask(host, unit, "start", wait_s=60.0)
    return await _wait_unit(session, host, info, timeout_s)


async def _wait_unit(session: Session, host: Host, info: ServerInfo, timeout_s: float) -> float:
    """Wait until the unit's server is found and ready; seconds on the host's clock."""
    progress = Progress(session.store, kind="launch", target=host.name, title=f"start {info.label} again", now=host.now)
    try:
        while True:
            found = next((s for s in await session.find(host.name) if s.port == info.port), None)
            if found is not None:
                break
            if progress.elapsed_s > _FIND_S:
                raise LaunchError(f"{info.label}: its unit was started, and no server came up")
            await asyncio.sleep(0.5)
        session.watch_server(found.id)
        waited = await ready.wait_ready(session, host, found, progress, timeout_s=timeout_s)
    except (LaunchError, HostError) as error:
        progress.failed(error)
        raise
    progress.done(server=found.id)
    return waited.ready_s
