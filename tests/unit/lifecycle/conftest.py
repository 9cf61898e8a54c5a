from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lifecycle_tools import make_engine, nothing_left
from tokpit.config.inventory import Inventory
from tokpit.domain.hostspec import HostSpec
from tokpit.ops.session import Session


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of its own for the commands of a local host, and state folders below it."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TOKPIT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TOKPIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TMUX_TMPDIR", str(folder))
    return folder


@pytest.fixture
def mark(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A word in the environment of everything started by this test."""
    monkeypatch.setenv("FAKE_MARK", str(home))
    with nothing_left(str(home)):
        yield str(home)


@pytest.fixture
def engine_dir(home: Path) -> Path:
    """An environment with a stand-in vLLM."""
    return make_engine(home / "env")


@pytest.fixture
async def session(mark: str, tmp_path: Path) -> AsyncIterator[Session]:
    """A session whose host `local` is this machine, with consent given."""
    inventory = Inventory(hosts={"local": HostSpec(name="local", local=True)})
    async with Session(inventory, history_path=tmp_path / "history.sqlite", assume_yes=True) as made:
        made.add_host("local")
        yield made
