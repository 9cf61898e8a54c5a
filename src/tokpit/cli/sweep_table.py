"""The result of a sweep as a table: steady beside whole run, latencies, goodput, errors, and what not to trust."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from tokpit.cli.output import table
from tokpit.domain.text import sanitize

if TYPE_CHECKING:
    from tokpit.domain.run import Level, Run

_FIGURES = {
    "output_tps": "whole-run tok/s", "steady_tps": "steady tok/s", "total_tps": "total tok/s", "ttft_s": "TTFT",
    "answer_s": "time to answer", "e2e_s": "E2E", "tpot_s": "TPOT", "icl_s": "chunk gaps", "itl_s": "ITL",
    "avg_output": "output length", "mean_in_flight": "in flight",
}  # fmt: skip


def show_levels(run: Run) -> None:
    """The levels of a run with everything that is known about how far to trust them."""
    levels = list(run.levels)
    if run.context.get("found"):  # a search jumps up and down
        levels.sort(key=lambda level: level.concurrency)
    if not levels:
        click.echo("no level was finished")
        return
    slo = any(_of(level, "goodput_share") is not None for level in levels)
    head = ["LEVEL", "OK", "ERR", "STEADY tok/s", "WHOLE RUN", "AVG OUT", "TTFT p50", "p99", "TPOT p50", "p99",
            "E2E p50", "p99", "ELAPSED", *(["SLO MET", "GOODPUT"] if slo else []), "CHECKS"]  # fmt: skip
    table(head, [_row(level, slo) for level in levels], right=frozenset(range(1, len(head) - 1)))
    click.echo(
        "STEADY: while the level ran in full, ramp-up and drain left out (± 95% interval). WHOLE RUN: output tokens / "
        "elapsed."
    )
    for found in (_repeats(levels), [*_errors(levels), *_checks(levels)], _findings(run)):
        lines = list(found)
        if lines:
            click.echo()
        for line in lines:
            _say(line)
    if run.context.get("baseline"):
        _say(str(run.context["baseline"]))
    if run.context.get("found"):
        click.echo(f"SLO: {sanitize(str(run.context['found']))}")


def _say(line: str) -> None:
    """A line as safe text, wrapped with a hanging indent on a terminal."""
    text = sanitize(line)
    if not sys.stdout.isatty():
        click.echo(text)
        return
    indent = " " * (len(text) - len(text.lstrip()))
    width = max(40, shutil.get_terminal_size().columns - 1)
    click.echo(textwrap.fill(text.strip(), width, initial_indent=indent, subsequent_indent=f"{indent}  "))


def _row(level: Level, slo: bool) -> list[str | None]:
    found = level.result
    steady = None
    if level.steady_tps is not None:
        ci = found.get("steady_ci")
        steady = f"{level.steady_tps:.1f}" + (f" ±{ci:.1f}" if isinstance(ci, (int, float)) else "")
    goodput = [_percent(found.get("goodput_share")), _number(found.get("goodput_rps"), " req/s")] if slo else []
    return [
        name(level),
        str(level.ok),
        str(level.err),
        steady,
        f"{level.output_tps:.1f}",
        f"{level.avg_output:.0f}",
        _seconds(level, "ttft_s", "p50", level.ttft_p50_s),
        _seconds(level, "ttft_s", "p99"),
        _seconds(level, "tpot_s", "p50"),
        _seconds(level, "tpot_s", "p99"),
        _seconds(level, "e2e_s", "p50", level.e2e_p50_s),
        _seconds(level, "e2e_s", "p99"),
        f"{level.elapsed_s:.1f} s",
        *goodput,
        _mark(level),
    ]


def name(level: Level) -> str:
    """What a level is called: its concurrency or its offered rate."""
    return str(level.result.get("label") or f"C={level.concurrency}")


def _mark(level: Level) -> str:
    failed = _failed(level)
    words = [str(check.get("code", "")) for check in failed]
    if level.result.get("void"):
        words.insert(0, "VOID")
    if level.result.get("partial"):
        words.insert(0, "partial")
    if level.result.get("token_source") == "chunks":
        words.append("tokens estimated")
    if not words:
        return "ok" if level.result.get("checks") else ""
    return ", ".join(dict.fromkeys(words))


def _of(level: Level, key: str) -> Any:
    return level.result.get(key)


def _seconds(level: Level, dist: str, quantile: str, fallback: float | None = None) -> str | None:
    found = level.result.get(dist)
    value = found.get(quantile) if isinstance(found, Mapping) else fallback
    if value is None:
        return None
    thin = isinstance(found, Mapping) and quantile in (found.get("thin") or ())
    return ("~" if thin else "") + seconds(value)


def seconds(value: float) -> str:
    """A duration with three digits and its unit."""
    if value < 0.9995:
        return f"{value * 1e3:.3g} ms" if value < 0.0995 else f"{value * 1e3:.0f} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:.0f} s"


def _percent(value: object) -> str | None:
    return f"{value:.0%}" if isinstance(value, (int, float)) else None


def _number(value: object, unit: str) -> str | None:
    return f"{value:.2f}{unit}" if isinstance(value, (int, float)) else None


def _failed(level: Level) -> list[Mapping[str, Any]]:
    return [check for check in level.result.get("checks") or () if check.get("ok") is False]


def _repeats(levels: Sequence[Level]) -> Iterable[str]:
    """Mean and 95 % interval over the repeats of each level."""
    from tokpit.load.stats import t95

    groups: dict[str, list[Level]] = {}
    for level in levels:
        if not level.result.get("void") and not level.result.get("partial"):
            groups.setdefault(name(level), []).append(level)
    if "repeat" not in levels[0].result:
        return
    yield "over the repeats (mean ± 95% interval):"
    for label, group in groups.items():
        steady = [level.steady_tps for level in group if level.steady_tps is not None]
        kind, values = ("steady", steady) if len(steady) == len(group) else ("whole run", [g.output_tps for g in group])
        mean = math.fsum(values) / len(values)
        if len(values) < 2:
            yield f"  {label:8}  {mean:.1f} tok/s ({kind}, one repeat: no interval)"
            continue
        spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
        half = t95(len(values) - 1) * spread / math.sqrt(len(values))
        share = f" ({half / mean:.1%})" if mean else ""
        yield f"  {label:8}  {mean:.1f} ± {half:.1f} tok/s{share}, {kind}, {len(values)} repeats"


def _errors(levels: Sequence[Level]) -> Iterable[str]:
    """Failed requests by class, each with its first example."""
    for level in levels:
        outcomes = level.result.get("outcomes") or {}
        for kind, item in outcomes.items():
            if kind in ("ok", "cancelled"):
                continue
            example = f", first: {item.get('example')}" if item.get("example") else ""
            yield f"{name(level)}: {item.get('count')} x {kind}{example}"


def _checks(levels: Sequence[Level]) -> Iterable[str]:
    """Failed checks, a line each: the levels it is about, the sentence of the last, and the figures not to trust."""
    groups: dict[str, list[tuple[Level, Mapping[str, Any]]]] = {}
    for level in levels:
        for check in _failed(level):
            groups.setdefault(str(check.get("code")), []).append((level, check))
    for code, group in groups.items():
        level, check = group[-1]
        where = ", ".join(dict.fromkeys(name(one) for one, _ in group))
        void = "VOID, " if any(one.result.get("void") == each.get("sentence") for one, each in group) else ""
        figures = dict.fromkeys(str(key) for _, each in group for key in each.get("distrust") or ())
        trust = f" Do not trust: {', '.join(_FIGURES.get(key, key) for key in figures)}." if figures else ""
        sentence = str(check.get("sentence", ""))
        last = f"at {name(level)} " if len(group) > 1 else ""
        yield f"{where}: {void}{code}: {last}{sentence}.{trust}"


def _findings(run: Run) -> Iterable[str]:
    """What the curve says, with its arithmetic; failed checks are listed elsewhere."""
    shown = {str(check.get("code")) for level in run.levels for check in _failed(level)}
    for finding in run.context.get("findings") or ():
        if finding.get("code") in shown:
            continue
        yield f"{finding.get('claim')}"
        for part in (finding.get("arithmetic"), finding.get("next_action")):
            if part:
                yield f"  {part}"
