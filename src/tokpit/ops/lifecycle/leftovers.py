"""What a failed start left: processes that outlived it, files in shared memory. Listed, asked for, then cleared away.

Nothing is found by a name. A process belongs to a start if it was in its family while the start was watched, if it is
in the group or session that the start made, or if it descends from such a one; a file in /dev/shm, if such a process
has held it, nobody else does, and it is the login's and newer than the start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.domain.text import mask_secrets
from tokpit.errors import HostError, LaunchError, StartFailed, StopError, TokpitError
from tokpit.ops import gate
from tokpit.ops.gate import Prepared, Refused
from tokpit.ops.lifecycle import footprint, stop
from tokpit.probes import family as probe
from tokpit.probes.family import Member, SharedFile
from tokpit.transport.base import Host, quote
from tokpit.transport.detached import state_word

if TYPE_CHECKING:
    from tokpit.ops.session import Session

log = logging.getLogger(__name__)

TERM_WAIT_S = 15.0
"""How long a process of a failed start may take to leave after TERM: it serves nobody."""
_TITLE = 80


class Attempt(msgspec.Struct):
    """What a start has made so far. It is filled in while the start goes on, for who clears away where it fails."""

    info: ServerInfo | None = None
    seen: dict[int, int] = {}
    """Start times of the processes that were in its family, by pid."""
    files: set[str] = set()
    """Files in /dev/shm that they held."""


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What is still there of a failed start."""

    info: ServerInfo
    job: stop.Job | None = None
    """The processes and how they are ended; None: none is left."""
    titles: dict[int, str] = {}
    files: tuple[SharedFile, ...] = ()
    why: str = ""
    """Why the start failed."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes."""
        return self.job.before.family.pids if self.job is not None else ()

    @property
    def what(self) -> str:
        """How much it is, in words."""
        counted = ((len(self.pids), "process", "processes"), (len(self.files), "file in /dev/shm", "files in /dev/shm"))
        return " and ".join(f"{n} {one if n == 1 else more}" for n, one, more in counted if n)

    @property
    def lines(self) -> tuple[str, ...]:
        """The commands that clear it away, as they are shown."""
        ended = self.job.lines_within(TERM_WAIT_S) if self.job is not None else ()
        removed = (f"rm -f -- {quote([file.path for file in self.files])}",) if self.files else ()
        return (*ended, *removed)

    @property
    def listed(self) -> tuple[str, ...]:
        """A line for each process and file."""
        gpu = self.job.before.gpu.by_pid if self.job is not None and self.job.before.gpu is not None else {}
        said = []
        for pid in self.pids:
            title = mask_secrets(self.titles.get(pid, "")) or "a process"
            held = gpu.get(pid)
            memory = f", {held:,.0f} MiB of GPU memory" if held else ""
            said.append(f"still runs: pid {pid} {title if len(title) <= _TITLE else title[: _TITLE - 1] + '…'}{memory}")
        for file in self.files:
            size = "" if file.size_bytes is None else f" ({file.size_bytes / 2**20:,.1f} MiB)"
            said.append(f"lies there: {file.path}{size}")
        return tuple(said)


async def look(host: Host, attempt: Attempt) -> Left | None:
    """What is left of a start; None: nothing. Raises HostError, StopError where its keeper cannot be asked."""
    info = attempt.info
    if info is None or info.job is not None:
        return None
    state = await stop.look(host, info)
    if state.start_ticks == info.start_ticks:
        job: stop.Job | None = await stop.plan(host, info)
    else:
        answer = await host.run(probe.family_script(info.pid))
        family = probe.survivors_of(answer.out, info.pid, info.start_ticks, info.pgid, attempt.seen)
        before = await footprint.of_family(host, family)
        job = stop.Job(info=info, before=before, roots=family.members) if family.members else None
    members: tuple[Member, ...] = job.before.family.members if job is not None else ()
    pids = [member.pid for member in members]
    titles = probe.parse_titles((await host.run(probe.titles_script(pids))).out) if pids else {}
    paths = attempt.files | {file.path for file in (job.before.shm if job is not None else ())}
    left = Left(info=info, job=job, titles=titles, files=await _free_files(host, info, paths, but=pids))
    return left if left.job is not None or left.files else None


async def _free_files(
    host: Host, info: ServerInfo, paths: Iterable[str], *, but: Sequence[int] = (), remove: bool = False
) -> tuple[SharedFile, ...]:
    if not (listed := sorted(paths)):
        return ()
    since = state_word(info.pid, info.start_ticks)
    return probe.parse_shm((await host.run(probe.free_shm_script(listed, since, but=but, remove=remove))).out)


async def prepare(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`server.clear`: `left` is what `look` has found."""
    left: Left = args["left"]
    host = session.host(left.info.host)

    async def run() -> str:
        return await clear(session, host, left)

    return Prepared(
        title=f"clear away what the failed start of {left.info.label} left: {left.what}",
        host=host.name,
        run=run,
        lines=(*(f"# {said}" for said in left.listed), *left.lines),
        warnings=(left.why,) if left.why else (),
    )


async def clear(session: Session, host: Host, left: Left) -> str:
    """End the processes, then remove the files that nobody holds; a clause that says what went.

    Raises StopError where a process survives, HostError.
    """
    said = []
    if left.job is not None:
        done = await stop.stop(session, host, left.job, term_wait_s=TERM_WAIT_S, keep_record=True)
        said.append(f"{stop.counted(len(done.members))} ended by {done.signal}")
    if left.files:
        gone = await _free_files(host, left.info, [file.path for file in left.files], remove=True)
        size = sum(file.size_bytes or 0 for file in gone) / 2**20
        said.append(f"{len(gone)} file{'' if len(gone) == 1 else 's'} removed ({size:,.1f} MiB)")
        kept = [file.path for file in left.files if file.path not in {one.path for one in gone}]
        if kept:
            said.append(f"kept, for another process holds it by now: {', '.join(kept)}")
    await stop.forget(host, left.info)
    return ", ".join(said)


async def after(
    session: Session, host: Host, attempt: Attempt, error: LaunchError, *, wanted: bool | None
) -> LaunchError:
    """The error of a failed start, told with what it left and what became of that.

    `wanted`: True clears it away, False leaves it, None asks. The record of a start that left nothing goes unasked.
    """
    try:
        left = await look(host, attempt)
        if left is None:
            if attempt.info is not None and attempt.info.job is None:
                await stop.forget(host, attempt.info)
            return error
        if wanted is False or (wanted is None and session.confirm is None and not session.assume_yes):
            return _with_hint(error, left)
        try:
            said = await _execute(session, msgspec.structs.replace(left, why=error.message), consented=bool(wanted))
        except Refused:
            return _with_hint(error, left)
    except (HostError, StopError) as problem:
        log.info("what the failed start left is not cleared away: %s", problem)
        return told(error, hint=f"{error.hint.rstrip('.')}; what it left may still be there: {problem.message}")
    return told(error, message=f"{error.message}; cleared away: {said}")


async def _execute(session: Session, left: Left, *, consented: bool) -> str:
    from tokpit.ops.commands import command

    return str(await gate.execute(session, command("server.clear"), {"left": left}, consented=consented))


def _with_hint(error: LaunchError, left: Left) -> LaunchError:
    there = "; ".join(left.listed)
    return told(error, hint=f"{error.hint.rstrip('.')}; left on {left.info.host}: {there}; there: {left.lines[0]}")


def told(error: LaunchError, *, message: str = "", hint: str = "") -> LaunchError:
    """The same error with another message or hint."""
    message, hint = message or error.message, (hint or error.hint).lstrip("; ")
    if isinstance(error, StartFailed):
        return StartFailed(message, code=error.code, evidence=error.evidence, hint=hint)
    return LaunchError(message, hint=hint)


async def clear_all(session: Session, host: Host, attempt: Attempt) -> None:
    """Clear away as a part of something that was agreed to; what cannot be cleared is logged."""
    try:
        left = await look(host, attempt)
        if left is not None:
            await _execute(session, left, consented=True)
        elif attempt.info is not None and attempt.info.job is None:
            await stop.forget(host, attempt.info)
    except TokpitError as problem:
        log.info("what the failed start left is not cleared away: %s", problem)
