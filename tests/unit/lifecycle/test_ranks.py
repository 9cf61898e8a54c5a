"""One server over two hosts: two real sshds, two real processes of a stand-in engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from lifecycle_tools import make_engine, nothing_left
from process_tools import alive
from sshd import SSHD_MISSING, Sshd
from tokpit.config.inventory import Inventory
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.engines import registry
from tokpit.errors import LaunchError, StartFailed, UsageError
from tokpit.ops.lifecycle import nodes, relaunch_ranks
from tokpit.ops.lifecycle.launch import Launched
from tokpit.ops.lifecycle.nodes import behind
from tokpit.ops.lifecycle.rank_logs import follow_all, interleave, read_all
from tokpit.ops.session import Session
from tokpit.tune.experiment import Experiment


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Sshd]]:
    if SSHD_MISSING:
        pytest.skip(SSHD_MISSING)
    with contextlib.ExitStack() as stack:
        found = {}
        for name in ("gpu1", "gpu2"):
            folder = tmp_path_factory.mktemp(name)
            stack.enter_context(nothing_left(str(folder)))
            env = f"HOME={folder / 'home'} FAKE_MARK={folder}"
            found[name] = stack.enter_context(Sshd.start(folder, SetEnv=env))
        yield found


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_engine(tmp_path_factory.mktemp("engine") / "env", version="0.32.0")


@pytest.fixture
async def session(hosts: dict[str, Sshd], tmp_path: Path) -> AsyncIterator[Session]:
    inventory = Inventory(hosts={name: server.spec(name) for name, server in hosts.items()})
    async with Session(inventory, history_path=tmp_path / "history.sqlite", assume_yes=True) as made:
        yield made


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def spec(engine: Path, port: int, **changes: Any) -> LaunchSpec:
    fields: dict[str, Any] = {
        "host": "gpu1",
        "ranks": ("gpu2",),
        "engine": "vllm",
        "program": (str(engine),),
        "settings": Settings(model="tiny", port=port, tp=2),
    }
    return LaunchSpec(**{**fields, **changes})


async def launch(session: Session, wanted: LaunchSpec) -> Launched:
    done = await session.execute("server.launch", spec=wanted, timeout_s=50.0, force=True)
    assert isinstance(done, Launched)
    return done


def pids(session: Session) -> list[int]:
    return [state.info.pid for state in session.store.servers.values()]


async def until(true: Any) -> None:
    while not true():
        await asyncio.sleep(0.05)


async def test_two_ranks_from_one_question_to_ready_and_to_their_end(session: Session, engine: Path) -> None:
    shown: list[tuple[str, ...]] = []

    async def agree(request: Any) -> bool:
        shown.append(request.lines)
        return True

    session.assume_yes, session.confirm = False, agree
    port = free_port()
    done = await launch(session, spec(engine, port))
    assert [line.partition(":")[0] for line in shown[0]] == ["gpu1", "gpu2"]
    assert "--nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port 29600" in shown[0][0]
    assert "--node-rank 1" in shown[0][1]
    assert shown[0][1].count("--headless") == 1
    assert "--headless" not in shown[0][0]
    # Found by any other tokpit on either host, as ranks of one server.
    first = next(one for one in await session.find("gpu1") if one.ranks)  # its own table also shows gpu2's here
    second = next(one for one in await session.find("gpu2") if one.group == first.group)
    assert (first.rank, second.rank, second.port, second.ranks) == (0, 1, None, ("gpu1", "gpu2"))
    assert first.port == port
    lines = await read_all(session, first, 4096)
    assert any(line.startswith("[0 gpu1] ") for line in lines)
    assert any(line.startswith("[1 gpu2] ") and "rank 1 waits" in line for line in lines)
    # Followed: what is there by time, then what comes, from the very next byte.
    followed: list[str] = []

    async def follow() -> None:
        async for line in follow_all(session, first, 4096):
            followed.append(line)

    task = asyncio.ensure_future(follow())
    await until(lambda: followed == list(lines))
    assert second.log_path is not None
    with Path(second.log_path).open("a") as log:
        log.write("one more\n")
    await until(lambda: followed == [*lines, "[1 gpu2] one more"])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    with pytest.raises(UsageError, match=r"2 (ranks|hosts)"):
        await session.execute("tune.start", experiment=Experiment(target=first.id, vary={"max_running": (4, 8)}))
    # Whichever rank is named, all are relaunched, and all end.
    again = await session.execute("server.relaunch", server_id=second.id, changes={"max_running": 7}, timeout_s=50.0)
    assert not any(alive(pid) for pid in (first.pid, second.pid))
    asked = shown[-1]
    assert asked[0] == "# max_running: not given -> 7"
    assert [line.partition(":")[0] for line in asked[1:]] == [
        *("gpu1", "gpu1", "gpu2", "gpu2"), *("# gpu1 was", "# gpu2 was"), *("gpu1", "gpu2"),
    ]  # fmt: skip
    first, second = await both(session)
    assert (again.server.pid, first.port, first.settings.max_running, second.settings.max_running) == (
        first.pid, port, 7, 7,
    )  # fmt: skip
    assert again.server.pid != done.server.pid
    assert "--node-rank 1" in " ".join(second.argv)
    await session.execute("server.stop", server_id=second.id)
    assert not any(alive(pid) for pid in (first.pid, second.pid, done.state.pid))
    assert {line.partition(":")[0] for line in shown[-1]} == {"gpu1", "gpu2"}


async def test_a_relaunch_that_fails_on_one_rank_brings_all_ranks_back(session: Session, engine: Path) -> None:
    port = free_port()
    await launch(session, spec(engine, port))
    before = await both(session)
    failing = {"FAKE_FAILS": "OSError: [Errno 98] Address already in use", "FAKE_FAILS_RANK": "1"}
    with pytest.raises(StartFailed, match=r"rank 1 on gpu2.*the earlier server was started again and was ready"):
        await session.execute(
            "server.relaunch", server_id=before[0].id, changes={"tp": 1}, env=failing, rollback=True, timeout_s=50.0
        )
    after = await both(session)
    assert [one.argv for one in after] == [one.argv for one in before]
    assert not {one.pid for one in after} & {one.pid for one in before}
    entries = [entry for entry in await (await session.history()).audit(20) if entry.command == "server.relaunch"]
    assert [entry.outcome for entry in entries] == ["failed"]
    assert "was started again" in entries[0].detail
    # With a rank gone there is nothing whole to relaunch.
    os.kill(after[1].pid, signal.SIGKILL)
    await until(lambda: not alive(after[1].pid))
    with pytest.raises(LaunchError, match="rank 1 on gpu2 does not run any more"):
        await session.execute("server.relaunch", server_id=after[0].id, changes={"tp": 1})
    await session.execute("server.stop", server_id=after[0].id)


async def both(session: Session) -> tuple[ServerInfo, ServerInfo]:
    one = next(info for info in await session.find("gpu1") if info.ranks)
    first, second = await nodes.running(session, one)
    return first, second


@pytest.mark.parametrize("name", ["sglang", "vllm"])
def test_the_flags_of_a_rank_come_off_again(name: str) -> None:
    known = registry.engine(name)
    words = known.rank_flags("0.32.0" if name == "vllm" else None, nodes=2, rank="1", head="10.0.0.5", port=29600)
    whole = ("--model-path", "m", *words[:4], "--tp", "2", *words[4:])
    assert known.without_ranks(whole) == (("--model-path", "m", "--tp", "2"), words, "10.0.0.5")
    assert known.without_ranks(("--tp", "2", f"{words[4]}=h:1")).head == "h"


def test_the_number_of_ranks_is_no_setting() -> None:
    info = ServerInfo(
        host="gpu1", engine="vllm", pid=1, start_ticks=1, pgid=1,
        settings=Settings(tp=2, raw=("--seed", "1", "--nnodes", "2")), ranks=("gpu1", "gpu2"),
    )  # fmt: skip
    known, old = registry.engine("vllm"), Settings(tp=2, raw=("--seed", "1"))
    changed = relaunch_ranks.changed_settings(known, info, old, {"raw": ("--seed", "2", "--nnodes", "2")})
    assert changed == Settings(tp=2, raw=("--seed", "2"))
    with pytest.raises(UsageError, match=r"stay as they are: --nnodes 3"):
        relaunch_ranks.changed_settings(known, info, old, {"raw": ("--seed", "1", "--nnodes", "3")})


async def test_a_rank_that_fails_is_named_with_its_reason_and_the_others_are_ended(
    session: Session, engine: Path
) -> None:
    said = "OSError: [Errno 98] Address already in use"
    with pytest.raises(StartFailed, match="rank 1 on gpu2") as failed:
        await launch(session, spec(engine, free_port(), env={"FAKE_FAILS": said, "FAKE_FAILS_RANK": "1"}))
    assert failed.value.code == "PORT_IN_USE"
    assert not any(alive(pid) for pid in pids(session))


async def test_a_rank_that_dies_while_the_first_one_starts_ends_the_start(session: Session, engine: Path) -> None:
    # The first rank never becomes ready: somebody else has its port.
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        work = asyncio.ensure_future(launch(session, spec(engine, sock.getsockname()[1], env={"FAKE_WAITS": "1"})))
        await until(lambda: len(pids(session)) == 2)
        second = next(state.info for state in session.store.servers.values() if state.info.rank == 1)
        os.kill(second.pid, signal.SIGKILL)
        with pytest.raises(StartFailed, match=r"rank 1 on gpu2( has ended|: its process has ended)"):
            await work
    assert not any(alive(pid) for pid in pids(session))


async def test_hosts_must_be_different_and_of_one_version(session: Session, engine: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gpu1 is named twice"):
        await launch(session, spec(engine, free_port(), ranks=("gpu1",)))
    with pytest.raises(UsageError, match="over SSH"):
        await launch(session, spec(engine, free_port(), method="docker"))


def test_lines_of_ranks_come_in_the_order_of_their_stamps() -> None:
    parts = [
        ("[0] ", ["INFO 11-30 03:00:01 [a.py:1] one", "  more of it", "INFO 11-30 03:00:05 [a.py:1] four"]),
        ("[1] ", ["INFO 11-30 03:00:02 [a.py:1] two", "INFO 11-30 03:00:03 [a.py:1] three"]),
    ]
    found = [line.split("] ", 1)[0] + line.rsplit(" ", 1)[1] for line in interleave("vllm", parts)]
    assert found == ["[0one", "[0it", "[1two", "[1three", "[0four"]


def test_the_rank_that_others_wait_for_is_named() -> None:
    class Pace:
        def __init__(self, name: str, steps: int, moved_s: float, phase: str) -> None:
            self.name, self.moved_s, self.phase, self._steps = name, moved_s, phase, steps

        def read(self, now_s: float) -> int:
            return self._steps

    paces = [Pace("rank 0 on a", 3, 50.0, "distributed"), Pace("rank 1 on b", 1, 10.0, "loading weights")]
    assert behind(paces, 95.0) == (
        "rank 1 on b is behind: nothing for 85 s since loading weights, while rank 0 on a is at distributed"
    )
    assert behind(paces, 55.0) == ""
    assert behind([paces[0], paces[0]], 500.0) == ""
