"""Sweeps and the sanity check on the simulated host: real SSH, real processes, a simulated engine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from load_server import ScriptServer, answer
from tokpit.config.inventory import Inventory
from tokpit.domain.run import Run
from tokpit.errors import LoadError, UsageError
from tokpit.ops.session import Session
from tokpit.sim.host import SimHost

CLOCK = 30.0


@pytest.fixture(scope="module")
def sim() -> Iterator[SimHost]:
    with SimHost(clock_factor=CLOCK, running=True) as host:
        yield host


@pytest.fixture
async def session(sim: SimHost, tmp_path: Path) -> AsyncIterator[Session]:
    inventory = Inventory(hosts={sim.spec.name: sim.spec})
    async with Session(inventory, history_path=tmp_path / "history.sqlite") as made:
        made.add_host(sim.spec.name)
        yield made


async def sweep(session: Session, target: str, **values: Any) -> Run:
    run = await session.execute("sweep.start", target=target, **{"max_tokens": 128, **values})
    assert isinstance(run, Run)
    return run


async def test_from_the_host_and_from_here_agree_and_say_where_they_were(session: Session, sim: SimHost) -> None:
    there = await sweep(session, sim.name, levels="4", requests=16)
    here = await sweep(session, sim.name, levels="4", requests=16, source="here")
    assert (there.context["from"], here.context["from"]) == ("host", "here")
    assert "next to the server" in there.context["from_reason"]
    assert there.context["link_rtt_s"] > 0
    assert "round trip" in there.context["link"]
    one, two = there.levels[0], here.levels[0]
    assert (one.ok, one.avg_output, two.ok, two.avg_output) == (16, 128, 16, 128)
    assert two.output_tps == pytest.approx(one.output_tps, rel=0.35), "the same plan on a noisy machine"


async def test_each_level_is_compared_with_the_server(session: Session, sim: SimHost) -> None:
    run = await sweep(session, sim.name, levels="6,12", requests=36, max_tokens=192, repeat=2, flush=True, note="twice")
    assert [level.concurrency for level in run.levels] == [6, 12, 6, 12]
    assert [level.result["repeat"] for level in run.levels] == [0, 0, 1, 1]
    for level in run.levels:
        assert level.result["server_tokens"] >= 36 * 192
        assert "WARM_PREFIX" in {check["code"] for check in level.result["checks"]}
    assert run.levels[1].result["server_running"] >= 9, "the cap of the simulated engine"
    assert max(run.levels[i].result["server_queued"] for i in (1, 3)) >= 1
    assert run.context["facts"]["max_running_requests"] == 9
    assert run.levels[1].result["accept_len"] > 1
    steps = next(o for o in session.store.operations.values() if o.kind == "sweep").steps
    assert sum(step.label == "prefix cache emptied" for step in steps) == 4
    assert session.store.servers[next(iter(session.store.servers))].marks
    stored = await (await session.history()).run(run.id)
    assert [level.result["checks"] for level in stored.levels] == _plain_checks(run)
    assert stored.note == "twice"
    assert stored.context["plan"]["repeat"] == 2


def _plain_checks(run: Run) -> list[list[dict[str, Any]]]:
    """Checks as they come back from JSON."""
    return [json.loads(json.dumps(level.result["checks"])) for level in run.levels]


async def test_nothing_is_watched_any_more_after_a_sweep(session: Session, sim: SimHost) -> None:
    await sweep(session, sim.name, levels="1", requests=2)
    assert not session.supervisor.running(f"host:{sim.name}")
    assert not any(session.supervisor.running(f"server:{name}:log") for name in session.store.servers)


async def test_the_highest_concurrency_that_meets_an_slo_is_found(session: Session, sim: SimHost) -> None:
    run = await sweep(session, sim.name, levels="1,16", requests=16, max_tokens=48, find=True, slo="e2e=1700ms")
    levels = [level.concurrency for level in run.levels]
    assert levels[:2] == [1, 16]
    assert len(levels) > 3
    met, missed = run.context["find"]["met"], run.context["find"]["missed"]
    assert 1 <= met < missed <= 16
    assert missed - met <= max(1, round(0.05 * met))
    by_level = {level.concurrency: level.result["slo_met"] for level in run.levels}
    assert (by_level[met], by_level[missed]) == (True, False)
    assert f"C={met} is the highest" in run.context["found"]


async def test_an_open_loop_offers_its_rate(session: Session, sim: SimHost) -> None:
    run = await sweep(session, sim.name, rates="0.5", requests=8, arrival="constant", max_tokens=32)
    level = run.levels[0]
    assert (level.result["label"], level.ok) == ("0.5 req/s", 8)
    assert level.result["concurrency"] is None


async def test_a_url_is_measured_from_here_and_its_engine_is_found_out(session: Session, sim: SimHost) -> None:
    run = await sweep(session, f"http://127.0.0.1:{sim.engine_port}", levels="2", requests=4, max_tokens=32)
    assert (run.context["from"], run.engine, run.host) == ("here", "sglang", "")
    assert run.levels[0].result["server_tokens"] >= 4 * 32
    with pytest.raises(LoadError, match="URL"):
        await sweep(session, f"http://127.0.0.1:{sim.engine_port}", source="host")


async def test_the_first_failed_request_ends_it_where_asked(session: Session) -> None:
    from load_server import Head

    async with ScriptServer(
        lambda body, index: answer(4) if index < 3 else [Head(503, ("Content-Length: 0",))]
    ) as server:
        run = await sweep(session, server.url, levels="1,2", requests=8, max_tokens=4, stop_on_error=True)
    assert run.status == "stopped"
    assert [level.err for level in run.levels] == [1]
    assert "not checked against the server" in run.context["server_side"]


async def test_a_dead_server_is_one_sentence(session: Session, unused_tcp_port: int) -> None:
    with pytest.raises(LoadError, match=r"does not answer|names no model|warm-up"):
        await sweep(session, f"http://127.0.0.1:{unused_tcp_port}", levels="1")
    operation = next(o for o in session.store.operations.values() if o.kind == "sweep")
    assert operation.status == "failed"
    assert not session.stops


async def test_a_sane_server_passes_its_check(session: Session, sim: SimHost) -> None:
    done = await session.execute("server.check", target=sim.name)
    found = {item.name: item for item in done.items}
    assert list(found) == ["first token", "model", "answers", "speed", "flags", "log"]
    assert [name for name, item in found.items() if item.ok is False] == []
    assert found["speed"].ok is None, "nothing is stored to compare with"
    assert "state_slots" in found["flags"].sentence
    assert done.elapsed_s < 20
    stored = await (await session.history()).run(done.run)
    assert (stored.kind, stored.status) == ("check", "done")
    assert await (await session.history()).baseline(stored.model, sim.name) is None, "a check is no baseline"


async def test_a_check_compares_with_the_stored_sweep_or_the_floor(session: Session, sim: SimHost) -> None:
    run = await sweep(session, sim.name, levels="1", requests=4)
    await sweep(session, sim.name, levels="2", requests=2)
    done = await session.execute("server.check", target=sim.name)
    speed = next(item for item in done.items if item.name == "speed")
    assert run.id in speed.sentence
    slow = await session.execute("server.check", target=sim.name, min_tps=100000.0)
    assert [item.name for item in slow.items if item.ok is False] == ["speed"]
    assert not slow.ok
    with pytest.raises(UsageError, match="--min-tps"):
        await session.execute("server.check", target=sim.name, min_tps=0.0)


async def test_a_server_without_sense_fails_its_check(session: Session, unused_tcp_port: int) -> None:
    dead = await session.execute("server.check", target=f"http://127.0.0.1:{unused_tcp_port}")
    assert [(item.name, item.ok) for item in dead.items] == [("first token", False), ("model", False)]
    async with _babbler() as port:
        done = await session.execute("server.check", target=f"http://127.0.0.1:{port}")
    found = {item.name: item for item in done.items}
    assert found["first token"].ok is True
    assert found["answers"].ok is False
    assert "the same word over and over: 'uh'" in found["answers"].sentence


class _babbler:
    """A server that says the same word to everything."""

    async def __aenter__(self) -> int:
        from aiohttp import web

        async def models(request: web.Request) -> web.Response:
            return web.json_response({"data": [{"id": "babble-1b"}]})

        async def complete(request: web.Request) -> web.StreamResponse:
            body = await request.json()
            usage = {"prompt_tokens": 5, "completion_tokens": body["max_tokens"]}
            text = "uh " * body["max_tokens"]
            if not body.get("stream"):
                choice = {"text": text, "message": {"role": "assistant", "content": text}}
                return web.json_response({"choices": [choice], "usage": usage})
            out = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await out.prepare(request)
            for _ in range(body["max_tokens"]):
                await out.write(b'data: {"choices":[{"delta":{"content":"uh "}}]}\n\n')
            await out.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\ndata: [DONE]\n\n")
            return out

        app = web.Application()
        app.router.add_get("/v1/models", models)
        app.router.add_post("/v1/completions", complete)
        app.router.add_post("/v1/chat/completions", complete)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def __aexit__(self, *exc: object) -> None:
        await self._runner.cleanup()


# --- the shell


class Shell:
    def __init__(self, sim: SimHost, folder: Path) -> None:
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TOKPIT")}
        self.env |= {f"TOKPIT_{name}_DIR": str(folder / name) for name in ("CONFIG", "STATE", "CACHE")}
        self.env["PYTHONPATH"] = str(Path(__file__).parents[3] / "src")
        inventory = folder / "hosts.toml"
        inventory.write_text(sim.inventory_toml(), encoding="utf-8")
        self.words = [sys.executable, "-m", "tokpit", "--inventory", str(inventory)]

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.words, *words], env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=50)
        return process.returncode, out, err


@pytest.fixture
def shell(sim: SimHost, tmp_path: Path) -> Shell:
    return Shell(sim, tmp_path)


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    deadline = time.monotonic() + 40
    while word not in process.stderr.readline():
        assert time.monotonic() < deadline
        assert process.poll() is None


def test_an_interrupt_keeps_the_levels_and_exits_with_130(shell: Shell, sim: SimHost) -> None:
    process = shell.start("sweep", sim.name, "-c", "1,2,4", "-n", "8", "--max-tokens", "200")
    wait_for(process, "C=   1")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "stopped" in out
    code, text, _ = shell.run("runs", "--json")
    assert code == 0
    (run,) = json.loads(text)
    assert run["status"] == "stopped"
    assert run["levels"][0]["ok"] == 8


def test_a_second_signal_ends_at_once(shell: Shell, sim: SimHost) -> None:
    process = shell.start("sweep", sim.name, "--from", "here", "-c", "1", "-n", "9999", "--max-tokens", "3000")
    wait_for(process, "warm-up")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130


def test_a_sweep_and_its_record_show_the_same_table(shell: Shell, sim: SimHost) -> None:
    code, out, err = shell.run("sweep", sim.name, "-c", "1,8", "-n", "8", "--max-tokens", "64", "--slo", "e2e=9s")
    assert code == 0, err
    table = [line for line in out.splitlines() if line.startswith("C=") and ":" not in line]
    assert len(table) == 2
    run_id = out.split("run ")[-1].split(":")[0]
    code, again, _ = shell.run("runs", run_id)
    assert code == 0
    assert all(line in again for line in table)
    assert "client: tokpit" in again


def test_check_at_the_shell(shell: Shell, sim: SimHost) -> None:
    code, out, _ = shell.run("check", sim.name, "--min-tps", "99999")
    assert code == 1
    assert out.splitlines()[0].startswith("ok    first token")
    assert "FAIL  speed" in out
    assert "1 of 6 failed" in out


def test_bad_words_are_told_before_anything_is_connected_to(shell: Shell) -> None:
    code, out, err = shell.run("sweep", "no-such-host.invalid", "--slo", "ttft=fast")
    assert (code, out) == (2, "")
    assert err.count("\n") == 2
    assert "500ms" in err


async def test_a_stop_while_the_server_is_busy_does_not_wait_for_it(session: Session, sim: SimHost) -> None:
    stop = asyncio.Event()
    task = asyncio.create_task(
        session.execute("sweep.start", target=sim.name, levels="1,2", requests=200, max_tokens=800, stop=stop)
    )
    while not any(o.live for o in session.store.operations.values()):
        await asyncio.sleep(0.05)
    stop.set()
    run = await task
    assert run.status == "stopped"
    assert [bool(level.result["partial"]) for level in run.levels] == [True]


async def test_read_only_mode_writes_nothing_on_the_host(session: Session, sim: SimHost) -> None:
    for packed in sim.folder.rglob("load-*.pyz"):
        packed.unlink()
    session.read_only = True
    run = await sweep(session, sim.name, levels="1", requests=2, max_tokens=16)
    assert run.context["from"] == "here"
    assert "read-only" in run.context["from_reason"]
    assert not list(sim.folder.rglob("load-*.pyz"))
    with pytest.raises(UsageError, match="read-only"):
        await sweep(session, sim.name, levels="1", source="host")
