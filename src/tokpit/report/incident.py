"""A stored diagnosis as a report: what was wrong, what it rests on, and how the server's figures went."""

from __future__ import annotations

from collections.abc import Mapping

from tokpit.domain.run import Run
from tokpit.insight.measures import number
from tokpit.report.document import Block, Chart, Curve, Document, Paragraph, Section, Table
from tokpit.report.run import claim_of, facts, footer, when

_SERIES = (
    ("Generation", "tok/s", (("gen_tps", "generation throughput"),)),
    ("Requests", "requests", (("running", "running"), ("queued", "queued"))),
    ("Occupied", "%", (("kv", "KV cache"), ("state_usage", "state slots"))),
    ("Acceptance length", "tokens a step", (("accept_len", "acceptance length"),)),
)

_NOTHING = "Nothing in these figures is off."


def incident_document(run: Run) -> Document:
    """The report of a run of kind `incident`."""
    found = [item for item in run.context.get("findings") or () if isinstance(item, Mapping)]
    grave = [item for item in found if item.get("severity") != "info"]
    summary: list[Block] = [
        Paragraph(str(grave[0].get("claim")), "bad" if grave[0].get("severity") == "error" else "warn")
        if grave
        else Paragraph(_NOTHING, "good")
    ]
    sections = [Section("", summary)]
    if charts := _charts(run):
        sections.append(Section("How it went", charts))
    sections.append(Section("Findings", [claim_of(item) for item in found]))
    known = run.context.get("facts") or {}
    if known:
        rows = [[str(name).replace("_", " "), str(value)] for name, value in known.items()]
        sections.append(Section("Facts", [Table(head=("Name", "Value"), rows=rows)]))
    if looked := [*run.context.get("sources", ()), *run.context.get("notes", ())]:
        sections.append(Section("What was looked at", [Paragraph(str(line)) for line in looked]))
    return Document(
        title=f"Incident: {run.target}",
        subtitle=f"{run.id}, {when(run.started_at)}",
        facts=facts(run),
        sections=[section for section in sections if section.blocks],
        footer=footer(),
        data=run,
        rows=tuple(
            {
                "incident": run.id,
                **{name: item.get(name) for name in ("severity", "confidence", "code", "claim", "arithmetic")},
                "evidence": " | ".join(map(str, item.get("evidence") or ())),
                "next_action": item.get("next_action"),
            }
            for item in found or [{"claim": _NOTHING}]
        ),
    )


def _charts(run: Run) -> list[Block]:
    series: Mapping[str, object] = run.context.get("series") or {}
    charts: list[Block] = []
    for title, unit, lines in _SERIES:
        curves = []
        for name, label in lines:
            points = series.get(name)
            pairs = [
                (t, y)
                for point in (points if isinstance(points, (list, tuple)) else ())
                if len(point) == 2 and (t := number(point[0])) is not None and (y := number(point[1])) is not None
            ]
            if len(pairs) > 1:
                scale = 100.0 if unit == "%" else 1.0
                curves.append(Curve(label, [t for t, _ in pairs], [scale * y for _, y in pairs]))
        if curves:
            charts.append(Chart(title=title, unit=unit, x_label="time in the log", curves=curves, time=True))
    return charts
