"""The console on a simulated host behind a relay that stands for its SSH server: it can be stopped and restarted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from console_screen import console, rows, shows, until
from tokpit.config.inventory import Inventory
from tokpit.ops.session import Session
from tokpit.sim.host import SimHost
from tokpit.ui.charts.panel import ChartPanel

CLOCK = 20.0


class Relay:
    """Passes connections on to the host while it is open; closing it cuts them and refuses new ones."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._server.wait_closed(), 5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers |= {writer, far_writer}
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()


@pytest.fixture
async def relayed(tmp_path: Path) -> AsyncIterator[tuple[Session, Relay, float]]:
    began = time.monotonic()
    async with SimHost(clock_factor=CLOCK, running=True) as sim:
        relay = Relay(sim.spec.port or 22)
        await relay.open()
        key = Path(sim.spec.known_hosts or "").read_text().split(" ", 1)[1]
        known = tmp_path / "known_hosts"
        known.write_text(f"[127.0.0.1]:{relay.port} {key}")
        spec = msgspec.structs.replace(sim.spec, port=relay.port, known_hosts=str(known))
        session = Session(Inventory(hosts={spec.name: spec}), history_path=tmp_path / "history.sqlite")
        async with session:
            session.add_host(spec.name)
            yield session, relay, began
        await relay.close()


async def test_a_stopped_ssh_server_shows_lost_with_reason_and_retry_then_stale_figures_then_resumes(
    relayed: tuple[Session, Relay, float],
) -> None:
    session, relay, began = relayed
    async with console(session) as pilot:
        await shows(pilot, "● up", "following", "tok/s")
        server = next(iter(session.store.servers.values()))
        started = server.info.started_at or 0.0
        uptime = session.host(server.info.host).now() - started
        # The kernel tells when it booted in whole seconds: one of them is CLOCK on the host's clock.
        assert 0 < uptime < (time.monotonic() - began) * CLOCK * 1.1 + CLOCK, (
            "the uptime is not on the host's own clock"
        )
        series = server.get("gen_tps")
        await until(pilot, lambda: series.last is not None)
        await relay.close()
        await until(pilot, lambda: "✗" in rows(pilot)[0] and "retry in" in rows(pilot)[1])
        reason = rows(pilot)[1].replace("✗", "").split("·")[0].strip()
        assert len(reason.split()) > 2, "no sentence says why"
        panel = pilot.app.screen.query_one("#chart-gen", ChartPanel)
        assert "stale" in {style for _, style in panel.heading(60)[1]}, "a figure passes for a live one without a link"
        before = series.last_t or 0.0
        await relay.open()
        await until(pilot, lambda: "● up" in rows(pilot)[0])
        await until(pilot, lambda: (series.last_t or 0.0) > before + CLOCK)
        await until(pilot, lambda: "stale" not in {style for _, style in panel.heading(60)[1]})
        assert "retry" not in rows(pilot)[1]
