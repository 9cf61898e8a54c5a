"""tokpit is killed (-9) in each phase of an experiment, over a real sshd; then resumed or told to restore."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lifecycle_tools import make_engine, nothing_left, serve
from process_tools import alive
from sshd import SSHD_MISSING, Sshd
from tokpit.config.inventory import Inventory
from tokpit.domain.server import ServerInfo
from tokpit.errors import UsageError
from tokpit.ops.session import Session
from tokpit.ops.tuning.place import digest
from tokpit.store.journal import Event, Journal, entries

REQUESTS = 24
EXPERIMENT = """\
target = "{target}"
timeout_s = 40
[vary]
max_running = [8]
[workload]
levels = "8"
requests = {requests}
max_tokens = 8
warmup = 0
source = "here"
[search]
repeats = {repeats}
"""


@dataclass(frozen=True)
class Box:
    """A host behind a real sshd, whose servers obey files: they wait to start, to answer and to leave."""

    sshd: Sshd
    engine: Path
    gate: Path
    """A server does not listen before it is there."""
    hold: Path
    """While it is there, every stream after as many as it says waits."""
    stays: Path
    """While it is there, a server that is told to end goes on."""
    env: dict[str, str]

    def free(self) -> None:
        """Nothing waits any more."""
        self.gate.touch()
        for path in (self.hold, self.stays, self.asked, self.waits):
            path.unlink(missing_ok=True)

    def hold_after(self, streams: int) -> None:
        """Let so many streams of each server through."""
        part = self.hold.with_suffix(".part")
        part.write_text(str(streams))
        part.replace(self.hold)

    @property
    def asked(self) -> Path:
        """There once a server that stays was told to end."""
        return self.stays.with_name("stays.asked")

    @property
    def waits(self) -> Path:
        """There once a server waits before the gate."""
        return self.gate.with_name("gate.waits")


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    if SSHD_MISSING:
        pytest.skip(SSHD_MISSING)
    folder = tmp_path_factory.mktemp("box")
    # A step so long that slots decide what a server gives, however busy the machine is.
    env = {"FAKE_MARK": str(folder), "FAKE_STEP_S": "0.01"} | {
        f"FAKE_{name.upper()}": str(folder / name) for name in ("gate", "hold", "stays")
    }
    home = folder / "sshd" / "home"
    words = " ".join(f"{name}={value}" for name, value in {"HOME": str(home), **env}.items())
    with nothing_left(str(folder)), Sshd.start(folder / "sshd", SetEnv=words) as sshd:
        yield Box(sshd, make_engine(folder / "env"), folder / "gate", folder / "hold", folder / "stays", env)


@dataclass
class Case:
    """One experiment on one server."""

    box: Box
    session: Session
    first: ServerInfo
    folder: Path
    acted: set[str] = field(default_factory=set)

    @property
    def events(self) -> list[Event]:
        """The journal so far."""
        return [e for path in self.session.journals.glob("*.jsonl") for e in Journal(path.parent, path.stem).events()]

    def starts(self, *, first: bool = False) -> int:
        """Starts written down; `first`: those of the first server alone."""
        lines = [e.data["line"] for e in self.events if e.kind == "start"]
        return lines.count(digest(self.first.argv)) if first else len(lines)

    def says(self, words: str) -> bool:
        """Whether the newest phase is the one of these words."""
        told = [str(e.data["words"]) for e in self.events if e.kind == "phase"]
        return bool(told) and words in told[-1]

    def once(self, name: str, act: Callable[[], Any]) -> None:
        """Do it the first time it is asked for."""
        if name not in self.acted:
            self.acted.add(name)
            act()

    async def running(self) -> list[ServerInfo]:
        """What has the port."""
        return [s for s in await self.session.find(self.first.host) if s.port == self.first.port]

    async def killed(self, reached: Callable[[Case], bool], *, repeats: int = 1) -> str:
        """Run the experiment in a tokpit of its own and kill it once it is in the phase; the experiment's id."""
        file = self.folder / "experiment.toml"
        file.write_text(EXPERIMENT.format(target=self.first.label, requests=REQUESTS, repeats=repeats))
        words = ["--inventory", str(self.folder / "hosts.toml"), "--history", str(self.folder / "history.sqlite")]
        log = self.folder / "tune.log"
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tokpit", *words, "tune", "--file", str(file), "-y", stdout=out, stderr=out,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip
        try:
            while not reached(self):
                assert process.returncode is None, f"it ended before it was killed: {log.read_text()}"
                await asyncio.sleep(0.01)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await process.wait()
        (entry,) = entries(self.session.journals)
        while entry.state == "running":  # a child that was about to become another program has the lock until it has
            await asyncio.sleep(0.01)
            (entry,) = entries(self.session.journals)
        assert entry.state == "open"
        return entry.id


@pytest.fixture
async def case(box: Box, tmp_path: Path, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    """A server that runs, and a tokpit that knows its host."""
    monkeypatch.setenv("TOKPIT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TOKPIT_CACHE_DIR", str(tmp_path / "cache"))
    box.free()
    process = await serve(box.engine, unused_tcp_port, "--max-num-seqs", "2", **box.env)
    (tmp_path / "hosts.toml").write_text(
        f'[hosts.box]\naddress = "127.0.0.1"\nport = {box.sshd.port}\nuser = "{box.sshd.user}"\n'
        f'identity_files = ["{box.sshd.user_key}"]\nknown_hosts = "{box.sshd.known_hosts}"\n'
    )
    inventory = Inventory(hosts={"box": box.sshd.spec("box")})
    async with Session(inventory, history_path=tmp_path / "history.sqlite", assume_yes=True) as session:
        await session.connected("box")
        (first,) = [s for s in await session.find("box") if s.port == unused_tcp_port]
        made = Case(box, session, first, tmp_path)
        yield made
        box.free()
        for server in await made.running():
            os.kill(server.pid, signal.SIGKILL)
        process.kill()
        process.wait()


def plan_written(case: Case) -> bool:
    case.once("hold", lambda: case.box.hold_after(0))
    return bool(case.events)


def first_measured(case: Case) -> bool:
    case.once("hold", lambda: case.box.hold_after(0))
    return case.says("while the first server was measured")


def first_told_to_end(case: Case) -> bool:
    case.once("stay", case.box.stays.touch)
    return case.starts() == 1 and case.box.asked.exists()


def candidate_starts(case: Case) -> bool:
    case.once("shut", case.box.gate.unlink)
    return case.starts() == 1 and case.box.waits.exists()


def candidate_measured(case: Case) -> bool:
    if case.starts() == 1:
        case.once("hold", lambda: case.box.hold_after(0))
    return case.says("while #1 (max_running 8) was measured")


def candidate_measured_again(case: Case) -> bool:
    case.once("hold", lambda: case.box.hold_after(REQUESTS))
    return case.says("while #2 (max_running 8) was measured")


def first_put_back(case: Case) -> bool:
    if case.says("while #2 (max_running 8) was measured"):
        case.once("shut", case.box.gate.unlink)
    return case.starts(first=True) == 1 and case.box.waits.exists()


def first_measured_again(case: Case) -> bool:
    if case.starts(first=True) == 1:
        case.once("hold", lambda: case.box.hold_after(0))
    return case.says("while the first server again was measured")


def restored(case: Case) -> bool:
    if case.says("while #1 (max_running 8) was measured"):
        case.once("shut", case.box.gate.unlink)
    return case.says("while the first server was put back") and case.box.waits.exists()


PHASES: dict[str, Callable[[Case], bool]] = {
    "plan written": plan_written,
    "first server measured": first_measured,
    "first server told to end": first_told_to_end,
    "candidate starts": candidate_starts,
    "candidate measured": candidate_measured,
    "candidate measured again": candidate_measured_again,
    "first server put back to be measured again": first_put_back,
    "first server measured again": first_measured_again,
    "restoring": restored,
}
UNTOUCHED = {"plan written", "first server measured"}
RESUMED = ("candidate starts", "restoring")
RESTORED = ("first server measured", "first server told to end", "candidate measured")
"""What every run of the tests does; the real tier does the rest of phases and ways."""


def phases(at_once: tuple[str, ...]) -> list[Any]:
    """Every phase; some of them in every run."""
    return [pytest.param(name, marks=() if name in at_once else (pytest.mark.real,), id=name) for name in PHASES]


async def check_first_is_back(case: Case, cut_off: str, phase: str) -> None:
    """One server on the port, with the first one's command line, that answers; the journal is closed."""
    (back,) = await case.running()
    assert back.argv == case.first.argv
    assert (back.pid == case.first.pid) == (phase in UNTOUCHED), "nothing was restarted, so nothing is"
    assert phase in UNTOUCHED or not alive(case.first.pid)
    run = await case.session.execute("sweep.start", target=back.label, levels="1", requests=1, max_tokens=4, warmup=0)
    assert run.levels[0].ok == 1
    assert Journal.find(case.session.journals, cut_off).first() is None, "what may hold secrets goes with the end"
    assert [(e.id, e.state) for e in entries(case.session.journals)] == [(cut_off, "ended")]


async def leaving(case: Case, task: asyncio.Task[Any]) -> None:
    """A server that was told to end before, and still answers, is told again and not taken for the one that is back."""
    case.box.asked.unlink()
    while not case.box.asked.exists():
        assert not task.done(), "it was taken for the server that is back"
        await asyncio.sleep(0.01)
    case.box.stays.unlink()


async def finish(case: Case, phase: str, command: str, **args: Any) -> Any:
    """Resume or restore, with nothing on the host in the way but what the kill left there."""
    leaves = phase == "first server told to end"
    if not leaves:
        case.box.free()
    task = asyncio.create_task(case.session.execute(command, **args))
    if leaves:
        await leaving(case, task)
    return await task


@pytest.mark.parametrize("phase", phases(RESTORED))
async def test_restore_puts_the_first_server_back(case: Case, phase: str) -> None:
    cut_off = await case.killed(PHASES[phase], repeats=0 if phase == "restoring" else 1)
    with pytest.raises(UsageError, match="was cut off") as caught:
        await case.session.execute("ab.start", target=case.first.label, changes={"max_running": 4})
    assert f"--restore {cut_off}" in caught.value.hint
    await finish(case, phase, "tune.restore", id=cut_off[:9], timeout_s=40.0)
    await check_first_is_back(case, cut_off, phase)
    with pytest.raises(UsageError, match="already"):
        await case.session.execute("tune.restore", id=cut_off)


@pytest.mark.parametrize("phase", phases(RESUMED))
async def test_resume_goes_on_to_the_end(case: Case, phase: str) -> None:
    cut_off = await case.killed(PHASES[phase], repeats=0 if phase == "restoring" else 1)
    before = [event.data["trial"] for event in case.events if event.kind == "trial"]
    done = await finish(case, phase, "tune.resume", id=cut_off)
    assert (done.id, done.phase) == (cut_off, "done")
    assert [trial.number for trial in done.trials] == list(range(len(done.trials))), "nothing is measured twice"
    assert [t.value for t in done.trials[: len(before)]] == [t["value"] for t in before]
    roles = ["first", "search"] if phase == "restoring" else ["first", "search", "confirm", "last"]
    assert [trial.role for trial in done.trials] == roles
    assert done.trials[done.winner].choice == {"max_running": 8}, "eight at once are faster than two"
    await check_first_is_back(case, cut_off, "" if phase in UNTOUCHED else phase)
