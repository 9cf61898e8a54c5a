"""What a log says of a start or server that has not failed: where it stands, stuck, slow, compiling."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from tokpit.domain.records import LogRecord
from tokpit.domain.verdict import Verdict
from tokpit.engines.base import Milestone
from tokpit.engines.logkit.clock import Clock
from tokpit.engines.logkit.progress import StartTracker

_SLOW_ITEM_S = 5.0
_SLOW_LEFT_S = 60.0
_LONG_COMPILE_S = 120.0
_COMPILES = re.compile(r"JIT[ -]?[Cc]ompil|DeepGEMM (?:warmup|JIT)|[Cc]ompiling (?:a graph|kernel)|flashinfer.*\bJIT\b")


class _Course(msgspec.Struct):
    """A start read to its end: its tracker, the second of each stamped record, the last bar."""

    tracker: StartTracker
    times: list[float]
    bar: LogRecord | None
    last_t: float


def _course(milestones: Sequence[Milestone], records: Sequence[LogRecord]) -> _Course:
    clock, tracker = Clock(), StartTracker(milestones)
    times: list[float] = []
    stamps = [clock.seconds(record.fields.get("ts") or record.fields.get("t")) for record in records]
    t = next((stamp for stamp in stamps if stamp is not None), 0.0)
    bar: LogRecord | None = None
    for record, stamp in zip(records, stamps, strict=True):
        t = max(t, stamp) if stamp is not None else t
        times.append(t)
        tracker.observe(record, t)
        if record.kind.startswith("progress."):
            bar = record
        elif record.kind.startswith("milestone."):
            bar = None
    return _Course(tracker, times, bar, t)


def standing(
    milestones: Sequence[Milestone], records: Sequence[LogRecord], silent_s: float | None = None
) -> list[Verdict]:
    """Findings, none of them fatal. `silent_s`: seconds since the last line was written, where that is known.

    START_UNFINISHED: the log ends before the start does, and how long ago that was is not known.
    STUCK_*: nothing moved for longer than the phase usually takes. SLOW_WEIGHT_LOAD: weights load, but slowly.
    JIT_AT_START: a long part of the start went into compiling.
    """
    course = _course(milestones, records)
    found = [_slow_load(course), _compiling(course, records), _stuck(course, records, silent_s)]
    return [verdict for verdict in found if verdict is not None]


def summary(milestones: Sequence[Milestone], records: Sequence[LogRecord]) -> str:
    """Where the log's last start stands, in a few words: `loading weights, 2/17`."""
    tracker = _course(milestones, records).tracker
    label = tracker.label or "no milestone seen"
    return f"{label}, {tracker.detail}" if tracker.detail else label


def _seconds(text: object) -> float | None:
    parts = str(text).split(":")
    if not all(part.isdigit() for part in parts) or len(parts) > 3:
        return None
    total = 0
    for part in parts:
        total = total * 60 + int(part)
    return float(total)


def span(seconds: float) -> str:
    """`45 s`, `3 min 48 s`."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


def _slow_load(course: _Course) -> Verdict | None:
    bar = course.bar
    if bar is None or course.tracker.failure is not None:
        return None
    done, total, elapsed = bar.fields.get("done"), bar.fields.get("total"), _seconds(bar.fields.get("elapsed"))
    shards = "shard" in bar.kind or "shard" in str(bar.fields.get("what"))
    if not shards or not isinstance(done, int) or not isinstance(total, int) or not 0 < done < total or not elapsed:
        return None
    each = elapsed / done
    left = _seconds(bar.fields.get("remaining"))
    left = left if left is not None else each * (total - done)
    if each < _SLOW_ITEM_S or left < _SLOW_LEFT_S:
        return None
    return Verdict(
        code="SLOW_WEIGHT_LOAD",
        phase="load",
        sentence=f"Weights are loading, not hung: {done}/{total} shards, about {span(left)} left.",
        arithmetic=f"{elapsed:.0f} s / {done} shards = {each:.1f} s per shard; {total} - {done} = {total - done} left",
        next_action="Wait. For the next start: copy the model to a local disk, or load without mmap "
        "(network file systems), or prefetch the files into the page cache.",
        evidence=(bar.text[-300:],),
        lines=(bar.line,),
        figures={"done": done, "total": total, "each_s": round(each, 1), "left_s": left},
        fatal=False,
    )


def _compiling(course: _Course, records: Sequence[LogRecord]) -> Verdict | None:
    first = next((i for i, record in enumerate(records) if _COMPILES.search(record.text[:300])), None)
    if first is None:
        return None
    last = max(i for i, record in enumerate(records) if _COMPILES.search(record.text[:300]))
    after = next((i for i in range(last + 1, len(records)) if course.times[i] > course.times[last]), None)
    took = course.times[after if after is not None else last] - course.times[first]
    if took < _LONG_COMPILE_S:
        return None
    whole = course.times[-1] - course.times[0]
    return Verdict(
        code="JIT_AT_START",
        phase="capture",
        sentence=f"Kernels were compiled (JIT) for {span(took)} of this start.",
        arithmetic=f"{took:.0f} s of {whole:.0f} s = {took / whole:.0%}" if whole > 0 else "",
        next_action="If every start does this, the compile cache is lost in between: keep it on a disk that outlives "
        "the container (~/.cache, DG_JIT_CACHE_DIR, FLASHINFER_WORKSPACE_BASE, TRITON_CACHE_DIR, VLLM_CACHE_ROOT).",
        evidence=(records[first].text[:300],),
        lines=(records[first].line,),
        figures={"took_s": took, "start_s": whole},
        fatal=False,
    )


def _stuck(course: _Course, records: Sequence[LogRecord], silent_s: float | None) -> Verdict | None:
    sentence = course.tracker.stuck(course.last_t + (silent_s or 0.0)) if records else None
    current = course.tracker.current
    code = f"STUCK_{(current.phase if current else 'start').upper()}"
    if sentence is None and silent_s is None:
        sentence, code = course.tracker.unfinished(), "START_UNFINISHED"
    if sentence is None:
        return None
    network = [record for record in records if "NCCL INFO Bootstrap" in record.text or "SOCKET_IFNAME" in record.text]
    interface = f" NCCL says: {network[-1].text[:160]}." if network else ""
    joins = current is not None and current.joins
    return Verdict(
        code="STUCK_NCCL_INIT" if joins and code.startswith("STUCK") else code,
        phase="distributed" if joins else (current.phase if current else "args"),
        sentence=sentence + interface,
        next_action="See which interface NCCL chose; set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to the right one, "
        "NCCL_DEBUG=INFO for more, and without NVLink try NCCL_P2P_DISABLE=1."
        if joins
        else "See whether its processes use CPU, disk or GPU; take a stack with py-spy if they do not.",
        evidence=tuple(dict.fromkeys(record.text[:300] for record in [*network[-2:], records[-1]])),
        lines=(records[-1].line,),
        figures={"silent_s": silent_s or 0.0},
        fatal=False,
    )
