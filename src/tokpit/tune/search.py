"""The search: one candidate after the other, each the one that is worth the next restart.

Two voices take turns: the steps fitted to all that was measured name the candidate with the highest expected value, and
Optuna's TPE (where it is used) names one from what the values alone say, which the fit cannot know. What rules, memory,
a ceiling or a stand-in rule out costs no restart.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokpit.domain.tuning import Choice, LeftOut, Trial
from tokpit.tune.choosing import capability, standings, ties
from tokpit.tune.knowledge import Key, Knowledge
from tokpit.tune.score import Score, score
from tokpit.tune.space import key_of
from tokpit.tune.suggest import Suggest

_CURIOUS = 1.05
"""What a number of drafts that was never measured is given in advance."""


class Search:
    """See the module docstring. `refused`: candidates that the engine's rules refuse, with the sentence."""

    def __init__(
        self,
        knowledge: Knowledge,
        *,
        noise: float,
        patience: int,
        refused: Iterable[LeftOut] = (),
        suggest: Suggest | None = None,
    ) -> None:
        self.knowledge = knowledge
        self.trials: list[Trial] = []
        self.why = ""
        """Why the search is over."""
        self._noise, self._patience, self._suggest = noise, patience, suggest
        self._out: dict[Key, LeftOut] = {key_of(item.choice): item for item in refused}
        self._alive: dict[Key, Choice] = {}
        for choice in knowledge.space.candidates():
            if key_of(choice) not in self._out:
                self._alive[key_of(choice)] = choice
        self._same = knowledge.stand_ins(self._alive.values())
        for key, (stand_in, why) in self._same.items():
            self._out[key] = LeftOut(self._alive.pop(key), "same", why)
            del stand_in
        self._turn = 0
        self._since_better = 0

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Candidates that were not started, with the reason."""
        return tuple(self._out.values())

    @property
    def waiting(self) -> int:
        """Candidates that may still be started."""
        return len(self._alive)

    def best(self) -> Score | None:
        """The best value so far."""
        found = standings(self.trials, self.knowledge)
        return found[0].score if found else None

    def next(self) -> Choice | None:
        """The candidate to start next; None once none is worth it, and `why` says so."""
        self._prune()
        if not self._alive:
            self.why = "every candidate was measured or left out"
            return None
        if self._since_better >= self._patience:
            self.why = f"the last {self._since_better} starts brought nothing better"
            return None
        self._turn += 1
        choice = None
        if self._suggest is not None and self._turn % 2 == 0:
            choice = self._suggest.ask(lambda c: key_of(c) in self._alive, self._bound)
        if choice is None:
            choice = max(self._alive.values(), key=self._promise)
        return choice

    def tell(self, trial: Trial) -> None:
        """Take the result of a start in, whichever way it ended."""
        before = self.best()
        self.trials.append(trial)
        self.knowledge.learn(trial)
        key = key_of(trial.choice)
        self._alive.pop(key, None)
        self._out.pop(key, None)
        if trial.status == "failed":
            self._reopen(trial)
        value = score(trial.points, self.knowledge.objective, self.knowledge.error_rate, self.knowledge.first).value
        if self._suggest is not None:
            known = [t.value for t in self.trials if t.value is not None]
            self._suggest.tell(trial.choice, value if value is not None else 0.5 * min(known, default=0.0))
        now = self.best()
        better = now is not None and (before is None or (not ties(now, before, self._noise) and now.high > before.high))
        if trial.role == "search":
            self._since_better = 0 if better else self._since_better + 1

    def close(self, why: str) -> None:
        """End by a limit: what waits is left out for it."""
        self.why = why
        for key, choice in self._alive.items():
            self._out[key] = LeftOut(choice, "limit", f"not reached: {why}")
        self._alive.clear()

    def _prune(self) -> None:
        best = self.best()
        for key, choice in list(self._alive.items()):
            out = self.knowledge.hopeless(choice, best)
            if out is not None:
                self._out[key] = out
                del self._alive[key]

    def _reopen(self, failed: Trial) -> None:
        """What the failed candidate stood for has to stand for itself."""
        key = key_of(failed.choice)
        freed = [k for k, (stand_in, _) in self._same.items() if key_of(stand_in) == key]
        for one in freed:
            out = self._out.pop(one, None)
            if out is not None:
                self._alive[one] = out.choice
            del self._same[one]
        again = self.knowledge.stand_ins(self._alive[k] for k in freed if k in self._alive)
        for one, (stand_in, why) in again.items():
            self._same[one] = (stand_in, why)
            self._out[one] = LeftOut(self._alive.pop(one), "same", why)

    def _bound(self, choice: Choice) -> float | None:
        expected = self.knowledge.expected(choice)
        found = self.knowledge.ceiling(choice)
        known = [value for value in (expected, found[0] if found else None) if value is not None]
        return min(known) if known else None

    def _promise(self, choice: Choice) -> tuple[float, tuple[float, ...]]:
        expected = self.knowledge.expected(choice)
        more = _CURIOUS if self.knowledge.new_drafts(choice) else 1.0
        capable = capability(self.knowledge.settings(choice), self.knowledge.cap(choice).value)
        return (expected * more if expected is not None else 0.0), capable
