"""What a failed start leaves is listed, asked for and cleared away, over a real sshd; what is not its own stays."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from textual.widgets import Button

from console_screen import console, shows
from lifecycle_tools import marked
from process_tools import until_gone
from sshd import Sshd
from tokpit.config.inventory import Inventory
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.errors import LaunchError, StartFailed
from tokpit.ops.gate import ConfirmRequest
from tokpit.ops.session import Session
from tokpit.probes.family import free_shm_script, survivors_of
from tokpit.probes.sections import mark as section

SHM = Path("/dev/shm")


@pytest.fixture
def segment() -> Iterator[Path]:
    """A file of this test's own in /dev/shm; made by the stand-in engine's worker."""
    path = SHM / f"tokpit-test-{secrets.token_hex(6)}"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
async def session(sshd: Sshd, mark: str, tmp_path: Path) -> AsyncIterator[Session]:
    spec = msgspec.structs.replace(sshd.spec("box"), clock_factor=5.0)  # looks at a start five times as often
    inventory = Inventory(hosts={"box": spec})
    async with Session(inventory, history_path=tmp_path / "h.sqlite", assume_yes=True) as made:
        yield made


def spec_of(program: Path, port: int, mark: str, **env: str) -> LaunchSpec:
    return LaunchSpec(
        host="box",
        engine="vllm",
        program=(str(program),),
        settings=Settings(model="tiny", port=port),
        env={"FAKE_MARK": mark, **env},
    )


def records(sshd: Sshd) -> list[Path]:
    return list((sshd.home / ".local/state/tokpit/launches").iterdir())


async def killed_while_it_loads(session: Session, spec: LaunchSpec, mark: str) -> LaunchError:
    """The error of a start whose main process is killed with -9 while it loads, as the kernel does without memory."""
    launch = asyncio.create_task(session.execute("server.launch", spec=spec, timeout_s=600))
    while not (found := [o for o in session.store.operations.values() if o.kind == "launch" and o.steps]):
        await asyncio.sleep(0.02)
        assert not launch.done(), launch.exception()
    seen = session.store.version("ops")
    while session.store.version("ops") < seen + 2:  # every look is told when it begins: one has ended
        await asyncio.sleep(0.02)
    os.kill(int(found[0].steps[0].detail.split()[1].rstrip(",")), signal.SIGKILL)
    with pytest.raises(StartFailed) as failed:
        await launch
    return failed.value


async def test_what_outlives_a_failed_start_is_asked_for_once_and_cleared_away(
    session: Session, sshd: Sshd, engine_dir: Path, mark: str, unused_tcp_port: int, segment: Path
) -> None:
    spec = spec_of(engine_dir, unused_tcp_port, mark, FAKE_GATE="/none", FAKE_LEAVES="1", FAKE_SHM=str(segment))
    asked: list[ConfirmRequest] = []

    async def confirm(request: ConfirmRequest) -> bool:
        asked.append(request)
        return True

    session.assume_yes, session.confirm = False, confirm
    error = await killed_while_it_loads(session, spec, mark)
    start, question = asked
    assert start.title.startswith("start vllm")
    assert question.title.endswith("left: 1 process and 1 file in /dev/shm")
    process, file, *lines = question.lines
    assert process.startswith("# still runs: pid ")
    assert "VLLM::EngineCore" in process
    assert file == f"# lies there: {segment} (0.0 MiB)"
    pid = int(process.split()[4])
    assert lines == [
        f"kill -TERM {pid}",
        f"kill -KILL {pid}  # only what is left after 15 s",
        f"rm -f -- {segment}",
    ]
    assert "the process has ended" in question.warnings[0]
    assert error.message.endswith("cleared away: 1 process ended by TERM, 1 file removed (0.0 MiB)")
    assert not list(marked(mark))
    assert not segment.exists()
    assert not records(sshd)
    audit = [(entry.command, entry.outcome) for entry in await (await session.history()).audit()]
    assert audit == [("server.clear", "done"), ("server.launch", "failed")]
    log = (sshd.home / ".local/state/tokpit/audit.log").read_text().splitlines()
    assert ["server.clear done" in log[-2], "server.launch failed" in log[-1]] == [True, True]


async def test_a_no_leaves_everything_and_the_hint_says_what_is_there(
    session: Session, sshd: Sshd, engine_dir: Path, mark: str, unused_tcp_port: int, segment: Path
) -> None:
    spec = spec_of(engine_dir, unused_tcp_port, mark, FAKE_GATE="/none", FAKE_SHM=str(segment))
    answers = iter((True, False))

    async def confirm(request: ConfirmRequest) -> bool:
        return next(answers)

    session.assume_yes, session.confirm = False, confirm
    error = await killed_while_it_loads(session, spec, mark)
    (pid,) = marked(mark)
    assert f"left on box: still runs: pid {pid} VLLM::EngineCore" in error.hint
    assert f"there: kill -TERM {pid}" in error.hint
    assert "cleared away" not in error.message
    assert segment.exists()
    (record,) = records(sshd)
    record.unlink()


async def test_a_start_that_leaves_nothing_asks_nothing(
    session: Session, sshd: Sshd, engine_dir: Path, mark: str, unused_tcp_port: int
) -> None:
    asked = []

    async def confirm(request: ConfirmRequest) -> bool:
        asked.append(request.title)
        return True

    session.assume_yes, session.confirm = False, confirm
    spec = spec_of(engine_dir, unused_tcp_port, mark, FAKE_FAILS="ValueError: no room")
    with pytest.raises(StartFailed) as failed:
        await session.execute("server.launch", spec=spec, timeout_s=600)
    assert len(asked) == 1
    assert "left on" not in failed.value.hint
    assert not records(sshd), "its record says nothing any more"


async def test_a_wrapper_that_goes_into_the_background_by_itself_leaves_its_child(
    session: Session, engine_dir: Path, mark: str, unused_tcp_port: int, tmp_path: Path
) -> None:
    started = tmp_path / "child"
    script = engine_dir / "bin" / "vllm"
    script.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {started}\necho gone into the background\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    spec = spec_of(script, unused_tcp_port, mark)
    with pytest.raises(LaunchError, match="cleared away: 1 process ended by TERM"):
        await session.execute("server.launch", spec=spec, timeout_s=600)
    await until_gone(int(started.read_text()))


def test_with_yes_the_shell_is_told_what_went(
    sshd: Sshd, engine_dir: Path, mark: str, unused_tcp_port: int, tmp_path: Path
) -> None:
    script = engine_dir / "bin" / "vllm"
    script.write_text("#!/bin/sh\nsleep 600 &\necho 'ValueError: no room' >&2\n")
    inventory = tmp_path / "hosts.toml"
    inventory.write_text(
        f'[hosts.box]\naddress = "127.0.0.1"\nport = {sshd.port}\nuser = "{sshd.user}"\n'
        f'identity_files = ["{sshd.user_key}"]\nknown_hosts = "{sshd.known_hosts}"\n'
    )
    words = ("launch", "box", "vllm", "--program", str(script), "--model", "tiny", "--port", str(unused_tcp_port))
    done = subprocess.run(
        [sys.executable, "-m", "tokpit", "--inventory", str(inventory), *words, "--yes", "-e", f"FAKE_MARK={mark}"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert "cleared away: 1 process ended by TERM" in done.stderr
    assert not list(marked(mark))


async def test_the_app_asks_in_one_dialog_that_lists_what_is_there(
    session: Session, engine_dir: Path, mark: str, unused_tcp_port: int
) -> None:
    script = engine_dir / "bin" / "vllm"
    script.write_text("#!/bin/sh\nsleep 600 &\necho 'ValueError: no room'\n")
    session.assume_yes = False
    session.add_host("box")
    async with console(session, (80, 24)) as pilot:
        spec = spec_of(script, unused_tcp_port, mark)
        pilot.app.start_command("server.launch", spec=spec)  # type: ignore[attr-defined]
        await shows(pilot, "start vllm on box", "Do it")
        pilot.app.screen.query_one("#go", Button).press()
        await shows(pilot, "clear away what the failed start of", "still runs: pid", "sleep 600", "kill -TERM", "Do it")
        (pid,) = marked(mark)
        pilot.app.screen.query_one("#go", Button).press()
        await until_gone(pid)
        await shows(pilot, "cleared")


def test_of_shared_memory_only_what_is_new_own_and_held_by_nobody_is_taken(tmp_path: Path, segment: Path) -> None:
    def said(script: str) -> list[str]:
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
        return [line.split(" ", 1)[1] for line in done.stdout.splitlines() if str(segment) in line]

    folder = segment.with_name(segment.name + ".d")
    names = {name: segment.with_name(f"{segment.name}.{name}") for name in ("old", "mapped", "open", "free ' x")}
    since = tmp_path / "record"
    since.write_text("")
    try:
        for path in names.values():
            path.write_bytes(b"x" * 100)
        os.utime(names["old"], (1_000_000_000, 1_000_000_000))
        folder.mkdir()
        (folder / "weights").write_bytes(b"x")
        code = f"import mmap,time\nf=open({str(names['mapped'])!r},'r+b'); m=mmap.mmap(f.fileno(),100); f.close()\n"
        code += f"g=open({str(names['open'])!r})\nprint('there', flush=True); time.sleep(600)"
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            word, every = f"'{since}'", [*map(str, names.values()), str(folder / "weights"), f"{segment}.none"]
            free = [str(names["free ' x"])]
            assert said(free_shm_script(every, word)) == free
            held = {str(path) for name, path in names.items() if name != "old"}
            assert set(said(free_shm_script(every, word, but=[holder.pid]))) == held
            assert said(free_shm_script(every, f"'{since}-none'")) == []
            assert said(free_shm_script(every, word, remove=True)) == free
            assert sorted(name for name, path in names.items() if path.exists()) == ["mapped", "old", "open"]
            assert (folder / "weights").exists()
            holder.kill()
    finally:
        for path in (*names.values(), folder / "weights"):
            path.unlink(missing_ok=True)
        folder.rmdir()


def test_survivors_are_those_seen_before_and_the_group_unless_its_number_is_anothers() -> None:
    def printed(*rows: str) -> str:
        script = "\n".join((section("stat"), *(f"echo '{row}'" for row in rows), section("end")))
        return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout

    rows = (  # pid, parent, group, session, start time, state
        "201 1 200 200 5010 S",  # in its group
        "202 1 202 200 5020 S",  # in its session
        "203 202 203 203 5030 S",  # descends from that
        "204 1 204 204 5040 S",  # seen before
        "205 1 205 205 9999 S",  # seen before under that number, which is another's now
        "206 1 200 200 5050 Z",
        "207 1 200 200 4000 S",  # older than the start
        "1 0 1 1 1 S",
    )
    seen = {204: 5040, 205: 5050, 900: 1}
    assert survivors_of(printed(*rows), 200, 5000, 200, seen).pids == (201, 202, 203, 204)
    assert survivors_of(printed(*rows, "200 1 200 200 8000 S"), 200, 5000, 200, seen).pids == (204,)
