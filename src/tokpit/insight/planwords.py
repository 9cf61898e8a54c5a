"""A job's plan in words, the same for every front end. Pure."""

from __future__ import annotations

from tokpit.insight.jobplan import Lever, Option, Plan
from tokpit.insight.rates import Span
from tokpit.insight.words import num, percent, seconds, span

HEAD = ("C", "RUNNING", "TOK/S A HOST", "JOB", "A REQUEST", "COST", "ERRORS", "")
"""Column names of `row`."""
RIGHT = frozenset({0, 1, 4, 5})
"""Columns that are aligned to the right."""


def job_line(plan: Plan) -> str:
    """What is to be done."""
    job = plan.job
    amount = f"{num(job.tokens / 1e6, 4)} million tokens"
    return f"{job.requests:,} requests of {num(job.output_tokens, 6)} output tokens = {amount}"


def headline(plan: Plan) -> str:
    """The answer."""
    hosts = f"{plan.job.hosts} host" + "s" * (plan.job.hosts != 1)
    return f"{hours(plan.chosen.hours)} on {hosts} at C={plan.chosen.rate.concurrency}"


def reasons(plan: Plan) -> list[str]:
    """What the answer rests on: rate, arithmetic, GPU-hours, cost, hosts for the limit."""
    job, chosen = plan.job, plan.chosen
    rate = num(chosen.rate.good_tps.mid, 4)
    lines = [
        f"{spanned(chosen.rate.tps)} tok/s a host: {plan.why}",
        f"= {num(job.requests, 9)} x {num(job.output_tokens, 6)} / ({rate} x {job.hosts})",
        f"{spanned(chosen.gpu_hours)} GPU-hours ({plan.gpus} a host)",
    ]
    if chosen.cost is not None:
        lines.append(f"cost {spanned(chosen.cost)} at {num(job.price or 0.0)} a GPU-hour")
    if plan.hosts_needed is not None and job.within_h is not None:
        lines.append(f"{plan.hosts_needed} hosts do it within {span(job.within_h)} (at the slow end of the interval)")
    return lines


def row(plan: Plan, option: Option) -> tuple[str, ...]:
    """One measured way, see HEAD."""
    return (
        ",".join(map(str, option.rate.levels)),
        str(option.rate.running),
        spanned(option.rate.tps),
        hours(option.hours),
        seconds(option.latency_s),
        "-" if option.cost is None else num(option.cost.mid),
        percent(option.rate.error_share) if option.rate.error_share else "-",
        "<" if option is plan.chosen else "",
    )


def lever_line(lever: Lever) -> str:
    """What a change would buy."""
    text = f"{lever.name}: {lever.change}"
    if lever.hours is not None:
        text += f", {hours(lever.hours)}"
    if lever.saves_h:
        text += f", {'saves' if lever.saves_h > 0 else 'costs'} {span(abs(lever.saves_h))}"
    return text + ("" if lever.basis == "measured" else " (predicted)")


def spanned(value: Span) -> str:
    """A figure with its interval, where there is one."""
    if value.low is None or value.high is None:
        return num(value.mid, 4)
    return f"{num(value.mid, 4)} ({num(value.low, 4)} to {num(value.high, 4)})"


def hours(value: Span) -> str:
    """A time with its interval, where there is one."""
    mid = span(value.mid)
    if value.low is None or value.high is None:
        return mid
    low, high = span(value.low), span(value.high)
    unit = mid.rpartition(" ")[2]
    if low.endswith(f" {unit}") and high.endswith(f" {unit}"):
        low, high = low.rpartition(" ")[0], high.rpartition(" ")[0]
    return f"{mid} ({low} to {high})"
