"""The rules: small pure functions from evidence to findings, one line each here.

A rule without its evidence stays quiet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokpit.domain.finding import Finding
from tokpit.insight.evidence import Evidence
from tokpit.insight.rules import (
    bench,
    ceiling,
    compare,
    engine,
    gap_causes,
    gpu,
    host,
    host_tier,
    log_graph,
    log_kv,
    log_notes,
    log_prefill,
    log_queue,
    log_silence,
    log_spec,
    plateau,
    prefill_ceiling,
    prefix,
    spec_cost,
    spec_limit,
    spec_sweeps,
    state,
    sweep_faults,
    sweep_notes,
)

Rule = Callable[[Evidence], Sequence[Finding]]

RULES: tuple[Rule, ...] = (
    engine.verdicts,
    # sweeps
    plateau.rule,
    sweep_faults.errors,
    sweep_faults.timeout,
    sweep_faults.cold_level,
    sweep_faults.lengths,
    sweep_faults.little,
    sweep_faults.cliff,
    sweep_faults.no_tokens,
    sweep_faults.checks,
    # logs
    log_kv.retraction,
    log_kv.preempted_rows,
    log_kv.preemption,
    log_queue.rule,
    log_queue.disagreement,
    log_graph.rule,
    log_graph.by_flag,
    log_prefill.counts,
    log_prefill.stalls,
    log_prefill.interference,
    log_silence.blocked,
    log_silence.stuck,
    log_silence.health_negative,
    log_silence.health_positive,
    log_notes.custom_allreduce,
    log_notes.cold,
    log_notes.on_cpu,
    log_spec.rule,
    spec_sweeps.rule,
    log_spec.told,
    prefix.repeated,
    prefix.counters,
    prefix.shared,
    prefix.warm_log,
    prefix.block,
    host_tier.rule,
    engine.answers,
    # speculation and the ceiling of one stream
    spec_cost.gap,
    spec_cost.cost,
    spec_limit.rule,
    ceiling.rule,
    prefill_ceiling.rule,
    state.own_slots,
    state.capacity,
    # comparisons
    gap_causes.rule,
    gap_causes.earlier,
    compare.overhead,
    compare.acceptance,
    compare.tensor_parallel,
    compare.backend,
    compare.cold_start,
    compare.same_time,
    compare.sweeps,
    compare.crossing,
    compare.history,
    # figures of a client
    bench.chunks,
    bench.client_bound,
    bench.client_limit,
    bench.client_limit_rows,
    bench.lost,
    bench.timeouts,
    bench.stalled,
    bench.lengths,
    bench.prompts,
    bench.rejected,
    bench.usage,
    # host and GPUs
    host.host_cache,
    host.swap,
    host.orphans,
    host.steal,
    host.pressure,
    host.numa,
    host.cgroup,
    gpu.samples,
    gpu.throttled_levels,
    gpu.pcie,
    gpu.problems,
    # notes on a sweep, last among equals
    sweep_notes.operating_point,
    sweep_notes.latency,
    sweep_notes.last_wave,
)
