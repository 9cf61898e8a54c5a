from __future__ import annotations

import asyncio

from textual.widgets import Input

from console_feed import HOST, Recorder, fill, launch, server
from console_screen import console, rows, shows, text, until
from tokpit.transport.base import HostSpec
from tokpit.ui.screens.launch import LaunchScreen


def session_with_program() -> Recorder:
    specs = {HOST: HostSpec(name=HOST, programs={"sglang": "/opt/sgl/bin/python -m sglang.launch_server"})}
    session = Recorder(host_specs=specs)
    fill(session.store)
    return session


async def test_the_form_starts_with_the_hosts_program_and_the_engines_port() -> None:
    async with console(session_with_program()) as pilot:
        await pilot.press("l")
        await shows(pilot, f"Launch on {HOST}", "/opt/sgl/bin/python -m sglang.launch_server", "Command line")


async def test_the_preview_is_the_exact_command_line_and_follows_the_fields() -> None:
    async with console(session_with_program()) as pilot:
        await pilot.press("l")
        await shows(pilot, "--model-path /srv/models/Qwen3.6-27B")
        screen = pilot.app.screen
        screen.query_one("#field-model", Input).value = ""
        await shows(pilot, "model: needed")
        screen.query_one("#field-model", Input).value = "/srv/models/Qwen3.6-27B"
        screen.query_one("#field-port", Input).value = "31007"
        screen.query_one("#field-raw", Input).value = "--watchdog-timeout 900"
        await until(pilot, lambda: "31007" in _preview(screen))
        preview = _preview(screen)
        assert preview.startswith("/opt/sgl/bin/python -m sglang.launch_server ")
        assert "--model-path /srv/models/Qwen3.6-27B" in preview
        assert "--watchdog-timeout 900" in preview


async def test_a_wrong_field_is_one_sentence_and_nothing_is_started() -> None:
    session = session_with_program()
    async with console(session) as pilot:
        await pilot.press("l")
        await shows(pilot, "Launch on")
        pilot.app.screen.query_one("#field-model", Input).value = "m"
        pilot.app.screen.query_one("#field-max_running", Input).value = "nine"
        await shows(pilot, "max running: 'nine' is not a whole number")
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert "server.launch" not in [name for name, _ in session.calls]


async def test_an_api_key_among_the_flags_is_masked_in_the_preview_but_kept_in_the_spec() -> None:
    async with console(session_with_program()) as pilot:
        await pilot.press("l")
        await shows(pilot, "Launch on")
        screen = pilot.app.screen
        assert isinstance(screen, LaunchScreen)
        screen.query_one("#field-model", Input).value = "m"
        screen.query_one("#field-raw", Input).value = "--api-key sk-very-secret"
        await until(pilot, lambda: "--api-key" in _preview(screen))
        assert "sk-very-secret" not in _preview(screen)
        assert screen.spec is not None
        assert "sk-very-secret" in screen.spec.settings.raw


async def test_start_sends_the_spec_through_the_gate_and_milestones_come_as_they_happen() -> None:
    session = session_with_program()
    async with console(session) as pilot:
        await pilot.press("l")
        await shows(pilot, "Launch on")
        screen = pilot.app.screen
        assert isinstance(screen, LaunchScreen)
        screen.query_one("#field-model", Input).value = "/srv/models/Qwen3.6-27B"
        screen.query_one("#field-spec_steps", Input).value = "3"
        screen.query_one("#field-hicache_gb", Input).value = "150"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(session.calls))
        name, args = session.calls[-1]
        assert name == "server.launch"
        settings = args["spec"].settings
        assert (settings.spec_method, settings.spec_steps, settings.hicache_gb) == ("mtp", 3, 150.0)
        session.store.apply(launch(op_id=args["operation_id"], steps=2))
        await shows(pilot, "arguments read")
        assert "weights loaded" not in text(pilot)
        session.store.apply(launch(op_id=args["operation_id"], steps=3))
        await shows(pilot, "weights loaded", "50.6 GiB", "1m14s", "+64.4s")
        done = launch(op_id=args["operation_id"], status="done", steps=6, result={"server": server().id})
        session.store.apply(done)
        await shows(pilot, "READY", "first token")


async def test_a_failed_start_shows_cause_and_hint() -> None:
    session = session_with_program()
    async with console(session, (80, 24)) as pilot:
        await pilot.press("l")
        await shows(pilot, "Launch on")
        screen = pilot.app.screen
        assert isinstance(screen, LaunchScreen)
        screen.operation_id = "launch-x"
        failed = launch(op_id="launch-x", status="failed", steps=3, error="out of memory: 12.4 GiB asked, 9.1 GiB free",
                        hint="lower --mem-fraction-static to 0.80")  # fmt: skip
        session.store.apply(failed)
        await shows(pilot, "FAILED", "12.4 GiB asked", "lower --mem-fraction-static to 0.80")


async def test_escape_goes_back_and_the_launch_goes_on() -> None:
    session = session_with_program()
    async with console(session) as pilot:
        await pilot.press("l")
        await shows(pilot, "Launch on")
        pilot.app.screen.operation_id = "launch-x"  # type: ignore[attr-defined]
        session.store.apply(launch(op_id="launch-x"))
        await shows(pilot, "weights loaded")
        await pilot.press("escape")
        await shows(pilot, "the launch goes on")
        assert "q quit" in rows(pilot)[-1]
        assert session.calls == []


async def test_read_only_opens_no_launch_screen() -> None:
    session = session_with_program()
    session.read_only = True
    async with console(session) as pilot:
        await shows(pilot, "read-only")
        await pilot.press("l")
        await shows(pilot, "tokpit runs in read-only mode")
        assert not isinstance(pilot.app.screen, LaunchScreen)


def _preview(screen: object) -> str:
    return str(screen.query_one("#preview").content)  # type: ignore[attr-defined]


async def test_pressing_start_twice_asks_once() -> None:
    class Slow(Recorder):
        async def execute(self, command_id: str, **args: object) -> None:
            self.calls.append((command_id, args))
            await asyncio.Event().wait()

    session = Slow()
    fill(session.store)
    async with console(session) as pilot:
        await pilot.press("l")
        await shows(pilot, "Launch on")
        await pilot.press("ctrl+s", "enter", "ctrl+s")
        await shows(pilot, "already under way")
        assert len(session.calls) == 1
