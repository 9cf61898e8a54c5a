from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tokpit.domain.run import Level, Run
from tokpit.domain.settings import LaunchSpec, LaunchState, Settings
from tokpit.errors import StoreError, UsageError
from tokpit.store.database import alive, owner
from tokpit.store.history import History, new_id
from tokpit.store.schema import MIGRATIONS, migrate

SECRET = "sk-do-not-store-me"


def level(concurrency: int, ok: int = 8) -> Level:
    return Level(
        concurrency=concurrency,
        requests=8,
        ok=ok,
        err=8 - ok,
        elapsed_s=12.5,
        output_tps=40.0 * concurrency,
        result={"ttft_s": {"p50": 0.2}},
    )


def run(run_id: str, started_at: float = 1000.0, **fields: object) -> Run:
    usual = {"kind": "sweep", "target": "gpu1:30000", "host": "gpu1", "model": "m27", "engine": "sglang"}
    return Run(id=run_id, started_at=started_at, **(usual | fields))  # type: ignore[arg-type]  # mixed fields


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[History]:
    made = await History.open(tmp_path / "state" / "history.sqlite")
    yield made
    await made.close()


async def test_a_run_comes_back_with_its_levels_in_order(history: History) -> None:
    first = run("aaa-1", context={"flags": ["--tp", "2"], "client": {"version": "1"}}, note="before")
    await history.save_run(first)
    for concurrency in (1, 8, 4):
        await history.add_level("aaa-1", level(concurrency))
    await history.finish_run("aaa-1", status="done", ended_at=1100.0, note="after")
    stored = await history.run("aaa-1")
    assert stored.levels == (level(1), level(8), level(4))
    assert (stored.status, stored.ended_at, stored.note) == ("done", 1100.0, "before after")
    assert stored.context == first.context


async def test_saving_a_run_again_does_not_double_its_levels(history: History) -> None:
    await history.save_run(run("aaa-1"))
    await history.add_level("aaa-1", level(1))
    await history.save_run(run("aaa-1", status="done", levels=(level(1), level(2))))
    assert [found.concurrency for found in (await history.run("aaa")).levels] == [1, 2]


async def test_runs_are_listed_newest_first_and_by_target(history: History) -> None:
    for number, target in enumerate(("gpu1:30000", "gpu2:8000", "gpu1:30000")):
        await history.save_run(run(f"r{number}", 1000.0 + number, target=target))
    assert [found.id for found in await history.runs()] == ["r2", "r1", "r0"]
    assert [found.id for found in await history.runs(target="gpu1:30000")] == ["r2", "r0"]
    assert [found.id for found in await history.runs(1)] == ["r2"]


async def test_a_prefix_must_fit_one_run(history: History) -> None:
    for run_id in ("abc-1", "abd-2", "abd-22", "x%_-3"):
        await history.save_run(run(run_id))
    assert (await history.run("abc")).id == "abc-1"
    assert (await history.run("abd-2")).id == "abd-2"
    with pytest.raises(UsageError, match="several runs"):
        await history.run("ab")
    for nobody in ("zzz", "", "%", "a_c"):
        with pytest.raises(UsageError, match="no stored run"):
            await history.run(nobody)


async def test_the_baseline_is_the_newest_finished_run_that_measured_something(history: History) -> None:
    await history.save_run(run("good", 1.0, status="done", levels=(level(1),)))
    await history.save_run(run("empty", 2.0, status="done"))
    await history.save_run(run("errors", 3.0, status="done", levels=(level(1, ok=0),)))
    await history.save_run(run("other-host", 4.0, status="done", host="gpu9", levels=(level(1),)))
    await history.save_run(run("stopped", 5.0, status="stopped", levels=(level(1),)))
    await history.save_run(run("newest", 6.0, status="done", levels=(level(1),)))
    newest = await history.baseline("m27", "gpu1")
    assert newest is not None
    assert newest.id == "newest"
    before = await history.baseline("m27", "gpu1", before="newest")
    assert before is not None
    assert before.id == "good"
    assert await history.baseline("m27", "gpu7") is None


async def test_a_level_of_an_unknown_run_is_refused(history: History) -> None:
    with pytest.raises(StoreError, match="nobody"):
        await history.add_level("nobody", level(1))


async def test_launches_keep_spec_state_and_outcome(history: History) -> None:
    spec = LaunchSpec(
        host="gpu1",
        engine="vllm",
        program=("/opt/v/bin/vllm", "serve"),
        settings=Settings(model="/m/tiny", tp=2),
        log_path="/var/log/v.log",
    )
    state = LaunchState(
        engine="vllm", pid=7, pgid=7, start_ticks=9, argv=("vllm",), log_path="/var/log/v.log", port=8000
    )
    launch_id = await history.save_launch(spec, state)
    await history.launch_outcome(launch_id, "failed", "out of memory")
    (launch,) = await history.launches(host="gpu1")
    assert (launch.id, launch.outcome, launch.detail, launch.log_path) == (
        launch_id,
        "failed",
        "out of memory",
        "/var/log/v.log",
    )
    assert (launch.spec, launch.state) == (spec, state)
    assert await history.launches(host="gpu2") == ()


async def test_the_audit_shows_intent_before_outcome_and_cannot_be_changed(history: History) -> None:
    entry = await history.audit_intent(host="gpu1", command="server.stop", title="stop it", lines=("kill -TERM -- -7",))
    (open_entry,) = await history.audit()
    assert (open_entry.id, open_entry.outcome, open_entry.lines) == (entry, None, ("kill -TERM -- -7",))
    assert open_entry.user
    await history.audit_outcome(entry, outcome="failed", detail="still there", exit_status=1, duration_s=2.5)
    (done,) = await history.audit()
    assert (done.outcome, done.detail, done.exit_status, done.duration_s) == ("failed", "still there", 1, 2.5)
    with sqlite3.connect(history.path) as db:
        for change in ("UPDATE audit SET title = 'x'", "DELETE FROM audit"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                db.execute(change)
    db.close()


async def test_no_secret_reaches_the_file(history: History) -> None:
    settings = Settings(model="m", raw=("--api-key", SECRET, "second-" + SECRET, "--tp", "2"))
    spec = LaunchSpec(
        host="h", engine="vllm", program=("vllm",), settings=settings, env={"HF_TOKEN": SECRET, "OMP_NUM_THREADS": "2"}
    )
    state = LaunchState(
        engine="vllm", pid=1, pgid=1, start_ticks=1, argv=("vllm", f"--api-key={SECRET}"), log_path="", port=1
    )
    launch_id = await history.save_launch(spec, state)
    await history.launch_outcome(launch_id, "failed", f"--api-key {SECRET}")
    context = {"command": f"vllm --api-key {SECRET}", "env": {"OPENAI_API_KEY": SECRET}, "max_tokens": "64"}
    await history.save_run(run("r", context=context, note=f"HF_TOKEN={SECRET}"))
    entry = await history.audit_intent(host="h", command="c", title="t", lines=(f"env HF_TOKEN={SECRET} vllm",))
    await history.audit_outcome(entry, outcome="done", detail=f"--hf-token {SECRET}")
    await history.close()
    stored = b"".join(file.read_bytes() for file in history.path.parent.iterdir())
    assert SECRET.encode() not in stored
    again = await History.open(history.path)
    (launch,) = await again.launches()
    assert launch.spec.settings.raw == ("--api-key", "***", "***", "--tp", "2")
    assert launch.spec.env == {"HF_TOKEN": "***", "OMP_NUM_THREADS": "2"}
    assert (await again.run("r")).context["max_tokens"] == "64"
    await again.close()


WRITER = """
    import asyncio, sys
    from pathlib import Path
    from tokpit.domain.run import Level, Run
    from tokpit.store.history import History

    async def main():
        history = await History.open(Path(sys.argv[1]))
        await history.save_run(Run(id="killed", kind="sweep", target="t", host="h", model="m", started_at=5.0))
        for c in (1, 2, 3):
            await history.add_level(
                "killed", Level(concurrency=c, requests=1, ok=1, err=0, elapsed_s=1.0, output_tps=9.0)
            )
            print(c, flush=True)
            if c == 2:
                await asyncio.sleep(60)

    asyncio.run(main())
"""


async def test_levels_that_were_stored_survive_a_kill_of_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(path)], stdout=subprocess.PIPE, env=env
    ) as writer:
        assert writer.stdout is not None
        assert [writer.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
        beside = await History.open(path)
        assert (await beside.run("killed")).status == "running"
        await beside.close()
        writer.send_signal(signal.SIGKILL)
    history = await History.open(path)
    stored = await history.run("killed")
    assert [found.concurrency for found in stored.levels] == [1, 2]
    assert stored.status == "stopped"
    assert "ended before the run" in stored.note
    assert history.notices == ()
    await history.close()


async def test_two_tokpits_write_the_same_file(history: History) -> None:
    other = await History.open(history.path)
    await history.save_run(run("one"))
    await other.save_run(run("two"))
    await history.add_level("two", level(4))
    assert [found.concurrency for found in (await other.run("two")).levels] == [4]
    await other.close()


@pytest.mark.parametrize("damage", ["text", "torn"])
async def test_a_damaged_file_is_set_aside_and_told(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "h.sqlite"
    if damage == "text":
        content = b"this is no database at all, whatever its name says\n" * 100
    else:
        made = await History.open(path)
        for number in range(40):
            await made.save_run(run(f"r{number}", context={"text": "x" * 400}))
        await made.close()
        whole = path.read_bytes()
        content = whole[:8192] + b"\x07" * (len(whole) - 8192)
    path.write_bytes(content)
    history = await History.open(path)
    (notice,) = history.notices
    (aside,) = [file for file in tmp_path.iterdir() if "damaged" in file.name and file.suffix not in ("-wal", "-shm")]
    assert str(aside) in notice
    assert aside.read_bytes() == content
    await history.save_run(run("after"))
    assert [found.id for found in await history.runs()] == ["after"]
    await history.close()


async def test_a_file_of_a_newer_tokpit_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    content = path.read_bytes()
    with pytest.raises(StoreError, match="newer tokpit"):
        await History.open(path)
    assert path.read_bytes() == content


async def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
        await History.open(tmp_path / "file" / "sub" / "h.sqlite")


async def test_a_path_that_is_a_folder_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        await History.open(tmp_path)


async def test_a_full_disk_is_a_sentence_and_what_was_stored_stays(history: History) -> None:
    await history.save_run(run("kept"))

    def fill() -> None:
        assert history._db is not None
        pages = history._db.execute("PRAGMA page_count").fetchone()[0]
        history._db.execute(f"PRAGMA max_page_count = {pages}")

    await history._do(fill)
    with pytest.raises(StoreError, match="disk is full"):
        await history.save_run(run("large", context={"text": "x" * 200_000}))
    assert (await history.run("kept")).id == "kept"


READ_ONLY = """
    import asyncio, os, sys
    from pathlib import Path
    from tokpit.errors import StoreError
    from tokpit.store.history import History

    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)

    async def main():
        try:
            await History.open(Path(sys.argv[1]))
        except StoreError as error:
            print(error)

    asyncio.run(main())
"""


async def test_a_read_only_file_is_a_sentence(tmp_path_factory: pytest.TempPathFactory) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a folder that another user may enter
        path = Path(folder) / "h.sqlite"
        made = await History.open(path)
        await made.close()
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        # Code of this tree may be closed to that other user: everything is imported before rights are dropped.
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(READ_ONLY), str(path)],
            capture_output=True,
            text=True,
            env=env,
            timeout=50,
            check=False,
        )
        Path(folder).chmod(0o700)
    assert "read-only" in done.stdout or "cannot be opened" in done.stdout, done.stderr


async def test_after_close_every_call_is_refused(history: History) -> None:
    await history.close()
    await history.close()
    with pytest.raises(StoreError, match="closed"):
        await history.runs()


def test_ids_sort_by_time_and_are_easy_to_type() -> None:
    ids = [new_id(1_600_000_000.0 + 1000 * step) for step in range(200)]
    assert ids == sorted(ids)
    assert len({new_id(1_600_000_000.0) for _ in range(50)}) > 40
    assert all(len(made) == 10 and made == made.lower() and not set(made) & set("ilou") for made in ids)


def test_migrations_run_once_and_keep_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = sqlite3.connect(tmp_path / "m.sqlite", isolation_level=None)
    assert migrate(db) == 0
    db.execute("INSERT INTO launches VALUES ('a', 1, 'h', 'e', 'm', '{}', NULL, 'ready', '', '')")
    assert migrate(db) == len(MIGRATIONS)
    grown = (*MIGRATIONS, lambda d: d.execute("ALTER TABLE launches ADD COLUMN extra TEXT DEFAULT 'x'"))
    monkeypatch.setattr("tokpit.store.schema.MIGRATIONS", grown)
    assert migrate(db) == len(MIGRATIONS)
    assert db.execute("SELECT id, extra FROM launches").fetchall() == [("a", "x")]
    db.close()


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = sqlite3.connect(tmp_path / "m.sqlite", isolation_level=None)
    migrate(db)

    def broken(d: sqlite3.Connection) -> None:
        d.execute("CREATE TABLE half (x)")
        d.execute("CREATE TABLE half (x)")

    monkeypatch.setattr("tokpit.store.schema.MIGRATIONS", (*MIGRATIONS, broken))
    with pytest.raises(sqlite3.OperationalError):
        migrate(db)
    assert db.execute("SELECT name FROM sqlite_master WHERE name = 'half'").fetchall() == []
    assert db.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
    db.close()


def test_the_owner_of_a_run_is_known_to_be_alive() -> None:
    pid, ticks, _ = owner().split(" ", 2)
    assert alive(int(pid), ticks)
    assert not alive(int(pid), "1")
