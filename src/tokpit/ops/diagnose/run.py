"""Diagnose: from logs, sweeps, facts and a live server to findings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.finding import Finding
from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.records import GpuSample, Problem
from tokpit.domain.settings import Settings
from tokpit.domain.verdict import RuleAnswer, Verdict
from tokpit.engines.base import Engine
from tokpit.engines.registry import engine as engine_of
from tokpit.engines.registry import engines
from tokpit.errors import UsageError
from tokpit.insight.curve import Curve, latency_of
from tokpit.insight.diagnose import diagnose
from tokpit.insight.digest import Digest
from tokpit.insight.evidence import Earlier, Evidence, Setup, Trial
from tokpit.insight.facts import Facts, merged, nearest, parse_facts
from tokpit.insight.gather import gather
from tokpit.insight.gpus import lookup
from tokpit.insight.points import Point
from tokpit.insight.rules.plateau import flagged
from tokpit.insight.series import series_of
from tokpit.insight.solver import Reach, reach_all, reach_one
from tokpit.insight.words import listed
from tokpit.ops.diagnose import files
from tokpit.ops.diagnose.gpu import GpuTexts
from tokpit.ops.host.own_gpus import own_bandwidths
from tokpit.probes.gpu import judge_polls

if TYPE_CHECKING:
    from tokpit.domain.run import Run
    from tokpit.ops.session import Session


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What to look at; everything may be left out. Paths are files on this machine, `-` is stdin."""

    logs: tuple[str, ...] = ()
    sweeps: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    runs: tuple[str, ...] = ()
    """Ids of stored runs; the first is judged, the others are compared with it."""
    target: str | None = None
    engine: str | None = None
    reach: float | None = None
    """Rate of one stream to say what it takes, tok/s."""
    reach_total: float | None = None
    """The same of all streams together."""

    @property
    def offline(self) -> bool:
        """Whether no history and no host is needed."""
        return not self.runs and self.target is None


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Findings, the facts they rest on, and what a sweep says in figures."""

    findings: tuple[Finding, ...]
    facts: Facts
    sweep: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    """What could not be used."""
    reach: tuple[Reach, ...] = ()
    """What the rates that were asked for take."""
    curve: Curve | None = None
    series: dict[str, tuple[tuple[float, float], ...]] = {}
    """How a log's figures went: (seconds since its first line, value) by name, thinned."""


class Gathered:
    """What was read so far."""

    def __init__(self) -> None:
        self.sweeps: list[tuple[str, tuple[Point, ...]]] = []
        self.logs: list[Digest] = []
        self.verdicts: list[Verdict] = []
        self.trials: list[Trial] = []
        self.setups: list[Setup] = []
        self.earlier: list[Earlier] = []
        self.gpus: list[GpuSample] = []
        self.problems: list[Problem] = []
        self.facts = Facts()
        self.notes: list[str] = []
        self.known_tps: float | None = None

    def add_run(self, run: Run) -> None:
        """A stored run: its levels, what it knew of the server, and the deployment that it measured."""
        from tokpit.ops.sweep.advice import curve_points, facts_of

        self.sweeps.append((f"run {run.id}", curve_points(run)))
        self.facts = merged(facts_of(run), self.facts)
        self.setups.insert(0, _setup(run))


def read_files(sources: Sources, tell: files.Tell | None = None) -> Gathered:
    """Read every file and fact; `tell` hears how far a log is read. Raises UsageError for one that cannot be read."""
    got = Gathered()
    for path in sources.logs:
        digest, verdict = files.read_log_file(path, sources.engine, tell)
        got.logs.append(digest)
        if verdict is not None:
            got.verdicts.append(verdict)
        if digest.engine is None and not (digest.rows or digest.notes or verdict):
            said = f"no line of a known engine in {digest.lines:,} lines" if digest.lines else "it is empty"
            got.notes.append(f"{path}: {said}")
    for path in sources.sweeps:
        points, facts = _sweep_file(path)
        got.sweeps.append((path, points))
        got.facts = merged(facts, got.facts)
    for path in sources.compare:
        trials = files.read_trials(path)
        got.trials += trials
        if not any(trial.figures for trial in trials):
            got.notes.append(f"{path}: no run with a figure in it")
    try:
        facts, unknown = parse_facts(dict(sources.facts))
    except ValueError as error:
        raise UsageError(str(error)) from error
    got.facts = merged(got.facts, merged(files.read_metrics(sources.metrics, sources.engine or facts.engine), facts))
    if sources.gpus:
        env = {name.upper(): value for name, value in sources.facts if name.upper() in _ENV}
        texts = GpuTexts(env, facts.window_s)
        for path in sources.gpus:
            texts.add(files.read_text(path))
        gpus, problems = texts.result()
        if not gpus and not problems and not texts.aside:
            got.notes.append(f"{listed(sources.gpus)}: no output of a GPU tool that is known")
        got.gpus += gpus
        got.problems += problems
    if facts.gpu_poll_ms:
        took = [None if math.isinf(ms) else ms / 1000 for ms in facts.gpu_poll_ms]
        if (problem := judge_polls(took)) is not None:
            got.problems.append(problem)
    got.notes += _unknown([name for name in unknown if name.upper() not in _ENV], sources)
    return got


def _unknown(names: Sequence[str], sources: Sources) -> list[str]:
    """A note on each fact that no rule knows. Raises UsageError where there is nothing else to go by."""
    told = []
    for name in names:
        like = nearest(name)
        told.append(f"no rule knows the fact {name!r}" + (f"; did you mean {listed(like, 'or')}?" if like else ""))
    facts_only = Sources(
        facts=sources.facts, engine=sources.engine, reach=sources.reach, reach_total=sources.reach_total
    )
    if names and len(names) == len(sources.facts) and sources == facts_only:
        raise UsageError("; ".join(told), hint="all names: tokpit diagnose --facts")
    return told


def _sweep_file(path: str) -> tuple[tuple[Point, ...], Facts]:
    """Levels of a table, of a sweep as JSON or of another tool's results, with what the latter say beside."""
    from tokpit.ops.records.run_files import is_file, read_runs
    from tokpit.ops.sweep.advice import curve_points, facts_of

    try:
        points = files.read_sweep(path)
    except UsageError:
        if not is_file(path):
            raise
        points = ()
    if points or not is_file(path):
        return points, Facts()
    run = read_runs(path)[0]
    return curve_points(run), facts_of(run)


def judge(got: Gathered) -> Diagnosis:
    """Findings from what was read."""
    facts = got.facts
    read = Facts()
    for log in got.logs:
        read = merged(read, log.facts)
    known = merged(read, facts)
    if known.gpu and not known.bandwidth_gbps and (own := own_bandwidths()):
        gpu = lookup(known.gpu, own)
        facts = merged(Facts(bandwidth_gbps=gpu.bandwidth_gbps if gpu is not None else None), facts)
    slots = next((e.state_slot_choices for e in _asked(known) if e.state_slot_choices), None)
    cached = _with_host_cache(known)
    reserve = None if cached is None or known.hicache_total_gb is None else cached.host_cache_reserve_bytes
    evidence = gather(
        facts if reserve is None else merged(Facts(hicache_reserve_gb=reserve / 1e9), facts),
        sweeps=got.sweeps,
        logs=got.logs,
        trials=got.trials,
        setups=got.setups,
        gpus=got.gpus,
        problems=[p for p in got.problems if not p.info or p.code in _TOLD],
        verdicts=got.verdicts,
        answers=_answers(known) if known.hicache_total_gb is None else (),
        slot_choices=None if slots is None else tuple(map(float, slots)),
    )
    patience = next((e.http.health_variable for e in _asked(known) if e.http.health_variable), "")
    evidence = msgspec.structs.replace(
        evidence, known_tps=got.known_tps, earlier=tuple(got.earlier), health_variable=patience
    )
    return Diagnosis(
        findings=diagnose(evidence),
        facts=evidence.facts,
        sweep=_summary(evidence) if evidence.curve is not None else None,
        notes=tuple(got.notes),
        curve=evidence.curve,
        series=series_of(got.logs[-1]) if got.logs else {},
    )


def diagnose_files(sources: Sources, tell: files.Tell | None = None) -> Diagnosis:
    """A diagnosis without host and history. Raises UsageError."""
    return reached(judge(read_files(sources, tell)), sources)


async def diagnose_all(session: Session, sources: Sources, tell: files.Tell | None = None) -> Diagnosis:
    """A diagnosis with stored runs and a live server. Raises UsageError, StoreError, TargetError, HostError."""
    got = read_files(sources, tell)
    if sources.runs:
        history = await session.history()
        for run_id in sources.runs:
            got.add_run(await history.run(run_id))
    if sources.target is not None:
        from tokpit.ops.diagnose.live import read_live

        await read_live(session, sources.target, got)
    return reached(judge(got), sources)


def reached(found: Diagnosis, sources: Sources) -> Diagnosis:
    """The diagnosis with what the rates asked for would take. Raises UsageError for a rate that is none."""
    asked = (sources.reach, sources.reach_total)
    if any(rate is not None and not rate > 0 for rate in asked):
        raise UsageError("a rate to reach must be over 0 tok/s")
    ways = []
    if sources.reach is not None:
        ways.append(reach_one(found.facts, sources.reach))
    if sources.reach_total is not None:
        ways.append(reach_all(found.facts, found.curve, sources.reach_total))
    return msgspec.structs.replace(found, reach=tuple(ways))


_ENV = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})
_TOLD = frozenset(
    {
        *("GPU_POWER_CAPPED", "GPU_THROTTLED_PAST", "GPU_MIG", "GPU_UNIFIED", "GPU_NO_DATA"),
        "GPU_SENSOR_IMPLAUSIBLE",
    }
)


def _asked(facts: Facts) -> Sequence[Engine]:
    """The engine that runs; all of them where it is not known which."""
    return (engine_of(facts.engine),) if facts.engine is not None else engines()


def _with_host_cache(facts: Facts) -> Engine | None:
    return next((known for known in _asked(facts) if known.host_cache_reserve_bytes is not None), None)


def _answers(facts: Facts) -> Sequence[RuleAnswer]:
    """What the engine's own rules say of a host cache against the host's memory."""
    engine = _with_host_cache(facts)
    if not facts.hicache_gb or engine is None:
        return ()
    hybrid = facts.hybrid if facts.hybrid is not None else True if facts.state_slots else None
    available = facts.mem_available_gb

    def whole(gb: float | None) -> int | None:
        return None if gb is None else round(gb * 1e9)

    answers = engine.check_rules(
        Settings(hicache=True, hicache_gb=facts.hicache_gb, tp=facts.tp, dp=facts.dp),
        facts.engine_version,
        ModelFacts(hybrid=hybrid),
        HostFacts(
            mem_available_bytes=whole(available),
            mem_total_bytes=whole(facts.mem_total_gb),
            cgroup_limit_bytes=whole(facts.cgroup_limit_gb),
        ),
        {},
    )
    return [answer for answer in answers if answer.code.startswith(("HICACHE", "HOST_MEM"))]


def _setup(run: Run) -> Setup:
    """A stored run as a deployment."""
    settings = {name: str(value) for name, value in (run.context.get("settings") or {}).items()}
    settings |= {"model": run.model, "engine": run.engine, "version": str(run.context.get("version") or "")}
    first = next((level for level in run.levels if level.concurrency == 1 and level.output_tps > 0), None)
    rate = (first.steady_tps or first.output_tps) if first is not None else None
    return Setup(name=f"run {run.id}", settings={k: v for k, v in settings.items() if v}, single_tps=rate)


def _summary(evidence: Evidence) -> dict[str, Any]:
    """The sweep's figures: knee, level to run at, fits, and each level with its latency and what it measures."""
    curve: Curve | None = evidence.curve
    assert curve is not None
    queued = {p.concurrency for p in flagged(evidence)}
    advice = curve.advice
    return {
        "peak": {"concurrency": curve.peak.concurrency, "tps": curve.peak.tps},
        "knee": curve.knee.concurrency if curve.knee is not None else None,
        "advised": {
            "concurrency": advice.point.concurrency,
            "share_of_peak": round(advice.share, 4),
            "rule": advice.rule,
            "latency_s": advice.latency_s,
        },
        "cap_in_curve": curve.cap_in_curve,
        "fits": {
            name: {"rms": round(fit.rms, 4), **{k: v for k, v in fit.parameters.items() if v != float("inf")}}
            for name, fit in (("capped", curve.capped), ("batch", curve.batch), ("usl", curve.usl))
            if fit is not None
        },
        "levels": [
            {
                "concurrency": p.concurrency,
                "tps": p.tps,
                "latency_s": latency_of(p),
                "per_stream_tps": p.tps / p.concurrency,
                "queue_limited": p.concurrency in queued,
            }
            for p in curve.points
        ],
    }
