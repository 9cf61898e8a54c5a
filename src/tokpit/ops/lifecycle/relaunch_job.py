"""Relaunch of a server in a batch job: the job is cancelled, one like it with the change is submitted and followed."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.job import BatchJob
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec
from tokpit.domain.text import decode_line, mask_secrets
from tokpit.engines.flagkit.shelltext import started_in
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import HostError, LaunchError
from tokpit.insight.words import span
from tokpit.ops.difference import in_words, launch_differences
from tokpit.ops.gate import Prepared
from tokpit.ops.host import environment
from tokpit.ops.lifecycle import batch, launch, relaunch, slurm, turn
from tokpit.ops.lifecycle.launch import Launched, Plan
from tokpit.ops.lifecycle.relaunch_ranks import changed_settings
from tokpit.probes.slurm import Listed, environment_script, request_of
from tokpit.transport.base import Host, quote

if TYPE_CHECKING:
    from tokpit.ops.session import Session

_SET_BY_THE_QUEUE = ("CUDA_VISIBLE_DEVICES",)


async def prepare(session: Session, info: ServerInfo, job: BatchJob, args: Mapping[str, Any]) -> Prepared:
    """See `relaunch.prepare`. Raises LaunchError where the job is over, or its script is not one of tokpit's own."""
    host = await session.connected(info.host)
    listed = await batch.look(host, job.id)
    if listed is None or not (listed.job.alive or listed.job.waiting):
        raise LaunchError(f"job {job.id} is over already", hint="start it anew with tokpit launch --method slurm")
    old, argv = _spec_of(info, listed)
    warnings = []
    env, unread = await _environment(host, listed.job, with_gpus=bool(old.batch.gpus or old.batch.args))
    if unread:
        warnings.append(f"{unread}: variables that were given with --env have to be given again")
    engine = engine_of(info.engine)
    old = msgspec.structs.replace(old, env=env)
    changed = changed_settings(engine, info, old.settings, args.get("changes") or {})
    new = msgspec.structs.replace(old, settings=changed, env={**env, **(args.get("env") or {})}, log_path=None)
    after = await launch.plan(session, new, force=bool(args.get("force")), replacing=info)
    after = await _logged(host, after, listed.job)
    before = relaunch.exactly(host, old, argv, info.port or after.port, after.platform)
    timeout_s = args.get("timeout_s") or 1800.0

    async def begin(plan: Plan) -> Launched:
        return await launch.start(session, plan, timeout_s=timeout_s)

    async def back() -> float:
        return (await begin(await _logged(host, before, listed.job))).ready_s

    async def back_lines() -> tuple[str, ...]:
        return slurm.shown_lines(await _logged(host, before, listed.job))

    steps = turn.Turn(
        info=info,
        end=lambda: slurm.end(session, host, info, listed.job),
        begin=lambda: begin(after),
        clear=lambda: _clear(session, host, after),
        back=back,
        back_lines=back_lines,
        rollback=args.get("rollback"),
    )
    if listed.job.waiting:
        warnings.append(f"job {job.id} still waits: the new one begins at the end of the queue")
    else:
        where = ", ".join(listed.job.nodes)
        warnings.append(f"{where}: given back to the queue first, and the new job waits for its turn like any other")
    if listed.job.time_left_s is not None and listed.job.limit_s is not None:
        left, whole = span(listed.job.time_left_s / 3600), span(listed.job.limit_s / 3600)
        warnings.append(f"{left} of its time limit are left; the new job asks for {whole} again")

    async def work() -> Launched:
        return await turn.run(session, steps)

    found = launch_differences(old, new)
    return Prepared(
        title=f"relaunch {info.label}, job {job.id}, with {in_words(found)}",
        host=host.name,
        run=work,
        lines=(
            *(f"# {change.text}" for change in found),
            f"scancel {job.id}",
            f"# was: {mask_secrets(quote(argv))}",
            *slurm.shown_lines(after),
        ),
        warnings=(*after.warnings, *warnings),
        typed_word=job.id,
    )


def _spec_of(info: ServerInfo, listed: Listed) -> tuple[LaunchSpec, tuple[str, ...]]:
    """How a job was submitted, and its command line without what makes it a rank.

    A script that has more in it than tokpit writes (modules, an activated environment) would lose that if it were
    written again: LaunchError.
    """
    started = started_in(listed.script)
    engine = engine_of(info.engine)
    argv = engine.without_ranks(started[0].argv).words if started else ()
    recognised = engine.recognise(argv) if argv else None
    if recognised is not None and info.port is not None:
        spec = LaunchSpec(
            host=info.host,
            engine=info.engine,
            program=recognised.program,
            settings=recognised.settings,
            version=info.version,
            cwd=listed.cwd or None,
            log_path=listed.job.log_path or None,
            method="slurm",
            batch=request_of(listed.script),
        )
        if spec.log_path and slurm.script_of(spec, argv, info.port).strip() == listed.script.strip():
            return spec, argv
    raise LaunchError(
        f"{info.label}: the batch script of job {listed.job.id} is not as tokpit writes it, so it is not written anew",
        hint=f"change it where it came from (scontrol write batch_script {listed.job.id} -), scancel and sbatch",
    )


async def _environment(host: Host, job: BatchJob, *, with_gpus: bool) -> tuple[dict[str, str], str]:
    """What the job has of variables that matter to an engine; else why they could not be read."""
    if not job.alive or not job.nodes:
        return {}, "its environment is known to the queue alone while it waits"
    try:
        answer = await host.run(environment_script(job.id, job.nodes[0]), timeout_s=60.0)
    except HostError as error:
        return {}, f"its environment could not be read on {job.nodes[0]} ({error.message})"
    if answer.status != 0:
        lines = answer.err.strip().splitlines() or [f"status {answer.status}"]
        return {}, f"its environment could not be read on {job.nodes[0]} ({decode_line(lines[-1].encode())})"
    env = environment.carried(answer.out)
    return {name: value for name, value in env.items() if not (with_gpus and name in _SET_BY_THE_QUEUE)}, ""


async def _logged(host: Host, plan: Plan, job: BatchJob) -> Plan:
    """With a new log beside the earlier one: login host and nodes share that folder."""
    path = await environment.default_log_path(host, plan.spec)
    if job.log_path:
        path = posixpath.join(posixpath.dirname(job.log_path), posixpath.basename(path))
    return msgspec.structs.replace(plan, spec=msgspec.structs.replace(plan.spec, log_path=path))


async def _clear(session: Session, host: Host, failed: Plan) -> None:
    """Cancel the new job where it did not end by itself; its log names it."""
    for info in await session.find(host.name):
        if info.job is not None and info.job.log_path == failed.spec.log_path:
            await slurm.end(session, host, info, info.job)
