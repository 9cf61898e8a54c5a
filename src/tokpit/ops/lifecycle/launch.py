"""Launch: look first, show the exact command, start detached, and say READY only when a token has been generated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.hostfacts import HostFacts
from tokpit.domain.records import ServerSeen
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, LaunchState
from tokpit.domain.text import MASK
from tokpit.engines.base import Engine
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import EndedAtOnce, LaunchError, StartFailed, TokpitError, UsageError
from tokpit.insight.prediction import predicted
from tokpit.ops.difference import flag_groups
from tokpit.ops.gate import Prepared
from tokpit.ops.host import environment, environments
from tokpit.ops.host.schema import installed_schema
from tokpit.ops.lifecycle import leftovers, methods, occupants, ready, slurm
from tokpit.ops.progress import Progress
from tokpit.transport.base import Host, quote

if TYPE_CHECKING:
    from tokpit.ops.session import Session


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is ready: where it is, how long it took, what was started."""

    server: ServerInfo
    state: LaunchState
    ready_s: float
    first_token_s: float
    command: str
    warnings: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What will be started: a complete spec, its argv, and what the checks said."""

    spec: LaunchSpec
    argv: tuple[str, ...]
    port: int
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """What would make the start fail, as far as flags, model and host tell."""
    expected: tuple[str, ...] = ()
    """What it will take and hold: weights, KV tokens, running requests, host memory; with the arithmetic."""
    handle: str = ""
    """Name of the unit, tmux session or container; empty for setsid."""
    platform: str = "cuda"

    @property
    def command(self) -> str:
        """One shell command line, as it is shown, without the environment's values."""
        return quote(self.argv)


async def plan(session: Session, spec: LaunchSpec, *, force: bool = False, replacing: ServerInfo | None = None) -> Plan:
    """`assess`, and LaunchError for what would fail (flag unknown to this version, port in use, rule broken).

    `force`: what would fail is a warning.
    """
    made = await assess(session, spec, replacing=replacing)
    if made.errors and not force:
        raise refused(made)
    return msgspec.structs.replace(made, warnings=(*made.errors, *made.warnings))


def refused(made: Plan) -> LaunchError:
    """The error for a plan that would fail."""
    return LaunchError(
        "refused before the start: " + "; ".join(made.errors),
        hint="change the setting, or add --force to try it anyway",
    )


async def assess(session: Session, spec: LaunchSpec, *, replacing: ServerInfo | None = None) -> Plan:
    """Complete `spec` and check it against the installed version and the host; nothing is changed.

    `replacing`: a running server whose place it takes, so that its port counts as free.
    Raises LaunchError where the engine is not found there, UsageError for a setting that it cannot take, HostError.
    """
    engine = engine_of(spec.engine)
    _check_secrets(spec)
    host = await session.connected(spec.host)
    boxed = spec.method == "docker"
    if spec.method == "slurm" and spec.settings.listen is None:  # its node's loopback is out of reach
        spec = msgspec.structs.replace(spec, settings=msgspec.structs.replace(spec.settings, listen="0.0.0.0"))  # noqa: S104
    try:
        spec = await (methods.complete_in_image(host, spec) if boxed else environment.complete(host, engine, spec))
    except LaunchError as error:
        raise error if boxed else await environments.suggest(session, host.name, engine.name, error) from error
    argv = engine.command(spec.program, spec.settings, spec.version)
    flags = argv[len(spec.program) :]
    # What was passed through as plain flags counts like a setting from here on: port, model, what the rules look at.
    settings = engine.from_flags(engine.to_flags(spec.settings, spec.version), spec.version)
    spec = msgspec.structs.replace(spec, settings=settings)
    if spec.batch.nodes > 1 and spec.method == "slurm":
        engine.rank_flags(spec.version, nodes=spec.batch.nodes, rank="0", head="head", port=1)
    if settings.model is None:
        raise UsageError("a launch needs a model", hint="name it with --model PATH_OR_NAME")
    port = settings.port or engine.http.default_port
    errors: list[str] = []
    warnings: list[str] = []
    expected: list[str] = []
    schema = None if boxed else await installed_schema(host, engine, spec.program, spec.version)
    for issue in engine.check_flags(flags, spec.version, schema):
        (errors if issue.severity == "error" else warnings).append(issue.sentence)
    queued = spec.method == "slurm"
    # A login host says nothing of the node that the queue will choose.
    facts = HostFacts() if queued else await environment.host_facts(host, spec, replacing=replacing)
    model = await environment.model_facts(host, spec)
    # What the login has in its environment the server will have too, unless it runs somewhere else.
    inherited = {} if boxed or queued else await environment.process_env(host, None)
    for answer in engine.check_rules(spec.settings, spec.version, model, facts, {**inherited, **spec.env}):
        sentence = answer.sentence + (f" ({answer.arithmetic})" if answer.arithmetic else "")
        if answer.severity == "error":
            errors.append(sentence)
        else:
            (warnings if answer.severity == "warning" else expected).append(sentence)
    if replacing is None and occupants.busy(facts):
        warnings += occupants.sentences(await occupants.occupants(session, host), host.name)
    for risk in await methods.survival_risks(host, spec):
        (errors if risk.fatal else warnings).append(methods.sentence(risk))
    return Plan(
        spec=spec,
        argv=tuple(argv),
        port=port,
        warnings=tuple(warnings),
        errors=tuple(errors),
        expected=(*predicted(spec.settings, model, facts), *expected),
        handle=methods.handle(spec, port, host.now()),
        platform=facts.platform,
    )


async def prepare(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`server.launch`: args are `spec` (LaunchSpec), `force`, `timeout_s`, `operation_id`, `clear`.

    `plan`: a Plan made before, started as it is, instead of `spec` and `force`. `clear`: what becomes of what a failed
    start leaves; True clears it away, False leaves it, None (default) asks then.
    """
    if "plan" not in args and args["spec"].ranks:
        from tokpit.ops.lifecycle import nodes

        return await nodes.prepare(session, args)
    made: Plan = args.get("plan") or await plan(session, args["spec"], force=bool(args.get("force")))
    spec = made.spec
    host = session.host(spec.host)
    log_path = made.spec.log_path or await environment.default_log_path(host, made.spec)
    made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, log_path=log_path))

    async def run() -> Launched:
        attempt = leftovers.Attempt()
        timeout_s = args.get("timeout_s") or 1800.0
        try:
            return await start(
                session, made, timeout_s=timeout_s, operation_id=args.get("operation_id"), attempt=attempt
            )
        except (StartFailed, EndedAtOnce) as error:
            raise await leftovers.after(session, host, attempt, error, wanted=args.get("clear")) from error

    if spec.method == "slurm":
        lines = slurm.shown_lines(made)
    else:
        lines = (await methods.shown_line(host, made.spec, made.argv, log_path, made.handle),)
    return Prepared(
        title=f"start {spec.engine} on {host.name}, port {made.port}",
        host=host.name,
        run=run,
        lines=lines,
        warnings=made.warnings,
    )


async def start(
    session: Session,
    made: Plan,
    *,
    timeout_s: float,
    operation_id: str | None = None,
    attempt: leftovers.Attempt | None = None,
) -> Launched:
    """Start what was planned and wait until it is ready. Raises StartFailed with the cause, LaunchError, HostError.

    `attempt` is told what was started, for who clears away what a failed start leaves.
    """
    host = session.host(made.spec.host)
    progress = Progress(
        session.store,
        kind="launch",
        target=host.name,
        title=f"launch {made.spec.engine} {short_model(made.spec.settings.model)} on {host.name}:{made.port}",
        now=host.now,
        commands=(made.command,),
        operation_id=operation_id,
    )
    try:
        return await _start(session, host, made, progress, timeout_s, attempt or leftovers.Attempt())
    except TokpitError as error:
        progress.failed(error)
        raise
    except BaseException:
        progress.stopped("no longer waiting; the server was left as it is")
        raise


async def _start(
    session: Session, host: Host, made: Plan, progress: Progress, timeout_s: float, attempt: leftovers.Attempt
) -> Launched:
    from tokpit.store.history import getpass_user
    from tokpit.transport.detached import start_detached

    spec = made.spec
    assert spec.log_path is not None
    log_start = await environment.file_size(host, spec.log_path)
    if spec.method == "slurm":
        try:
            state, info = await slurm.begin(session, host, spec, made.argv, made.port, progress)
        except LaunchError as error:
            raise await ready.explained(host, spec, log_start, error, what=error.message) from error
        attempt.info = info
        # The time in the queue is no time of the server's.
        left_s = progress.elapsed_s + timeout_s
        return await _await_ready(session, host, made, progress, state, attempt, log_start, left_s)
    try:
        state = await start_detached(
            host,
            made.argv,
            engine=spec.engine,
            port=made.port,
            env=spec.env,
            cwd=spec.cwd,
            log_path=spec.log_path,
            method=spec.method,
            handle=made.handle,
            container=methods.container(spec, platform=made.platform),
            by=getpass_user(),
        )
    except LaunchError as error:
        if isinstance(error, EndedAtOnce):
            attempt.info = server_info(host, engine_of(spec.engine), spec, _ended(made, error))
        raise await ready.explained(host, spec, log_start, error) from error
    progress.step("started", "started", f"pid {state.pid}, log {state.log_path}")
    attempt.info = server_info(host, engine_of(spec.engine), spec, state)
    return await _await_ready(session, host, made, progress, state, attempt, log_start, timeout_s)


def _ended(made: Plan, error: EndedAtOnce) -> LaunchState:
    """What would have been recorded of a process that was gone before it could be."""
    return LaunchState(
        engine=made.spec.engine,
        pid=error.pid,
        pgid=error.pgid,
        start_ticks=error.start_ticks,
        argv=made.argv,
        log_path=made.spec.log_path or "",
        port=made.port,
    )


async def _await_ready(
    session: Session,
    host: Host,
    made: Plan,
    progress: Progress,
    state: LaunchState,
    attempt: leftovers.Attempt,
    log_start: int,
    timeout_s: float,
) -> Launched:
    info = attempt.info
    assert info is not None
    history = await session.history()
    launch_id = await history.save_launch(made.spec, state)
    session.store.apply(ServerSeen(host.now(), info))
    session.watch_server(info.id, log_offset=log_start)
    try:
        waited = await ready.wait_ready(session, host, info, progress, timeout_s=timeout_s, attempt=attempt)
    except TokpitError as error:
        await history.launch_outcome(launch_id, "failed", error.message)
        raise
    await history.launch_outcome(launch_id, "ready", "")
    progress.done(server=info.id, ready_s=f"{waited.ready_s:.1f}")
    return Launched(
        server=info,
        state=state,
        ready_s=waited.ready_s,
        first_token_s=waited.first_token_s,
        command=made.command,
        warnings=made.warnings,
    )


def _check_secrets(spec: LaunchSpec) -> None:
    """Raises UsageError where a value was masked when it was stored, so that nobody knows it any more."""
    flags = [group[0].partition("=")[0] for group in flag_groups(spec.settings.raw) if MASK in " ".join(group)]
    names = [name for name, value in spec.env.items() if value == MASK]
    if not flags and not names:
        return
    again = [*(f"-e {name}=VALUE" for name in names), *(["--"] if flags else []), *(f"{flag} VALUE" for flag in flags)]
    raise UsageError(
        f"secrets are not stored, and this launch had {', '.join((*flags, *names))}",
        hint=f"give the value again: {' '.join(again)}",
    )


def server_info(host: Host, engine: Engine, spec: LaunchSpec, state: LaunchState) -> ServerInfo:
    """The server that a launch made, before a process table has shown it."""
    listen = spec.settings.listen or "127.0.0.1"
    return ServerInfo(
        host=host.name,
        engine=engine.name,
        pid=state.pid,
        start_ticks=state.start_ticks,
        pgid=state.pgid,
        sid=state.pgid,
        argv=state.argv,
        port=state.port,
        listen="127.0.0.1" if listen in {"0.0.0.0", "::"} else listen,  # noqa: S104 - compared, not bound
        model=spec.settings.model,
        served_name=spec.settings.served_name,
        version=spec.version,
        settings=spec.settings,
        log_path=state.log_path,
        started_at=host.now(),
        launched_by_tokpit=True,
    )


def short_model(model: str | None) -> str:
    """The last part of a model path or name, fit for a title."""
    return re.sub(r".*/", "", (model or "").rstrip("/")) or "?"
