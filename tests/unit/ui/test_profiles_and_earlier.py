"""The launch form from a profile and from an earlier server, with what the host says of it."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from textual.widgets import Input, Select

from console_feed import HOST, Recorder, fill
from console_screen import console, shows, text, until
from tokpit.config.inventory import Inventory
from tokpit.config.profiles import Profile, load_profile, profile_path, save_profile
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.errors import UsageError
from tokpit.ops.host.environments import Kept, cache_path
from tokpit.ops.session import Session
from tokpit.probes.environments import Environment, Found
from tokpit.sim.host import SimHost
from tokpit.ui.relaunching import spec_on, spec_values
from tokpit.ui.screens.earlier import EarlierScreen
from tokpit.ui.screens.launch import LaunchScreen
from tokpit.ui.screens.picker import PickScreen


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "CACHE", "STATE"):
        monkeypatch.setenv(f"TOKPIT_{name}_DIR", str(tmp_path / name))


BASE = LaunchSpec(
    host=HOST,
    engine="sglang",
    program=("/opt/sgl/bin/python", "-m", "sglang.launch_server"),
    settings=Settings(model="/m", dtype="bfloat16", tp=2, spec_method="mtp", spec_steps=3, raw=("--api-key", "sk-1")),
    env={"CUDA_VISIBLE_DEVICES": "0,1", "HF_TOKEN": "hf-secret", "NOTE": "two words"},
    method="tmux",
)


def test_a_form_keeps_what_it_has_no_field_for_and_secrets_only_behind_their_masks() -> None:
    values = spec_values(BASE)
    assert "secret" not in "".join(values.values())
    assert "sk-1" not in "".join(values.values())
    assert spec_on(BASE, values) == BASE
    changed = spec_on(BASE, {**values, "spec_steps": "1", "env": values["env"].replace("0,1", "1")})
    assert changed.settings.dtype == "bfloat16"
    assert (changed.settings.spec_steps, changed.settings.raw) == (1, ("--api-key", "sk-1"))
    assert changed.env == {**BASE.env, "CUDA_VISIBLE_DEVICES": "1"}
    assert changed.method == "tmux"
    with pytest.raises(UsageError, match="is not NAME=VALUE"):
        spec_on(BASE, {**values, "env": "A B=1"})
    with pytest.raises(UsageError, match="stands for no value"):
        spec_on(BASE, {**values, "env": "OTHER_TOKEN=***"})


async def test_a_profile_fills_the_form_and_another_engine_leaves_it() -> None:
    save_profile("big", Profile(engine="vllm", settings=Settings(model="/big", tp=4, dtype="half"), env={"A": "1"}))
    (profile_path("big").parent / "broken.toml").write_text("engine = ")
    session = Recorder()
    fill(session.store)
    async with console(session) as pilot:
        await pilot.press("l")
        await shows(pilot, "profile", "left out:", "broken.toml")
        screen = pilot.app.screen
        assert isinstance(screen, LaunchScreen)
        screen.query_one("#profile", Select).value = "big"
        await shows(pilot, "from profile big", "/big --tensor-parallel-size 4", "--dtype half")
        screen.query_one("#field-tp", Input).value = "8"
        await shows(pilot, "--tensor-parallel-size 8")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(session.calls))
        spec = session.calls[-1][1]["spec"]
        assert (spec.settings.tp, spec.settings.dtype, spec.env, spec.name) == (8, "half", {"A": "1"}, "big")
        screen.query_one("#engine", Select).value = "sglang"
        await until(pilot, lambda: "from profile" not in text(pilot))
        assert screen.base is None
        assert screen.query_one("#profile", Select).value is Select.NULL


async def test_the_host_checks_the_form_offers_what_it_has_and_remembers_what_ran(tmp_path: Path) -> None:
    async with (
        SimHost(clock_factor=60.0, running=True) as sim,
        Session(Inventory(hosts={sim.name: sim.spec}), history_path=tmp_path / "h.sqlite") as session,
    ):
        session.add_host(sim.name)
        place = Environment(prefix=sim.venv, kind="venv", engines={"sglang": "0.5.11"})
        known = Kept(time.time(), Found(environments=(place,)))  # the search itself has its own tests
        cache_path(sim.name).parent.mkdir(parents=True)
        cache_path(sim.name).write_bytes(msgspec.json.encode(known))
        async with console(session, (150, 46)) as pilot:
            await until(pilot, lambda: pilot.app.view.server is not None)  # type: ignore[attr-defined]
            await pilot.press("P")
            await shows(pilot, "Launch profile")
            await pilot.press(*"mine", "enter")
            await shows(pilot, "saved", "mine.toml")
            assert load_profile("mine").settings.spec_steps == 3
            await pilot.press("l")
            shown = await shows(pilot, "checks", "which runs", f"{sim.venv}/bin/python -m sglang.launch_server")
            assert "hicache_gb: 150 -> not given" in shown
            screen = pilot.app.screen
            screen.query_one("#field-port", Input).value = str(sim.engine_port)
            await shows(pilot, "would be refused", f"Port {sim.engine_port} is in use")
            screen.query_one("#field-program").focus()
            await pilot.press("ctrl+f")
            await until(pilot, lambda: isinstance(pilot.app.screen, PickScreen))
            await shows(pilot, "1 environment with SGLang", "0.5.11")
            await pilot.press("enter")
            await until(pilot, lambda: screen.query_one("#field-program", Input).value == sim.venv)
            await pilot.press("escape", "H")
            await until(pilot, lambda: bool(getattr(pilot.app.screen, "listed", ())))
            earlier = pilot.app.screen
            assert isinstance(earlier, EarlierScreen)
            mine = next(n for n, one in enumerate(earlier.listed) if sim.venv.rpartition("/")[0] in one.where)
            await pilot.press(*["down"] * mine)
            await shows(pilot, f"this is demo:{sim.engine_port}, which runs now", "hicache gb")
            await pilot.press("enter")
            await shows(pilot, "Launch on demo, from log", "--hicache-size 150")
