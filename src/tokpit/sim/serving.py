"""The running server without HTTP: the batch driven by the clock, counters, prefix cache, delivery to readers.

Between two wake-ups the batch carries out all steps that are due and readers get their new tokens in one piece, so at a
clock factor above 1 a chunk may carry several steps; first tokens and finishes are always delivered at their own time.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from tokpit.sim.batch import Batch, Request, Tick
from tokpit.sim.clock import SimClock
from tokpit.sim.journal import Journal, mamba_slots, mamba_usage
from tokpit.sim.plan import Plan
from tokpit.sim.prom import Counters

DELIVERY_S = 0.016
"""Real seconds between two pieces of one stream at most; a step that takes longer is delivered on its own."""
CACHE_PAGE = 64
"""Prefixes are reused in whole pieces of so many tokens."""


@dataclass(slots=True, eq=False)
class Reader:
    """Who waits for a request: `push` gets it whenever it has new tokens, `over` is done at the end."""

    request: Request
    push: Callable[[Request], None]
    over: asyncio.Future[None]
    sent: int = 0


@dataclass(slots=True)
class Serving:
    """See the module docstring."""

    plan: Plan
    clock: SimClock
    journal: Journal
    batch: Batch = field(init=False)
    counters: Counters = field(default_factory=Counters)
    last_decode: Tick | None = None
    last_foreign_t: float = float("-inf")
    draining: bool = False
    host_tokens: int = 0
    cache_hit_rate: float = 0.0
    _readers: dict[Request, Reader] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _prefixes: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.batch = Batch(self.plan)
        self.batch.on_decode = self._decoded
        self.batch.on_prefill = self.journal.prefill
        self.batch.on_finish = self._finished
        self.batch.on_tokens = self._tokens

    def submit(
        self,
        prompt: str,
        prompt_tokens: int,
        max_new: int,
        push: Callable[[Request], None],
        *,
        background: bool = False,
    ) -> Reader:
        """Queue a request. Foreign requests send the server's own background traffic away, so figures stay clean."""
        now = self.clock.now()
        if not background:
            self.last_foreign_t = now
            self._drop_background(now)
        digest = hashlib.blake2b(prompt.encode("utf-8", "replace"), digest_size=12).digest()
        cached = self._prefixes.get(digest, 0)
        self._prefixes[digest] = max(0, (prompt_tokens - 1) // CACHE_PAGE * CACHE_PAGE)
        request = Request(
            rid=uuid.uuid4().hex,
            prompt_tokens=prompt_tokens,
            max_new=max_new,
            arrival=now,
            cached_tokens=min(cached, prompt_tokens - 1),
            background=background,
            phase=digest[0] / 256 * 0.99,
        )
        self.counters.prompt_tokens += prompt_tokens
        self.counters.cached_tokens += request.cached_tokens
        self.cache_hit_rate = request.cached_tokens / max(1, prompt_tokens)
        reader = Reader(request, push, asyncio.get_running_loop().create_future())
        self._readers[request] = reader
        self.batch.submit(request, now)
        self._wake.set()
        return reader

    def abort(self, reader: Reader) -> None:
        """End a request early (its client has gone)."""
        if self._readers.pop(reader.request, None) is None:
            return
        self.batch.abort(reader.request, self.clock.now())
        self.counters.aborted += 1
        if not reader.over.done():
            reader.over.set_result(None)

    def flush_cache(self) -> bool:
        """Forget all prefixes; False if requests are running or waiting."""
        if not self.batch.idle:
            return False
        self._prefixes.clear()
        self.host_tokens = 0
        return True

    @property
    def foreign(self) -> int:
        """Requests of others than the background traffic, running or waiting."""
        return sum(not r.background for r in self._readers)

    @property
    def unfinished(self) -> int:
        """Requests running or waiting."""
        return len(self._readers)

    async def run(self) -> None:
        """Drive the batch for ever."""
        loop = asyncio.get_running_loop()
        while True:
            now = self.clock.now()
            self.batch.advance(now)
            self._deliver()
            self._wake.clear()
            due, step_end = self.batch.next_delivery(), self.batch.step_end
            if due is None or step_end is None:
                await self._wake.wait()
                continue
            until = min(due, max(step_end, now + DELIVERY_S * self.clock.factor))
            timer = loop.call_later(self.clock.real_delay(until), self._wake.set)
            await self._wake.wait()
            timer.cancel()

    def gauges(self) -> dict[str, float]:
        """Values of the Prometheus page; usage is the largest of the pools, as 0.5.11 defines it."""
        batch, plan = self.batch, self.plan
        batch.advance(self.clock.now())
        running, used = len(batch.running), batch.kv_tokens()
        full, mamba = used / plan.kv_tokens, mamba_usage(running, plan)
        values: dict[str, float] = {
            "num_running_reqs": running,
            "num_queue_reqs": len(batch.waiting),
            "num_used_tokens": used,
            "token_usage": round(max(full, mamba), 2),
            "full_token_usage": round(full, 4),
            "mamba_usage": round(mamba, 4),
            "gen_throughput": self.gen_tps,
            "cache_hit_rate": 0.0 if batch.idle else self.cache_hit_rate,
            "max_total_num_tokens": plan.kv_tokens,
            "num_retracted_reqs": 0,
            "num_grammar_queue_reqs": 0,
            "num_paused_reqs": 0,
            "is_cuda_graph": 1.0 if running and plan.graph_gib else 0.0,
            "utilization": running / plan.cap,
            "context_len": plan.context_len,
        }
        if plan.speculative:
            values["spec_accept_length"] = self.accept_len
            values["spec_accept_rate"] = (self.accept_len - 1) / max(1, plan.draft_tokens - 1)
        if plan.hicache_gb:
            total = int(plan.hicache_gb * 1e9 / 65_536)
            values["hicache_host_total_tokens"] = total
            values["hicache_host_used_tokens"] = min(total, self.host_tokens)
        return values

    @property
    def gen_tps(self) -> float:
        """Throughput of the last decode line; 0 once the server has been idle for a while."""
        tick = self.last_decode
        if tick is None or (self.batch.idle and self.clock.now() - tick.t > 30):
            return 0.0
        return tick.tps

    @property
    def accept_len(self) -> float:
        """Acceptance length of the last decode line."""
        return self.last_decode.accept_len if self.last_decode else 0.0

    def state_slots(self) -> int:
        """Recurrent-state slots locked now."""
        return mamba_slots(len(self.batch.running), self.plan)

    def _drop_background(self, now: float) -> None:
        for reader in [r for r in self._readers.values() if r.request.background]:
            self._readers.pop(reader.request)
            self.batch.abort(reader.request, now)
            if not reader.over.done():
                reader.over.set_result(None)

    def _deliver(self) -> None:
        for reader in list(self._readers.values()):
            request = reader.request
            if request.done > reader.sent:
                reader.push(request)
                reader.sent = request.done
            if request.finished is not None:
                self._readers.pop(request, None)
                if not reader.over.done():
                    reader.over.set_result(None)

    def _decoded(self, tick: Tick) -> None:
        self.last_decode = tick
        self.journal.decode(tick)

    def _tokens(self, request: Request, new: int, took: float) -> None:
        if new:
            self.counters.itl.add(took / new, new)
            self.counters.generated_tokens += new

    def _finished(self, request: Request) -> None:
        counters = self.counters
        counters.requests += 1
        counters.generated_tokens += 1  # the token of the prefill
        self.host_tokens += request.prompt_tokens + request.done - request.cached_tokens
        assert request.started is not None
        assert request.first_token is not None
        assert request.finished is not None
        counters.queue.add(max(0.0, request.started - request.arrival))
        counters.ttft.add(request.first_token - request.arrival)
        counters.e2e.add(request.finished - request.arrival)
