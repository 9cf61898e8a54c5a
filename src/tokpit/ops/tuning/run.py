"""One experiment under way: measure, restart, measure; judge; and put the first server back, however it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tokpit.domain.run import Level
from tokpit.domain.server import ServerInfo
from tokpit.domain.tuning import Choice, CurvePoint, Trial, Tuning
from tokpit.errors import HostError, LaunchError, LoadError, StartFailed, TargetError, TokpitError, UsageError
from tokpit.ops.sweep.underway import Rate
from tokpit.ops.tuning.board import Board
from tokpit.ops.tuning.place import Place
from tokpit.ops.tuning.plan import Ready, spec_for
from tokpit.store.journal import Journal
from tokpit.tune import choosing, estimate
from tokpit.tune.score import cannot_win, curve, point_of, pooled, score, underway_point
from tokpit.tune.search import Search
from tokpit.tune.space import words_of

if TYPE_CHECKING:
    from tokpit.ops.session import Session

log = logging.getLogger(__name__)
T = TypeVar("T")


class Stopped(Exception):
    """Somebody asked the experiment to end."""


class Tuner:
    """See the module docstring. `trials`: what a resumed experiment has measured already."""

    def __init__(
        self,
        session: Session,
        ready: Ready,
        search: Search,
        journal: Journal,
        stop: asyncio.Event,
        *,
        trials: Sequence[Trial] = (),
        operation_id: str | None = None,
    ) -> None:
        self._session, self._ready, self._search, self._journal, self._stop = session, ready, search, journal, stop
        self._place = Place(session, ready.first, journal, timeout_s=ready.experiment.timeout_s)
        self._board = Board(session, ready, search, journal.id, operation_id)
        for trial in trials:
            self._search.tell(trial)

    # --- the whole

    async def run(self) -> Tuning:
        """Run it to its end; a stop is an outcome. Raises what ended it, once the first server was put back."""
        ended, error = "done", None
        try:
            await self._measure_first()
            await self._seek()
            await self._confirm()
        except Stopped:
            ended = "stopped"
        except (TokpitError, asyncio.CancelledError) as caught:
            ended, error = "stopped" if isinstance(caught, asyncio.CancelledError) else "failed", caught
        except BaseException as caught:
            await self._end("failed", caught)
            raise
        return await self._end(ended, error)

    async def _end(self, ended: str, error: BaseException | None) -> Tuning:
        """Leave the right server running, write down how it ended, and raise `error` if there is one."""
        winner = self._winner()
        kept = ""
        try:
            if ended == "done" and self._ready.experiment.keep and winner is not None and not winner.first:
                self._board.phase("restoring", f"the winner is kept: {words_of(winner.choice)}")
                self._journal.add("phase", words=f"while the winner was started to stay: {words_of(winner.choice)}")
                self._board.runs(await self._place.put(await self._plan(winner.choice)))
                kept = words_of(winner.choice)
            elif self._restarts or await self._gone():
                self._board.phase("restoring", "the first server is put back")
                self._journal.add("phase", words="while the first server was put back")
                self._board.runs(await self._place.put_first_back())
        except TokpitError as second:
            text = f"the first server was not put back: {second.message}"
            self._journal.add("note", text=text)
            self._board.close("failed", self._search.why, winner, (text,))
            hint = f"put it back with: tokpit tune --restore {self._journal.id}"
            first = f"{error.message}; " if isinstance(error, TokpitError) else ""
            raise LaunchError(f"{first}{text}", hint=hint) from second
        self._journal.add("restored", kept=kept)
        why = error.message if isinstance(error, TokpitError) else self._search.why
        if ended == "stopped":
            self._search.close("it was stopped")
        tuning = self._board.close(ended, why, winner, (f"kept: {kept}",) if kept else ())
        self._journal.add("end", status=ended, tuning=msgspec.structs.replace(tuning, page=""), told=self._board.told)
        self._journal.forget_first()
        if isinstance(error, asyncio.CancelledError):
            raise error
        if isinstance(error, TokpitError):
            error.hint = "; ".join(filter(None, (error.hint, "the first server runs again")))
            raise error
        return tuning

    async def _gone(self) -> bool:
        """Whether something else, or nothing, runs where the first server ran (a resumed experiment)."""
        try:
            standing = await self._place.standing()
        except HostError:
            return True
        return standing is None or standing.argv != self._ready.first.argv

    # --- phases

    async def _measure_first(self) -> None:
        if any(trial.role == "first" for trial in self._search.trials):
            return
        self._board.phase("first", "the server as it runs is measured")
        server = await self._while(self._place.put_first_back())
        trial = await self._measured(Trial(number=0, choice=self._ready.choice, role="first"), server)
        if trial.value is None:
            raise LoadError(
                f"{self._ready.info.label}: the server as it runs gives no value: {trial.reason}",
                hint="nothing was restarted",
            )
        self._told(trial)

    async def _seek(self) -> None:
        self._board.phase("search")
        while not self._limit_reached():
            choice = self._search.next()
            if choice is None:
                break
            await self._one(choice, "search")

    async def _confirm(self) -> None:
        """The finalists and the first server once more, in turns, so that a drift shows; the first server is last."""
        if not self._restarts:
            return
        found = choosing.standings(self._search.trials, self._search.knowledge)
        finalists = [s for s in found if not s.first][: self._ready.experiment.search.finalists]
        ahead = self._winner()
        if ahead is not None and not ahead.first and ahead not in finalists:
            finalists = [ahead, *finalists[:-1]]
        ahead_of_first = ahead is not None and not ahead.first
        for turn in range(self._ready.experiment.search.repeats):
            for one in finalists if ahead_of_first else ():
                if self._count("confirm", one.choice) <= turn:
                    self._board.phase("confirm", f"finalist again: {words_of(one.choice)}")
                    await self._one(one.choice, "confirm")
            if self._count("last", self._ready.choice) <= turn:
                self._board.phase("last", "the first server again")
                began = self._place.host.now()
                self._journal.add("phase", words="while the first server was put back, to be measured again")
                server = await self._while(self._place.put_first_back())
                trial = Trial(
                    number=self._number(),
                    choice=self._ready.choice,
                    role="last",
                    restart_s=self._place.host.now() - began,
                )
                self._told(await self._measured(trial, server))

    # --- one candidate

    async def _one(self, choice: Choice, role: str) -> None:
        """Start and measure a candidate; whatever comes of it is told."""
        trial = Trial(number=self._number(), choice=choice, role=role, status="starting")
        self._board.trial(trial)
        self._journal.add("phase", words=f"while #{trial.number} was started: {words_of(choice)}")
        began = self._place.host.now()
        try:
            plan = await self._while(self._plan(choice))
            server = await self._while(self._place.put(plan))
        except (TargetError, HostError):
            raise
        except StartFailed as error:
            self._told(msgspec.structs.replace(trial, status="failed", code=error.code, reason=error.message))
            return
        except (LaunchError, UsageError) as error:
            self._told(msgspec.structs.replace(trial, status="failed", code="NOT_STARTED", reason=error.message))
            return
        trial = msgspec.structs.replace(trial, restart_s=self._place.host.now() - began)
        self._told(await self._measured(trial, server))

    async def _measured(self, trial: Trial, server: ServerInfo) -> Trial:
        """`trial` with its curve: one sweep for each combination of what is varied without a restart."""
        trial = msgspec.structs.replace(trial, status="measuring")
        self._board.trial(trial, server)
        self._journal.add("phase", words=f"while {_name(trial)} was measured")
        began = self._place.host.now()
        best: Trial | None = None
        reasons: list[str] = []
        for live in self._ready.experiment.space().live():
            try:
                one = await self._swept(trial, server, live)
            except LoadError as error:
                reasons.append(error.message)
                continue
            best = one if best is None or (one.value or 0.0) > (best.value or 0.0) else best
        took = self._place.host.now() - began
        if best is None:
            why = "; ".join(reasons)
            return msgspec.structs.replace(trial, status="failed", code="NOT_MEASURED", reason=why, measure_s=took)
        return msgspec.structs.replace(best, measure_s=took)

    async def _swept(self, trial: Trial, server: ServerInfo, live: Choice) -> Trial:
        search, objective = self._search, self._ready.experiment.objective
        best = search.best() if trial.role == "search" else None
        error_rate, first = search.knowledge.error_rate, search.knowledge.first
        cap = search.knowledge.cap(trial.choice).value if trial.role != "first" else None
        cut: list[str] = []
        kept: tuple[CurvePoint, ...] = ()
        underway: CurvePoint | None = None

        def judged(now: CurvePoint | None = None) -> str:
            self._board.trial(msgspec.structs.replace(trial, points=curve(kept, now)), server)
            measured = {point.concurrency for point in curve(kept, now)}
            left = [level for level in self._ready.levels if level not in measured]
            why = cannot_win(kept, left, cap, objective, error_rate, best, first, now) if best is not None else ""
            cut.extend([why] if why else [])
            return why

        def enough(levels: Sequence[Level]) -> str:
            nonlocal kept, underway
            kept, underway = pooled(point_of(level) for level in levels if not level.result.get("partial")), None
            return judged()

        def hopeless(rate: Rate) -> str:
            nonlocal underway
            underway = underway_point(rate.concurrency, rate.tps, rate.half)
            return judged(underway)

        args = {**self._ready.experiment.sweep_args(), **live}
        # A sweep ends by itself when asked.
        run = await self._place.sweep(server, args, self._stop, enough=enough, hopeless=hopeless)
        if self._stop.is_set():
            raise Stopped
        points = curve(kept, underway) if cut else pooled(map(point_of, run.levels))
        value = score(points, objective, error_rate, first)
        return msgspec.structs.replace(
            trial,
            status="cut" if cut else "measured",
            reason=cut[0] if cut else value.reason,
            points=points,
            value=value.value,
            half=value.half if value.value is not None else None,
            runs=(run.id,),
            live=live,
        )

    # --- inside

    def _told(self, trial: Trial) -> None:
        """A result: on the disk first, then to the search."""
        self._journal.add("trial", trial=trial)
        self._search.tell(trial)
        self._board.trial(trial)

    async def _plan(self, choice: Choice) -> Any:
        settings = self._search.knowledge.settings(choice)
        return await self._place.plan(spec_for(self._ready, settings))

    def _winner(self) -> choosing.Standing | None:
        found = choosing.standings(self._search.trials, self._search.knowledge)
        return choosing.ahead(found, self._search.knowledge, self._ready.experiment.search.noise)

    @property
    def _restarts(self) -> int:
        return sum(trial.role != "first" for trial in self._search.trials) + self._board.starting

    def _number(self) -> int:
        return max((trial.number for trial in self._search.trials), default=-1) + 1

    def _count(self, role: str, choice: Choice) -> int:
        return sum(t.role == role and t.choice == choice for t in self._search.trials)

    def _limit_reached(self) -> bool:
        """Whether the next candidate would go beyond a limit, with the way back counted in."""
        limits = self._ready.experiment.limits
        back = self._back()
        if limits.restarts is not None and self._restarts + 1 + back > limits.restarts:
            self._search.close(f"the limit of {limits.restarts} restarts, {back} of them for the end")
            return True
        if limits.minutes is not None:
            times = estimate.measured(self._ready.times, self._search.trials)
            if self._board.elapsed_s + times.each_s * (1 + back) > limits.minutes * 60:
                self._search.close(f"the limit of {limits.minutes:g} minutes, the way back included")
                return True
        return False

    def _back(self) -> int:
        search = self._ready.experiment.search
        return max(1, search.repeats * (search.finalists + 1)) + int(self._ready.experiment.keep)

    async def _while(self, work: Awaitable[T]) -> T:
        """Await `work` unless somebody asks to stop: then it is cancelled, awaited, and Stopped is raised."""
        task = asyncio.ensure_future(work)
        asked = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                raise Stopped
            return await task
        finally:
            asked.cancel()
            if not task.done():
                task.cancel()
            await asyncio.gather(task, asked, return_exceptions=True)


def _name(trial: Trial) -> str:
    names = {"first": "the first server", "last": "the first server again"}
    return names.get(trial.role, f"#{trial.number} ({words_of(trial.choice)})")
