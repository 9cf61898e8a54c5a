"""Journals of experiments that restart a server: what is needed to put it back, whatever becomes of this process.

Two files each, in one folder: `ID.jsonl`, an event a line, on the disk before the next thing is done; and
`ID.first.json`, readable by the user alone, with the command line and environment of the server as it ran. The second
may hold secrets (keys in flags or in the environment) and is removed once that server is back or was given up on
purpose; the first never does.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tokpit.domain.settings import LaunchSpec
from tokpit.errors import StoreError, UsageError
from tokpit.store.masking import masked


class First(msgspec.Struct, frozen=True, kw_only=True):
    """The server as it ran. `unit`: the fields of its keeper, if it has one."""

    spec: LaunchSpec
    argv: tuple[str, ...]
    port: int
    platform: str = "cuda"
    unit: dict[str, Any] | None = None


class Event(msgspec.Struct, frozen=True):
    """One line. `t`: UTC seconds; `kind`: `begin`, `phase`, `start`, `trial`, `note`, `restored`, `end`.

    `phase` tells in `words` what is done from now on, as a clause that begins with "while".
    """

    t: float
    kind: str
    data: dict[str, Any] = {}


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What a list shows. `state`: `running`, `open` (its tokpit is gone, its server not put back), `ended`.

    `where`: what it does, or did when it was cut off, as a clause.
    """

    id: str
    host: str
    port: int
    title: str
    t: float
    state: str
    where: str = ""


class Journal:
    """One experiment's journal, held by one process at a time. Raises StoreError where the disk does not take it."""

    def __init__(self, folder: Path, journal_id: str) -> None:
        self.id = journal_id
        self.path = folder / f"{journal_id}.jsonl"
        self._first = folder / f"{journal_id}.first.json"
        self._file: int | None = None

    # --- making and holding

    @classmethod
    def create(cls, folder: Path, journal_id: str, first: First, begin: dict[str, Any]) -> Self:
        """A new journal, held, with the first server and the `begin` event on the disk."""
        journal = cls(folder, journal_id)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(journal._first, msgspec.json.encode(first))
        except OSError as error:
            raise _sentence(journal._first, error) from error
        journal.hold()
        journal.add("begin", **begin)
        return journal

    @classmethod
    def find(cls, folder: Path, text: str) -> Self:
        """The journal whose id begins with `text`. Raises UsageError where none or more than one does."""
        found = sorted(path.stem for path in folder.glob("*.jsonl") if path.stem.startswith(text)) if text else []
        if text in found:
            found = [text]
        if not found:
            raise UsageError(f"no experiment begins with {text!r}", hint="list them with: tokpit tune --list")
        if len(found) > 1:
            raise UsageError(f"{text!r} fits several experiments: {', '.join(found)}")
        return cls(folder, found[0])

    def hold(self) -> None:
        """Take it for this process; the hold ends with the process. Raises UsageError where another one has it."""
        if self._file is not None:
            return
        try:
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _sentence(self.path, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            raise UsageError(
                f"experiment {self.id} is under way in another tokpit", hint="stop it there first (Ctrl-C)"
            ) from error
        self._file = file

    def close(self) -> None:
        """Let go of it."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def __enter__(self) -> Self:
        self.hold()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- writing and reading

    def add(self, event: str, **data: Any) -> None:
        """Write an event; it is on the disk when this returns. Secrets in texts are masked."""
        assert self._file is not None, "a journal is held while it is written"
        line = msgspec.json.encode(Event(time.time(), event, masked(msgspec.to_builtins(data)))) + b"\n"
        try:
            if _torn(self.path):
                line = b"\n" + line
            os.write(self._file, line)
            os.fsync(self._file)
        except OSError as error:
            raise _sentence(self.path, error) from error

    def events(self) -> list[Event]:
        """Every event that was written whole; a line cut off by a crash is left out."""
        try:
            lines = self.path.read_bytes().splitlines()
        except OSError as error:
            raise _sentence(self.path, error) from error
        found = []
        for line in lines:
            try:
                found.append(msgspec.json.decode(line, type=Event))
            except msgspec.DecodeError:
                continue
        return found

    def first(self) -> First | None:
        """The server as it ran; None once it was put back."""
        try:
            return msgspec.json.decode(self._first.read_bytes(), type=First)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(f"the first server of experiment {self.id} cannot be read: {error}") from error

    def forget_first(self) -> None:
        """Remove the private file: the first server is back, or is not wanted back."""
        self._first.unlink(missing_ok=True)

    def entry(self) -> Entry | None:
        """Its line in a list; None where it was cut off before it began."""
        events = self.events()
        begin = next((event for event in events if event.kind == "begin"), None)
        if begin is None:
            return None
        state = "open" if self._first.exists() else "ended"
        if state == "open" and self._held_elsewhere():
            state = "running"
        return Entry(
            id=self.id,
            host=str(begin.data.get("host", "")),
            port=int(begin.data.get("port", 0)),
            title=str(begin.data.get("title", "")),
            t=begin.t,
            state=state,
            where=next((str(event.data["words"]) for event in reversed(events) if event.kind == "phase"), ""),
        )

    def _held_elsewhere(self) -> bool:
        if self._file is not None:
            return True
        try:
            self.hold()
        except UsageError:
            return True
        self.close()
        return False


def entries(folder: Path) -> list[Entry]:
    """Every journal of a folder, the newest first."""
    found = [Journal(folder, path.stem).entry() for path in folder.glob("*.jsonl")]
    return sorted((entry for entry in found if entry is not None), key=lambda entry: -entry.t)


def _write(path: Path, data: bytes) -> None:
    """Write a private file whole: the old or the new one is there, never half of it."""
    part = path.with_suffix(".part")
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(file, data)
        os.fsync(file)
    finally:
        os.close(file)
    part.replace(path)


def _torn(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _sentence(path: Path, error: OSError) -> StoreError:
    return StoreError(f"{path} cannot be written: {error.strerror or error}", hint="without it nothing is restarted")
