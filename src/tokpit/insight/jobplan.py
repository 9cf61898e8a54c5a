"""A plan for a job of many requests: hours, hosts, what each lever would buy, and cost, from measured rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from tokpit.insight.capacity import CONFIGURED, KV, STATE, Cap, pools, running_cap
from tokpit.insight.curve import read_curve
from tokpit.insight.facts import Facts
from tokpit.insight.plateau import CAP, CLIENT, CURVE_CAP, ERRORS, THROTTLED, Plateau, explain
from tokpit.insight.points import Point
from tokpit.insight.rates import Rate, Span, best, predicted, rates
from tokpit.insight.words import listed, num, percent, span

LENGTH_APART = 1.25
"""A job whose answers are this much longer or shorter than the measured ones is told so."""
_LIMITED = {CLIENT: "the load generator", ERRORS: "failing requests", THROTTLED: "a GPU that was slowed down"}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done. `price`: of one GPU for one hour, in any currency."""

    requests: int
    output_tokens: float
    """Mean of a request."""
    hosts: int = 1
    within_h: float | None = None
    price: float | None = None
    gpus: int | None = None
    """GPUs of one server, where the measurement does not say."""

    @property
    def tokens(self) -> float:
        """Output tokens of the whole job."""
        return self.requests * self.output_tokens


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration that was measured. `settings`: what its flags were, for the words of a comparison."""

    label: str
    points: tuple[Point, ...]
    facts: Facts = Facts()
    settings: dict[str, str] = {}
    gpus: int | None = None
    """GPUs that its server used."""


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One measured way to run the job."""

    rate: Rate
    hours: Span
    """Of the whole job on the hosts of the job."""
    latency_s: float
    """Of a request, while it runs."""
    gpu_hours: Span
    cost: Span | None = None


class Lever(msgspec.Struct, frozen=True, kw_only=True):
    """What one change would buy. `basis`: `measured`, or `predicted` by a model beyond what was measured."""

    name: Literal["concurrency", "cap", "hosts", "flags"]
    change: str
    basis: Literal["measured", "predicted"]
    hours: Span | None = None
    saves_h: float | None = None
    note: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A job's plan. `chosen` is the option with the fewest running requests that is as fast as the fastest."""

    job: Job
    source: str
    gpus: int
    options: tuple[Option, ...]
    chosen: Option
    why: str
    levers: tuple[Lever, ...]
    hosts_needed: int | None
    """To be done within the job's limit, at the slow end of the interval."""
    notes: tuple[str, ...]


def make_plan(job: Job, measured: Sequence[Measured]) -> Plan | None:
    """The plan of a job from the first configuration; the others are what tuned flags would buy.

    None where the first one measured no rate. hours = requests x tokens / (rate x hosts), and at the long end one
    request more, because the last ones run without company.
    """
    base = measured[0]
    found, plateau, cap = _read(base)
    if not found:
        return None
    found, fits = _that_fit(found, base.facts, job)
    gpus = job.gpus or base.gpus or 1
    options = tuple(_option(job, rate, gpus) for rate in found)
    chosen = next(option for option in options if option.rate is best(found))
    levers = [
        *_concurrency(job, options, chosen, cap),
        *_cap_lever(job, found, chosen, cap, gpus),
        *_hosts(job, chosen, gpus),
        *_flags(job, base, chosen, measured[1:]),
    ]
    return Plan(
        job=job,
        source=base.label,
        gpus=gpus,
        options=options,
        chosen=chosen,
        why=_why(found, chosen, cap),
        levers=tuple(levers),
        hosts_needed=_needed(job, chosen.hours.worst * job.hosts),
        notes=tuple(_notes(job, base, chosen, plateau, fits, gpus)),
    )


def _read(one: Measured) -> tuple[tuple[Rate, ...], Plateau | None, Cap | None]:
    """The rates of a configuration, the levels above its cap taken together, with why it stops rising and that cap."""
    curve = read_curve(one.points)
    plateau = explain(curve, one.facts) if curve is not None else None
    capped = plateau is not None and plateau.cause in (CAP, CURVE_CAP) and plateau.cap is not None
    cap = plateau.cap if capped and plateau is not None else running_cap(one.facts)
    return rates(one.points, cap.value if cap is not None else None), plateau, cap


def _that_fit(found: tuple[Rate, ...], facts: Facts, job: Job) -> tuple[tuple[Rate, ...], str]:
    """The rates whose requests fit into the KV cache at the job's length, and a word where some do not."""
    longer = msgspec.structs.replace(facts, requested_output=job.output_tokens, output_tokens=job.output_tokens)
    room = next((cap for cap in pools(longer) if cap.by == KV), None)
    if room is None:
        return found, ""
    kept = tuple(rate for rate in found if rate.running <= room.value)
    if len(kept) == len(found):
        return found, ""
    if not kept:
        return found[:1], f"the KV cache holds fewer requests of this length than any level ran: {room.arithmetic}"
    return kept, f"levels that run more than {room.value} at once are left out: {room.arithmetic} at this length"


def _option(job: Job, rate: Rate, gpus: int) -> Option:
    latency_s = rate.latency_s(job.output_tokens)
    each = math.ceil(job.requests / job.hosts)
    span_ = rate.good_tps.over(each * job.output_tokens / 3600)
    tail_h = latency_s / 3600
    hours = Span(
        max(span_.mid, tail_h),
        None if span_.low is None else max(span_.low, tail_h),
        None if span_.high is None else span_.high + tail_h,
    )
    used = hours.times(gpus * job.hosts)
    return Option(
        rate=rate,
        hours=hours,
        latency_s=latency_s,
        gpu_hours=used,
        cost=used.times(job.price) if job.price is not None else None,
    )


def _why(found: Sequence[Rate], chosen: Option, cap: Cap | None) -> str:
    rate = chosen.rate
    if cap is not None and rate.running >= cap.value:
        return f"the server runs {cap.value} at once whatever C is above that ({cap.arithmetic or 'seen in the curve'})"
    if rate is found[-1]:
        return "the fastest level measured"
    top = max(found, key=lambda one: one.good_tps.mid)
    return f"the smallest C that is as fast as the fastest (C={top.concurrency}), within the intervals"


def _gain(job: Job, before: Option, rate: Span, gpus: int) -> tuple[Span, float]:
    hours = _option(job, msgspec.structs.replace(before.rate, tps=rate), gpus).hours
    return hours, before.hours.mid - hours.mid


def _concurrency(job: Job, options: Sequence[Option], chosen: Option, cap: Cap | None) -> list[Lever]:
    levers = []
    below = [option for option in options if option.rate.running < chosen.rate.running]
    if below:
        lower = below[-1]
        more = chosen.rate.good_tps.mid / lower.rate.good_tps.mid - 1
        levers.append(
            Lever(
                name="concurrency",
                change=f"C={lower.rate.concurrency} to C={chosen.rate.concurrency}: {more:+.0%} tok/s",
                basis="measured",
                hours=chosen.hours,
                saves_h=lower.hours.mid - chosen.hours.mid,
                note="the plan has this in it",
            )
        )
    above = [c for c in chosen.rate.levels if c > chosen.rate.concurrency]
    if cap is not None and above:
        levers.append(
            Lever(
                name="concurrency",
                change=f"C above {chosen.rate.concurrency} ({listed(above)} measured): nothing",
                basis="measured",
                saves_h=0.0,
                note=f"C - {cap.value} requests wait in the queue; only their latency grows",
            )
        )
    elif cap is None and chosen is options[-1] and len(options) >= 3:
        wider = 2 * chosen.rate.running
        tps = predicted([option.rate for option in options], wider)
        if tps is not None and tps.mid > 1.05 * chosen.rate.tps.mid:
            hours, saves = _gain(job, chosen, tps, round(chosen.gpu_hours.mid / chosen.hours.mid / job.hosts))
            change = f"C={chosen.rate.concurrency} to C={wider}: about {num(tps.mid)} tok/s"
            note = f"the curve still rises at its last level; measure it: tokpit sweep TARGET -c {wider}"
            levers.append(
                Lever(name="concurrency", change=change, basis="predicted", hours=hours, saves_h=saves, note=note)
            )
    return levers


def _cap_lever(job: Job, found: Sequence[Rate], chosen: Option, cap: Cap | None, gpus: int) -> list[Lever]:
    if cap is None or chosen.rate.running < cap.value:
        return []
    wider = 2 * cap.value
    tps = predicted(found, wider)
    if tps is None:
        return []
    hours, saves = _gain(job, chosen, tps, gpus)
    needs = {
        STATE: f"needs {wider * (cap.per_request or 1)} state slots ({cap.per_request or 1} a request)",
        KV: "needs twice the KV cache",
        CONFIGURED: "a flag sets it",
    }.get(cap.by, "")
    note = f"{needs + '; ' if needs else ''}the step time is taken to grow as it did up to {cap.value}: sweep it again"
    change = f"running cap {cap.value} to {wider}: about {num(tps.mid)} tok/s"
    return [Lever(name="cap", change=change, basis="predicted", hours=hours, saves_h=saves, note=note)]


def _hosts(job: Job, chosen: Option, gpus: int) -> list[Lever]:
    hosts = 2 * job.hosts
    other = _option(msgspec.structs.replace(job, hosts=hosts), chosen.rate, gpus)
    note = "GPU-hours stay the same; each host is taken to be as fast as the one that was measured"
    return [
        Lever(
            name="hosts",
            change=f"{job.hosts} to {hosts} hosts",
            basis="measured",
            hours=other.hours,
            saves_h=chosen.hours.mid - other.hours.mid,
            note=note,
        )
    ]


def _flags(job: Job, base: Measured, chosen: Option, others: Sequence[Measured]) -> list[Lever]:
    levers = []
    for one in others:
        found, _, _ = _read(one)
        if not found:
            levers.append(Lever(name="flags", change=f"{one.label}: measured no rate", basis="measured"))
            continue
        found, fits = _that_fit(found, one.facts, job)
        option = _option(job, best(found), job.gpus or one.gpus or 1)
        more = option.rate.good_tps.mid / chosen.rate.good_tps.mid - 1
        differs = _differences(base.settings, one.settings)
        sure = _apart(option.rate.good_tps, chosen.rate.good_tps)
        levers.append(
            Lever(
                name="flags",
                change=f"{one.label} at C={option.rate.concurrency}: {more:+.0%} tok/s"
                + (f" ({differs})" * bool(differs)),
                basis="measured",
                hours=option.hours,
                saves_h=chosen.hours.mid - option.hours.mid,
                note="; ".join(filter(None, ["" if sure else "the intervals overlap: no difference is shown", fits])),
            )
        )
    return levers


def _apart(a: Span, b: Span) -> bool:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return True
    return a.low > b.high or b.low > a.high


def _differences(before: dict[str, str], after: dict[str, str]) -> str:
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return ", ".join(f"{name} {before.get(name, 'not set')} -> {after.get(name, 'not set')}" for name in names[:4])


def _needed(job: Job, host_hours: float) -> int | None:
    return max(1, math.ceil(host_hours / job.within_h)) if job.within_h is not None else None


def _notes(job: Job, base: Measured, chosen: Option, plateau: Plateau | None, fits: str, gpus: int) -> list[str]:
    rate = chosen.rate
    notes = [fits] if fits else []
    ratio = job.output_tokens / rate.tokens if rate.tokens else 1.0
    if not 1 / LENGTH_APART <= ratio <= LENGTH_APART:
        notes.append(
            f"measured with {num(rate.tokens)} output tokens a request, planned with {num(job.output_tokens, 4)}: "
            f"tok/s is taken as the same, though {'longer contexts' if ratio > 1 else 'prefills'} make steps slower"
        )
    if rate.basis == "whole run":
        notes.append("no steady window was measured: whole-run figures include ramp-up and drain and are a lower bound")
    if rate.tps.low is None:
        notes.append("no interval: the rate was measured once; run the sweep with --repeat 3 for one")
    if rate.error_share > 0:
        notes.append(
            f"{percent(rate.error_share)} of the requests failed at this level; they are done again in the plan"
        )
    if plateau is not None and plateau.cause in _LIMITED:
        notes.append(f"the sweep was held back by {_LIMITED[plateau.cause]}: the server itself may be faster")
    if job.gpus is None and base.gpus is None:
        notes.append(f"GPUs of a server are not known from the measurement: taken as {gpus}")
    if chosen.hours.mid >= 24:
        notes.append(
            f"{span(chosen.hours.mid)} are more than was measured: restarts, failures and throttling are not in it"
        )
    return notes
