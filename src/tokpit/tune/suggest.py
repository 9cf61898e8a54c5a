"""Suggestions from Optuna (ask and tell), an optional package: `pip install 'tokpit[tune]'`."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, Protocol

from tokpit.domain.tuning import Choice
from tokpit.errors import UsageError
from tokpit.tune.space import Space, key_of

INSTALL = "pip install 'tokpit[tune]'"
_TRIES = 40


class Suggest(Protocol):
    """Names candidates worth a start, and learns from what they gave."""

    def ask(self, alive: Callable[[Choice], bool], bound: Callable[[Choice], float | None]) -> Choice | None:
        """A candidate for which `alive` holds. `bound`: what is known of one for which it does not."""
        ...

    def tell(self, choice: Choice, value: float) -> None:
        """The value of a candidate."""
        ...


def installed() -> bool:
    """Whether Optuna can be imported."""
    return importlib.util.find_spec("optuna") is not None


def optuna(space: Space, seed: int) -> Suggest:
    """Optuna's TPE sampler over the space. Raises UsageError with the command that installs it."""
    if not installed():
        raise UsageError(
            "this search needs Optuna, which is not installed beside tokpit",
            hint=f"install it with: {INSTALL}, or search with --method grid",
        )
    return _Optuna(space, seed)


class _Optuna:
    """Values by their place in the order given, so that neighbours are known as such."""

    def __init__(self, space: Space, seed: int) -> None:
        import optuna as package

        package.logging.set_verbosity(package.logging.WARNING)
        self._package: Any = package
        self._axes = space.starting
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "multivariate" is marked experimental
            sampler = package.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=3)
        self._study = package.create_study(direction="maximize", sampler=sampler)
        self._distributions: dict[str, Any] = {
            axis.name: package.distributions.IntDistribution(0, len(axis.values) - 1)
            if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in axis.values)
            else package.distributions.CategoricalDistribution(tuple(range(len(axis.values))))
            for axis in self._axes
        }

    def ask(self, alive: Callable[[Choice], bool], bound: Callable[[Choice], float | None]) -> Choice | None:
        """See Suggest. What is not alive is told its bound and costs no start."""
        told: set[object] = set()
        for _ in range(_TRIES):
            trial = self._study.ask(self._distributions)
            choice = {axis.name: axis.values[trial.params[axis.name]] for axis in self._axes}
            if alive(choice):
                # The value comes by `tell`, maybe in another process after a crash: this one is only a name.
                self._study.tell(trial, state=self._package.trial.TrialState.FAIL)
                return choice
            known = bound(choice)
            if known is None or key_of(choice) in told:
                self._study.tell(trial, state=self._package.trial.TrialState.FAIL)
            else:
                self._study.tell(trial, known)
                told.add(key_of(choice))
        return None

    def tell(self, choice: Choice, value: float) -> None:
        """See Suggest."""
        params = {
            axis.name: axis.values.index(choice[axis.name]) for axis in self._axes if choice[axis.name] in axis.values
        }
        if len(params) < len(self._axes):
            return  # the first server may have a value that is not varied
        self._study.add_trial(
            self._package.trial.create_trial(params=params, distributions=self._distributions, value=value)
        )
