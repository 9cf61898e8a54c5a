"""A stored run as a report: its levels, charts, findings and checks, and everything that was frozen with it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tokpit import __version__
from tokpit.domain.run import Level, Run
from tokpit.domain.text import mask_secrets
from tokpit.insight.measures import number
from tokpit.insight.words import num, seconds
from tokpit.report.document import Block, Chart, Claim, Code, Curve, Document, Paragraph, Section, Table

Value = Callable[[Level], float | None]
_KEPT = ("model", "engine", "version", "driver", "kernel", "client", "from", "link", "server_side", "label", "source")


def run_document(run: Run, *, earlier: Sequence[Run] = ()) -> Document:
    """The report of a sweep, check or imported result; `earlier` runs are drawn behind its curves."""
    levels = [level for level in run.levels if not level.result.get("void")] or list(run.levels)
    blocks: list[Section] = []
    summary = _summary(run, levels)
    if summary:
        blocks.append(Section("", summary))
    if run.levels:
        blocks.append(Section("Levels", [levels_table(run.levels), *charts(levels, earlier, marks=_marks(run))]))
    if claims := [claim_of(item) for item in run.context.get("findings") or () if isinstance(item, Mapping)]:
        blocks.append(Section("Findings", claims))
    if told := _checks(run):
        blocks.append(Section("Checks", told))
    blocks += _context(run)
    return Document(
        title=f"{_KINDS.get(run.kind, run.kind)} of {run.model or run.target}",
        subtitle=f"Run {run.id}, {run.status}, {when(run.started_at)}",
        facts=facts(run),
        sections=blocks,
        footer=footer(),
        data=run,
        rows=tuple(level_row(run, level) for level in run.levels) or tuple(_item_rows(run)),
    )


_KINDS = {"sweep": "Sweep", "check": "Check", "import": "Benchmark", "incident": "Incident"}


def when(t: float) -> str:
    """A time with its zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(t)) if t else "time unknown"


def footer() -> str:
    """Who wrote it."""
    return f"Written by tokpit {__version__} on {when(time.time())}."


def facts(run: Run) -> list[tuple[str, str]]:
    """The few lines that say what it was."""
    took = f" ({seconds(run.ended_at - run.started_at)})" if run.ended_at and run.ended_at > run.started_at else ""
    rows = [("target", run.target), ("host", run.host), ("started", when(run.started_at) + took), ("note", run.note)]
    named = run.context.get("gpus") or []
    gpus: list[Any] = [named] if isinstance(named, str) else list(named)
    rows.append(
        ("GPUs", f"{len(gpus)} × {gpus[0]}" if len(gpus) > 1 and len(set(gpus)) == 1 else ", ".join(map(str, gpus)))
    )
    known = {"model": run.model, "engine": run.engine, **run.context}
    rows += [(name.replace("_", " "), str(known.get(name) or "")) for name in _KEPT]
    return [(name, mask_secrets(value)) for name, value in rows if value]


def _summary(run: Run, levels: Sequence[Level]) -> list[Block]:
    told: list[Block] = []
    if run.context.get("baseline"):
        text = str(run.context["baseline"])
        told.append(Paragraph(text, "bad" if "egression" in text else ""))
    if run.context.get("found"):
        told.append(Paragraph(str(run.context["found"])))
    best = max(levels, key=lambda level: level.steady_tps or level.output_tps, default=None)
    if best is not None and best.output_tps:
        what = "steady" if best.steady_tps is not None else "whole run"
        tps = best.steady_tps or best.output_tps
        told.append(Paragraph(f"Best throughput {num(tps, 4)} tok/s ({what}) at {name_of(best)}."))
    return told


def name_of(level: Level) -> str:
    """`C=8`, `2 req/s`."""
    return str(level.result.get("label") or f"C={level.concurrency}")


def dist(level: Level, name: str, part: str) -> float | None:
    """A percentile of a distribution, in seconds; None where it was not measured."""
    found = level.result.get(name)
    value = number(found.get(part)) if isinstance(found, Mapping) else None
    if value is None and part == "p50":
        value = {"ttft_s": level.ttft_p50_s, "e2e_s": level.e2e_p50_s}.get(name)
    return value


def levels_table(levels: Sequence[Level]) -> Table:
    """Every level, the figures to stand by first."""
    rows = []
    for level in levels:
        ci = number(level.result.get("steady_ci"))
        steady = None if level.steady_tps is None else num(level.steady_tps, 4) + (f" ±{num(ci, 2)}" if ci else "")
        times = [dist(level, name, part) for name in ("ttft_s", "tpot_s", "e2e_s") for part in ("p50", "p99")]
        shown = [None if value is None else seconds(value) for value in times]
        bad = [str(c.get("code")) for c in level.result.get("checks") or () if c.get("ok") is False]
        checks = "void: " + ", ".join(bad) if level.result.get("void") else ", ".join(bad) or "ok"
        rows.append(
            [name_of(level), str(level.ok), str(level.err), steady, num(level.output_tps, 4), *shown,
             seconds(level.elapsed_s), checks]
        )  # fmt: skip
    return Table(
        head=("Level", "Ok", "Failed", "Steady tok/s", "Whole run", "TTFT p50", "p99", "TPOT p50", "p99", "E2E p50",
              "p99", "Elapsed", "Checks"),
        rows=rows,
        right=frozenset(range(1, 12)),
        note="Steady: while the level ran in full, ramp-up and drain left out, ± its 95% interval. Whole run: output "
        "tokens / elapsed. TPOT: (E2E - TTFT) / (output tokens - 1) of a request.",
    )  # fmt: skip


def charts(
    levels: Sequence[Level], earlier: Sequence[Run] = (), marks: Sequence[tuple[float, str]] = ()
) -> list[Block]:
    """Throughput, speed of one stream, TTFT and E2E against concurrency; open-loop levels against their rate."""
    axis = "requests/s offered" if any(level.result.get("rate") for level in levels) else "concurrency"
    marks = marks if axis == "concurrency" else ()

    def chart(title: str, unit: str, *lines: tuple[str, Value, Value | None]) -> Chart:
        first = lines[0][1]
        behind = [curve(run.id, run.levels, first, None, faint=True) for run in earlier]
        return Chart(
            title=title,
            unit=unit,
            x_label=axis,
            curves=[*behind, *(curve(label, levels, value, half) for label, value, half in lines)],
            marks=marks,
        )

    return [
        chart(
            "Throughput",
            "tok/s",
            ("steady window", lambda one: one.steady_tps, lambda one: number(one.result.get("steady_ci"))),
            ("whole run", lambda one: one.output_tps or None, None),
        ),
        chart("Speed of one stream", "tok/s", ("1 / TPOT p50", _stream, None)),
        chart("Time to first token", "s", ("p50", _at("ttft_s", "p50"), None), ("p99", _at("ttft_s", "p99"), None)),
        chart("Latency of a request", "s", ("p50", _at("e2e_s", "p50"), None), ("p99", _at("e2e_s", "p99"), None)),
    ]


def _at(name: str, part: str) -> Value:
    return lambda level: dist(level, name, part)


def _stream(level: Level) -> float | None:
    tpot = dist(level, "tpot_s", "p50")
    return 1 / tpot if tpot else None


def curve(label: str, levels: Sequence[Level], value: Value, half: Value | None, *, faint: bool = False) -> Curve:
    """A figure of levels by rising concurrency (or rate); of repeats the last."""
    found: dict[float, tuple[float, float | None]] = {}
    for level in levels:
        y = value(level)
        if y is not None and math.isfinite(y):
            x = number(level.result.get("rate")) or float(level.concurrency)
            found[x] = (y, half(level) if half is not None else None)
    xs = sorted(found)
    return Curve(label, xs, [found[x][0] for x in xs], [found[x][1] for x in xs], faint)


def _marks(run: Run) -> list[tuple[float, str]]:
    cap = (run.context.get("facts") or {}).get("max_running_requests")
    value = number(cap) or number((run.context.get("settings") or {}).get("max_running"))
    return [(value, f"cap {value:g}")] if value else []


def claim_of(item: Mapping[str, Any]) -> Claim:
    """A finding as it was stored."""
    return Claim(
        severity=str(item.get("severity", "info")),
        code=str(item.get("code", "")),
        claim=mask_secrets(str(item.get("claim", ""))),
        arithmetic=tuple(mask_secrets(part) for part in str(item.get("arithmetic") or "").split("; ") if part),
        evidence=tuple(mask_secrets(str(line)) for line in item.get("evidence") or ()),
        next_action=mask_secrets(str(item.get("next_action") or "")),
        confidence=str(item.get("confidence") or ""),
    )


def _checks(run: Run) -> list[Block]:
    rows: list[list[str | None]] = []
    for level in run.levels:
        for check in level.result.get("checks") or ():
            if check.get("ok") is False:
                trust = ", ".join(map(str, check.get("distrust") or ()))
                rows.append([name_of(level), str(check.get("code")), str(check.get("sentence")), trust or None])
    told: list[Block] = []
    if rows:
        told.append(Table(head=("Level", "Check", "What was seen", "Do not trust"), rows=rows))
    items = [
        [{True: "ok", False: "failed"}.get(item.get("ok"), "open"), str(item.get("name")), str(item.get("sentence"))]
        for item in run.context.get("items") or ()
    ]
    if items:
        told.append(Table(head=("Result", "Item", "What was seen"), rows=items))
    return told


def _context(run: Run) -> list[Section]:
    found = []
    for title, name in (
        ("Settings of the server", "settings"),
        ("Workload", "plan"),
        ("What the server said", "facts"),
    ):
        table = run.context.get(name)
        if isinstance(table, Mapping) and table:
            rows = [
                [key.replace("_", " "), mask_secrets(_word(value))] for key, value in table.items() if _tells(value)
            ]
            found.append(Section(title, [Table(head=("Name", "Value"), rows=rows)]))
    if run.context.get("command"):
        found.append(Section("Command line", [Code(mask_secrets(str(run.context["command"])))]))
    return found


def _tells(value: object) -> bool:
    """Whether a value was given at all; what is off, 0 or empty is how things are when nobody says anything."""
    if isinstance(value, Mapping):
        return any(_tells(item) for item in value.values())
    return value not in (None, "", 0, False, (), [])


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_word(item)}" for key, item in value.items() if item is not None)
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def level_row(run: Run, level: Level) -> dict[str, Any]:
    """A level as a row of a table for machines; seconds and tok/s."""
    row: dict[str, Any] = {
        "run": run.id,
        "level": name_of(level),
        **{name: getattr(level, name) for name in ("concurrency", "requests", "ok", "err", "elapsed_s", "output_tps")},
        "steady_tps": level.steady_tps,
        "steady_ci": number(level.result.get("steady_ci")),
        "avg_output": level.avg_output,
    }
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        row |= {f"{name.removesuffix('_s')}_{part}_s": dist(level, name, part) for part in ("p50", "p90", "p99")}
    failed = [str(check.get("code")) for check in level.result.get("checks") or () if check.get("ok") is False]
    return {**row, "void": bool(level.result.get("void")), "failed_checks": " ".join(failed)}


def _item_rows(run: Run) -> list[dict[str, Any]]:
    for name, keys in (
        ("items", ("name", "ok", "sentence")),
        ("findings", ("severity", "code", "claim", "arithmetic")),
    ):
        rows = [item for item in run.context.get(name) or () if isinstance(item, Mapping)]
        if rows:
            return [{"run": run.id, **{key: item.get(key) for key in keys}} for item in map(_plain, rows)]
    return []


def _plain(item: Mapping[str, Any]) -> dict[str, Any]:
    return dict(msgspec.to_builtins(item))
