"""Servers in batch jobs: submit, follow from the queue to READY on its node, and end, all over the login host."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tokpit.collect.jobs import same_job
from tokpit.domain.job import BatchJob
from tokpit.domain.records import Mark, PhaseRecord, ServerSeen
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, LaunchState
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import HostError, LaunchError, StopError
from tokpit.insight.words import span
from tokpit.ops.gate import Prepared
from tokpit.ops.lifecycle import batch
from tokpit.ops.progress import Progress
from tokpit.probes.slurm import Listed
from tokpit.transport.base import Host
from tokpit.transport.methods import handle_name

if TYPE_CHECKING:
    from tokpit.ops.lifecycle.launch import Plan
    from tokpit.ops.lifecycle.stop import Stopped
    from tokpit.ops.session import Session

POLL_S = 2.0
"""Between two questions about one job, on the host's clock: the queue serves many people."""
RENDEZVOUS_PORT = 29_600
_CANCEL_WAIT_S = 120.0


def script_of(spec: LaunchSpec, argv: tuple[str, ...], port: int) -> str:
    """The batch script of a launch, as it is shown before it is submitted. Raises UsageError."""
    assert spec.log_path is not None
    ranks: list[tuple[str, ...]] = []
    if spec.batch.nodes > 1:
        engine = engine_of(spec.engine)
        ranks = [
            tuple(
                f'"{word}"' if "$" in word else word
                for word in engine.rank_flags(
                    spec.version, nodes=spec.batch.nodes, rank=rank, head="$TOKPIT_HEAD", port=RENDEZVOUS_PORT
                )
            )
            for rank in ("0", "$SLURM_NODEID")
        ]
    name = handle_name(spec.engine, port, "").rstrip("-")
    return batch.batch_script(spec.batch, argv, name=name, log_path=spec.log_path, ranks=ranks)


def shown_lines(made: Plan) -> tuple[str, ...]:
    """A submission as it is shown before it is made."""
    return ("sbatch <<'END'", *script_of(made.spec, made.argv, made.port).splitlines(), "END")


async def begin(
    session: Session, host: Host, spec: LaunchSpec, argv: tuple[str, ...], port: int, progress: Progress
) -> tuple[LaunchState, ServerInfo]:
    """Submit the job and follow it until it runs on its node; the server may still be starting then.

    A job that waits is left in the queue when tokpit is interrupted. Raises LaunchError where the queue does not take
    it or it ends before it was seen to run; a lost link is waited out.
    """
    assert spec.log_path is not None
    script = script_of(spec, argv, port)
    job_id = await batch.submit(host, script, env=spec.env, cwd=spec.cwd, log_path=spec.log_path)
    progress.step("submitted", f"job {job_id} submitted", spec.log_path)
    job = await _until_running(host, job_id, progress)
    progress.step("node", f"runs on {', '.join(job.nodes)}", left_sentence(job))
    state = LaunchState(
        engine=spec.engine,
        pid=0,
        pgid=0,
        start_ticks=int(job_id),
        argv=argv,
        log_path=spec.log_path,
        port=port,
        method="slurm",
        handle=job_id,
        started_at=time.time(),
    )
    info = ServerInfo(
        host=host.name,
        engine=spec.engine,
        pid=0,
        start_ticks=int(job_id),
        pgid=0,
        user=job.user,
        argv=argv,
        port=port,
        listen=job.address or job.nodes[0],
        model=spec.settings.model,
        served_name=spec.settings.served_name,
        version=spec.version,
        settings=spec.settings,
        log_path=spec.log_path,
        started_at=job.start_at,
        job=job,
        launched_by_tokpit=True,
    )
    return state, info


async def _until_running(host: Host, job_id: str, progress: Progress) -> BatchJob:
    said = ""
    while True:
        try:
            found = await batch.look(host, job_id)
        except HostError as error:
            progress.update(result={"note": f"{error.message}; the job does not need the link, still waiting"})
            await asyncio.sleep(POLL_S / host.spec.clock_factor)
            continue
        job = found.job if found is not None else BatchJob(id=job_id, state="GONE")
        if job.alive and job.nodes:
            progress.update(result={})
            return job
        if not job.waiting and not job.alive:
            raise LaunchError(
                f"{host.name}: job {job_id} ended before it was ready: {ended(job)}",
                hint=f"scontrol show job {job_id}",
            )
        words = waits(job, host.now())
        if words != said:
            said = words
            progress.update(result={"note": words})
        await asyncio.sleep(POLL_S / host.spec.clock_factor)


def waits(job: BatchJob, now: float) -> str:
    """Why a job waits and until when: the queue's reason, what it means, its estimate."""
    reason = job.reason or "the queue has not looked at it yet"
    meaning = next((text for word, text in _REASONS if word.lower() in reason.lower()), "")
    text = f"job {job.id} is {job.state}: {reason}" + (f" ({meaning})" if meaning else "")
    if job.start_at is not None and job.start_at > now:
        text += f"; expected to start in {span((job.start_at - now) / 3600)}"
    return text


_REASONS = (
    ("DOWN, DRAINED", "nodes that it needs are down; it starts when they come back"),
    ("priority", "jobs of higher priority are before it"),
    ("resources", "it is next, and waits for nodes to become free"),
    ("QOSMax", "a limit of your quality of service is reached"),
    ("Assoc", "a limit of your account is reached"),
    ("PartitionTimeLimit", "it asks for more time than the partition gives; cancel it and ask for less"),
    ("PartitionNodeLimit", "it asks for more nodes than the partition gives; cancel it and ask for fewer"),
    ("PartitionConfig", "the partition cannot give what it asks for"),
    ("Dependency", "it waits for another job"),
    ("Licenses", "it waits for licences"),
    ("ReqNodeNotAvail", "a node that it asks for is not available, often before a maintenance"),
    ("JobHeld", "it is held; release it with scontrol release"),
)
_ENDS = {
    "TIMEOUT": "its time limit was reached",
    "NODE_FAIL": "a node failed",
    "CANCELLED": "it was cancelled",
    "FAILED": "its command failed",
    "COMPLETED": "its command ended by itself",
    "OUT_OF_MEMORY": "it used more host memory than it asked for",
    "PREEMPTED": "a job of higher priority took its nodes",
    "BOOT_FAIL": "a node did not boot",
    "DEADLINE": "its deadline passed",
    "GONE": "the queue knows nothing of it any more",
}


def ended(job: BatchJob) -> str:
    """How a job ended, in words with the queue's own."""
    word = job.state.split()[0] if job.state else "GONE"
    return f"{_ENDS.get(word, 'it is over')} ({word})" if word != "GONE" else _ENDS["GONE"]


def left_sentence(job: BatchJob) -> str:
    """What the time limit leaves; empty where there is none."""
    return f"{span(job.time_left_s / 3600)} of its time limit are left" if job.time_left_s is not None else ""


class Life:
    """Whether a job's server can still become ready; asks the queue seldom, whatever the caller's rhythm."""

    def __init__(self, session: Session, host: Host, info: ServerInfo) -> None:
        assert info.job is not None
        self._session, self._host, self._info = session, host, info
        self._id = info.job.id
        self._asked_at = 0.0

    async def over(self) -> str:
        """How the job ended; empty while it lives. Raises HostError."""
        now = self._host.now()
        if now - self._asked_at < POLL_S:
            return ""
        found = await batch.look(self._host, self._id)
        self._asked_at = now
        if found is not None:
            self._info = same_job(self._info, found)
            self._session.store.apply(ServerSeen(now, self._info))
        return _over(self._id, found)


async def how_it_ended(host: Host, job_id: str) -> str:
    """How a job ended, as a sentence; empty while it waits or runs. Raises HostError."""
    return _over(job_id, await batch.look(host, job_id))


def _over(job_id: str, found: Listed | None) -> str:
    if found is None:
        return f"job {job_id} is over: {_ENDS['GONE']}"
    return "" if found.job.alive or found.job.waiting else f"job {job_id} is over: {ended(found.job)}"


async def prepare_stop(session: Session, info: ServerInfo) -> Prepared:
    """The end of a job's server: scancel, and a wait until the queue says that it is over."""
    assert info.job is not None
    host, job = session.host(info.host), info.job
    warnings = [f"job {job.id} belongs to {job.user}"] if job.user else []
    if len(job.nodes) > 1:
        warnings.append(f"it runs on {len(job.nodes)} nodes: {', '.join(job.nodes)}")

    async def run() -> Stopped:
        return await end(session, host, info, job)

    return Prepared(
        title=f"cancel job {job.id}, {info.engine} on {', '.join(job.nodes) or job.partition}",
        host=host.name,
        run=run,
        lines=(f"scancel {job.id}",),
        warnings=tuple(warnings),
        typed_word=job.id,
    )


async def end(session: Session, host: Host, info: ServerInfo, job: BatchJob) -> Stopped:
    """Cancel a job and wait until the queue says that it is over. Raises StopError, HostError."""
    from tokpit.ops.lifecycle.stop import Stopped

    progress = Progress(session.store, kind="stop", target=info.id, title=f"stop {info.label}", now=host.now)
    if info.id in session.store.servers:
        session.store.apply(PhaseRecord(info.id, host.now(), "stopping"))
    try:
        await batch.cancel(host, job.id)
        progress.step("cancel", "scancel sent", f"job {job.id}")
        deadline = host.now() + _CANCEL_WAIT_S
        while True:
            found = await batch.look(host, job.id)
            if found is None or not (found.job.alive or found.job.waiting):
                break
            if host.now() > deadline:
                raise StopError(
                    f"job {job.id} is still {found.job.state} {_CANCEL_WAIT_S:g} s after scancel",
                    hint="a node that does not answer keeps a job in COMPLETING; ask the cluster's administrator",
                )
            await asyncio.sleep(POLL_S / 2 / host.spec.clock_factor)
    except (StopError, HostError) as error:
        progress.failed(error)
        raise
    if info.id in session.store.servers:
        session.store.apply(PhaseRecord(info.id, host.now(), "gone"))
        session.store.apply(Mark(info.id, host.now(), "stop", f"job {job.id} cancelled"))
        await session.unwatch_server(info.id)
    progress.done(signal="scancel")
    return Stopped(server=info, signal="scancel", elapsed_s=progress.elapsed_s, members=())
