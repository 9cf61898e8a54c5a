from __future__ import annotations

import time

import pytest

from console_feed import Recorder, gpu, server
from console_screen import SIZES, console, rows, shows, text, until
from tokpit.domain.records import GpuRecord, HostRecord, LinkRecord, LinkState, Sample, ServersRecord
from tokpit.transport.base import HostSpec
from tokpit.ui.screens.cockpit import Cockpit
from tokpit.ui.screens.fleet import FleetPanel, FleetScreen


def fleet(count: int) -> Recorder:
    names = [f"node-{n:02d}" for n in range(count)]
    session = Recorder(host_specs={name: HostSpec(name=name) for name in names})
    now = time.time()
    for n, name in enumerate(names):
        if n == 3:
            lost = LinkRecord(name, now, LinkState.LOST, reason="no answer to 3 keepalives", retry_in_s=8.0)
            session.store.apply(lost)
            continue
        session.store.apply(LinkRecord(name, now, LinkState.UP, rtt_s=0.010 + n / 1000))
        session.store.apply(HostRecord(name, now, 1 << 38, 1 << 37))
        session.store.apply(GpuRecord(name, now, (gpu(0), gpu(1, util=0.41, power_w=200.0, temp_c=80.0))))
        info = server(host=name, pid=100 + n, served_name=f"model-{n:02d}")
        session.store.apply(ServersRecord(name, now, (info,)))
        values = {"gen_tps": 100.0 + n, "running_reqs": 4.0, "queue_reqs": float(n % 2)}
        session.store.apply(Sample(info.id, now, "metrics", values))
    return session


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_each_host_is_one_row_with_link_gpus_load_and_servers(size: tuple[int, int]) -> None:
    async with console(fleet(6), size) as pilot:
        await pilot.press("1")
        await shows(pilot, "fleet", "6 hosts", "1 not reached")
        row = next(row for row in rows(pilot) if "node-02" in row)
        for word in ("12 ms", "2×", "69%", "93%", "102.0"):
            assert word in row, word
        assert "no answer to 3 keepalives" in next(row for row in rows(pilot) if "node-03" in row)
        if size[0] >= 120:
            for word in ("612 W", "80°", ":30000 SGLang"):
                assert word in row, word
        if size[0] >= 200:
            assert "model-02" in row


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120, 200, 300])
async def test_no_column_of_the_fleet_is_cut(width: int) -> None:
    session = fleet(6)
    session.store.apply(GpuRecord("node-05", time.time(), (gpu(0, throttle=("hw-thermal",)),)))
    four = tuple(server(host="node-04", pid=500 + n, port=30_000 + n, served_name=f"model-{n}") for n in range(4))
    session.store.apply(ServersRecord("node-04", time.time(), four))
    async with console(session, (width, 24)) as pilot:
        await pilot.press("1")
        await shows(pilot, "servers", "queue", "tok/s")
        for row in rows(pilot)[2:9]:
            assert "…" not in row.replace("RTX PRO 60…", "").partition("· retry")[0], row
        four_of_them = next(row for row in rows(pilot) if "node-04" in row)
        assert ":30000" in four_of_them
        assert " +" in four_of_them or ":30003" in four_of_them, "servers are missing without a word"
        assert "⚠" in next(row for row in rows(pilot) if "node-05" in row), "throttling only by colour"
        assert "✗ lost" in text(pilot) or "✗ link lost" in text(pilot)


async def test_the_fleet_sums_up_all_hosts_in_its_first_row() -> None:
    async with console(fleet(6), (120, 40)) as pilot:
        await pilot.press("1")
        await shows(pilot, "5 servers", "512 tok/s", "run 20", "queue 2", "10 GPUs", "util 69%")


async def test_the_whole_row_under_the_cursor_is_marked_and_words_keep_their_colours() -> None:
    async with console(fleet(6), (120, 40)) as pilot:
        await pilot.press("1", "down", "down")
        await shows(pilot, "node-02")
        panel = pilot.app.screen.query_one(FleetPanel)
        marked = [row for row in panel.body(110, 20) if any(style.endswith("cursor") for _, style in row)]
        assert len(marked) == 1
        assert all(style.endswith("cursor") for _, style in marked[0])
        assert any(style.startswith("good") for _, style in marked[0])


async def test_a_fleet_of_no_host_says_how_to_open_one() -> None:
    async with console(Recorder(host_specs={}), (60, 18)) as pilot:
        await pilot.press("1")
        await shows(pilot, "no hosts yet", "tokpit HOST", "tokpit hosts")


async def test_enter_opens_the_cockpit_on_the_host_and_2_goes_back_without() -> None:
    session = fleet(6)
    async with console(session) as pilot:
        await pilot.press("1")
        await until(pilot, lambda: isinstance(pilot.app.screen, FleetScreen))
        await pilot.press("down", "down", "2")
        await until(pilot, lambda: isinstance(pilot.app.screen, Cockpit))
        assert pilot.app.view.host == "node-00"  # type: ignore[attr-defined]
        await pilot.press("1")
        await until(pilot, lambda: isinstance(pilot.app.screen, FleetScreen))
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, Cockpit))
        await shows(pilot, "node-02:30000", "model-02")


async def test_sixty_four_hosts_scroll_and_only_rows_in_view_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    session = fleet(64)
    async with console(session) as pilot:
        await pilot.press("1")
        await shows(pilot, "64 hosts", "node-00")
        panel = pilot.app.screen.query_one(FleetPanel)
        assert len(pilot.app.screen.query("*")) <= 4, "a widget a host is too dear"
        made: list[str] = []
        one = FleetPanel._row
        monkeypatch.setattr(FleetPanel, "_row", lambda self, name, *rest: made.append(name) or one(self, name, *rest))
        panel.body(116, 20)
        assert made == [f"node-{n:02d}" for n in range(19)]
        await pilot.press("end")
        await shows(pilot, "node-63")
        assert "node-00" not in text(pilot)
        await pilot.press("enter")
        await shows(pilot, "node-63:30000")


async def test_every_server_is_watched_while_the_fleet_is_open() -> None:
    session = fleet(5)
    async with console(session) as pilot:
        await pilot.press("1")
        ids = {i for state in session.store.hosts.values() for i in state.server_ids}
        await until(pilot, lambda: ids <= set(session.watched))


async def test_old_figures_count_for_nothing() -> None:
    session = fleet(2)
    info = next(iter(session.store.servers.values())).info
    session.store.servers[info.id].series.clear()
    session.store.apply(Sample(info.id, time.time() - 300, "metrics", {"gen_tps": 777.0}))
    async with console(session) as pilot:
        await pilot.press("1")
        await shows(pilot, "node-00")
        assert "777" not in text(pilot)


async def test_while_a_filter_is_typed_the_footer_has_no_letters() -> None:
    async with console(fleet(6), (80, 24)) as pilot:
        await pilot.press("1")
        await shows(pilot, "node-05")
        await pilot.press("slash")
        await until(pilot, lambda: rows(pilot)[-1].startswith(" enter keep  esc all hosts"))
        assert "check" not in rows(pilot)[-1]
        await pilot.press("z", "z", "enter")
        await shows(pilot, "no host has these words", "/ changes them")
