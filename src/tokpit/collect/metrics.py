"""Watch a server over HTTP: scrape its metrics, and ask once what it says of itself."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from tokpit.collect.host import Sink
from tokpit.collect.link import LinkGate, real_interval
from tokpit.collect.rates import Rates
from tokpit.domain.records import Facts, MetricsPage, Sample, Value
from tokpit.domain.server import ServerInfo
from tokpit.domain.text import sanitize
from tokpit.engines.base import Engine
from tokpit.engines.logkit.rates import BURSTY, ITL_IS_STEP
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import HostError
from tokpit.transport.base import Host

if TYPE_CHECKING:
    import aiohttp

EVERY_S = 2.0
ABSENT_EVERY_S = 60.0
"""A server without metrics is asked again this often (real seconds): it stays without until it is restarted."""
TIMEOUT_S = 15.0
LARGEST_BYTES = 16 << 20
_SECRET = re.compile(r"(?:^|_)(?:key|keys|token|secret|password|passwd)$", re.IGNORECASE)
_MOST_FACTS = 600


class _Absent(Exception):  # a state, not an error
    """The server answers but gives no metrics; the text says why."""


async def watch_metrics(host: Host, server: ServerInfo, sink: Sink, *, every_s: float = EVERY_S) -> None:
    """Feed Samples (source `metrics`) and Facts until cancelled; `every_s` is seconds on the host's clock.

    A server without metrics gets one fact, `metrics_note`, which is emptied when they come; where another page tells
    its load, that page's values are its samples. Facts from its info and
    version pages: `version`, `served_name`, `max_context`, and scalars of the info page as `info.NAME`.
    """
    if server.url is None:
        sink(Facts(server.id, host.now(), {"metrics_note": "the server's port is not known"}))
        return
    watch = _Watch(host, server, sink)
    gate = LinkGate(host)
    import aiohttp

    async with host.session() as web:
        while True:
            pause_s = real_interval(host.spec, every_s)
            try:
                await watch.once(web)
            except _Absent as error:
                watch.note(str(error))
                pause_s = ABSENT_EVERY_S
            except HostError:
                await gate.wait()
                continue
            except (aiohttp.ClientError, OSError, TimeoutError):
                # Still loading, or gone: the process table tells which.
                pause_s = max(pause_s, 2.0 / max(host.spec.clock_factor, 1e-9))
            await asyncio.sleep(pause_s)


class _Watch:
    def __init__(self, host: Host, server: ServerInfo, sink: Sink) -> None:
        self._host, self._server, self._sink = host, server, sink
        self._engine: Engine = engine_of(server.engine)
        self._rates = Rates()
        self._note: str | None = None
        self._labels: dict[str, str] = {}
        self._asked = False
        self._key = api_key(server.argv)

    async def once(self, web: aiohttp.ClientSession) -> None:
        status, text = await self._get(web, self._engine.http.metrics)
        if not self._asked:
            self._asked = await self._ask(web)
        if status in (401, 403):
            raise _Absent("the server wants an API key for its metrics")
        if status in (404, 405, 501):
            if await self._loads(web):
                return
            raise _Absent("the server gives no metrics; it must be started with its metrics flag")
        if status != 200:
            return
        try:
            page = self._engine.metrics(text)
        except ValueError:
            raise _Absent("what the server gives as metrics is no Prometheus page") from None
        t = self._host.now()
        self._facts(t, page)
        if values := self._rates.update(t, page):
            self._sink(Sample(self._server.id, t, "metrics", values))

    async def _loads(self, web: aiohttp.ClientSession) -> bool:
        """Whether a server without metrics tells its load on another page, whose values then count."""
        path = self._engine.http.loads
        if path is None:
            return False
        status, text = await self._get(web, path)
        values = self._engine.loads(_json(text)) if status == 200 else {}
        if not values:
            return False
        self.note(f"the server gives no metrics: figures are those of {path}; its metrics flag would give more")
        self._sink(Sample(self._server.id, self._host.now(), "metrics", values))
        return True

    def note(self, text: str) -> None:
        """Tell once that (or no longer that) there are no metrics."""
        if text != self._note:
            self._note = text
            self._sink(Facts(self._server.id, self._host.now(), {"metrics_note": text}))

    def _facts(self, t: float, page: MetricsPage) -> None:
        if self._note:
            self.note("")
        labels = {key: sanitize(value) for key, value in page.labels.items() if key not in (BURSTY, ITL_IS_STEP)}
        if labels and labels != self._labels:
            self._labels = labels
            self._sink(Facts(self._server.id, t, dict[str, Value](labels)))

    async def _ask(self, web: aiohttp.ClientSession) -> bool:
        """Facts from the version, models and info pages; False while the server is not ready to tell."""
        http = self._engine.http
        values: dict[str, Value] = {}
        for path, read in ((http.version, _version), (http.models, _models), (http.info, _info)):
            if path is None:
                continue
            status, text = await self._get(web, path)
            if status == 503:
                return False
            if status == 200:
                values.update(read(_json(text)))
        if values:
            self._sink(Facts(self._server.id, self._host.now(), values))
        return True

    async def _get(self, web: aiohttp.ClientSession, path: str) -> tuple[int, str]:
        import aiohttp

        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with web.get(f"{self._server.url}{path}", headers=headers, timeout=timeout) as answer:
            body = bytearray()
            async for chunk in answer.content.iter_chunked(1 << 16):
                body += chunk
                if len(body) > LARGEST_BYTES:
                    raise _Absent(f"{path} is larger than {LARGEST_BYTES >> 20} MiB")
            return answer.status, body.decode("utf-8", "replace")


def api_key(argv: tuple[str, ...]) -> str | None:
    """The API key that a server was started with, as its own command line shows it."""
    for index, word in enumerate(argv):
        if word == "--api-key" and index + 1 < len(argv):
            return argv[index + 1]
        if word.startswith("--api-key="):
            return word.partition("=")[2]
    return None


def _json(text: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def _version(page: Any) -> dict[str, Value]:
    version = page.get("version") if isinstance(page, dict) else None
    return {"version": sanitize(version)[:100]} if isinstance(version, str) else {}


def _models(page: Any) -> dict[str, Value]:
    models = page.get("data") if isinstance(page, dict) else None
    if not isinstance(models, list) or not models or not isinstance(models[0], dict):
        return {}
    found: dict[str, Value] = {}
    if isinstance(name := models[0].get("id"), str):
        found["served_name"] = sanitize(name)[:500]
    if isinstance(length := models[0].get("max_model_len"), int):
        found["max_context"] = length
    return found


def _info(page: Any) -> dict[str, Value]:
    if not isinstance(page, dict):
        return {}
    found = _version(page)
    for key, value in list(page.items())[:_MOST_FACTS]:
        if isinstance(value, str | int | float | bool) and not _SECRET.search(key):
            found[f"info.{sanitize(key)[:100]}"] = sanitize(value)[:500] if isinstance(value, str) else value
    return found
