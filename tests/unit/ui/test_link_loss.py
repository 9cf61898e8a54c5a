"""The console on a simulated host behind a relay that stands for its SSH server: it can be stopped and restarted."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from console_screen import console, rows, shows, until
from relay import Relay
from tokpit.config.inventory import Inventory
from tokpit.ops.session import Session
from tokpit.sim.host import SimHost
from tokpit.ui.charts.panel import ChartPanel

CLOCK = 20.0


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
        # The second is that of `btime`: a process began at whole seconds since the epoch plus its ticks (proc(5)).
        assert 0 < uptime < (time.monotonic() - began + 1) * CLOCK, "the uptime is not on the host's own clock"
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
