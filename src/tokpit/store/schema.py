"""The history's tables: migrations as a list, applied in order; `PRAGMA user_version` counts the ones applied."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable


def _first(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE runs (id TEXT PRIMARY KEY, kind TEXT NOT NULL, target TEXT NOT NULL, host TEXT NOT NULL,"
        " model TEXT NOT NULL, engine TEXT NOT NULL, started_at REAL NOT NULL, ended_at REAL, status TEXT NOT NULL,"
        " note TEXT NOT NULL, context TEXT NOT NULL, owner TEXT NOT NULL) WITHOUT ROWID"
    )
    db.execute("CREATE INDEX runs_by_start ON runs (started_at)")
    db.execute("CREATE INDEX runs_by_model ON runs (model, host, started_at)")
    db.execute(
        "CREATE TABLE levels (seq INTEGER PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs (id),"
        " concurrency INTEGER NOT NULL, level TEXT NOT NULL)"
    )
    db.execute("CREATE INDEX levels_by_run ON levels (run_id, seq)")
    db.execute(
        "CREATE TABLE launches (id TEXT PRIMARY KEY, t REAL NOT NULL, host TEXT NOT NULL, engine TEXT NOT NULL,"
        " model TEXT NOT NULL, spec TEXT NOT NULL, state TEXT, outcome TEXT NOT NULL, detail TEXT NOT NULL,"
        " log_path TEXT NOT NULL) WITHOUT ROWID"
    )
    db.execute("CREATE INDEX launches_by_time ON launches (t)")
    db.execute(
        "CREATE TABLE audit (seq INTEGER PRIMARY KEY, intent INTEGER, t REAL NOT NULL, user TEXT NOT NULL,"
        " host TEXT NOT NULL, command TEXT NOT NULL, title TEXT NOT NULL, lines TEXT NOT NULL, outcome TEXT NOT NULL,"
        " detail TEXT NOT NULL, exit_status INTEGER, duration_s REAL)"
    )
    # The audit is evidence: rows are only ever added.
    for verb in ("UPDATE", "DELETE"):
        db.execute(
            f"CREATE TRIGGER audit_no_{verb.lower()} BEFORE {verb} ON audit"
            " BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END"
        )


def _baselines(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE baselines (run_id TEXT PRIMARY KEY REFERENCES runs (id), model TEXT NOT NULL, host TEXT NOT NULL,"
        " family TEXT NOT NULL, t REAL NOT NULL, by TEXT NOT NULL) WITHOUT ROWID"
    )
    db.execute("CREATE INDEX baselines_by_family ON baselines (family, model, host)")


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_first, _baselines)


def migrate(db: sqlite3.Connection) -> int:
    """Bring a database up to date, each step in a transaction of its own; gives the version that it had before."""
    before = version(db)
    for number in range(before, len(MIGRATIONS)):
        db.execute("BEGIN IMMEDIATE")
        try:
            # Another tokpit may have migrated while this one waited for the lock.
            if version(db) == number:
                MIGRATIONS[number](db)
                db.execute(f"PRAGMA user_version = {number + 1}")
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise
    return before


def version(db: sqlite3.Connection) -> int:
    """How many migrations the database has seen."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])
