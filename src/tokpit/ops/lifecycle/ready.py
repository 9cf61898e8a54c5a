"""READY means: the port's listener belongs to the process that was started, `/health` answers, one token was generated.

A log line that says ready is a milestone, never the proof: SGLang prints it even when another server holds the port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tokpit.collect.backlog import Stamps
from tokpit.domain.records import LogRecord, Mark, PhaseRecord
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec
from tokpit.domain.text import decode_lines
from tokpit.domain.verdict import Verdict
from tokpit.engines.base import Engine
from tokpit.engines.logkit.progress import StartTracker
from tokpit.engines.logkit.read import read_log
from tokpit.engines.registry import engine as engine_of
from tokpit.engines.verdictkit.aftermath import HostEvidence, questions, with_host
from tokpit.errors import HostError, LaunchError, StartFailed
from tokpit.ops import http
from tokpit.ops.host import environment
from tokpit.ops.lifecycle.leftovers import Attempt
from tokpit.ops.lifecycle.slurm import Life
from tokpit.ops.progress import Progress
from tokpit.ops.targets import server_target
from tokpit.probes import family
from tokpit.probes.family import Member
from tokpit.probes.group import GroupState, group_script, parse_group
from tokpit.probes.slurm import dead_rank
from tokpit.transport.base import Host, quote

if TYPE_CHECKING:
    from tokpit.ops.session import Session

_POLL_S = 1.0
_CATCH_UP_S = 3.0
_SHM_EVERY_S = 5.0


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """When the server was ready, in seconds from the start; `first_token_s`: that request's time. Host's clock."""

    ready_s: float
    first_token_s: float
    model: str


async def wait_ready(
    session: Session,
    host: Host,
    info: ServerInfo,
    progress: Progress,
    *,
    timeout_s: float,
    attempt: Attempt | None = None,
) -> Ready:
    """Wait until the server is ready, publishing milestones; `attempt` is told which processes belong to it.

    Raises StartFailed with the verdict of the engine knowledge when the process has ended or another process holds
    the port, LaunchError on timeout. A lost link is waited out; the server does not need it.
    """
    engine = engine_of(info.engine)
    waiter = _Waiter(session, host, info, engine, progress, attempt or Attempt())
    while True:
        try:
            ready = await waiter.look()
            waiter.note(waiter.aside)
        except HostError as error:
            waiter.note(f"{error.message}; the server does not need the link, still waiting")
            ready = None
        if ready is not None:
            session.store.apply(PhaseRecord(info.id, host.now(), "ready", elapsed_s=ready.ready_s))
            session.store.apply(Mark(info.id, host.now(), "ready", f"ready after {ready.ready_s:.0f} s"))
            return ready
        if progress.elapsed_s > timeout_s:
            stuck = waiter.stuck() or "no reason found in the log"
            raise LaunchError(
                f"{info.label}: not ready after {timeout_s:.0f} s ({stuck})",
                hint="the server was left running; read its log, or stop it with tokpit stop",
            )
        await asyncio.sleep(max(_POLL_S / host.spec.clock_factor, 0.2))


async def explained(host: Host, spec: LaunchSpec, log_start: int, error: LaunchError, *, what: str = "") -> LaunchError:
    """The error of a start that ended at once, with the verdict of what its log says from byte `log_start` on.

    `what` happened, in words; by default that the process has ended.
    """
    if spec.log_path is None:
        return error
    answer = await host.run(f"tail -c +{log_start + 1} {quote([spec.log_path])} 2>/dev/null | tail -c 4194304")
    records = list(read_log(decode_lines(answer.stdout), spec.engine))
    if not records:
        return error
    verdict = engine_of(spec.engine).verdict(records, settings=spec.settings)
    what = what or f"{error.message.partition(':')[0]}: the process has ended"
    if spec.batch.nodes > 1 and (first := dead_rank(record.text for record in records)):
        what += f"; {first}"
    return start_failed(what, verdict, records, verdict.next_action if verdict else last_lines(records))


def last_lines(records: Sequence[LogRecord]) -> str:
    """What to read first where nothing in a log is known as a reason."""
    return f"last lines: {' | '.join(record.text for record in records[-3:])}"


def start_failed(what: str, verdict: Verdict | None, records: Sequence[LogRecord], hint: str) -> StartFailed:
    """The error of a failed start: what happened, and the verdict with its arithmetic or that none is known."""
    if verdict is None:
        tail = tuple(record.text for record in records[-3:])
        return StartFailed(f"{what}; its log gives no known reason", code="UNKNOWN", evidence=tail, hint=hint)
    arithmetic = f" ({verdict.arithmetic})" if verdict.arithmetic else ""
    return StartFailed(
        f"{what}: {verdict.sentence}{arithmetic}", code=verdict.code, evidence=verdict.evidence, hint=hint
    )


class _Waiter:
    """What is known of one start; `look` asks again."""

    def __init__(
        self, session: Session, host: Host, info: ServerInfo, engine: Engine, progress: Progress, attempt: Attempt
    ) -> None:
        self._session, self._host, self._info, self._engine, self._progress = session, host, info, engine, progress
        self._attempt = attempt
        self._shm_due_s = 0.0
        self._tracker = StartTracker(engine.milestones, started_t=0.0)
        # Nothing of the start was before it: a log whose stamps count from its own beginning says so within seconds.
        self._reached_s = progress.operation.steps[-1].elapsed_s if progress.operation.steps else 0.0
        self._ready_s: float | None = None
        self._seen = 0
        self._records: list[LogRecord] = []
        self._base = progress.operation.steps
        self._foreign = False
        self._life = Life(session, host, info) if info.job is not None else None
        self.aside = ""
        """What is worth telling while it waits."""

    def stuck(self) -> str | None:
        """Why the start may be stuck, if a phase takes longer than usual."""
        return self._tracker.stuck(self._progress.elapsed_s)

    def note(self, text: str) -> None:
        """Say why nothing is known at the moment; empty: no more."""
        if self._progress.operation.result.get("note", "") != text:
            self._progress.update(result={**self._progress.operation.result, "note": text})

    async def look(self) -> Ready | None:
        """One look at the log, the process, the port, the health path and, when all that is right, one token."""
        self._read_log()
        self.aside = ""
        if not await (self._job_runs() if self._life is not None else self._owns_port()):
            return None
        async with self._host.session() as web:
            base, headers = server_target(self._info).url, http.own_key(self._info)
            if not await http.healthy(web, base + self._engine.http.health, headers=headers):
                return None
            self._mark("healthy", f"{self._engine.http.health} answers")
            token = await http.first_token(
                web, base, self._engine.http, clock_factor=self._host.spec.clock_factor, headers=headers
            )
        if token is None:
            return None
        self._mark("token", "one token generated")
        self._ready_s = self._base[-1].elapsed_s
        ready = Ready(ready_s=self._ready_s, first_token_s=token.seconds, model=token.model)
        await self._catch_up()
        return ready

    async def _owns_port(self) -> bool:
        """Whether the port belongs to the process, which lives. Raises StartFailed where it never will."""
        info = self._info
        answer = await self._host.run(
            group_script(info.pid, info.pgid, info.port or 0) + family.family_script(info.pid, alone=True)
        )
        state = parse_group(answer.out)
        members = family.parse_family(answer.out, info.pid, info.start_ticks, info.pgid).members
        await self._note_family(members)
        if state.start_ticks != self._info.start_ticks:
            await self._failed("the process has ended")
        if not state.listening:
            return False
        if not state.owns_port:
            await self._foreign_port(state)
            return False
        self._mark("listening", f"port {self._info.port} belongs to it")
        return True

    async def _note_family(self, members: Sequence[Member]) -> None:
        """Which processes belong to the start and, now and then, what they hold in /dev/shm."""
        self._attempt.seen.update((member.pid, member.start_ticks) for member in members)
        if members and self._progress.elapsed_s >= self._shm_due_s:
            answer = await self._host.run(family.shm_script([member.pid for member in members]))
            self._attempt.files.update(file.path for file in family.parse_shm(answer.out))
            self._shm_due_s = self._progress.elapsed_s + _SHM_EVERY_S

    async def _job_runs(self) -> bool:
        """Whether the job lives; whose port it is cannot be seen from the login host."""
        assert self._life is not None
        if over := await self._life.over():
            await self._failed(over)
        return True

    async def _catch_up(self) -> None:
        """Read the log up to what is in the file now: its last lines may still be on their way."""
        path = self._info.log_path
        size = await environment.file_size(self._host, path) if path else 0
        log = self._session.store.servers[self._info.id].log
        for _ in range(int(_CATCH_UP_S / 0.1)):
            if log.offset >= size:
                break
            await asyncio.sleep(0.1)
        self._read_log()

    def _read_log(self) -> None:
        log = self._session.store.servers[self._info.id].log
        fresh = list(log.records)[max(self._seen - log.first, 0) :]
        self._seen = log.seen
        for record, elapsed_s in zip(fresh, self._elapsed(fresh), strict=True):
            self._tracker.observe(record, elapsed_s)
        self._records += fresh
        self._publish()

    async def _ask_host(self, verdict: Verdict) -> Verdict:
        """The verdict made sharper by what the host says now: who holds the port, what the kernel killed."""
        said: dict[str, str] = {}
        for words in questions(verdict):
            answer = await self._host.run(quote(words), timeout_s=10)
            if answer.status == 0 and answer.out.strip():
                said.setdefault(words[0], answer.out)
        evidence = HostEvidence(
            sockets=said.get("ss"),
            kernel_log=said.get("dmesg") or said.get("journalctl"),
            gpu_processes=said.get("nvidia-smi"),
        )
        return with_host(verdict, evidence)

    def _elapsed(self, records: list[LogRecord]) -> list[float]:
        """Seconds from the start for each record: now for the newest, earlier ones by their stamps."""
        # What the log says of the start was written before its end, however late it is read.
        now = self._progress.elapsed_s if self._ready_s is None else self._ready_s
        elapsed: list[float] = []
        for at in Stamps().times(records, now):
            if at is not None:
                self._reached_s = min(max(at, self._reached_s), now)
            elapsed.append(self._reached_s)
        return elapsed

    def _publish(self) -> None:
        steps = sorted((*self._base, *self._tracker.steps), key=lambda step: (step.elapsed_s, step.kind == "token"))
        stuck = self.stuck() or ""
        result = {**self._progress.operation.result, "phase": self._tracker.phase, "stuck": stuck}
        self._progress.update(steps=tuple(steps), result=result)

    def _mark(self, kind: str, label: str) -> None:
        if all(step.kind != kind for step in self._base):
            self._progress.step(kind, label)
            self._base = (*self._base, self._progress.operation.steps[-1])

    async def _foreign_port(self, state: GroupState) -> None:
        """The port may still be freed until the server wants it; fatal only where the server says that it listens."""
        whose = f"pid {state.listener_pid}" if state.listener_pid else "another user's process"
        held = f"port {self._info.port} is held by {whose}, not by the server that was started"
        if not self._tracker.ready_hint and self._tracker.failure is None:
            self.aside = held
            return
        if not self._foreign:  # a listener may be handed over while a process replaces itself: look twice
            self._foreign = True
            return
        await self._failed(held)

    async def _failed(self, what: str) -> None:
        await self._catch_up()
        if self._life is not None and (first := dead_rank(record.text for record in self._records)):
            what += f"; {first}"
        verdict = self._engine.verdict(self._records, settings=self._info.settings)
        if verdict is not None and self._life is None:
            verdict = await self._ask_host(verdict)
        self._session.store.apply(PhaseRecord(self._info.id, self._host.now(), "failed", what))
        hint = verdict.next_action if verdict is not None else f"read {self._info.log_path}"
        if verdict is None and self._records:
            hint = last_lines(self._records)
        raise start_failed(f"{self._info.label}: {what}", verdict, self._records, hint)
