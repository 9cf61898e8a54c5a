from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp import web

from collect_tools import Kept, until
from tokpit.collect import metrics
from tokpit.collect.metrics import api_key, watch_metrics
from tokpit.domain.records import Facts, Sample
from tokpit.domain.server import ServerInfo
from tokpit.transport.local import LocalHost

PAGE = """\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{{model_name="tiny",engine_type="unified",tp_rank="0"}} {running}
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{{model_name="tiny",engine_type="unified",tp_rank="0"}} 2.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{{model_name="tiny",engine_type="unified",tp_rank="0"}} {tokens}
"""
INFO = {
    "version": "0.5.11",
    "max_running_requests": 9,
    "api_key": "hidden-1",
    "hf_token": "hidden-2",
    "nested": {"a": 1},
}


class Server:
    """A real HTTP server whose answers the test sets."""

    def __init__(self) -> None:
        self.status = 200
        self.text = ""
        self.tokens = 0
        self.scrapes = 0
        self.headers: list[str | None] = []
        self.info_status = 200
        self.loads: dict[str, object] | None = None

    async def load_page(self, request: web.Request) -> web.Response:
        return web.json_response(self.loads, status=404 if self.loads is None else 200)

    async def metrics(self, request: web.Request) -> web.Response:
        self.scrapes += 1
        self.tokens += 100
        text = self.text or PAGE.format(running=1.0, tokens=self.tokens)
        return web.Response(status=self.status, text=text)

    async def info(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers.get("Authorization"))
        return web.json_response(INFO, status=self.info_status)

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny\x1b[31m", "max_model_len": 2048}]}, status=self.info_status)


@pytest.fixture
async def http(server: ServerInfo) -> AsyncIterator[tuple[Server, ServerInfo]]:
    answers = Server()
    app = web.Application()
    app.router.add_get("/metrics", answers.metrics)
    app.router.add_get("/server_info", answers.info)
    app.router.add_get("/v1/loads", answers.load_page)
    app.router.add_get("/v1/models", answers.models)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield answers, msgspec.structs.replace(server, port=port, argv=("x", "--api-key", "k1"))
    await runner.cleanup()


async def watched(host: LocalHost, info: ServerInfo, kept: Kept) -> asyncio.Task[None]:
    return asyncio.create_task(watch_metrics(host, info, kept, every_s=0.2))


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    (result,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(result, asyncio.CancelledError), result


def facts(kept: Kept) -> dict[str, object]:
    return {key: value for fact in kept.of(Facts) for key, value in fact.values.items()}


async def test_scrapes_become_samples_with_rates(http: tuple[Server, ServerInfo], host: LocalHost, kept: Kept) -> None:
    _, info = http
    task = await watched(host, info, kept)
    await until(lambda: len(kept.of(Sample)) >= 3)
    await end(task)
    first, second = kept.of(Sample)[:2]
    assert (first.source, first.server) == ("metrics", info.id)
    assert (first.values["running_reqs"], first.values["queue_reqs"]) == (1.0, 2.0)
    assert "gen_tps" not in first.values
    assert second.values["gen_tps"] == pytest.approx(100 / (second.t - first.t))


async def test_what_the_server_says_of_itself_is_asked_once_and_without_secrets(
    http: tuple[Server, ServerInfo], host: LocalHost, kept: Kept
) -> None:
    answers, info = http
    task = await watched(host, info, kept)
    await until(lambda: len(kept.of(Sample)) >= 3)
    await end(task)
    known = facts(kept)
    assert (known["version"], known["served_name"], known["max_context"]) == ("0.5.11", "tiny", 2048)
    assert (known["info.max_running_requests"], known["model_name"]) == (9, "tiny")
    assert "hidden" not in str(known)
    assert answers.headers == ["Bearer k1"]


async def test_a_server_that_is_not_ready_is_asked_again(
    http: tuple[Server, ServerInfo], host: LocalHost, kept: Kept
) -> None:
    answers, info = http
    answers.info_status = 503
    task = await watched(host, info, kept)
    await until(lambda: answers.scrapes >= 2)
    assert "version" not in facts(kept)
    answers.info_status = 200
    await until(lambda: "version" in facts(kept))
    await end(task)


@pytest.mark.parametrize(
    ("status", "text", "word"),
    [(404, "no", "gives no metrics"), (401, "no", "API key"), (200, "<html>not a page</html>", "no Prometheus page")],
)
async def test_a_server_without_metrics_gets_one_note_until_they_come(
    http: tuple[Server, ServerInfo],
    host: LocalHost,
    kept: Kept,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    text: str,
    word: str,
) -> None:
    answers, info = http
    monkeypatch.setattr(metrics, "ABSENT_EVERY_S", 0.1)
    answers.status, answers.text = status, text
    task = await watched(host, info, kept)
    await until(lambda: answers.scrapes >= 3)
    notes = [fact.values["metrics_note"] for fact in kept.of(Facts) if "metrics_note" in fact.values]
    assert len(notes) == 1
    assert word in str(notes[0])
    answers.status, answers.text = 200, ""
    await until(lambda: kept.of(Sample))
    assert facts(kept)["metrics_note"] == ""
    await end(task)


async def test_a_server_without_metrics_that_tells_its_load_is_watched_all_the_same(
    http: tuple[Server, ServerInfo], host: LocalHost, kept: Kept
) -> None:
    answers, info = http
    answers.status = 404
    answers.loads = {"loads": [{"num_running_reqs": 0, "num_waiting_reqs": 0, "gen_throughput": 18.3}]}
    task = await watched(host, info, kept)
    await until(lambda: len(kept.of(Sample)) >= 2)
    assert kept.of(Sample)[-1].values == {"running_reqs": 0.0, "queue_reqs": 0.0, "gen_tps": 0.0}
    assert "/v1/loads" in str(facts(kept)["metrics_note"])
    answers.status = 200
    await until(lambda: kept.of(Sample)[-1].values.get("queue_reqs") == 2.0)
    assert facts(kept)["metrics_note"] == ""
    await end(task)


async def test_a_server_that_is_not_there_yet_is_waited_for(
    server: ServerInfo, host: LocalHost, kept: Kept, unused_tcp_port: int
) -> None:
    task = await watched(host, msgspec.structs.replace(server, port=unused_tcp_port), kept)
    await asyncio.sleep(0.5)
    assert not task.done()
    assert kept.records == []
    await end(task)


async def test_a_server_without_a_port_is_told_not_tried(server: ServerInfo, host: LocalHost, kept: Kept) -> None:
    await watch_metrics(host, server, kept)
    assert "port" in str(facts(kept)["metrics_note"])


@pytest.mark.parametrize(
    ("argv", "key"),
    [(("a", "--api-key", "x"), "x"), (("a", "--api-key=y"), "y"), (("a", "--api-key"), None), ((), None)],
)
def test_the_key_is_the_servers_own(argv: tuple[str, ...], key: str | None) -> None:
    assert api_key(argv) == key
