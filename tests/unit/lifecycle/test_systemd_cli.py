"""systemd's real programs where no manager runs: they take our words, refuse for that reason alone, and are quoted."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tokpit.domain.hostspec import HostSpec
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.errors import LaunchError, StopError
from tokpit.ops.lifecycle import managers, methods
from tokpit.ops.lifecycle.managers import Manager
from tokpit.ops.session import Session
from tokpit.transport.local import LocalHost
from tokpit.transport.methods import systemd_argv

PROGRAMS = ("systemctl", "systemd-run", "systemd-analyze")
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, PROGRAMS)) or Path("/run/systemd/system").exists(),
    reason="wants systemd's programs (Debian: apt-get install systemd) on a machine that runs no manager",
)
NO_MANAGER = ("Failed to connect to bus", "not been booted with systemd")


def said_by(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode != 0, done.stdout
    return done.stderr


@pytest.mark.parametrize("user", [False, True], ids=["system", "user"])
def test_systemd_run_takes_every_word_of_a_launch_and_lacks_its_manager_only(user: bool) -> None:
    words = systemd_argv("tokpit-vllm-8000-1130-1200-ab12", user=user, run="/nonexistent/run")
    assert any(reason in said_by(*words) for reason in NO_MANAGER)
    wrong = [word.replace("--collect", "--colect") for word in words]
    assert "unrecognized option" in said_by(*wrong)


def test_the_properties_of_a_launch_are_known_to_systemd_and_valid(tmp_path: Path) -> None:
    def complaints(*properties: str) -> str:
        unit = tmp_path / "tokpit-test.service"
        unit.write_text("\n".join(("[Service]", *properties, "ExecStart=/bin/sh /etc/hostname", "")))
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
        )
        return done.stderr.strip()

    words = systemd_argv("tokpit-test", user=False, run="x")
    properties = [word.removeprefix("--property=") for word in words if word.startswith("--property=")]
    assert len(properties) > 2
    assert complaints(*properties) == ""
    assert "mixd" in complaints(*(one.replace("mixed", "mixd") for one in properties))


async def test_a_launch_without_a_manager_is_refused_before_and_quoted_where_it_is_forced(
    session: Session, engine_dir: Path, home: Path, unused_tcp_port: int
) -> None:
    settings = Settings(model="tiny", port=unused_tcp_port)
    spec = LaunchSpec(host="local", engine="vllm", program=(str(engine_dir),), settings=settings, method="systemd")
    fatal = [risk for risk in await methods.survival_risks(session.host("local"), spec) if risk.fatal]
    assert fatal
    with pytest.raises(LaunchError, match="refused before the start"):
        await session.execute("server.launch", spec=spec)
    with pytest.raises(LaunchError, match=r"Failed to connect to bus|not been booted"):
        await session.execute("server.launch", spec=spec, force=True)
    assert list((home / ".local/state/tokpit/launches").iterdir()) == [], "no script with the environment stays"


async def test_a_unit_that_nobody_answers_for_keeps_nothing_and_a_stop_through_it_says_why(home: Path) -> None:
    host = LocalHost(HostSpec(name="local", local=True))
    try:
        for group in ("/system.slice/serve.service", "/user.slice/user-7.slice/user@7.service/app.slice/s.service"):
            assert await managers.manager_of(host, os.getpid(), f"0::{group}", in_container=False) is None
        for user in (False, True):
            with pytest.raises(StopError, match=r"Failed to connect to bus|not been booted"):
                await managers.ask(host, Manager(kind="systemd", name="serve.service", user=user), "stop", wait_s=5)
    finally:
        await host.close()
