"""The server's own side of a level: counters before and after, running and queued meanwhile, GPUs, drain and flush."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from tokpit.collect.metrics import LARGEST_BYTES
from tokpit.domain.records import GpuRecord, MetricsPage
from tokpit.domain.server import ServerInfo
from tokpit.domain.text import sanitize
from tokpit.engines.base import Engine
from tokpit.engines.registry import engine as engine_of
from tokpit.engines.registry import names
from tokpit.errors import HostError
from tokpit.ops import http
from tokpit.transport.base import Host

if TYPE_CHECKING:
    import aiohttp

    from tokpit.ops.session import Session

FIRST_S, SAMPLE_S, DENSE = 0.25, 1.0, 16
"""Seconds between two samples when a level begins, and of a long one; how many come at one pace before it is halved."""
SHORTEST_S = 0.2
"""Real seconds between two samples at least, also where the host's clock runs fast."""
GAUGES_S = 2.0
"""On the host's clock: how old an engine's gauges may be (SGLang writes them with the log line of every 40th step)."""
DRAIN_S = 30.0
"""On the host's clock: how long the server may take to finish what it has before a level begins anyway."""
_TIMEOUT_S = 5.0
THERMAL = frozenset({"hw-slowdown", "sw-thermal", "hw-thermal", "power-brake"})


class Sample(msgspec.Struct, frozen=True):
    """The server at one moment, beside what the client knew then. `t`: host's clock; None: not told."""

    t: float
    running: float | None
    queued: float | None
    made: float | None
    """Generated-token counter."""
    accept_len: float | None
    in_flight: int
    received: float
    """Tokens that had reached the client."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of the server during one level."""

    before: MetricsPage | None = None
    after: MetricsPage | None = None
    samples: tuple[Sample, ...] = ()
    began: float | None = None
    """When the level began, on the host's clock."""
    throttled: dict[str, tuple[int, ...]] = {}
    """Slowdown reason to GPU indices."""
    left_before: float = 0.0
    """Requests that still ran or waited on the server when the level began."""

    def change(self, tag: str) -> float | None:
        """By how much a counter moved; None where the server does not count it."""
        if self.before is None or self.after is None:
            return None
        old, new = self.before.values.get(tag), self.after.values.get(tag)
        return None if old is None or new is None else new - old

    @property
    def settled(self) -> tuple[Sample, ...]:
        """The samples whose gauges can be of this level: an engine may write them every few dozen steps only."""
        return tuple(s for s in self.samples if self.began is None or s.t - self.began >= GAUGES_S)

    @property
    def accept_len(self) -> float | None:
        """Tokens per verify step, bonus included: by counters where there are some, else the mean of the gauge."""
        drafts, accepted = self.change("spec_drafts_total"), self.change("spec_accepted_tokens_total")
        if drafts and accepted is not None and drafts > 0:
            return 1.0 + accepted / drafts
        seen = [s.accept_len for s in self.samples if s.accept_len]
        return sum(seen) / len(seen) if seen else None

    def most(self, name: str) -> float | None:
        """The largest `running` or `queued` of the samples."""
        values = [value for s in self.samples if (value := getattr(s, name)) is not None]
        return max(values) if values else None


class ServerSide:
    """The server of a sweep. Every question may stay unanswered: a server without metrics costs checks, no more."""

    def __init__(
        self, session: Session, host: Host | None, server: ServerInfo | None, base: str, headers: dict[str, str]
    ) -> None:
        self._session, self._host, self._server, self._base = session, host, server, base
        self.engine: Engine | None = engine_of(server.engine) if server is not None else None
        known = self.engine.http.headers if self.engine is not None else {}
        self.headers = {**known, **http.own_key(server), **headers}
        """For every request: what its engine wants, its own key as its command line shows it, what was asked for."""
        self._web: aiohttp.ClientSession | None = None
        self._factor = host.spec.clock_factor if host is not None else 1.0
        self._started: list[str] = []
        self._sampler: asyncio.Task[None] | None = None
        self._samples: list[Sample] = []
        self._throttled: dict[str, set[int]] = {}
        self._before: MetricsPage | None = None
        self._began: float | None = None
        self._left = 0.0
        self.note = ""
        """Why there are no figures of the server; empty where there are."""

    async def open(self, *, watch: bool = True) -> None:
        """Begin; with `watch` the host's GPUs and the server's log go into the store while this is open."""
        import aiohttp

        self._web = self._host.session() if self._host is not None else aiohttp.ClientSession()
        if self._server is None or self._host is None or not watch:
            return
        tasks = ((f"host:{self._host.name}", self._watch_host), (f"server:{self._server.id}:", self._watch_server))
        for key, start in tasks:
            probe = f"{key}log" if key.endswith(":") else key
            if not self._session.supervisor.running(probe):
                start()
                self._started.append(key)

    def _watch_host(self) -> None:
        assert self._host is not None
        self._session.watch_host(self._host.name)

    def _watch_server(self) -> None:
        assert self._server is not None
        if self._server.id in self._session.store.servers:
            self._session.watch_server(self._server.id)

    async def close(self) -> None:
        """End what `open` began."""
        await self._stop_sampler()
        for key in self._started:
            await self._session.supervisor.stop(key)
        self._started.clear()
        if self._web is not None:
            await self._web.close()
            self._web = None

    def _now(self) -> float:
        return self._host.now() if self._host is not None else time.time()

    async def page(self) -> MetricsPage | None:
        """The server's metrics now; None where it gives none."""
        if self._web is None:
            return None
        import aiohttp

        path = self.engine.http.metrics if self.engine is not None else "/metrics"
        try:
            timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
            async with self._web.get(self._base + path, headers=self.headers, timeout=timeout) as answer:
                body, status = bytearray(), answer.status
                async for chunk in answer.content.iter_chunked(1 << 16):
                    body += chunk
                    if len(body) > LARGEST_BYTES:
                        break
        except (aiohttp.ClientError, TimeoutError, OSError, HostError):
            self.note = "its metrics do not answer"
            return None
        if status != 200:
            self.note = f"it gives no metrics (status {status})"
            return None
        return self._read(body.decode("utf-8", "replace"))

    def _read(self, text: str) -> MetricsPage | None:
        if self.engine is None:
            # Behind a URL any engine may be: the one whose names are on the page.
            found = [name for name in names() if f"\n{name}:" in text]
            self.engine = engine_of(found[0]) if found else None
        if self.engine is None:
            self.note = "its metrics are of no engine that is known"
            return None
        try:
            page = self.engine.metrics(text)
        except ValueError:
            self.note = "its metrics cannot be read"
            return None
        self.note = ""
        return page

    async def begin(self, in_flight: Callable[[], tuple[int, float]]) -> None:
        """A level begins: keep the counters and sample until `end`. `in_flight`: the client's number and tokens."""
        await self._stop_sampler()
        self._samples, self._throttled = [], {}
        self._before = await self.page()
        self._began = began = self._now()
        self._sampler = asyncio.ensure_future(self._sample(in_flight, began))

    async def end(self) -> Seen:
        """The level is over: what was seen."""
        await self._stop_sampler()
        return Seen(
            before=self._before,
            after=await self.page(),
            samples=tuple(self._samples),
            began=self._began,
            throttled={reason: tuple(sorted(gpus)) for reason, gpus in self._throttled.items()},
            left_before=self._left,
        )

    async def _stop_sampler(self) -> None:
        task, self._sampler = self._sampler, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _sample(self, in_flight: Callable[[], tuple[int, float]], began: float) -> None:
        pace, asking = FIRST_S, 0.0
        while True:
            # At most half of the time is spent on asking, however slow the link is.
            await asyncio.sleep(max(SHORTEST_S, pace / self._factor, asking))
            asked = time.monotonic()
            if self._before is not None and (page := await self.page()) is not None:
                running, received = in_flight()
                get = page.values.get
                self._samples.append(
                    Sample(
                        self._now(),
                        get("running_reqs"),
                        get("queue_reqs"),
                        get("gen_tokens_total"),
                        get("accept_len"),
                        running,
                        received,
                    )
                )
                self._samples, pace = paced(self._samples, pace)
            asking = time.monotonic() - asked
            if self._server is not None:
                record = self._session.store.gpus_of(self._server)
                if record is not None and record.t >= began:
                    self._look_at(record)

    def _look_at(self, record: GpuRecord) -> None:
        own = {self._server.pid, *self._server.children} if self._server is not None else set()
        for reason, gpus in slowed(record, own).items():
            self._throttled.setdefault(reason, set()).update(gpus)

    async def model(self) -> str:
        """The first model that the server names; empty where it names none."""
        path = self.engine.http.models if self.engine is not None else "/v1/models"
        page = await http.get_json(self._web, self._base + path, headers=self.headers) if self._web else None
        try:
            name = page["data"][0]["id"] if page is not None else ""
        except (KeyError, IndexError, TypeError):
            return ""
        return sanitize(name) if isinstance(name, str) else ""

    async def drain(self, stop: asyncio.Event) -> float:
        """Wait until nothing runs or waits on the server; how many still did when the wait was given up or stopped."""
        deadline = time.monotonic() + max(DRAIN_S / self._factor, 1.0)
        self._left = 0.0
        while (page := await self.page()) is not None:
            self._left = page.values.get("running_reqs", 0.0) + page.values.get("queue_reqs", 0.0)
            if self._left <= 0 or stop.is_set() or time.monotonic() > deadline:
                break
            await asyncio.sleep(SHORTEST_S)
        return self._left

    async def flush(self) -> str:
        """Empty the server's prefix cache; a sentence on how it went."""
        import aiohttp

        path = self.engine.http.flush if self.engine is not None else None
        if path is None or self._web is None:
            return "this engine cannot empty its prefix cache"
        try:
            timeout = aiohttp.ClientTimeout(total=30)
            async with self._web.post(self._base + path, headers=self.headers, timeout=timeout) as answer:
                if answer.status == 200:
                    return "prefix cache emptied"
                return f"the server refused to empty its prefix cache (status {answer.status})"
        except (aiohttp.ClientError, TimeoutError, OSError, HostError):
            return "the server did not answer to emptying its prefix cache"


def paced(samples: list[Sample], pace_s: float) -> tuple[list[Sample], float]:
    """The samples to keep and the seconds to the next: close at first, so that a short level is seen, later `SAMPLE_S`.

    Means over a level want even distances, so what is kept is halved along with the pace.
    """
    if len(samples) < DENSE or pace_s >= SAMPLE_S:
        return samples, pace_s
    return samples[1::2], pace_s * 2


def slowed(record: GpuRecord, pids: Collection[int]) -> dict[str, set[int]]:
    """Slowdown reasons with the GPUs on which these processes hold memory; of all GPUs, where nothing tells which."""
    used = {process.uuid for process in record.processes if process.pid in pids}
    found: dict[str, set[int]] = {}
    for gpu in record.gpus:
        if not used or gpu.uuid in used:
            for reason in gpu.throttle:
                found.setdefault(reason, set()).add(gpu.index)
    return found
