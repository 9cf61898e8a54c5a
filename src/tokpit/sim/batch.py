"""The lock-step batch, in simulated time and without I/O: FIFO queue, running cap, prefill first, one step for all.

`advance(now)` carries out every prefill and decode step that ends by `now`; the end of each is computed from the end of
the one before, never from when the caller woke up, so the figures do not depend on how precise the timers are.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tokpit.sim import story
from tokpit.sim.plan import Plan


@dataclass(slots=True, eq=False)
class Request:
    """One request. Times are simulated UTC seconds; `done` counts output tokens, the one of the prefill included."""

    rid: str
    prompt_tokens: int
    max_new: int
    arrival: float
    cached_tokens: int = 0
    background: bool = False
    phase: float = 0.0
    """0..1, where this request stands in the rounding of the acceptance length, so that not all step alike."""
    done: int = 0
    steps: int = 0
    started: float | None = None
    first_token: float | None = None
    finished: float | None = None
    aborted: bool = False


@dataclass(slots=True)
class _Op:
    end: float
    started: float
    new: list[Request]


@dataclass(slots=True)
class Tick:
    """What one decode log line says; `tps` is tokens since the last line over the time since it."""

    t: float
    running: int
    queued: int
    tokens: int
    accept_len: float
    tps: float


@dataclass(slots=True)
class PrefillTick:
    """What one prefill log line says."""

    t: float
    new_seqs: int
    new_tokens: int
    cached_tokens: int
    tokens: int
    running: int
    queued: int
    tps: float


class Batch:
    """See the module docstring. Listeners are called during `advance`, in simulated order."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.on_decode: Callable[[Tick], None] = lambda _: None
        self.on_prefill: Callable[[PrefillTick], None] = lambda _: None
        self.on_finish: Callable[[Request], None] = lambda _: None
        self.on_tokens: Callable[[Request, int, float], None] = lambda _request, _new, _seconds: None
        self.output_tokens = 0
        self.verify_steps = 0
        self.busy_s = 0.0
        self._op: _Op | None = None
        self._t = 0.0
        self._decode_steps = 0
        self._log_t = 0.0
        self._log_tokens = 0
        self._log_steps = 0

    @property
    def idle(self) -> bool:
        """Nothing runs and nothing waits."""
        return self._op is None

    @property
    def step_end(self) -> float | None:
        """When the step under way ends; None if nothing runs."""
        return None if self._op is None else self._op.end

    def kv_tokens(self) -> int:
        """KV slots held by running requests."""
        return sum(r.prompt_tokens + r.done for r in self.running)

    def submit(self, request: Request, now: float) -> None:
        """Queue a request that arrives at `now`."""
        self.advance(now)
        self.waiting.append(request)
        if self._op is None:
            self._t = now
            self._next_op()

    def abort(self, request: Request, now: float) -> None:
        """Drop a request; its place is free from the next step on."""
        self.advance(now)
        request.aborted = True
        if request in self.running:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def advance(self, now: float) -> None:
        """Carry out everything that ends by `now`."""
        while self._op is not None and self._op.end <= now:
            op, self._t = self._op, self._op.end
            self.busy_s += op.end - op.started
            if op.new:
                self._prefilled(op)
            else:
                self._stepped(op.end - op.started)
            self._next_op()

    def next_delivery(self) -> float | None:
        """When the next first token or finish is due, provided nothing else arrives; None if nothing runs."""
        if self._op is None:
            return None
        if self._op.new or not self.running:
            return self._op.end
        left = min(self._steps_left(r) for r in self.running)
        return self._op.end + (left - 1) * self.plan.step_s(len(self.running))

    def _steps_left(self, request: Request) -> int:
        # Tokens after n steps: 1 + floor(n x acceptance + phase); the smallest n that reaches max_new.
        need = request.max_new - 1
        return max(1, math.ceil((need - request.phase) / self.plan.accept_len - 1e-9) - request.steps)

    def _next_op(self) -> None:
        new: list[Request] = []
        held = sum(r.prompt_tokens + r.max_new for r in self.running)
        while self.waiting and len(self.running) + len(new) < self.plan.cap:
            first = self.waiting[0]
            held += first.prompt_tokens + first.max_new
            if held > self.plan.kv_tokens and (self.running or new):
                break
            new.append(self.waiting.popleft())
        if new:
            computed = sum(r.prompt_tokens - r.cached_tokens for r in new)
            took = story.PREFILL_BASE_S + computed / story.PREFILL_TPS
            for request in new:
                request.started = self._t
            self.on_prefill(
                PrefillTick(
                    self._t, len(new), computed, sum(r.cached_tokens for r in new), self.kv_tokens(),
                    len(self.running), len(self.waiting), computed / took,
                )
            )  # fmt: skip
            self._op = _Op(self._t + took, self._t, new)
        elif self.running:
            self._op = _Op(self._t + self.plan.step_s(len(self.running)), self._t, [])
        else:
            self._op = None

    def _prefilled(self, op: _Op) -> None:
        for request in op.new:
            if request.aborted:
                continue
            request.first_token = self._t
            request.done = 1
            self.output_tokens += 1
            self.running.append(request)
        self._finish_done()

    def _stepped(self, took: float) -> None:
        accept = self.plan.accept_len
        for request in self.running:
            request.steps += 1
            done = min(request.max_new, 1 + math.floor(request.steps * accept + request.phase + 1e-9))
            new = done - request.done
            self.output_tokens += new
            self._log_tokens += new
            request.done = done
            self.on_tokens(request, new, took)
        self.verify_steps += len(self.running)
        self._log_steps += len(self.running)
        self._decode_steps += 1
        if self._decode_steps % self.plan.decode_log_interval == 0:
            self._log_decode()
        self._finish_done()

    def _log_decode(self) -> None:
        steps = max(1, self._log_steps)
        gap = max(1e-6, self._t - self._log_t)
        self.on_decode(
            Tick(
                self._t, len(self.running), len(self.waiting), self.kv_tokens(), self._log_tokens / steps,
                self._log_tokens / gap,
            )
        )  # fmt: skip
        self._log_t, self._log_tokens, self._log_steps = self._t, 0, 0

    def _finish_done(self) -> None:
        over = [r for r in self.running if r.done >= r.max_new]
        if not over:
            return
        self.running = [r for r in self.running if r.done < r.max_new]
        for request in over:
            request.finished = self._t
            self.on_finish(request)
