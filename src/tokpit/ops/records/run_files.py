"""Runs in files: sweep tables (CSV), sweeps as JSON, and the results of other benchmark tools."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tokpit.domain.run import Level, Run
from tokpit.engines.benchkit.base import Reading
from tokpit.engines.benchkit.registry import read, readers
from tokpit.errors import UsageError
from tokpit.insight.points import Point
from tokpit.ops.diagnose.files import read_sweep, read_text
from tokpit.ops.records.import_checks import judged

MOST_BYTES = 512 << 20


def is_file(name: str) -> bool:
    """Whether this is a file rather than the id of a stored run."""
    return Path(name).is_file()


def read_runs(path: str) -> list[Run]:
    """The runs in a file, without ids of their own. Raises UsageError for a file that holds none."""
    try:
        if Path(path).stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} is larger than {MOST_BYTES >> 20} MiB", hint="leave out per-token details")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    text = read_text(path)
    if not text.lstrip().startswith(("{", "[")):
        return [_of_levels(path, [_level(point) for point in read_sweep(path)])]
    pages = list(_pages(path, text))
    found: list[Reading] = []
    for number, page in enumerate(pages, 1):
        try:
            levels = read(page)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            where = f"{path}, document {number}" if len(pages) > 1 else path
            raise UsageError(f"{where}: a result that cannot be read: {error}") from error
        if levels is not None:
            found += levels
    if found:
        return runs_of(found)
    if len(pages) == 1 and "levels" in pages[0]:
        return [_stored(path, pages[0])]
    tools = ", ".join(reader.tool for reader in readers())
    raise UsageError(
        f"{path}: no result of a benchmark that tokpit can read", hint=f"known are: {tools}, and tokpit's own sweeps"
    )


def _pages(path: str, text: str) -> Iterator[Mapping[str, Any]]:
    """JSON documents: one, a list of them, or one after the other."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        try:
            page, at = decoder.raw_decode(text, at)
        except ValueError as error:
            raise UsageError(f"{path}: no JSON from character {at} on: {error}") from error
        for one in page if isinstance(page, list) else [page]:
            if isinstance(one, Mapping):
                yield one


def runs_of(found: Sequence[Reading]) -> list[Run]:
    """One run for each tool, model and engine, its levels by concurrency as they were measured."""
    groups: dict[tuple[str, str, str], list[Reading]] = {}
    for one in found:
        groups.setdefault((one.tool, one.model, one.engine), []).append(one)
    return [_imported(group) for group in groups.values()]


def _imported(group: Sequence[Reading]) -> Run:
    first = group[0]
    times = [one.started_at for one in group if one.started_at is not None]
    ends = [one.started_at + one.level.elapsed_s for one in group if one.started_at is not None]
    client = f"{first.tool} {first.version}".strip()
    return Run(
        id="",
        kind="import",
        target=client,
        model=first.model,
        engine=first.engine,
        started_at=min(times, default=0.0),
        ended_at=max(ends, default=None),
        status="stopped" if any(one.level.result.get("partial") for one in group) else "done",
        context={"source": first.tool, "client": client, "plan": {k: v for one in group for k, v in one.plan.items()}},
        levels=tuple(judged(one.level, one.plan) for one in sorted(group, key=lambda one: one.level.concurrency)),
    )


def _of_levels(path: str, levels: Sequence[Level]) -> Run:
    return Run(id="", kind="import", target=Path(path).name, started_at=0.0, status="done", levels=tuple(levels))


def _stored(path: str, page: Mapping[str, Any]) -> Run:
    """A run as `tokpit runs ID --json` prints it, or only its levels."""
    try:
        known = {"id": "", "kind": "import", "target": Path(path).name, "started_at": 0.0, "status": "done"}
        return msgspec.convert({**known, **page}, Run, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: no sweep in this JSON ({error})") from error


def _level(point: Point) -> Level:
    result = {"server_running": point.running, "server_queued": point.queued}
    return Level(
        concurrency=point.concurrency,
        requests=point.requests,
        ok=point.ok,
        err=point.err,
        elapsed_s=point.elapsed_s,
        output_tps=point.output_tps,
        steady_tps=point.steady_tps,
        avg_output=point.avg_output or 0.0,
        ttft_p50_s=point.ttft_p50_s,
        e2e_p50_s=point.e2e_mean_s,
        result={name: value for name, value in result.items() if value is not None},
    )
