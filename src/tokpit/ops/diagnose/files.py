"""Files that a diagnosis works on without a host: logs, sweep tables, tables of runs, GPU texts, metrics pages."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec

from tokpit.domain.records import LogRecord
from tokpit.domain.run import Level
from tokpit.domain.text import LineSplitter, decode_line, sanitize
from tokpit.domain.verdict import Verdict
from tokpit.engines.logkit.clock import Clock
from tokpit.engines.logkit.read import detect, grammar_of, read_log
from tokpit.engines.registry import engine as engine_of
from tokpit.engines.registry import names, of_metrics
from tokpit.errors import UsageError
from tokpit.insight.counters import counted_facts
from tokpit.insight.digest import Digest, Reader
from tokpit.insight.evidence import Trial
from tokpit.insight.facts import Facts, merged, parse_facts
from tokpit.insight.points import Point, point_of

_LOOK = 400
_FIRST, _LAST = 2000, 6000
"""Records kept for the verdict, from the begin and the end of a log."""
_COMMON = frozenset({"decode_batch", "prefill_batch", "stats", "spec", "access", "slot_line", "iteration"})


Tell = Callable[[str, int, int], None]
"""Called as a file is read: its path, bytes read, bytes in all (0: not known)."""


def read_lines(path: str, tell: Tell | None = None) -> Iterator[str]:
    """The lines of a file (`-`: stdin), safe to print. Raises UsageError where it cannot be read."""
    splitter = LineSplitter()
    read = 0
    try:
        with sys.stdin.buffer if path == "-" else Path(path).open("rb") as stream:
            size = 0 if path == "-" else os.fstat(stream.fileno()).st_size
            while data := stream.read(1 << 16):
                read += len(data)
                if tell is not None:
                    tell(path, read, size)
                for raw in splitter.feed(data):
                    yield decode_line(raw)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    if (rest := splitter.flush()) is not None:
        yield decode_line(rest)


def read_text(path: str) -> str:
    """A whole file as text. Raises UsageError."""
    return "\n".join(read_lines(path))


def read_log_file(path: str, engine: str | None = None, tell: Tell | None = None) -> tuple[Digest, Verdict | None]:
    """A server's log in one pass: its digest, and the engine's verdict if it failed. Raises UsageError."""
    return digest_lines(read_lines(path, tell), name=Path(path).name if path != "-" else "stdin", engine=engine)


def digest_lines(lines: Iterable[str], *, name: str = "", engine: str | None = None) -> tuple[Digest, Verdict | None]:
    """Like `read_log_file`, of lines."""
    source = iter(lines)
    head = list(islice(source, _LOOK))
    found = engine or detect(head)
    reader, kept, clock = Reader(name, found), _Kept(), Clock()
    sampler = grammar_of(found or names()[0])
    extra = Facts()
    settings: dict[str, str] = {}
    for record in read_log(chain(head, source), found or names()[0]):
        kept.add(record)
        reader.take(record, clock.seconds(record.fields.get("ts", record.fields.get("t"))), sampler.sample(record))
        if record.kind == "milestone.args":
            pairs = _pairs(record)
            settings.update(pairs)
            extra = merged(extra, _echoed(pairs))
        if "attention block size to" in record.text[:200] and (match := _BLOCK.search(record.text)):
            extra = merged(extra, Facts(block_size=int(match[1])))
    digest = reader.digest()
    facts = merged(extra, merged(digest.facts, Facts(engine=found)))
    digest = msgspec.structs.replace(digest, facts=facts, settings=settings)
    return digest, engine_of(found).verdict(kept.records()) if found is not None else None


class _Kept:
    """The records that a verdict needs: runs of statistics and access lines are held as their last one."""

    def __init__(self) -> None:
        self._first: list[LogRecord] = []
        self._last: deque[LogRecord] = deque(maxlen=_LAST)
        self._common: LogRecord | None = None

    def add(self, record: LogRecord) -> None:
        if record.kind in _COMMON:
            self._common = record
            return
        if self._common is not None:
            self._put(self._common)
            self._common = None
        self._put(record)

    def _put(self, record: LogRecord) -> None:
        if len(self._first) < _FIRST:
            self._first.append(record)
        else:
            self._last.append(record)

    def records(self) -> list[LogRecord]:
        return [*self._first, *self._last, *([self._common] if self._common is not None else [])]


_BLOCK = re.compile(r"block size to (\d+) tokens")
_PAIR = re.compile(r"['\"]?\b(\w+)['\"]?\s*[=:]\s*['\"]?([\w./-]+)")
_ECHOED = {
    "tp_size": "tp",
    "tensor_parallel_size": "tp",
    "dp_size": "dp",
    "data_parallel_size": "dp",
    "enable_dp_attention": "dp_attention",
    "max_running_requests": "configured_max_running",
    "max_num_seqs": "configured_max_running",
    "max_mamba_cache_size": "state_slots",
    "cuda_graph_max_bs": "graph_max_batch",
    "hicache_size": "hicache_gb",
    "num_speculative_tokens": "draft_tokens",
    "speculative_num_steps": "draft_tokens",
    "enable_prefix_caching": "prefix_cache",
    "version": "engine_version",
    "model_path": "model",
    "model_tag": "model",
    "model": "model",
    "enforce_eager": "graph_off",
    "disable_cuda_graph": "graph_off",
}


def _pairs(record: LogRecord) -> dict[str, str]:
    """The arguments that a server echoes at its start, by name; of one given twice the first."""
    text = str(record.fields.get("server_args_text") or record.fields.get("args_text") or record.text)
    found: dict[str, str] = {}
    for name, value in _PAIR.findall(text[:200_000]):
        found.setdefault(name, value)
    return found


_BITS = (
    (re.compile(r"awq|gptq|int4|fp4|w4|bitsandbytes", re.I), "4"),
    (re.compile(r"fp8|int8|w8", re.I), "8"),
)


def _echoed(pairs: Mapping[str, str]) -> Facts:
    """Facts from echoed arguments."""
    given: dict[str, str] = {}
    for name, value in pairs.items():
        field = _ECHOED.get(name)
        if field is not None and value not in ("None", "null", "-1", "0"):
            given.setdefault(field, value)
    bits = next((n for pattern, n in _BITS if pattern.search(pairs.get("quantization", ""))), None)
    if bits is not None:
        given["weight_bits"] = bits
    if pairs.get("disable_radix_cache") == "True":
        given["prefix_cache"] = "false"
    try:
        return parse_facts(given)[0]
    except ValueError:
        return Facts()


_COLUMNS = {
    "concurrency": ("concurrency", "c", "level", "max_concurrency"),
    "requests": ("requests", "n", "num_prompts"),
    "ok": ("ok", "completed", "success"),
    "err": ("err", "errors", "failed"),
    "elapsed_s": ("elapsed_s", "elapsed", "wall_s", "duration", "duration_s"),
    "output_tps": ("output_tps", "tok_s", "tps", "output_throughput", "tok/s"),
    "steady_tps": ("steady_tps",),
    "avg_output": ("avg_output", "avg_out", "output_tokens"),
    "e2e_mean_s": ("e2e_mean_s", "e2e_s"),
    "ttft_p50_s": ("ttft_p50_s", "ttft_s", "ttft"),
    "accept_len": ("accept_len", "accept_length", "acceptance_length"),
    "running": ("running", "server_running"),
    "queued": ("queued", "queue", "server_queued"),
}


def read_sweep(path: str) -> tuple[Point, ...]:
    """Levels from a CSV table, or from the JSON that `tokpit sweep --json` and `tokpit runs` print.

    Columns: concurrency, requests, ok, err, elapsed_s, output_tps; only the first and the last must be there.
    Raises UsageError for a file that is none.
    """
    text = read_text(path)
    if text.lstrip().startswith(("{", "[")):
        return _json_levels(path, text)
    table = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    rows = list(table)
    head = dict.fromkeys(table.fieldnames or ())
    names = {key: _column(head, spellings) for key, spellings in _COLUMNS.items()}
    if names["concurrency"] is None or names["output_tps"] is None:
        raise UsageError(
            f"{path}: no table of a sweep",
            hint="its first line is: concurrency,requests,ok,err,elapsed_s,output_tps",
        )
    if not rows:
        raise UsageError(f"{path}: a table without a level", hint="one line for each concurrency follows the first")
    return tuple(_point(path, number, row, names) for number, row in enumerate(rows, 2) if any(row.values()))


def _column(row: Mapping[str, object], spellings: tuple[str, ...]) -> str | None:
    known = {str(name).strip().lower(): str(name) for name in row}
    return next((known[s] for s in spellings if s in known), None)


def _point(path: str, number: int, row: Mapping[str, str], names: Mapping[str, str | None]) -> Point:
    values: dict[str, float] = {}
    for key, name in names.items():
        cell = (row.get(name) or "").strip() if name is not None else ""
        if cell in ("", "-", "NA", "N/A", "None", "null"):
            continue
        try:
            values[key] = float(cell.replace(",", ""))
            if not 0 <= values[key] < 1e12:
                raise ValueError(cell)
        except ValueError:
            raise UsageError(f"{path} line {number}: {name} is {sanitize(cell)[:40]!r}, not a number") from None
    if "concurrency" not in values:
        raise UsageError(f"{path} line {number}: no concurrency")
    c = int(values.pop("concurrency"))
    err = int(values.pop("err", 0))
    requests = int(values.pop("requests", values.get("ok", 2 * c) + err))
    ok = int(values.pop("ok", requests - err))
    elapsed, tps = values.pop("elapsed_s", 0.0), values.pop("output_tps", 0.0)
    point = Point(concurrency=c, requests=requests, ok=ok, err=err, elapsed_s=elapsed, output_tps=tps)
    return msgspec.structs.replace(point, **values)


def _json_levels(path: str, text: str) -> tuple[Point, ...]:
    try:
        data: Any = json.loads(text)
        levels = data.get("levels", ()) if isinstance(data, dict) else data
        return tuple(point_of(msgspec.convert(level, Level, strict=False)) for level in levels)
    except (ValueError, AttributeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: no sweep in this JSON ({error})") from error


def read_trials(path: str) -> tuple[Trial, ...]:
    """Runs to compare, one a row of a CSV table or an object of a JSON list; columns: name, tok_s, tp, accept_len,
    backend, short, long, ttft_s, decode_tok_s, latency_s, usage_tokens, prefill_tok_s, bad_outputs. Raises UsageError.
    """
    text = read_text(path)
    if text.lstrip().startswith(("{", "[")):
        try:
            data = json.loads(text)
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from error
        rows = data if isinstance(data, list) else [{"name": name, **row} for name, row in data.items()]
    else:
        rows = list(csv.DictReader(io.StringIO(text), skipinitialspace=True))
    return tuple(_trial(row, number) for number, row in enumerate(rows, 1) if isinstance(row, dict))


def _trial(row: Mapping[str, Any], number: int) -> Trial:
    figures: dict[str, float] = {}
    labels: dict[str, str] = {}
    for key, value in row.items():
        name = str(key).strip().lower()
        name = {"tps": "tok_s", "tok/s": "tok_s", "output_tps": "tok_s", "tp_size": "tp"}.get(name, name)
        try:
            if value not in (None, ""):
                figures[name] = float(value)
        except (TypeError, ValueError):
            labels[name] = sanitize(str(value))
    name = labels.get("name") or labels.get("profile") or labels.get("backend") or f"run {number}"
    return Trial(name=name, figures=figures, labels=labels)


def read_metrics(paths: Iterable[str], engine: str | None) -> Facts:
    """Facts from one metrics page, or from the difference of the first and the last of several. Raises UsageError."""
    pages = []
    for path in paths:
        text = read_text(path)
        name = engine or of_metrics(text)
        try:
            pages.append(engine_of(name).metrics(text).values)
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from error
    if not pages:
        return Facts()
    first, last = pages[0] if len(pages) > 1 else {}, pages[-1]

    def grown(tag: str) -> float | None:
        return last[tag] - first.get(tag, 0.0) if tag in last else None

    told = Facts(
        prefix_queries=grown("prefix_queries_total"),
        prefix_hits=grown("prefix_hits_total"),
        preemptions=grown("preemptions_total") if len(pages) > 1 else None,
        kv_usage=last.get("kv_usage"),
        max_running_requests=int(last["max_running_reqs"]) if "max_running_reqs" in last else None,
    )
    return merged(counted_facts(last, first), told)
