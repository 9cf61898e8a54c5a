"""Reports: a stored run, an incident, a file with a sweep, or a comparison of several, in one of the formats."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokpit.domain.run import Run
from tokpit.errors import StoreError, UsageError
from tokpit.ops.records.compare import all_files, compare_files, compare_runs, read_one
from tokpit.ops.records.run_files import is_file
from tokpit.report import FORMATS
from tokpit.report.document import Document
from tokpit.report.incident import incident_document
from tokpit.report.run import run_document
from tokpit.report.versus import versus_document
from tokpit.store.masking import masked

if TYPE_CHECKING:
    from tokpit.ops.session import Session

LAST = "sweep"
"""Names the newest sweep."""


def offline(names: Sequence[str]) -> bool:
    """Whether these are files only, so that no history is needed."""
    return all_files(names) if len(names) > 1 else all(is_file(name) for name in names)


def document_of_files(names: Sequence[str]) -> Document:
    """The report of a file, or of several against the first. Raises UsageError."""
    return versus_document(compare_files(names)) if len(names) > 1 else document_of(judged(read_one(names[0])))


async def document_of_names(session: Session, names: Sequence[str]) -> Document:
    """The report of a run, incident, file or `sweep`; of several the comparison. Raises UsageError, StoreError."""
    if len(names) > 1:
        return versus_document(await compare_runs(session, names))
    name = names[0]
    if is_file(name):
        return document_of(judged(read_one(name)))
    history = await session.history()
    if name == LAST:
        newest = next((run for run in await history.runs(limit=200) if run.kind == "sweep" and run.levels), None)
        if newest is None:
            raise UsageError("no sweep is stored yet", hint="make one with: tokpit sweep TARGET")
        return document_of(newest)
    return document_of(await history.run(name))


def document_of(run: Run) -> Document:
    """The report of one run; secrets are masked in every format."""
    run = msgspec.convert(masked(msgspec.to_builtins(run)), Run)
    return incident_document(run) if run.kind == "incident" else run_document(run)


def judged(run: Run) -> Run:
    """A run out of a file, with what its figures say."""
    from tokpit.ops.sweep.advice import findings_of, stored

    return msgspec.structs.replace(run, context={**run.context, "findings": stored(findings_of(run))})


def format_of(path: str | None, wanted: str | None) -> str:
    """The format asked for, else by the file's ending, else Markdown. Raises UsageError."""
    name = wanted or (Path(path).suffix.lower().removeprefix(".") if path and path != "-" else "md")
    name = {"htm": "html", "markdown": "md"}.get(name, name)
    if name not in FORMATS:
        raise UsageError(f"no report in the format {name!r}", hint=f"formats: {', '.join(FORMATS)}")
    return name


def write(text: str, path: Path) -> None:
    """Write the file whole or not at all. Raises StoreError."""
    handle = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except OSError as error:
        if handle is not None:
            Path(temporary).unlink(missing_ok=True)
        raise StoreError(f"the report {path} cannot be written: {error.strerror or error}") from error
