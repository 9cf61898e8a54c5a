"""History in SQLite: runs with their levels, launches, and the audit; one writer thread, durable before it returns."""

from __future__ import annotations

import asyncio
import getpass
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tokpit.domain.run import Level, Run
from tokpit.domain.settings import LaunchSpec, LaunchState
from tokpit.domain.text import mask_secrets
from tokpit.errors import StoreError, UsageError
from tokpit.store.database import damaged, open_database, owner, sentence, set_aside
from tokpit.store.masking import masked

T = TypeVar("T")

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_EPOCH = 1_577_836_800
"""2020-01-01 UTC: six digits of base 32 last until 2054."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A stored launch; secrets in `spec` and `state` are masked. `outcome`: `starting`, `ready` or `failed`."""

    id: str
    t: float
    spec: LaunchSpec
    state: LaunchState | None = None
    outcome: str = "starting"
    detail: str = ""
    log_path: str = ""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was done: intent and, once it is over, outcome. `t`: UTC seconds of the intent."""

    id: int
    t: float
    user: str
    host: str
    command: str
    title: str
    lines: tuple[str, ...]
    outcome: str | None = None
    """None: not over, or tokpit ended before it was."""
    detail: str = ""
    exit_status: int | None = None
    duration_s: float | None = None


def new_id(now: float | None = None) -> str:
    """A short id that sorts by time: six digits of seconds, a dash, three random ones (base 32, no i, l, o, u)."""
    seconds = int((time.time() if now is None else now) - _EPOCH)
    digits = "".join(_ALPHABET[(seconds >> shift) & 31] for shift in range(25, -1, -5))
    return f"{digits}-{''.join(secrets.choice(_ALPHABET) for _ in range(3))}"


class History:
    """See the module docstring. Made by `open`; every method raises StoreError with a sentence where it fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notices: tuple[str, ...] = ()
        """What the user should know about opening it, e.g. that a damaged file was set aside."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._db: sqlite3.Connection | None = None
        self._closed = False

    @classmethod
    async def open(cls, path: Path) -> History:
        """Open or make the history; a damaged file is set aside under another name, nothing is deleted.

        Raises StoreError where the folder or file cannot be written or a newer tokpit wrote it.
        """
        history = cls(path)
        try:
            await history._do(history._connect)
        except BaseException:
            await history.close()
            raise
        return history

    async def close(self) -> None:
        """Close the file; safe to call twice."""
        db, self._db, self._closed = self._db, None, True
        if db is not None:
            await asyncio.get_running_loop().run_in_executor(self._pool, db.close)
        self._pool.shutdown(wait=False)

    # Runs

    async def new_run_id(self) -> str:
        """A fresh id for a run, see `new_id`."""
        return new_id()

    async def save_run(self, run: Run) -> None:
        """Store a run or its new state; of its levels those that are not stored yet are added."""

        def work(db: sqlite3.Connection) -> None:
            row = (run.id, run.kind, run.target, run.host, run.model, run.engine, run.started_at, run.ended_at)
            db.execute(
                "INSERT INTO runs VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET ended_at ="
                " excluded.ended_at, status = excluded.status, note = excluded.note, context = excluded.context",
                (*row, run.status, mask_secrets(run.note), _json(run.context), owner()),
            )
            stored = db.execute("SELECT count(*) FROM levels WHERE run_id = ?", (run.id,)).fetchone()[0]
            for level in run.levels[stored:]:
                _insert_level(db, run.id, level)

        await self._write(work)

    async def add_level(self, run_id: str, level: Level) -> None:
        """Store a finished level; it is on the disk when this returns."""
        await self._write(lambda db: _insert_level(db, run_id, level))

    async def finish_run(self, run_id: str, *, status: str, ended_at: float | None = None, note: str = "") -> None:
        """Set how and when (UTC seconds) a run ended; a note is added to the one that is there."""

        def work(db: sqlite3.Connection) -> None:
            db.execute(
                "UPDATE runs SET status = ?, ended_at = ?, note = trim(note || ' ' || ?) WHERE id = ?",
                (status, time.time() if ended_at is None else ended_at, mask_secrets(note), run_id),
            )

        await self._write(work)

    async def runs(
        self, limit: int = 20, *, target: str | None = None, model: str | None = None, host: str | None = None
    ) -> tuple[Run, ...]:
        """The newest runs with their levels, newest first."""
        given = {"target": target, "model": model, "host": host}
        names = [name for name, value in given.items() if value is not None]
        where = " AND ".join(f"{name} = ?" for name in names) or "1"
        values = [given[name] for name in names]
        return await self._read(
            lambda db: tuple(
                _run(db, row)
                for row in db.execute(
                    f"SELECT * FROM runs WHERE {where} ORDER BY started_at DESC, id DESC LIMIT ?",  # noqa: S608
                    (*values, limit),
                )
            )
        )

    async def run(self, run_id: str) -> Run:
        """The run whose id begins with `run_id`. Raises UsageError where none or more than one does."""

        def work(db: sqlite3.Connection) -> tuple[Run, ...]:
            rows = db.execute(
                "SELECT * FROM runs WHERE substr(id, 1, ?) = ? ORDER BY id != ?, started_at DESC LIMIT 6",
                (len(run_id), run_id, run_id),
            ).fetchall()
            return tuple(_run(db, row) for row in rows)

        found = await self._read(work) if run_id else ()
        if not found:
            raise UsageError(f"no stored run begins with {run_id!r}", hint="list them with: tokpit runs")
        if len(found) > 1 and found[0].id != run_id:
            raise UsageError(f"{run_id!r} fits several runs: {', '.join(run.id for run in found)}")
        return found[0]

    async def baseline(self, model: str, host: str, *, before: str | None = None) -> Run | None:
        """The newest finished run of a model on a host that measured something (older than run `before`, if given)."""

        def work(db: sqlite3.Connection) -> Run | None:
            row = db.execute(
                "SELECT * FROM runs WHERE model = ? AND host = ? AND status = 'done' AND id IS NOT ?"
                " AND started_at <= coalesce((SELECT started_at FROM runs WHERE id = ?), 1e18)"
                " AND EXISTS (SELECT 1 FROM levels WHERE run_id = runs.id AND json_extract(level, '$.ok') > 0)"
                " ORDER BY started_at DESC, id DESC LIMIT 1",
                (model, host, before, before),
            ).fetchone()
            return None if row is None else _run(db, row)

        return await self._read(work)

    async def join_baseline(self, run: Run, family: str, *, by: str = "sweep") -> None:
        """Make a stored run one of those that later ones are compared with; twice is once."""
        row = (run.id, run.model, run.host, family, run.started_at, by)
        await self._write(lambda db: _nothing(db.execute("INSERT OR REPLACE INTO baselines VALUES (?,?,?,?,?,?)", row)))

    async def leave_baseline(self, run_id: str) -> bool:
        """Take a run out of its baseline; whether it was in one. The run itself stays."""
        return await self._write(
            lambda db: db.execute("DELETE FROM baselines WHERE run_id = ?", (run_id,)).rowcount > 0
        )

    async def baseline_runs(self, model: str, host: str, family: str, limit: int = 12) -> tuple[Run, ...]:
        """The runs of a baseline with their levels, newest first."""
        return await self._read(
            lambda db: tuple(
                _run(db, row)
                for row in db.execute(
                    "SELECT runs.* FROM runs JOIN baselines ON run_id = runs.id WHERE baselines.model = ?"
                    " AND baselines.host = ? AND family = ? ORDER BY started_at DESC, id DESC LIMIT ?",
                    (model, host, family, limit),
                )
            )
        )

    async def baselines(self) -> tuple[tuple[str, str, str], ...]:
        """Model, host and family of every baseline, the one with the newest run first."""
        return await self._read(
            lambda db: tuple(
                (str(row[0]), str(row[1]), str(row[2]))
                for row in db.execute(
                    "SELECT model, host, family FROM baselines GROUP BY model, host, family ORDER BY max(t) DESC"
                )
            )
        )

    # Launches

    async def save_launch(
        self, spec: LaunchSpec, state: LaunchState | None = None, *, outcome: str = "starting"
    ) -> str:
        """Store a launch and give its id."""
        launch_id, now = new_id(), time.time()

        def work(db: sqlite3.Connection) -> None:
            log_path = spec.log_path or (state.log_path if state is not None else "")
            db.execute(
                "INSERT INTO launches VALUES (?,?,?,?,?,?,?,?,?,?)",
                (
                    launch_id,
                    now,
                    spec.host,
                    spec.engine,
                    spec.settings.model or "",
                    _json(spec),
                    None if state is None else _json(state),
                    outcome,
                    "",
                    log_path,
                ),
            )

        await self._write(work)
        return launch_id

    async def launch_outcome(self, launch_id: str, outcome: str, detail: str = "") -> None:
        """How a launch ended: `ready` or `failed`, with a sentence."""
        sets = "UPDATE launches SET outcome = ?, detail = ? WHERE id = ?"
        await self._write(lambda db: _nothing(db.execute(sets, (outcome, mask_secrets(detail), launch_id))))

    async def launches(self, limit: int = 20, *, host: str | None = None) -> tuple[Launch, ...]:
        """The newest launches, newest first."""
        return await self._read(
            lambda db: tuple(
                _launch(row)
                for row in db.execute(
                    "SELECT * FROM launches WHERE host = coalesce(?, host) ORDER BY t DESC, id DESC LIMIT ?",
                    (host, limit),
                )
            )
        )

    # Audit

    async def audit_intent(self, *, host: str, command: str, title: str, lines: Sequence[str]) -> int:
        """Write down what is about to be done, with the exact command lines; gives the entry's id."""
        text = _json([mask_secrets(line) for line in lines])
        row = (None, time.time(), getpass_user(), host, command, mask_secrets(title), text, "intent", "", None, None)

        def work(db: sqlite3.Connection) -> int:
            return int(db.execute(_AUDIT, row).lastrowid or 0)

        return await self._write(work)

    async def audit_outcome(
        self,
        entry: int,
        *,
        outcome: str,
        detail: str = "",
        exit_status: int | None = None,
        duration_s: float | None = None,
    ) -> None:
        """Write down how it ended: `done`, `failed` or `cancelled`; the intent's row is not touched."""
        row = (entry, time.time(), getpass_user(), "", "", "", "[]", outcome, mask_secrets(detail), exit_status)
        await self._write(lambda db: _nothing(db.execute(_AUDIT, (*row, duration_s))))

    async def audit(self, limit: int = 100) -> tuple[AuditEntry, ...]:
        """The newest entries, newest first."""

        def work(db: sqlite3.Connection) -> tuple[AuditEntry, ...]:
            rows = db.execute(
                "SELECT i.seq, i.t, i.user, i.host, i.command, i.title, i.lines, o.outcome, coalesce(o.detail, ''),"
                " o.exit_status, o.duration_s FROM audit i LEFT JOIN audit o ON o.intent = i.seq"
                " WHERE i.intent IS NULL ORDER BY i.seq DESC LIMIT ?",
                (limit,),
            )
            names = AuditEntry.__struct_fields__
            return tuple(
                AuditEntry(**dict(zip(names, (*row[:6], tuple(msgspec.json.decode(row[6])), *row[7:]), strict=True)))
                for row in rows
            )

        return await self._read(work)

    # The one thread

    def _connect(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreError(
                f"the history's folder {self.path.parent} cannot be made: {error.strerror}",
                hint="choose another file with --history",
            ) from error
        try:
            self._db = open_database(self.path)
        except sqlite3.DatabaseError as error:
            if not damaged(error):
                raise
            aside = set_aside(self.path)
            self.notices = (f"the history {self.path} was damaged; it is kept as {aside}, and a new one was begun",)
            self._db = open_database(self.path)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def transaction(db: sqlite3.Connection) -> T:
            db.execute("BEGIN IMMEDIATE")
            try:
                value = work(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return value

        return await self._read(transaction)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def on_thread() -> T:
            if self._db is None:
                raise StoreError("the history is closed")
            return work(self._db)

        if self._closed:
            raise StoreError("the history is closed")
        return await self._do(on_thread)

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except sqlite3.Error as error:
            raise sentence(error, self.path) from error
        except OSError as error:
            raise StoreError(f"the history {self.path} cannot be used: {error.strerror}") from error


_AUDIT = (
    "INSERT INTO audit (intent, t, user, host, command, title, lines, outcome, detail, exit_status, duration_s)"
    " VALUES (?,?,?,?,?,?,?,?,?,?,?)"
)


def getpass_user() -> str:
    """The login name of the person at the keyboard; their number where it has no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def _nothing(cursor: sqlite3.Cursor) -> None:
    del cursor


def _json(value: Any) -> str:
    return msgspec.json.encode(masked(msgspec.to_builtins(value))).decode()


def _insert_level(db: sqlite3.Connection, run_id: str, level: Level) -> None:
    if db.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone() is None:
        raise StoreError(f"the run {run_id} is not stored, so its level cannot be")
    db.execute(
        "INSERT INTO levels (run_id, concurrency, level) VALUES (?,?,?)", (run_id, level.concurrency, _json(level))
    )


def _run(db: sqlite3.Connection, row: Sequence[Any]) -> Run:
    levels = db.execute("SELECT level FROM levels WHERE run_id = ? ORDER BY seq", (row[0],))
    return Run(
        id=row[0],
        kind=row[1],
        target=row[2],
        host=row[3],
        model=row[4],
        engine=row[5],
        started_at=row[6],
        ended_at=row[7],
        status=row[8],
        note=row[9],
        context=msgspec.json.decode(row[10]),
        levels=tuple(msgspec.json.decode(level[0], type=Level) for level in levels),
    )


def _launch(row: Sequence[Any]) -> Launch:
    return Launch(
        id=row[0],
        t=row[1],
        spec=msgspec.json.decode(row[5], type=LaunchSpec),
        state=None if row[6] is None else msgspec.json.decode(row[6], type=LaunchState),
        outcome=row[7],
        detail=row[8],
        log_path=row[9],
    )
