from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from console_feed import HOST, fill, server, text_line
from tokpit.config.inventory import Inventory
from tokpit.domain.hostspec import HostSpec
from tokpit.domain.records import LogBatch, Operation, Sample
from tokpit.errors import StoreError, UsageError
from tokpit.ops.records import recording as ops_recording
from tokpit.ops.records.recording import Recorder, new_ring, rings, save_ring
from tokpit.ops.records.replay import ReplaySession
from tokpit.ops.session import Session
from tokpit.store.live import LiveStore
from tokpit.store.past import at_moment, state
from tokpit.store.recording.format import Head
from tokpit.store.recording.reader import Recording
from tokpit.store.recording.writer import FileSink

SRC = Path(__file__).parents[3] / "src"
END = 1_796_000_300.0
HEAD = Head(hosts=(HostSpec(name=HOST),), clocks={HOST: END - 300})


def recorded(path: Path) -> Path:
    """Five minutes of the feed, each sample at its own time."""
    heard = []
    store = LiveStore()
    store.listen(heard.append)
    fill(store, seconds=300, end=END)
    sink = FileSink(path)
    sink.begin(END - 300, HEAD, [])
    sink.write([(END - 300, r) for r in heard if not isinstance(r, (Sample, LogBatch))], 0)
    sink.write([(r.t, r) for r in heard if isinstance(r, Sample)], 0)
    sink.close(END)
    return path


async def test_seeking_back_and_forth_gives_what_was_known_at_that_moment(tmp_path: Path) -> None:
    session = await ReplaySession.open(recorded(tmp_path / "a.tokrec"))
    player, sid = session.player, server().id
    await player.seek(END - 100)
    series = session.store.servers[sid].series["gen_tps"]
    then = (len(series.times), series.last)
    assert series.last_t is not None
    assert END - 102 < series.last_t <= END - 100
    await player.seek(END)
    assert len(session.store.servers[sid].series["gen_tps"].times) == 300
    await player.seek(END - 100)
    series = session.store.servers[sid].series["gen_tps"]
    assert (len(series.times), series.last) == then
    player.advance(10)
    assert player.position == END - 90
    assert len(series.times) == then[0] + 10
    assert session.host_now(HOST) == pytest.approx(END - 90)


async def test_steps_taken_while_it_seeks_add_up(tmp_path: Path) -> None:
    session = await ReplaySession.open(recorded(tmp_path / "a.tokrec"))
    player = session.player
    await player.seek(END)
    steps = []
    for _ in range(4):
        steps.append(asyncio.create_task(player.seek(player.heading - 10)))
        await asyncio.sleep(0)
    await asyncio.gather(*steps)
    assert player.position == player.heading == END - 40
    series = session.store.servers[server().id].series["gen_tps"]
    assert series.last_t is not None
    assert END - 42 < series.last_t <= END - 40


async def test_it_plays_at_its_speed_pauses_and_stops_at_the_end(tmp_path: Path) -> None:
    session = await ReplaySession.open(recorded(tmp_path / "a.tokrec"))
    player = session.player
    player.speed = 64.0
    async with session:
        while player.position < END - 250:
            await asyncio.sleep(0.01)
        player.toggle()
        await asyncio.sleep(0)
        here = player.position
        player.toggle()
        while not player.ended:
            await asyncio.sleep(0.01)
        assert here < END
        assert player.position == END
    player.faster(1)
    assert player.speed == 64.0
    player.faster(-1)
    assert player.speed == 32.0


async def test_nothing_can_be_done_in_a_recording(tmp_path: Path) -> None:
    session = await ReplaySession.open(recorded(tmp_path / "a.tokrec"))
    with pytest.raises(UsageError, match="this is a recording"):
        await session.execute("server.stop", server_id="x")


async def test_a_session_records_its_ring_saves_it_and_records_on_demand(tmp_path: Path) -> None:
    session = Session(Inventory(), history_path=tmp_path / "h.sqlite")
    session.rings_folder = tmp_path / "rings"
    async with session:
        session.keep_ring(minutes=30, max_bytes=1 << 20)
        sid = fill(session.store, seconds=30)
        saved = await session.save_ring(tmp_path / "saved.tokrec")
        path = session.start_recording(tmp_path / "more.tokrec")
        with pytest.raises(StoreError, match="already"):
            session.start_recording()
        session.store.apply(LogBatch(sid, time.time(), (text_line(1, "after"),)))
        assert await session.stop_recording() == path
    first = LiveStore()
    for _, record in Recording(saved).records():
        first.apply(record)
    assert first.servers[sid].log.seen == session.store.servers[sid].log.seen - 1
    assert len(first.servers[sid].series["gen_tps"].times) == 30
    more = Recording(path)
    texts = [one.text for _, r in more.records() if isinstance(r, LogBatch) for one in r.records]
    assert texts == ["after"]
    assert more.problems == []
    assert more.summary().hosts == ()
    assert [(lives, size > 0) for _, lives, size in rings(tmp_path / "rings")] == [(True, True)]


async def test_a_flood_that_cannot_be_written_is_counted_and_the_recording_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops_recording, "MOST_PENDING", 100)
    store = LiveStore()
    recorder = Recorder(store, FileSink(tmp_path / "a.tokrec"), Head)
    recorder.start()
    sid = fill(store, seconds=1)
    for n in range(10):
        store.apply(LogBatch(sid, END, tuple(text_line(n * 30 + k, "x") for k in range(30))))
    await recorder.flush()
    store.apply(LogBatch(sid, END, (text_line(1000, "last"),)))
    await recorder.flush()
    recording = Recording(tmp_path / "a.tokrec")
    lines = [one.text for _, r in recording.records() if isinstance(r, LogBatch) for one in r.records]
    await recorder.close()
    assert lines[-1] == "last"
    assert recording.summary().missed == recorder.missed
    assert recorder.missed + len(lines) == 300 + store.servers[sid].log.seen - 300


async def test_snapshots_that_say_nothing_new_are_not_recorded_and_the_end_always_is(tmp_path: Path) -> None:
    store = LiveStore()
    recorder = Recorder(store, FileSink(tmp_path / "a.tokrec"), Head)
    recorder.start()
    running = Operation(id="x", kind="sweep", target="t", title="t", started_t=0.0, t=0.0)
    for n in range(50):
        store.apply(Operation(id="x", kind="sweep", target="t", title="t", started_t=0.0, t=n, live={"done": n}))
    store.apply(Operation(id="x", kind="sweep", target="t", title="t", started_t=0.0, t=51, status="done"))
    await recorder.flush()
    told = [r for _, r in Recording(tmp_path / "a.tokrec").records() if isinstance(r, Operation)]
    await recorder.close()
    assert len(told) < 10
    assert told[-1].status == "done"
    assert running.status == "running"


def test_the_ring_of_a_killed_tokpit_is_kept_and_can_be_saved(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tokpit.config.inventory import Inventory\n"
        "from tokpit.ops.session import Session\n"
        "async def main():\n"
        "    session = Session(Inventory(), history_path=Path(sys.argv[1]) / 'h.sqlite')\n"
        "    session.rings_folder = Path(sys.argv[1]) / 'rings'\n"
        "    session.keep_ring(minutes=30, max_bytes=1 << 20)\n"
        "    from tokpit.domain.records import LinkRecord, LinkState\n"
        "    session.store.apply(LinkRecord('gpu1', 1.0, LinkState.UP))\n"
        "    await session._recorders['ring'].flush()\n"
        "    print('written', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=env)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "written\n"
        assert [lives for _, lives, _ in rings(tmp_path / "rings")] == [True]
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    ((ring, lives, _),) = rings(tmp_path / "rings")
    assert not lives
    recording = Recording(save_ring(ring, tmp_path / "saved.tokrec"))
    assert [type(record).__name__ for _, record in recording.records()] == ["LinkRecord", "LinkRecord"]
    assert recording.problems
    assert new_ring(tmp_path / "rings", minutes=1, max_bytes=1 << 20).folder.exists()
    assert ring.exists(), "the newest rings of ended tokpits stay"


def test_the_store_of_another_moment_holds_figures_gpus_and_memory_up_to_then() -> None:
    store = LiveStore()
    sid = fill(store, seconds=300, end=END)
    past = at_moment(store, lambda host: END - 100)
    series = past.servers[sid].series["gen_tps"]
    assert series.last_t is not None
    assert END - 102 < series.last_t <= END - 100
    assert past.hosts[HOST].gpus is None
    assert past.servers[sid].log is store.servers[sid].log
    assert len(store.servers[sid].series["gen_tps"].times) == 300
    assert [type(r).__name__ for r in state(past)] == [
        type(r).__name__ for r in state(store) if type(r).__name__ not in {"GpuRecord", "HostRecord"}
    ]
