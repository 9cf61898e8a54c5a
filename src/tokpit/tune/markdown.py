"""The report of an experiment, in Markdown: what to run, what each setting did, what was not tried and why."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import msgspec

from tokpit.domain.tuning import LeftOut, Trial, Tuning
from tokpit.tune.choosing import Standing, ties
from tokpit.tune.effects import Effect
from tokpit.tune.space import name_of, value_of, words_of

_MOST_ROWS = 30
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


def report(tuning: Tuning, told: Told) -> str:
    """The whole report."""
    lines = [
        f"# Experiment {tuning.id} on {tuning.target}",
        "",
        f"{tuning.title}; {tuning.objective} ({tuning.unit}); {told.workload}. "
        f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(tuning.t))} UTC, {tuning.restarts} starts, "
        f"{(tuning.t - tuning.started_t) / 60:.0f} min, ended: {tuning.phase}.",
        "",
        "## Result",
        "",
        *verdict(tuning, told),
        "",
        "## Measured",
        "",
        *_table(tuning, told.found),
    ]
    failed = [t for t in tuning.trials if t.status == "failed"]
    if failed:
        lines += ["", "## Did not start or could not be measured", ""]
        lines += [f"- {words_of(t.choice)}: {t.code}: {_plain(t.reason)}" for t in failed]
    if told.effects:
        lines += ["", "## What each setting did", "", *(f"- {effect.words}" for effect in told.effects)]
    if tuning.left_out:
        lines += ["", "## Not tried", "", *_left_out(tuning.left_out)]
    if tuning.notes:
        lines += ["", "## Notes", "", *(f"- {_plain(note)}" for note in tuning.notes)]
    return "\n".join(lines) + "\n"


def verdict(tuning: Tuning, told: Told) -> list[str]:
    """What to run, or why nothing is to be changed."""
    first = next((s for s in told.found if s.first), None)
    lines: list[str] = []
    if told.winner is None or told.winner.first:
        others = [s for s in told.found if not s.first]
        if first is None:
            lines.append("Nothing was measured.")
        elif not others:
            lines.append(f"No other candidate was measured; the server as it runs gives {_value(first, tuning)}.")
        elif others[0].score.value and ties(others[0].score, first.score, told.noise):
            lines.append(
                f"The server as it runs is to be kept: {_value(first, tuning)}. The best other candidate "
                f"({words_of(others[0].choice)}) gives {_value(others[0], tuning)}, the same within the noise."
            )
        else:
            lines.append(f"The server as it runs is the best that was measured: {_value(first, tuning)}.")
    else:
        gain = ""
        if first is not None and first.score.value and told.winner.score.value:
            gain = f", {(told.winner.score.value / first.score.value - 1) * 100:+.1f} % against the server as it ran"
            if ties(told.winner.score, first.score, told.noise):
                gain += " (no difference beyond the noise: it is named because it can take more)"
        lines.append(f"**{words_of(told.winner.choice)}**: {_value(told.winner, tuning)}{gain}.")
        lines += ["", *(f"- `{change}`" for change in told.changes)]
        lines += ["", "```", told.winner_line, "```"]
        equal = [
            s
            for s in told.found
            if s.choice != told.winner.choice and not s.cut and ties(s.score, told.winner.score, told.noise)
        ]
        if equal:
            lines += [
                "",
                f"{len(equal)} other{'s' if len(equal) > 1 else ''} within the noise; it is the most capable of them: "
                + "; ".join(f"{words_of(s.choice)} ({_value(s, tuning)})" for s in equal[:4])
                + (" ..." if len(equal) > 4 else ""),
            ]
    if (words := drift(tuning.trials, told.noise)) is not None:
        lines += ["", words]
    lines += ["", "The server as it ran:", "", "```", told.first_line, "```"]
    return lines


def drift(trials: Iterable[Trial], noise: float) -> str | None:
    """What the first server gave at the end against the begin; None where it was measured once."""
    values = [(t.value, t.half or 0.0) for t in trials if t.role in {"first", "last"} and t.value]
    if len(values) < 2:
        return None
    (begin, half), (end, other) = values[0], values[-1]
    change = end / begin - 1
    words = f"The first server, measured again at the end, gave {end:.4g} after {begin:.4g} ({change * 100:+.1f} %)"
    if abs(end - begin) <= max(noise * begin, (half**2 + other**2) ** 0.5):
        return f"{words}: no drift beyond the noise."
    return f"{words}: the machine drifted; differences of that size mean nothing."


def _table(tuning: Tuning, found: Sequence[Standing]) -> list[str]:
    names = list(tuning.axes)
    head = [*(name_of(n) for n in names), f"value ({tuning.unit})", "±", "levels: C = tok/s (one stream)", "trials"]
    rows = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for standing in found[:_MOST_ROWS]:
        levels = ", ".join(
            f"{p.concurrency} = {p.tps:.1f}" + (f" ({p.stream_tps:.1f})" if p.stream_tps else "")
            for p in standing.points
        )
        cells = [
            *(value_of(standing.choice.get(n)) for n in names),
            f"{standing.score.value:.4g}"
            + (" as it ran" if standing.first else "")
            + (" cut short" if standing.cut else ""),
            f"{standing.score.half:.2g}",
            levels,
            " ".join(f"#{n}" for n in standing.trials),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    if len(found) > _MOST_ROWS:
        rows.append(f"\n{len(found) - _MOST_ROWS} more below these.")
    return rows


def _left_out(items: Sequence[LeftOut]) -> list[str]:
    lines = []
    for code in dict.fromkeys(item.code for item in items):
        group = [item for item in items if item.code == code]
        lines.append(
            f"- {len(group)}: {_CODES.get(code, code)}. For one, {words_of(group[0].choice)}: {_plain(group[0].reason)}"
        )
    return lines


def _value(standing: Standing, tuning: Tuning) -> str:
    return f"{standing.score.value:.4g} ± {standing.score.half:.2g} {tuning.unit}"


def _plain(text: str) -> str:
    return " ".join(text.split())
