"""A comparison as a report: the verdict, every figure with its interval, both runs over one another, what changed."""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.insight.comparison import cells
from tokpit.insight.versus import Versus
from tokpit.report.document import Block, Document, Paragraph, Section, Table
from tokpit.report.run import charts, facts, footer, when

_TONES = {"regression": "bad", "mixed": "bad", "improvement": "good"}


def versus_document(found: Sequence[Versus]) -> Document:
    """The report of one or more comparisons with the same first run."""
    sections: list[Section] = []
    rows: list[dict[str, object]] = []
    for one in found:
        verdict = one.comparison
        blocks: list[Block] = [Paragraph(verdict.told, _TONES.get(verdict.verdict, ""))]
        blocks += [Paragraph(caution) for caution in verdict.cautions]
        table = [cells(pair, " of {} runs") for pair in verdict.pairs]
        head = ("Metric", "Level", "Before", "After", "Change", "95% interval", "Noise", "Verdict")
        blocks.append(Table(head=head, rows=table, right=frozenset({2, 3, 4})))
        blocks += charts(one.after.levels, (one.before,))
        changes = [
            [str(n), item.name, item.before, item.after, item.fits, item.arithmetic or item.effect or None]
            for n, item in enumerate(one.changes, 1)
        ]
        sections.append(Section(f"{one.before.id} → {one.after.id}", blocks))
        if changes:
            names = ("#", "What differs", "Before", "After", "Against the gap", "Why")
            sections.append(Section("What changed, the likeliest explanation first", [Table(head=names, rows=changes)]))
        rows += [
            {
                "before": verdict.before,
                "after": verdict.after,
                "metric": pair.metric,
                "level": pair.level,
                "value_before": pair.before,
                "value_after": pair.after,
                "ratio": pair.ratio,
                "low": pair.interval[0] if pair.interval is not None else None,
                "high": pair.interval[1] if pair.interval is not None else None,
                "band": pair.band,
                "verdict": pair.verdict,
            }
            for pair in verdict.pairs
        ]
    last = found[-1]
    return Document(
        title=f"Comparison: {last.after.model or last.after.target}",
        subtitle=f"{', '.join(one.after.id for one in found)} against {last.before.id}, {when(last.before.started_at)}",
        facts=facts(last.after),
        sections=sections,
        footer=footer(),
        data=[{"comparison": one.comparison, "changes": one.changes} for one in found],
        rows=tuple(rows),
    )
