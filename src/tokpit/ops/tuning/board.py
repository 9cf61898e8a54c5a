"""How an experiment stands, published for every front end; and the operation that its steps are shown under."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.domain.text import mask_secrets
from tokpit.domain.tuning import Trial, Tuning
from tokpit.engines.registry import engine as engine_of
from tokpit.insight.words import within
from tokpit.ops.difference import differences
from tokpit.ops.progress import Progress
from tokpit.ops.tuning.plan import Ready
from tokpit.report.html import html
from tokpit.report.markdown import markdown
from tokpit.transport.base import quote
from tokpit.tune import choosing, estimate
from tokpit.tune.choosing import Standing
from tokpit.tune.document import Told, document
from tokpit.tune.effects import effects
from tokpit.tune.experiment import OBJECTIVES
from tokpit.tune.search import Search
from tokpit.tune.space import value_of, words_of

if TYPE_CHECKING:
    from tokpit.ops.session import Session


class Board:
    """See the module docstring."""

    def __init__(
        self, session: Session, ready: Ready, search: Search, tuning_id: str, operation_id: str | None
    ) -> None:
        self._session, self._ready, self._search = session, ready, search
        host = session.host(ready.first.spec.host)
        self._now = host.now
        experiment = ready.experiment
        self._progress = Progress(
            session.store,
            kind="tune",
            target=ready.info.id,
            title=f"experiment {tuning_id} on {ready.info.label}: {experiment.title}",
            now=host.now,
            operation_id=operation_id,
        )
        space = experiment.space()
        self._live: Trial | None = None
        self.told: Told | None = None
        """What the report is made of, once it is over."""
        self.tuning = Tuning(
            id=tuning_id,
            server=ready.info.id,
            target=ready.info.label,
            title=experiment.title,
            axes={axis.name: axis.values for axis in space.axes},
            size=space.size,
            objective=experiment.objective.kind,
            unit=OBJECTIVES[experiment.objective.kind],
            restarts_limit=experiment.limits.restarts,
            started_t=host.now(),
            notes=ready.notes,
        )
        self._publish()

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began (or was resumed), on the host's clock."""
        return self._progress.elapsed_s

    @property
    def starting(self) -> int:
        """1 while a start is under way that is no result yet."""
        return int(self._live is not None and self._live.role != "first")

    def phase(self, phase: str, words: str = "") -> None:
        """A new phase."""
        self.tuning = msgspec.structs.replace(self.tuning, phase=phase)
        if words:
            self._progress.step(f"{phase}-{len(self._progress.operation.steps)}", words)
        self._publish()

    def trial(self, trial: Trial, server: ServerInfo | None = None) -> None:
        """A candidate under way, or its result."""
        running = trial.status in {"starting", "measuring", "running"}
        if server is not None and server.id != self.tuning.server:
            self.tuning = msgspec.structs.replace(self.tuning, server=server.id)
        if running and (self._live is None or self._live.number != trial.number):
            words = words_of(trial.choice)
            self._progress.step(f"start-{trial.number}-{trial.role}", f"#{trial.number} {words}")
        self._live = trial if running else None
        if not running:
            self._progress.step(
                f"end-{trial.number}", f"#{trial.number} {outcome(trial, self.tuning.unit)}", trial.reason
            )
        self._publish()

    def runs(self, server: ServerInfo) -> None:
        """The server that runs now."""
        self.tuning = msgspec.structs.replace(self.tuning, server=server.id)

    def close(self, status: str, why: str, winner: Standing | None, notes: tuple[str, ...]) -> Tuning:
        """The end, with its report."""
        self._live = None
        self.tuning = msgspec.structs.replace(
            self.tuning,
            phase=status,
            notes=(*self.tuning.notes, *((f"the search ended: {why}",) if why else ()), *notes),
        )
        self._publish(winner)
        tuning = msgspec.structs.replace(self.tuning, left_s=None)
        self.told = self._told(winner)
        text, page = markdown(document(tuning, self.told, charts=False)), html(document(tuning, self.told))
        self.tuning = msgspec.structs.replace(tuning, report=text, page=page)
        self._session.store.tune(self.tuning)
        if status == "failed":
            self._progress.failed(RuntimeError(why or "; ".join(notes)))
        elif status == "stopped":
            self._progress.stopped("stopped by request; what was measured is kept")
        else:
            self._progress.done(experiment=self.tuning.id)
        return self.tuning

    def _told(self, winner: Standing | None) -> Told:
        first, experiment, search = self._ready.first, self._ready.experiment, self._search
        line = ""
        changes: tuple[str, ...] = ()
        if winner is not None and not winner.first:
            settings = search.knowledge.settings(winner.choice)
            line, changes = command_line(first.spec, settings), changes_of(first.spec.settings, settings)
        found = choosing.standings(search.trials, search.knowledge)
        sweep = experiment.sweep_args()
        return Told(
            workload=", ".join(f"{name} {value}" for name, value in sweep.items()),
            first_line=mask_secrets(quote(first.argv)),
            winner=winner,
            winner_line=line,
            changes=changes,
            found=tuple(found),
            effects=effects(found),
            noise=experiment.search.noise,
        )

    def _publish(self, winner: Standing | None = None) -> None:
        search = self._search
        found = choosing.standings(search.trials, search.knowledge)
        ahead = winner or choosing.ahead(found, search.knowledge, self._ready.experiment.search.noise)
        trials = (*search.trials, *((self._live,) if self._live is not None else ()))
        restarts = sum(t.role != "first" for t in trials)
        self.tuning = msgspec.structs.replace(
            self.tuning,
            t=self._now(),
            trials=trials,
            waiting=search.waiting,
            left_out=search.left_out,
            restarts=restarts,
            left_s=self._left_s(restarts),
            front=choosing.front(found),
            winner=ahead.trials[0] if ahead is not None and not ahead.first else None,
        )
        self._session.store.tune(self.tuning)

    def _left_s(self, restarts: int) -> float:
        """What is left at most: what may still be started and the end, within the limits."""
        experiment = self._ready.experiment
        times = estimate.measured(self._ready.times, self._search.trials)
        end = max(1, experiment.search.repeats * (experiment.search.finalists + 1)) + int(experiment.keep)
        to_go = self._search.waiting + end
        if experiment.limits.restarts is not None:
            to_go = min(to_go, max(0, experiment.limits.restarts - restarts))
        left = to_go * times.each_s
        if experiment.limits.minutes is not None:
            left = min(left, max(0.0, experiment.limits.minutes * 60 - self.elapsed_s))
        return left


def command_line(spec: LaunchSpec, settings: Settings) -> str:
    """The command line of a candidate, secrets masked."""
    return mask_secrets(quote(engine_of(spec.engine).command(spec.program, settings, spec.version)))


def changes_of(before: Settings, after: Settings) -> tuple[str, ...]:
    """What a candidate changes, a line each, secrets masked."""
    return tuple(change.text for change in differences(before, after))


def outcome(trial: Trial, unit: str) -> str:
    """How a start ended, in a line."""
    if trial.status == "failed":
        return f"failed ({trial.code})"
    value = f"{within(trial.value, trial.half or 0.0)} {unit}" if trial.value is not None else "no value"
    live = f" with {', '.join(f'{k} {value_of(v)}' for k, v in trial.live.items())}" if trial.live else ""
    return f"{value}{live}" + (" (cut short)" if trial.status == "cut" else "")
