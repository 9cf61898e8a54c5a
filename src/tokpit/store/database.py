"""The history's file: opened, checked, set aside when damaged; SQLite's errors as sentences; whose run is whose."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from pathlib import Path

from tokpit.errors import StoreError
from tokpit.store.schema import MIGRATIONS, migrate, version


def open_database(path: Path) -> sqlite3.Connection:
    """The database, checked, migrated, in WAL mode. Raises sqlite3.Error, StoreError for a newer format."""
    db = sqlite3.connect(path, isolation_level=None, timeout=10.0, check_same_thread=False)
    try:
        newer = version(db) > len(MIGRATIONS)
        if newer:
            raise StoreError(
                f"the history {path} was written by a newer tokpit", hint="update tokpit or use another --history file"
            )
        if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise _Damaged("the file is malformed")
        db.execute("PRAGMA journal_mode = WAL")
        # FULL: a level that was reported as stored survives a power cut, not only a crash of tokpit.
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        migrate(db)
        _end_abandoned(db)
    except BaseException:
        db.close()
        raise
    return db


class _Damaged(sqlite3.DatabaseError):
    """The integrity check failed."""


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def damaged(error: sqlite3.Error) -> bool:
    """Whether the file itself is broken."""
    return isinstance(error, _Damaged) or _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def set_aside(path: Path) -> Path:
    """Rename a damaged file and what belongs to it; gives its new name."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    count = 1
    while aside.exists():
        count += 1
        aside = path.with_name(f"{path.name}.damaged-{stamp}-{count}")
    path.rename(aside)
    for tail in ("-wal", "-shm"):
        beside = path.with_name(path.name + tail)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + tail))
    return aside


def sentence(error: sqlite3.Error, path: Path) -> StoreError:
    """What a person can do about an error of SQLite."""
    code = _code(error)
    if damaged(error):
        return StoreError(f"the history {path} is damaged", hint="it is set aside and begun anew at the next start")
    if code == sqlite3.SQLITE_READONLY:
        return StoreError(f"the history {path} cannot be written: it is read-only", hint="check its owner and rights")
    if code == sqlite3.SQLITE_FULL:
        return StoreError(f"the history {path} cannot be written: the disk is full", hint="free some space and retry")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreError(f"the history {path} cannot be opened", hint="check that its folder exists and is yours")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(f"the history {path} is in use by another tokpit", hint="retry when that one is done")
    return StoreError(f"the history {path} cannot be used: {error}")


def owner() -> str:
    """This process, so that a later tokpit can tell a run that goes on from one whose tokpit was killed."""
    return f"{os.getpid()} {_start_ticks(os.getpid()) or '-'} {platform.node()}"


def _start_ticks(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _end_abandoned(db: sqlite3.Connection) -> None:
    """Runs under way whose tokpit is gone did not finish: they keep their levels and are marked stopped."""
    for run_id, who in db.execute("SELECT id, owner FROM runs WHERE status = 'running'").fetchall():
        pid, ticks, node = (*who.split(" ", 2), "", "")[:3]
        if node != platform.node() or not pid.isdigit() or alive(int(pid), ticks):
            continue
        db.execute(
            "UPDATE runs SET status = 'stopped', note = trim(note || ' (tokpit ended before the run did)')"
            " WHERE id = ? AND status = 'running'",
            (run_id,),
        )


def alive(pid: int, start_ticks: str) -> bool:
    """Whether the process that `owner` named still runs."""
    if start_ticks != "-":
        return _start_ticks(pid) == start_ticks
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
