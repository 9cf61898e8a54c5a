"""However an experiment ends, the first server runs again: stops, failures, lost links; never a foreign one ends."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from relay import Relay
from sshd import Sshd
from tokpit.config.inventory import Inventory
from tokpit.domain.job import BatchJob
from tokpit.domain.records import LinkState
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.domain.tuning import Trial
from tokpit.errors import HostError, LaunchError, LoadError, TargetError, UsageError
from tokpit.ops.session import Session
from tokpit.ops.tuning.ab import Compared
from tokpit.ops.tuning.place import Place
from tokpit.ops.tuning.plan import first_of
from tokpit.store.journal import Journal, entries
from tokpit.tune.experiment import Experiment, Limits, Search

WORKLOAD = {"levels": "8", "requests": 8, "max_tokens": 8, "source": "here", "warmup": 0}
TIMEOUT_S = 40.0


@pytest.fixture
async def first(session: Session, engine_dir: Path, unused_tcp_port: int) -> ServerInfo:
    """The server as it ran."""
    settings = Settings(model="tiny", port=unused_tcp_port, max_running=2)
    spec = LaunchSpec(host="local", engine="vllm", program=(str(engine_dir),), settings=settings)
    await session.execute("server.launch", spec=spec, timeout_s=TIMEOUT_S)
    (found,) = [s for s in await session.find("local") if s.port == unused_tcp_port]
    return found


def experiment(info: ServerInfo, **changes: Any) -> Experiment:
    made = Experiment(target=info.label, vary={"max_running": "4,8"}, workload=WORKLOAD, timeout_s=TIMEOUT_S)
    return msgspec.structs.replace(made, **changes)


def trials(session: Session) -> list[Trial]:
    return [trial for tuning in session.store.tunings.values() for trial in tuning.trials]


async def running(session: Session, first: ServerInfo) -> list[ServerInfo]:
    return [s for s in await session.find(first.host) if s.port == first.port]


async def check_first_is_back(session: Session, first: ServerInfo, experiment_id: str) -> ServerInfo:
    (back,) = await running(session, first)
    assert back.argv == first.argv
    assert Journal.find(session.journals, experiment_id).first() is None, "what may hold secrets goes with the end"
    assert {e.id: e.state for e in entries(session.journals)}[experiment_id] == "ended"
    return back


async def test_a_stop_ends_what_is_under_way_and_brings_the_first_server_back(
    session: Session, first: ServerInfo
) -> None:
    task = asyncio.create_task(session.execute("tune.start", experiment=experiment(first)))
    while not any(t.status == "starting" for t in trials(session)):
        await asyncio.sleep(0.01)
        assert not task.done()
    (tuning_id,) = session.store.tunings
    with pytest.raises(UsageError, match="under way"):
        await session.execute("tune.start", experiment=experiment(first))
    await session.execute("tune.stop", id=tuning_id)
    done = await task
    assert done.phase == "stopped"
    assert {item.code for item in done.left_out} == {"limit"}
    await check_first_is_back(session, first, tuning_id)


async def test_leaving_the_console_brings_the_first_server_back_before_the_links_are_closed(
    session: Session, first: ServerInfo, tmp_path: Path
) -> None:
    async with Session(session.inventory, history_path=tmp_path / "history.sqlite", assume_yes=True) as leaving:
        work = leaving.execute("tune.start", experiment=experiment(first))
        task = leaving.supervisor.start("command:tune.start", work)
        while not any(t.role == "search" for t in trials(leaving)):
            await asyncio.sleep(0.01)
            assert not task.done()
    assert task.cancelled()
    (tuning_id,) = leaving.store.tunings
    await check_first_is_back(session, first, tuning_id)


async def test_limits_count_the_way_back_and_the_winner_is_kept_where_asked(
    session: Session, first: ServerInfo
) -> None:
    limited = experiment(first, limits=Limits(restarts=3), search=Search(repeats=0), keep=True)
    done = await session.execute("tune.start", experiment=limited)
    (one,) = [trial for trial in done.trials if trial.role == "search"]
    assert one.choice == {"max_running": 8}, "the likeliest first, and no second one: two restarts are kept for the end"
    assert done.winner == one.number, "eight at once are faster than two"
    (left,) = await running(session, first)
    assert left.settings.max_running == 8
    assert any("kept" in note for note in done.notes)
    assert {e.state for e in entries(session.journals)} == {"ended"}


async def test_a_first_server_that_gives_nothing_ends_it_before_any_restart(
    session: Session, first: ServerInfo
) -> None:
    hopeless = experiment(first, workload={**WORKLOAD, "api": "chat", "timeout_s": 0.001})
    with pytest.raises(LoadError):
        await session.execute("tune.start", experiment=hopeless)
    ((entry,)) = entries(session.journals)
    back = await check_first_is_back(session, first, entry.id)
    assert back.pid == first.pid


async def test_a_first_server_that_does_not_come_back_is_told_with_what_to_do(
    session: Session, first: ServerInfo, engine_dir: Path
) -> None:
    program = engine_dir / "bin" / "vllm"
    whole = program.read_text()
    task = asyncio.create_task(session.execute("tune.start", experiment=experiment(first)))
    while not any(t.role == "search" and t.points for t in trials(session)):
        await asyncio.sleep(0.01)
        assert not task.done()
    program.write_text(f"#!{engine_dir}/bin/python\nraise SystemExit('the disk is full')\n")
    with pytest.raises(LaunchError, match="was not put back") as caught:
        await task
    (entry,) = entries(session.journals)
    assert entry.state == "open"
    assert f"--restore {entry.id}" in caught.value.hint
    private = session.journals / f"{entry.id}.first.json"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    program.write_text(whole)
    assert await running(session, first) == []
    with pytest.raises(UsageError, match="was cut off while the first server was put back") as refused:
        await session.execute("tune.start", experiment=experiment(first))
    assert f"--restore {entry.id}" in refused.value.hint
    await session.execute("tune.restore", id=entry.id)
    await check_first_is_back(session, first, entry.id)


async def test_what_somebody_else_put_on_the_port_is_not_touched(session: Session, first: ServerInfo) -> None:
    known = await first_of(session, first)
    other = msgspec.structs.replace(known, argv=(*known.argv, "--seed", "7"))
    with Journal.create(session.journals, "x", other, {}) as journal, pytest.raises(TargetError, match="did not start"):
        await Place(session, other, journal, timeout_s=TIMEOUT_S).put_first_back()
    assert [server.pid for server in await running(session, first)] == [first.pid]


async def test_what_could_not_be_put_back_is_refused_with_what_to_do_instead(
    session: Session, first: ServerInfo
) -> None:
    in_container = msgspec.structs.replace(first, container="c0ffee")
    with pytest.raises(UsageError, match=r"container c0ffee.*not touched") as caught:
        await first_of(session, in_container)
    assert "tokpit launch --env-dir" in caught.value.hint
    in_job = msgspec.structs.replace(first, job=BatchJob(id="4711", state="RUNNING"))
    with pytest.raises(UsageError, match=r"batch job 4711.*wait in the queue") as caught:
        await first_of(session, in_job)
    assert "tokpit compare" in caught.value.hint
    with pytest.raises(UsageError, match="one server over 2 hosts"):
        await first_of(session, msgspec.structs.replace(first, ranks=("a:1", "b:2")))
    assert [server.pid for server in await running(session, first)] == [first.pid]
    assert entries(session.journals) == []


async def test_a_against_b_in_alternating_blocks(session: Session, first: ServerInfo) -> None:
    with pytest.raises(UsageError, match="the same"):
        await session.execute("ab.start", target=first.label, changes={}, workload=WORKLOAD)
    done = await session.execute(
        "ab.start", target=first.label, changes={"max_running": 8}, blocks=2, workload=WORKLOAD, timeout_s=TIMEOUT_S
    )
    assert isinstance(done, Compared)
    assert [block.side for block in done.blocks] == ["A", "B", "B", "A"]
    assert [block.restarted for block in done.blocks] == [False, True, False, True]
    assert done.versus.ratio > 1
    assert done.changes == ("max_running: 2 -> 8",)
    await check_first_is_back(session, first, done.id)


async def test_a_lost_link_is_waited_for_and_the_first_server_put_back(
    sshd: Sshd, engine_dir: Path, mark: str, tmp_path: Path, unused_tcp_port: int
) -> None:
    relay = Relay(sshd.port)
    await relay.open()
    known = tmp_path / "known_hosts"
    known.write_text(sshd.host_key_line(f"[127.0.0.1]:{relay.port}"))
    inventory = Inventory(hosts={"box": sshd.spec("box", port=relay.port, known_hosts=str(known))})
    settings = Settings(model="tiny", port=unused_tcp_port, max_running=2)
    spec = LaunchSpec(host="box", engine="vllm", program=(str(engine_dir),), settings=settings)
    async with Session(inventory, history_path=tmp_path / "history.sqlite", assume_yes=True) as session:
        await session.execute("server.launch", spec=spec, timeout_s=TIMEOUT_S)
        (first,) = [s for s in await session.find("box") if s.port == unused_tcp_port]
        slow = {**WORKLOAD, "requests": 32, "max_tokens": 64}
        quick = experiment(first, workload=slow, vary={"max_running": "8"}, search=Search(repeats=0))
        task = asyncio.create_task(session.execute("tune.start", experiment=quick))
        while not any(t.status == "measuring" and t.role == "search" for t in trials(session)):
            await asyncio.sleep(0.01)
            assert not task.done()
        await relay.close()
        while session.link("box").state is LinkState.UP:  # type: ignore[union-attr]  # it was connected
            await asyncio.sleep(0.01)
        await relay.open()
        with contextlib.suppress(HostError):
            await task
        (tuning_id,) = session.store.tunings
        back = await check_first_is_back(session, first, tuning_id)
        assert back.pid != first.pid
        await session.execute("server.stop", server_id=back.id, term_wait_s=2.0)
    await relay.close()
