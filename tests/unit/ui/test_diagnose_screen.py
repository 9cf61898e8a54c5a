from __future__ import annotations

import base64
import time
from typing import Any

import pytest

from console_feed import Recorder, fill, server
from console_screen import console, rows, shows, text, until
from tokpit.domain.finding import Finding
from tokpit.domain.records import Sample
from tokpit.errors import TargetError
from tokpit.insight.facts import Facts
from tokpit.ops.check.judge import Item
from tokpit.ops.check.run import Checked
from tokpit.ui.screens.diagnose import DiagnoseScreen

FINDINGS = (
    Finding(
        code="GPU_THROTTLED",
        severity="error",
        claim="GPU 0 runs at 62% of its clock because it is too hot.",
        arithmetic="1510 MHz / 2430 MHz = 62%",
        evidence=("hw-thermal active", "91 °C"),
        next_action="Look at the fans.",
    ),
    Finding(code="SWAP", severity="warning", claim="The host swaps.", evidence=("swap 12 GB",), confidence="likely"),
    Finding(code="ROOFLINE", severity="info", claim="The ceiling is 33 steps/s."),
)


async def open_diagnose(pilot: Any, findings: tuple[Finding, ...] = FINDINGS, **more: Any) -> DiagnoseScreen:
    await shows(pilot, "ready")
    await pilot.press("d")
    await until(pilot, lambda: isinstance(pilot.app.screen, DiagnoseScreen))
    screen = pilot.app.screen
    await until(pilot, lambda: not any(worker.is_running for worker in screen.workers))
    screen.fill(findings, **more)
    return screen  # type: ignore[no-any-return]


def filled() -> Recorder:
    session = Recorder()
    fill(session.store)
    return session


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_findings_are_ranked_and_evidence_opens_in_place(size: tuple[int, int]) -> None:
    async with console(filled(), size) as pilot:
        await open_diagnose(pilot)
        shown = await shows(pilot, "GPU 0 runs at 62%", "The host swaps.", "1 error", "1 warning", "Look at the fans.")
        assert shown.index("GPU 0 runs") < shown.index("The host swaps")
        assert "1510 MHz" not in shown
        await pilot.press("enter")
        await shows(pilot, "1510 MHz / 2430 MHz = 62%", "91 °C", "GPU_THROTTLED · sure")
        await pilot.press("down", "enter")
        await shows(pilot, "swap 12 GB", "SWAP · likely")
        await pilot.press("up", "enter")
        await until(pilot, lambda: "1510 MHz" not in text(pilot))


async def test_the_cockpit_says_how_many_findings_cost_something_and_how_near_the_ceiling_it_runs() -> None:
    session = filled()
    async with console(session, (200, 60)) as pilot:
        await open_diagnose(pilot, facts=Facts(weights_gb=54.0, bandwidth_gbps=1792.0, tp=1))
        await pilot.press("escape")
        values = {"gen_tps": 288.0, "running_reqs": 4.0, "accept_len": 3.0}
        session.store.apply(Sample(server().id, time.time(), "log", values))
        await shows(pilot, "findings 2", "steps 24.0/s 72% of ceiling")
        session.store.apply(Sample(server().id, time.time() - 0.001, "log", {"running_reqs": 0.0}))
        session.store.apply(Sample(server().id, time.time(), "log", {"running_reqs": 0.0}))
        await until(pilot, lambda: "of ceiling" not in rows(pilot)[1])


async def test_a_finding_is_copied_with_all_it_rests_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with console(filled()) as pilot:
        await open_diagnose(pilot)
        written: list[str] = []
        monkeypatch.setattr(pilot.app._driver, "write", written.append)
        await pilot.press("y")
        sent = next(part for part in written if part.startswith("\x1b]52;c;"))
        copied = base64.b64decode(sent.removeprefix("\x1b]52;c;").rstrip("\a")).decode()
        for part in ("gpu-rack-7:30000: GPU 0", "1510 MHz / 2430", "  91 °C", "next: Look at the fans."):
            assert part in copied


async def test_many_findings_scroll_with_the_cursor() -> None:
    many = tuple(Finding(code="X", severity="warning", claim=f"Claim number {n:02d}.") for n in range(60))
    async with console(filled(), (80, 24)) as pilot:
        await open_diagnose(pilot, many)
        await shows(pilot, "Claim number 00")
        await pilot.press("end")
        await shows(pilot, "Claim number 59")
        await pilot.press("home")
        await shows(pilot, "Claim number 00")


async def test_markup_in_a_finding_is_only_text() -> None:
    async with console(filled()) as pilot:
        await open_diagnose(pilot, (Finding(code="X", severity="info", claim="[bold]line[/bold] \x1b[2Jend"),))
        await shows(pilot, "[bold]line[/bold]", "end")


async def test_c_shows_each_item_of_a_check_and_its_verdict() -> None:
    items = (
        Item(name="token", ok=True, sentence="first token after 0.4 s"),
        Item(name="speed", ok=False, sentence="31 tok/s, 54% of the baseline"),
        Item(name="flags", ok=None, sentence="the server does not say"),
    )

    class Checking(Recorder):
        async def execute(self, command_id: str, **args: Any) -> Any:
            self.calls.append((command_id, args))
            return Checked(target="gpu-rack-7:30000", ok=False, items=items, elapsed_s=11.2, run="r-0031")

    session = Checking()
    fill(session.store)
    async with console(session) as pilot:
        await shows(pilot, "ready")
        await pilot.press("c")
        await shows(pilot, "✗ failed", "first token after 0.4 s", "54% of the baseline", "r-0031")
        assert session.calls[0][0] == "server.check"
        assert session.calls[0][1]["target"] == server().id
        await pilot.press("r")
        await until(pilot, lambda: len(session.calls) == 2)


async def test_a_check_that_cannot_run_says_so() -> None:
    class Failing(Recorder):
        async def execute(self, command_id: str, **args: Any) -> Any:
            raise TargetError("the port of the server is not known")

    session = Failing()
    fill(session.store)
    async with console(session) as pilot:
        await shows(pilot, "ready")
        await pilot.press("c")
        await shows(pilot, "not finished", "the port of the server is not known")
        pilot.app.clear_notifications()
        await shows(pilot, "r tries again", "✗ the port of the server is not known")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_w_says_what_a_rate_would_take(size: tuple[int, int]) -> None:
    facts = Facts(weights_gb=54.0, gpu="RTX A6000", tp=2, single_tps=37.0, accept_len=1.75, draft_tokens=1)
    async with console(filled(), size) as pilot:
        screen = await open_diagnose(pilot, facts=facts)
        await pilot.press("w", *"70", "enter")
        await shows(pilot, "what it would take", "acceptance length", "1.75 → 3.31", "37 now")
        await pilot.press("end")
        await shows(pilot, "GPUs that share the weights")
        await pilot.press("w", *"a lot", "enter")
        await shows(pilot, "'a lot' is no rate")
        await pilot.press("escape")
        await pilot.press("escape")
        await until(pilot, lambda: "what it would take" not in text(pilot))
        assert pilot.app.screen is screen
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is not screen)
