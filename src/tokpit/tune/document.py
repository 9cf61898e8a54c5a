"""The report of an experiment: what to run, what each setting did, what was not tried and why."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import msgspec

from tokpit.domain.tuning import LeftOut, Trial, Tuning
from tokpit.insight.words import num, within
from tokpit.report.document import Block, Chart, Code, Curve, Document, Paragraph, Points, Section, Table
from tokpit.tune.choosing import MOST_GIVEN_UP, Standing, best_point, ties
from tokpit.tune.effects import Effect
from tokpit.tune.space import name_of, value_of, words_of

_MOST_ROWS = 30
_MOST_CURVES = 4
_CODES = {
    "rules": "the engine's rules refuse them",
    "memory": "they do not fit in memory",
    "same": "another candidate stands for them",
    "ceiling": "they cannot reach what was measured",
    "limit": "a limit, or the end, came first",
}


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the report is made of beside the snapshot. Lines are masked already."""

    workload: str
    first_line: str
    winner: Standing | None = None
    winner_line: str = ""
    changes: tuple[str, ...] = ()
    found: tuple[Standing, ...] = ()
    effects: tuple[Effect, ...] = ()
    noise: float = 0.02


def document(tuning: Tuning, told: Told, *, charts: bool = True) -> Document:
    """The whole report. Without `charts` for a format that cannot draw them: the table has all their points."""
    failed = [t for t in tuning.trials if t.status == "failed"]
    sections = [
        Section("Result", verdict(tuning, told)),
        Section("Measured", _measured(tuning, told.found, charts=charts)),
        Section(
            "Did not start or could not be measured",
            [Points([f"{words_of(t.choice)}: {t.code}: {t.reason}" for t in failed])] if failed else (),
        ),
        Section("What each setting did", [Points([e.words for e in told.effects])] if told.effects else ()),
        Section("Not tried", [Points(_left_out(tuning.left_out))] if tuning.left_out else ()),
        Section("Notes", [Points(tuning.notes)] if tuning.notes else ()),
    ]
    return Document(
        title=f"Experiment {tuning.id} on {tuning.target}",
        subtitle=f"{tuning.title}; {tuning.objective} ({tuning.unit}); {told.workload}. "
        f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(tuning.t))} UTC, {tuning.restarts} starts, "
        f"{(tuning.t - tuning.started_t) / 60:.0f} min, ended: {tuning.phase}.",
        sections=[section for section in sections if section.blocks],
        data=tuning,
        rows=tuple(_row(standing, tuning) for standing in told.found),
    )


def verdict(tuning: Tuning, told: Told) -> list[Block]:
    """What to run, or why nothing is to be changed."""
    first = next((s for s in told.found if s.first), None)
    blocks: list[Block] = []
    if told.winner is None or told.winner.first:
        blocks.append(Paragraph(_kept(tuning, told, first)))
    else:
        blocks += _changed(tuning, told, told.winner, first)
    if (words := drift(tuning.trials, told.noise)) is not None:
        blocks.append(Paragraph(words))
    return [*blocks, Paragraph("The server as it ran:"), Code(told.first_line)]


def _kept(tuning: Tuning, told: Told, first: Standing | None) -> str:
    others = [s for s in told.found if not s.first]
    if first is None:
        return "Nothing was measured."
    if not others:
        return f"No other candidate was measured; the server as it runs gives {_value(first, tuning)}."
    if others[0].score.value and ties(others[0].score, first.score, told.noise):
        return (
            f"The server as it runs is to be kept: {_value(first, tuning)}. The best other candidate "
            f"({words_of(others[0].choice)}) gives {_value(others[0], tuning)}, the same within the noise."
        )
    return f"The server as it runs is the best that was measured: {_value(first, tuning)}."


def _changed(tuning: Tuning, told: Told, winner: Standing, first: Standing | None) -> list[Block]:
    gain = ""
    if first is not None and first.score.value and winner.score.value:
        gain = f", {(winner.score.value / first.score.value - 1) * 100:+.1f} % against the server as it ran"
        if ties(winner.score, first.score, told.noise):
            gain += " (no difference beyond the noise: it is named because it can take more)"
    blocks: list[Block] = [
        Paragraph(f"{words_of(winner.choice)}: {_value(winner, tuning)}{gain}.", "good"),
        Points(told.changes),
        Code(told.winner_line),
    ]
    equal = [
        s for s in told.found if s.choice != winner.choice and not s.cut and ties(s.score, winner.score, told.noise)
    ]
    if equal:
        blocks.append(
            Paragraph(
                f"{len(equal)} other{'s' if len(equal) > 1 else ''} within the noise "
                f"(of those within {MOST_GIVEN_UP:.0%} of the best it is the most capable): "
                + "; ".join(f"{words_of(s.choice)} ({_value(s, tuning)})" for s in equal[:4])
                + (" ..." if len(equal) > 4 else "")
            )
        )
    return blocks


def drift(trials: Iterable[Trial], noise: float) -> str | None:
    """What the first server gave at the end against the begin; None where it was measured once."""
    values = [(t.value, t.half or 0.0) for t in trials if t.role in {"first", "last"} and t.value]
    if len(values) < 2:
        return None
    (begin, half), (end, other) = values[0], values[-1]
    change = end / begin - 1
    gave = f"gave {num(end, 4)} after {num(begin, 4)} ({change * 100:+.1f} %)"
    words = f"The first server, measured again at the end, {gave}"
    if abs(end - begin) <= max(noise * begin, (half**2 + other**2) ** 0.5):
        return f"{words}: no drift beyond the noise."
    return f"{words}: the machine drifted; differences of that size mean nothing."


def _measured(tuning: Tuning, found: Sequence[Standing], *, charts: bool) -> list[Block]:
    names = list(tuning.axes)
    head = ("Trials", *(name_of(n) for n in names), tuning.unit, "±", "Levels: C = tok/s (one stream)")
    rows = [
        [
            ", ".join(map(str, standing.trials)),
            *(value_of(standing.choice.get(n)) for n in names),
            num(standing.score.value or 0.0, 4) + _remark(standing),
            num(standing.score.half, 2),
            ", ".join(
                f"{p.concurrency} = {p.tps:.1f}" + (f" ({p.stream_tps:.1f})" if p.stream_tps else "")
                for p in standing.points
            ),
        ]
        for standing in found[:_MOST_ROWS]
    ]
    more = f"{len(found) - _MOST_ROWS} more below these." if len(found) > _MOST_ROWS else ""
    table = Table(head=head, rows=rows, right=frozenset(range(1, len(names) + 3)), note=more)
    return [table, *(_charts(found) if charts else ())]


def _remark(standing: Standing) -> str:
    return (" as it ran" if standing.first else "") + (" cut short" if standing.cut else "")


def _charts(found: Sequence[Standing]) -> list[Block]:
    """Sweep curves of the best and of the first server; every candidate at its best level, for what is given up."""
    shown = [s for s in found if not s.first and len(s.points) > 1][:_MOST_CURVES]
    shown += [s for s in found if s.first and len(s.points) > 1]
    curves = [
        Curve(_label(s), [p.concurrency for p in s.points], [p.tps for p in s.points], [p.half for p in s.points],
              faint=s.first)
        for s in shown
    ]  # fmt: skip
    charts: list[Block] = []
    if curves:
        charts.append(Chart(title="Throughput", unit="tok/s", x_label="concurrency", curves=curves))
    best = [(s, p) for s in shown if (p := best_point(s.points)) is not None and p.stream_tps]
    spots = [Curve(_label(s), [round(p.stream_tps or 0.0, 1)], [p.tps], [p.half], faint=s.first) for s, p in best]
    if len(spots) > 1:
        title, x_label = "Throughput against the speed of one stream", "tok/s of one stream, at the best level"
        charts.append(Chart(title=title, unit="tok/s", x_label=x_label, curves=spots))
    return charts


def _label(standing: Standing) -> str:
    return f"#{standing.trials[0]}" + (" as it ran" if standing.first else "")


def _row(standing: Standing, tuning: Tuning) -> dict[str, object]:
    best = best_point(standing.points)
    return {
        "trials": " ".join(map(str, standing.trials)),
        **{name_of(name): standing.choice.get(name) for name in tuning.axes},
        "value": standing.score.value,
        "half": standing.score.half,
        "unit": tuning.unit,
        "as_it_ran": standing.first,
        "cut_short": standing.cut,
        "concurrency": best.concurrency if best is not None else None,
        "tps": best.tps if best is not None else None,
        "stream_tps": best.stream_tps if best is not None else None,
    }


def _left_out(items: Sequence[LeftOut]) -> list[str]:
    lines = []
    for code in dict.fromkeys(item.code for item in items):
        group = [item for item in items if item.code == code]
        lines.append(f"{len(group)}: {_CODES.get(code, code)}. For one, {words_of(group[0].choice)}: {group[0].reason}")
    return lines


def _value(standing: Standing, tuning: Tuning) -> str:
    return f"{within(standing.score.value or 0.0, standing.score.half)} {tuning.unit}"
