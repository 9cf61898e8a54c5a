from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from console_feed import Recorder, gpu, server
from console_screen import console, rows, shows, text, until
from tokpit.domain.records import GpuRecord, HostRecord, LinkRecord, LinkState, Sample, ServersRecord
from tokpit.ops.gate import ConfirmRequest, Risk
from tokpit.transport.base import HostSpec
from tokpit.ui.fleet_rows import Heading, HostRow, arrange, hosts_of
from tokpit.ui.screens.fleet import FleetPanel, FleetScreen


def fleet(count: int) -> Recorder:
    names = [f"node-{n:02d}" for n in range(count)]
    specs = {name: HostSpec(name=name, group="lab" if n % 2 else "prod") for n, name in enumerate(names)}
    session = Recorder(host_specs=specs)
    now = time.time()
    for n, name in enumerate(names):
        session.store.apply(LinkRecord(name, now, LinkState.UP, rtt_s=0.010 + n / 1000))
        session.store.apply(HostRecord(name, now, 1 << 38, 1 << 37))
        session.store.apply(GpuRecord(name, now, (gpu(0, util=n / count),)))
        info = server(host=name, pid=100 + n, served_name=f"model-{n:02d}")
        session.store.apply(ServersRecord(name, now, (info,)))
        session.store.apply(Sample(info.id, now, "metrics", {"gen_tps": 100.0 + n, "queue_reqs": float(n % 3)}))
    return session


def shown(pilot: Any) -> list[str]:
    """The hosts on screen, from top to bottom."""
    words = (row.replace("●", " ").split() for row in rows(pilot))
    return [word for row in words for word in row if word.startswith("node-")]


async def open_fleet(pilot: Any) -> FleetPanel:
    await pilot.press("1")
    await until(pilot, lambda: isinstance(pilot.app.screen, FleetScreen))
    await shows(pilot, "node-00")
    panel = pilot.app.screen.query_one(FleetPanel)
    assert isinstance(panel, FleetPanel)
    return panel


async def test_picked_hosts_are_checked_with_one_command() -> None:
    session = fleet(6)
    asked: list[dict[str, Any]] = []

    async def execute(command_id: str, **args: Any) -> Any:
        asked.append({"id": command_id, **args})
        bad = SimpleNamespace(target="node-03:30000", ok=False, sentence="it does not answer")
        return SimpleNamespace(results=[SimpleNamespace(target="x", ok=True, sentence=""), bad])

    session.execute = execute  # type: ignore[method-assign]
    async with console(session) as pilot:
        panel = await open_fleet(pilot)
        await pilot.press("down", "p", "down", "p")
        await shows(pilot, "2 picked")
        assert list(panel.picked) == ["node-01", "node-03"]
        await pilot.press("c")
        await shows(pilot, "1 of 2 went well", "it does not answer")
        ids = [i for name in ("node-01", "node-03") for i in session.store.hosts[name].server_ids]
        assert asked == [{"id": "fleet.check", "targets": ids}]
        await pilot.press("a", "x")
        await until(pilot, lambda: len(asked) == 2)
        assert asked[1]["id"] == "fleet.stop"
        assert len(asked[1]["targets"]) == 6
        await pilot.press("a")
        await until(pilot, lambda: not panel.picked)


async def test_a_filter_is_typed_and_its_letters_are_no_keys() -> None:
    async with console(fleet(12)) as pilot:
        panel = await open_fleet(pilot)
        await pilot.press("slash", *"lab -node-03 ax", "backspace", "backspace", "backspace")
        await until(pilot, lambda: panel.wanted == "lab -node-03")
        assert not panel.picked
        await pilot.press("enter")
        await until(pilot, lambda: shown(pilot) == ["node-01", "node-05", "node-07", "node-09", "node-11"])
        assert "5 of 12 hosts" in text(pilot)
        await pilot.press("slash", *" zzz")
        await shows(pilot, "no host has these words")
        await pilot.press("escape")
        await until(pilot, lambda: len(shown(pilot)) == 12)
        assert isinstance(pilot.app.screen, FleetScreen)


async def test_order_and_groups_keep_the_cursor_on_hosts() -> None:
    async with console(fleet(6)) as pilot:
        panel = await open_fleet(pilot)
        await pilot.press("o")
        await until(pilot, lambda: shown(pilot)[0] == "node-05")
        await pilot.press("g")
        await shows(pilot, "lab", "prod")
        assert shown(pilot) == ["node-05", "node-03", "node-01", "node-04", "node-02", "node-00"]
        await pilot.press("down", "down", "down")
        assert panel.chosen() == "node-04"
        await pilot.press("o", "o")
        assert panel.chosen() == "node-04"  # wherever its row is now


def test_rows_without_a_figure_come_last_and_a_worse_link_first() -> None:
    made = [HostRow("a", tps=1.0), HostRow("b"), HostRow("c", tps=9.0), HostRow("d", linked=False)]
    assert hosts_of(arrange(made, sort="tok/s", wanted="", grouped=False)) == ["c", "a", "b", "d"]
    assert hosts_of(arrange(made, sort="link", wanted="", grouped=False))[0] == "d"
    grouped = arrange([HostRow("x"), HostRow("y", "lab")], sort="as listed", wanted="", grouped=True)
    assert grouped == [Heading("lab", 1), HostRow("y", "lab"), Heading("", 1), HostRow("x")]


async def test_a_question_about_many_servers_keeps_its_word_and_buttons_in_view_and_can_be_read() -> None:
    lines = tuple(f"node-{n:02d}:30000: stop it" for n in range(64))
    warnings = tuple(f"node-{n:02d} holds 71,000 MiB of GPU memory" for n in range(64))
    request = ConfirmRequest(
        title="stop 64 servers", lines=lines, risk=Risk.DESTRUCTIVE, warnings=warnings, typed_word="stop 64"
    )
    session = fleet(2)
    async with console(session, (80, 24)) as pilot:
        asked = asyncio.ensure_future(session.confirm(request))
        await shows(pilot, "stop 64 servers", "Type stop 64 to go on", "Cancel", "Do it", "read on", warnings[0])
        for wanted in (warnings[20], lines[-1]):
            while wanted not in text(pilot):
                await pilot.press("pagedown")
        await pilot.press(*"stop", "space", *"64", "enter")
        await until(pilot, asked.done)
        assert asked.result() is True
