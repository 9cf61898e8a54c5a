"""The sanity check after a launch: does it answer, with sense, as configured, as fast as it was, without errors?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.records import LogRecord
from tokpit.domain.run import Run
from tokpit.domain.text import LineSplitter, decode_line, sanitize
from tokpit.engines.base import HttpFacts
from tokpit.errors import HostError, UsageError
from tokpit.insight.baseline import Band
from tokpit.ops import http
from tokpit.ops.check.answers import PROMPTS, answer
from tokpit.ops.check.judge import (
    Item,
    effects,
    flags_item,
    log_item,
    model_item,
    settings_of_page,
    speed_item,
    stream_tps,
)
from tokpit.ops.gate import Prepared
from tokpit.ops.progress import Progress
from tokpit.ops.records.baseline import of_server
from tokpit.ops.sweep.place import Here
from tokpit.ops.sweep.plan import read_headers
from tokpit.ops.sweep.server import ServerSide
from tokpit.ops.targets import Target, resolve, server_target
from tokpit.transport.base import Host, quote

if TYPE_CHECKING:
    import aiohttp

    from tokpit.ops.session import Session

SPEED_TOKENS = 64
TOKEN_S, SPEED_S = 6.0, 7.0
"""Real seconds that the parts may take at most; with the answers 20 in all."""
LOG_BYTES = 64 << 10
HEAD_BYTES = 256 << 10


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A finished check; `ok`: nothing failed. `run` is its id in the history."""

    target: str
    ok: bool
    items: tuple[Item, ...]
    elapsed_s: float
    run: str


async def prepare(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`server.check`: `target` (text or server id), `min_tps`, `headers`. Raises UsageError, TargetError, HostError."""
    least = args.get("min_tps")
    if least is not None and not float(least) > 0:
        raise UsageError("--min-tps must be over 0 tok/s")
    text = str(args["target"])
    known = session.store.servers.get(text)
    target = server_target(known.info) if known is not None else await resolve(session, text)
    host = await session.connected(target.host) if target.host is not None else None
    check = Check(session, target, host, args)
    return Prepared(title=f"check {target.label}", host=target.host or "", run=check.run)


class Check:
    """One check under way."""

    def __init__(self, session: Session, target: Target, host: Host | None, args: Mapping[str, Any]) -> None:
        self._session, self._target, self._host, self._args = session, target, host, args
        self._side = ServerSide(session, host, target.server, target.url, read_headers(args.get("headers") or ()))
        self._http = self._side.engine.http if self._side.engine is not None else HttpFacts()
        self._factor = host.spec.clock_factor if host is not None else 1.0

    def _now(self) -> float:
        return self._host.now() if self._host is not None else time.time()

    async def run(self) -> Checked:
        """Look at everything, in under 20 s; what fails is an item, never raised."""
        progress = Progress(
            self._session.store,
            kind="check",
            target=self._target.server.id if self._target.server is not None else self._target.url,
            title=f"check {self._target.label}",
            now=self._now,
            operation_id=self._args.get("operation_id"),
        )
        begun, started = time.monotonic(), time.time()
        web = self._host.session() if self._host is not None else _direct()
        try:
            async with web:
                items = await self._items(web)
        except Exception as error:
            progress.failed(error)
            raise
        history = await self._session.history()
        ok = all(item.ok is not False for item in items)
        run = Run(
            id=await history.new_run_id(),
            kind="check",
            target=self._target.label,
            host=self._target.host or "",
            model=self._model,
            engine=self._target.server.engine if self._target.server is not None else "",
            started_at=started,
            ended_at=time.time(),
            status="done" if ok else "failed",
            context={"items": [msgspec.to_builtins(item) for item in items]},
        )
        await history.save_run(run)
        self._session.store.apply(run)
        progress.done(run=run.id, verdict="ok" if ok else "failed")
        took_s = time.monotonic() - begun
        return Checked(target=self._target.label, ok=ok, items=tuple(items), elapsed_s=took_s, run=run.id)

    async def _items(self, web: aiohttp.ClientSession) -> list[Item]:
        headers, url = self._side.headers, self._target.url
        models, info, records = await asyncio.gather(
            http.get_json(web, url + self._http.models, headers=headers),
            http.get_json(web, url + self._http.info, headers=headers) if self._http.info else _nothing(),
            self._log(),
        )
        listed = [sanitize(str(row["id"])) for row in _rows(models) if isinstance(row.get("id"), str)]
        self._model = str(self._args.get("model") or "") or (listed[0] if listed else "")
        settings = self._target.server.settings if self._target.server is not None else None
        items = [await self._token(web), model_item(settings, listed)]
        if items[0].ok:
            items.append(await self._answers(web))
            items.append(await self._speed())
        if self._target.server is not None:
            context = next((row.get("max_model_len") for row in _rows(models)), None)
            items.append(self._flags(info if isinstance(info, dict) else {}, records, context))
            items.append(self._log_item(records))
        return items

    # --- what it answers

    async def _token(self, web: aiohttp.ClientSession) -> Item:
        token = await http.first_token(
            web,
            self._target.url,
            self._http,
            clock_factor=self._factor,
            timeout_s=TOKEN_S,
            headers=self._side.headers,
        )
        if token is None:
            return Item(name="first token", ok=False, sentence=f"no token came within {TOKEN_S:g} s")
        return Item(name="first token", ok=True, sentence=f"a token after {token.seconds:.2f} s")

    async def _answers(self, web: aiohttp.ClientSession) -> Item:
        ask = (answer(web, self._target.url, self._model, prompt, headers=self._side.headers) for prompt in PROMPTS)
        answers = await asyncio.gather(*ask)
        bad = [(number, fault) for number, (_, fault) in enumerate(answers, 1) if fault]
        if bad:
            words = "; ".join(f"answer {number}: {fault}" for number, fault in bad)
            return Item(name="answers", ok=False, sentence=f"{len(bad)} of {len(answers)} make no sense: {words}")
        first = " ".join(answers[0][0].split())[:60]
        return Item(name="answers", ok=True, sentence=f"{len(answers)} of {len(answers)} are text; the first: {first}…")

    # --- how fast

    async def _speed(self) -> Item:
        """Decode speed of one stream, by the generator of the sweeps."""
        from tokpit.load import events
        from tokpit.load.plan import Plan

        await self._side.open(watch=False)
        stop = asyncio.Event()
        seen = (0.0, 0.0)

        def hear(event: object) -> None:
            nonlocal seen
            if isinstance(event, events.Progress):
                seen = event.tokens, event.elapsed_s

        try:
            page = await self._side.page()
            plan = Plan(
                url=self._target.url,
                model=self._model,
                levels=(1,),
                requests=2,
                warmup=0,
                max_tokens=SPEED_TOKENS,
                clock_factor=self._factor,
                headers=self._side.headers,
                extra_body=dict(self._http.extra_body),
            )
            timer = asyncio.get_running_loop().call_later(SPEED_S, stop.set)
            result = await Here(self._host).run(plan, hear, stop)
            timer.cancel()
        finally:
            await self._side.close()
        level = result.levels[0] if result.levels else None
        tps = 1.0 / level.tpot_s.p50 if level is not None and level.tpot_s is not None and level.tpot_s.p50 else None
        if tps is None and seen[0] and seen[1]:
            tps = seen[0] / seen[1]
        baseline, band = await self._baseline()
        least = self._args.get("min_tps")
        others = page.values.get("running_reqs") if page is not None else None
        least_tps = float(least) if least is not None else None
        return speed_item(tps, min_tps=least_tps, baseline=baseline, others=others, band=band)

    async def _baseline(self) -> tuple[Run | None, Band | None]:
        """The stored run to compare with, and the scatter of its baseline.

        The newest run of the baseline of these very settings that knows the speed of one stream, else of any settings.
        """
        if self._target.host is None:
            return None, None
        history, server = await self._session.history(), self._target.server
        if server is not None:
            given = server.settings.given()
            for known in await of_server(history, self._model, self._target.host, server.engine, given):
                run = next((run for run in known.runs if stream_tps(run) is not None), None)
                if run is not None:
                    return run, known.band(("C", 1.0), "tpot_p50_s")
        newest = await history.baseline(self._model, self._target.host)
        if newest is None or stream_tps(newest) is not None:
            return newest, None
        earlier = await history.runs(limit=50, model=self._model, host=self._target.host)
        return next((run for run in earlier if run.status == "done" and stream_tps(run) is not None), newest), None

    # --- how it was started, and what it says

    def _flags(self, info: dict[str, Any], records: tuple[list[LogRecord], list[LogRecord]], context: Any) -> Item:
        server, engine = self._target.server, self._side.engine
        assert server is not None
        assert engine is not None
        facts: dict[str, object] = {}
        for record in (*records[0], *records[1]):
            if record.kind.startswith("milestone."):
                facts.update({name: value for name, value in record.fields.items() if value is not None})
        shown = settings_of_page(engine, info, server.version) if info else None
        return flags_item(server.settings, shown, effects(info, facts, context))

    def _log_item(self, records: tuple[list[LogRecord], list[LogRecord]]) -> Item:
        server = self._target.server
        if server is None or server.log_path is None:
            return Item(name="log", ok=None, sentence="the server writes no log file that can be read")
        if not records[1]:
            return Item(name="log", ok=None, sentence=f"nothing could be read of {server.log_path}")
        return log_item(records[1], server.log_path)

    async def _log(self) -> tuple[list[LogRecord], list[LogRecord]]:
        """Records of the log's first part (the start) and of its last."""
        server, engine = self._target.server, self._side.engine
        if server is None or engine is None or server.log_path is None or self._host is None:
            return [], []
        path = quote([server.log_path])
        try:
            head, tail = await asyncio.gather(
                self._host.run(f"head -c {HEAD_BYTES} {path}"), self._host.run(f"tail -c {LOG_BYTES} {path}")
            )
        except HostError:
            return [], []
        return _records(engine.grammar(), head.stdout), _records(engine.grammar(), tail.stdout)


def _records(grammar: Any, data: bytes) -> list[LogRecord]:
    splitter, records = LineSplitter(), list[LogRecord]()
    for line in (*splitter.feed(data), splitter.flush() or b""):
        records += grammar.feed(decode_line(line))
    return [*records, *grammar.flush()]


def _rows(page: Any) -> list[dict[str, Any]]:
    rows = page.get("data") if isinstance(page, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _direct() -> aiohttp.ClientSession:
    import aiohttp

    return aiohttp.ClientSession()


async def _nothing() -> None:
    return None
