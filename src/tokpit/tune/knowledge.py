"""What is known of each candidate before it is started, and why some need not be started at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tokpit.domain.settings import Settings
from tokpit.domain.tuning import Choice, CurvePoint, LeftOut, Trial, Value
from tokpit.insight.roofline import Roofline
from tokpit.insight.words import within
from tokpit.tune.experiment import Objective
from tokpit.tune.score import Score, half_of, score
from tokpit.tune.space import Space, key_of, settings_of, words_of
from tokpit.tune.steps import Seen, Steps

CAPACITY = frozenset({"max_running", "state_slots", "context_len", "mem_fraction", "kv_tokens", "mamba_ratio"})
"""What changes how much runs at once, and not how long a step of so many takes."""
HOST_CACHE = frozenset({"hicache_gb", "kv_offload_gib", "hicache_ratio", "hicache"})
"""What holds past prompts in host memory: read only where prompts share a prefix."""
DEMAND = ("state_slots", "max_running", "spec_steps", "kv_tokens")
"""What takes more GPU memory the larger it is."""
_MODELLED = CAPACITY | HOST_CACHE | {"spec_steps", "tp"}
_FULL = 0.9
"""A gauge that is read once a second may miss the moment at which all ran."""
_HOST_CODES = ("HOST_MEM", "HICACHE", "HOST_OOM", "SHM")
_GPU_CODES = ("OOM", "NO_KV", "NO_STATE", "WEIGHTS_TOO")

Key = tuple[tuple[str, Value], ...]


class Cap(msgspec.Struct, frozen=True):
    """Most requests that a candidate runs at once; None: not known. `arithmetic`: how it was found."""

    value: int | None
    arithmetic: str = ""


class Knowledge:
    """Everything known of a space: caps given by whoever knows the engine, and what measured candidates teach."""

    def __init__(
        self,
        space: Space,
        base: Settings,
        *,
        levels: Sequence[int],
        objective: Objective,
        error_rate: float,
        cap_of: Callable[[Settings], Cap] = lambda settings: Cap(None),
        roofline: Roofline | None = None,
        shared_prefix: bool = True,
    ) -> None:
        self.space, self.base = space, base
        self.levels, self.objective, self.error_rate = tuple(levels), objective, error_rate
        self._cap_of, self._shared = cap_of, shared_prefix
        self._steps: dict[Key, Steps] = {}
        self._all = Steps(roofline)
        self._seen: list[tuple[Choice, Seen]] = []
        self._factors: dict[tuple[str, Value], float] | None = None
        self._roofline = roofline
        self._caps: dict[Key, Cap] = {}
        self._failed: list[Trial] = []
        self._limited: list[tuple[Choice, int]] = []
        self.first: tuple[CurvePoint, ...] = ()

    # --- what is known of one candidate

    def settings(self, choice: Mapping[str, Value]) -> Settings:
        """A candidate's whole settings."""
        return settings_of(self.base, choice)

    def cap(self, choice: Choice) -> Cap:
        """Most requests that it runs at once: by its flags, and by candidates that ask for no more memory."""
        key = key_of(choice)
        if key not in self._caps:
            self._caps[key] = self._cap_of(self.settings(choice))
        cap = self._caps[key]
        for other, most in self._limited:
            if (cap.value is None or most < cap.value) and self._asks_as_much(choice, other):
                cap = Cap(most, f"{words_of(other)} ran {most} at most, and asks for no more memory")
        return cap

    def drafts(self, choice: Choice) -> int:
        """Draft tokens a step."""
        return self.settings(choice).spec_steps or 0

    def ranks(self, choice: Choice) -> int:
        """GPUs that share a step."""
        return self.settings(choice).tp or 1

    def running(self, choice: Choice, concurrency: int) -> int:
        """Requests that run at a level."""
        cap = self.cap(choice).value
        return max(1, min(concurrency, cap) if cap is not None else concurrency)

    # --- learning

    def learn(self, trial: Trial) -> None:
        """Take the result of a start in."""
        if trial.status == "failed":
            if trial.code:
                self._failed.append(trial)
            return
        if trial.role == "first":
            self.first = trial.points
        predicted = self._caps.get(key_of(trial.choice)) or self._cap_of(self.settings(trial.choice))
        steps = self._steps_of(trial.choice)
        for point in trial.points:
            if point.void or point.tps <= 0:
                continue
            running = self.running(trial.choice, point.concurrency)
            seen = round(point.running) if point.running else None
            if seen and seen < _FULL * min(point.concurrency, predicted.value or point.concurrency):
                # Fewer ran than were there to run: memory, not the cap, held them back.
                self._limited.append((trial.choice, seen))
                running = min(running, seen)
            level = Seen(
                drafts=self.drafts(trial.choice),
                running=running,
                ranks=self.ranks(trial.choice),
                tps=point.tps,
                high=point.tps + half_of(point),
                accept_len=point.accept_len,
            )
            steps.add(level)
            self._all.add(level)
            self._seen.append((trial.choice, level))
            self._factors = None

    # --- judging

    def ceiling(self, choice: Choice) -> tuple[float, str] | None:
        """The most that a candidate's value can be, with the arithmetic; None where no bound is known."""
        if self.objective.kind == "goodput":
            return None
        return self._value(choice, self._steps_of(choice).rate_at_most)

    def expected(self, choice: Choice) -> float | None:
        """The value that it will probably have; None before anything was measured.

        By the steps of all candidates, times what each other setting's value was seen to do to them.
        """
        found = self._value(choice, self._all.rate)
        if found is None:
            return None
        factors = self._measured_factors()
        return found[0] * math.prod(factors.get((name, choice[name]), 1.0) for name in self._others(choice))

    def unseen(self, choice: Choice) -> int:
        """How many of its values that change a step were never measured."""
        known = {(name, c[name]) for c, _ in self._seen for name in self._others(c)}
        new = sum((name, choice[name]) not in known for name in self._others(choice))
        return new + (self.drafts(choice) not in self._all.measured)

    def hopeless(self, choice: Choice, best: Score | None) -> LeftOut | None:
        """Why it need not be started, or None."""
        for trial in self._failed:
            if self._fails_too(choice, trial):
                return LeftOut(
                    choice,
                    "memory",
                    f"asks for at least as much memory as {words_of(trial.choice)}, which did not fit ({trial.code})",
                )
        if best is None or best.value is None:
            return None
        found = self.ceiling(choice)
        if found is not None and found[0] < best.low:
            return LeftOut(choice, "ceiling", f"{found[1]}; the best has {within(best.value, best.half)}")
        return None

    def stand_ins(self, candidates: Iterable[Choice]) -> dict[Key, tuple[Choice, str]]:
        """Candidates that another one stands for, with that one and why."""
        found: dict[Key, tuple[Choice, str]] = {}
        groups: dict[Key, list[Choice]] = {}
        for choice in candidates:
            groups.setdefault(self._group(choice), []).append(choice)
        for group in groups.values():
            for choice in group:
                best = choice
                for other in group:
                    if other is not choice and self._stands_for(other, best):
                        best = other
                if best is not choice:
                    found[key_of(choice)] = (best, self._why_same(best, choice))
        return found

    # --- inside

    def _value(self, choice: Choice, rate: Callable[[int, int, int], float | None]) -> tuple[float, str] | None:
        drafts, ranks = self.drafts(choice), self.ranks(choice)
        points: list[CurvePoint] = []
        for level in self.levels:
            running = self.running(choice, level)
            tps = rate(drafts, running, ranks)
            if tps is None:
                return None
            points.append(CurvePoint(concurrency=level, tps=tps, half=0.0))
        top = max(points, key=lambda p: p.tps)
        plain = msgspec.structs.replace(self.objective, slo="")
        value = score(points, plain, 1.0, self.first).value
        if value is None:
            return None
        steps = self._steps_of(choice)
        running = self.running(choice, top.concurrency)
        words = (
            f"{running} running x {steps.length_at_most(drafts):.2f} tokens a step / "
            f"{steps.step_at_least(drafts, running, ranks) * 1e3:.1f} ms = {top.tps:.0f} tok/s at most"
        )
        cap = self.cap(choice)
        if cap.value is not None and cap.value < top.concurrency and cap.arithmetic:
            words += f" ({cap.arithmetic})"
        return value, words

    def _others(self, choice: Choice) -> list[str]:
        """Settings whose effect on a step no model here knows."""
        return [name for name in choice if name not in _MODELLED]

    def _measured_factors(self) -> dict[tuple[str, Value], float]:
        """What each value of those settings does to the rate: mean of measured / fitted, drawn towards 1."""
        if self._factors is None:
            gaps: dict[tuple[str, Value], list[float]] = {}
            for choice, seen in self._seen:
                fitted = self._all.rate(seen.drafts, seen.running, seen.ranks)
                if not fitted:
                    continue
                for name in self._others(choice):
                    gaps.setdefault((name, choice[name]), []).append(math.log(seen.tps / fitted))
            self._factors = {key: math.exp(math.fsum(found) / (len(found) + 1)) for key, found in gaps.items()}
        return self._factors

    def _steps_of(self, choice: Choice) -> Steps:
        """Steps of the candidates that differ from this one only in what does not change a step of so many."""
        key = tuple((name, value) for name, value in key_of(choice) if name not in _MODELLED)
        if key not in self._steps:
            self._steps[key] = Steps(self._roofline)
        return self._steps[key]

    def _group(self, choice: Choice) -> Key:
        alike = {"max_running", "state_slots"} if self.cap(choice).value is not None else set()
        if not self._shared:
            alike |= HOST_CACHE
        rest = tuple((name, value) for name, value in key_of(choice) if name not in alike)
        return (*rest, ("cap", self.cap(choice).value))

    def _stands_for(self, one: Choice, other: Choice) -> bool:
        """Whether `one` has the same effect as `other`, takes no more GPU memory and holds no less in host memory."""
        better = False
        for name, value in one.items():
            theirs = other[name]
            if value == theirs:
                continue
            if name in HOST_CACHE:
                if _number(value) < _number(theirs):
                    return False
            elif value is None or theirs is None or _number(value) > _number(theirs):
                return False
            better = True
        return better

    def _why_same(self, stand_in: Choice, choice: Choice) -> str:
        differs = [name for name in choice if choice[name] != stand_in[name]]
        host = [name for name in differs if name in HOST_CACHE]
        words = []
        if host:
            words.append("prompts of this workload share nothing, so a host cache is not read")
        if len(host) < len(differs):
            cap = self.cap(choice)
            words.append(
                f"{cap.value} {'request runs' if cap.value == 1 else 'requests run'} at once with either"
                + (f" ({cap.arithmetic})" if cap.arithmetic else "")
            )
        return f"{words_of(stand_in)} stands for it: {'; '.join(words)}"

    def _fails_too(self, choice: Choice, trial: Trial) -> bool:
        if trial.code.startswith(_HOST_CODES):
            host = [name for name in choice if name in HOST_CACHE]
            return (
                bool(host)
                and all(_number(choice[n]) >= _number(trial.choice[n]) for n in host)
                and all(choice[n] == trial.choice[n] for n in choice if n == "tp")
            )
        return trial.code.startswith(_GPU_CODES) and self._asks_as_much(choice, trial.choice)

    def _asks_as_much(self, choice: Choice, other: Mapping[str, Value]) -> bool:
        """Whether `choice` asks for at least the GPU memory of `other` and differs in nothing else that matters."""
        for name, value in choice.items():
            theirs = other.get(name)
            if value == theirs or name in HOST_CACHE:
                continue
            if name not in DEMAND or value is None or theirs is None or _number(value) < _number(theirs):
                return False
        return True


def _number(value: Value) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
