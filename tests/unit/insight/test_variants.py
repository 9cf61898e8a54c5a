# ruff: noqa: E501 - lines of logs as servers print them
"""The classes of field problems by other numbers and other names, from one kind of evidence alone; and what is healthy.

Each case: the codes of which one must be on top (none: silence, notes on a sweep or a ceiling aside), its inputs as the
command line takes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from insight_logs import access, decode, prefill, spec, stamp, stats
from insight_variants import on_top_or_silent

CASES: list[Any] = []
Text = str | Iterable[str]


def case(want: tuple[str, ...], name: str, **inputs: Any) -> None:
    CASES.append(pytest.param(want, inputs, id=name))


head = "concurrency,requests,ok,err,elapsed_s,output_tps\n"
p0 = 'vllm:prefix_cache_queries_total{engine="0"} %d\nvllm:prefix_cache_hits_total{engine="0"} %d\n'
pr = (
    'vllm:num_preemptions_total{engine="0"} %d\nvllm:kv_cache_usage_perc{engine="0"} %f\n'
    'vllm:num_requests_running{engine="0"} 90\nvllm:num_requests_waiting{engine="0"} 4\n'
)

# 1 slots variants
case(
    ("QUEUE_LIMITED_BY_STATE_SLOTS",),
    "cap line 14",
    log="[2026-10-09 12:00:01] max_running_requests is capped to 14 by the mamba state cache (max_mamba_cache_size=72, 5 state slots per request). To raise it: increase --mamba-full-memory-ratio or --max-mamba-cache-size.\n[2026-10-09 12:00:40] max_total_num_tokens=212311, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=14, context_len=65536, available_gpu_mem=2.10 GB\n"
    + decode(3, 14, 610, queue=50, usage=0.2, mamba=(56, 0.78), spec=(2.6, 0.53)),
    max_running_requests=64,
)
case(
    ("QUEUE_LIMITED_BY_STATE_SLOTS",),
    "mamba 3/req no cap line",
    log=[
        decode(0, 1, 55, mamba=(3, 0.05), spec=(2.5, 0.5)),
        decode(60, 20, 500, queue=11, usage=0.30, mamba=(60, 1.0), spec=(2.5, 0.5)),
    ],
)
case(
    ("QUEUE_LIMITED_BY_STATE_SLOTS",),
    "cap at .83 usage",
    log=[
        decode(0, 1, 55, mamba=(4, 0.07)),
        decode(30, 11, 420, queue=9, usage=0.22, mamba=(44, 0.76)),
        decode(40, 11, 430, queue=12, usage=0.25, mamba=(44, 0.76)),
    ],
)
case(
    ("QUEUE_LIMITED_BY_STATE_SLOTS",),
    "facts+sweep 24/3",
    sweep=head
    + "1,8,8,0,100,80\n2,8,8,0,55,145\n4,8,8,0,30,266\n8,16,16,0,32,500\n16,32,32,0,63,508\n32,64,64,0,125,512\n",
    mamba_slots=24,
    mamba_slots_per_request=3,
    max_running=8,
)
case(
    ("QUEUE_LIMITED_BY_CAP",),
    "sweep cap vllm",
    sweep=head
    + "1,8,8,0,80,100\n4,8,8,0,22,364\n8,16,16,0,24,660\n16,32,32,0,27,1180\n32,64,64,0,53,1205\n64,128,128,0,106,1207\n",
    max_num_seqs=16,
)
case(
    ("QUEUE_LIMITED_BY_CAP",),
    "sweep only, cap in curve",
    sweep=head
    + "1,8,8,0,133.8,61.2\n2,8,8,0,70,117\n4,8,8,0,39.5,207.2\n6,12,12,0,41,300\n8,16,16,0,44.3,369.7\n16,32,32,0,88,372\n32,64,64,0,176,372\n64,128,128,0,352,372\n",
)
case(
    ("QUEUE_LIMITED_BY_KV",),
    "kv cap",
    sweep=head + "1,8,8,0,80,100\n4,8,8,0,22,364\n8,16,16,0,24,660\n16,32,32,0,47,680\n32,64,64,0,93,690\n",
    kv_cache_tokens=70000,
    input_tokens=7000,
    output_tokens=1000,
)
case(
    ("PLATEAU_COMPUTE",),
    "compute plateau",
    sweep=head
    + "1,8,8,0,80,100\n8,16,16,0,25,640\n32,64,64,0,47,1360\n64,128,128,0,82,1560\n128,256,256,0,156,1640\n256,512,512,0,305,1680\n",
    max_running_requests=512,
)
# vllm admission
case(
    ("SPEC_SHRINKS_CONCURRENCY",),
    "vllm spec waiting",
    log=[
        stats(0, 4, 88, waiting=12, kv=22.0),
        spec(0, 1.81, 800, 640),
        stats(10, 4, 90, waiting=11, kv=23.0),
        spec(10, 1.79, 800, 640),
    ],
)
# draft dead
case(
    ("DRAFT_DEAD",),
    "vllm draft dead",
    log=[x for i in range(5) for x in (stats(10 * i, 2, 31, kv=3.0), spec(10 * i, 1.0, 600, 0))],
)
case(("DRAFT_DEAD",), "facts draft dead", accept_len=1.00, accept_rate=0.0, draft_tokens=3, spec_tps=31)
case(
    ("DRAFT_DEAD",),
    "llama draft dead",
    log="0.44.100.001 I slot print_timing: id  0 | task 12 | draft acceptance = 0.00000 (    0 accepted /  1204 generated)\n0.48.100.001 I slot print_timing: id  1 | task 19 | draft acceptance = 0.00000 (    0 accepted /  988 generated)",
)
case(
    ("SPEC_OVERHEAD",),
    "facts low accept",
    accept_len=1.15,
    accept_rate=0.05,
    draft_tokens=3,
    spec_tps=24,
    baseline_tps=27,
)
case(
    ("LOW_ACCEPT_LONG_CONTEXT",),
    "accept falls w/ ctx",
    log=[
        decode(i, 1, 140 - 2.2 * i, tokens=1500 + 1500 * i, usage=0.03, spec=(3.3 - 0.05 * i, 0.77 - 0.017 * i))
        for i in range(36)
    ],
)
case(("SPEC_OVERHEAD",), "facts overhead", baseline_tps=342.2, spec_tps=128.3, accept_len=1.97, spec_steps=1)
case(
    ("SPEC_OVERHEAD",),
    "two logs overhead",
    logs=[
        [decode(i, 1, 220 + i % 3) for i in range(8)],
        [decode(i, 1, 120 + i % 2, spec=(2.2, 0.4)) for i in range(8)],
    ],
)
case(("SPEC_OVERHEAD",), "trials csv", compare="name,tok_s,accept_len\nplain,210,\nmtp2,150,2.1\n")
case(
    ("SWEEP_CLIFF",),
    "cliff",
    sweeps=[
        head + "1,8,8,0,80,60\n4,8,8,0,40,150\n8,16,16,0,40,232\n16,32,32,0,44,420\n",
        head + "1,8,8,0,80,55\n4,8,8,0,40,140\n8,16,16,0,90,230\n16,32,32,0,150,120\n",
    ],
)
case(
    ("SWEEP_CLIFF",),
    "cliff one",
    sweep=head + "1,8,8,0,80,60\n4,8,8,0,40,150\n8,16,16,0,40,232\n16,32,32,0,244,90\n32,64,64,0,480,95\n",
)
case(
    ("ACCEPT_NOT_SPEED",),
    "accept not speed",
    compare="name,tok_s,accept_len,bad_outputs\nk2,51,2.3,0\nk6,40,3.4,0\nk4,49,2.9,0\n",
)
case(("GRAPH_OFF",), "graph off", log=[decode(i, 40, 800, graph=False) for i in range(10)])
case(
    ("GRAPH_OFF",),
    "graph off flag",
    log=["[2026-10-02 08:00:00] server_args=ServerArgs(model_path='m', tp_size=1, disable_cuda_graph=True)"]
    + [decode(i, 3, 90, graph=False) for i in range(10)],
)
case(
    ("GRAPH_OFF",),
    "eager vllm",
    log=["(APIServer pid=1) INFO 10-02 08:00:00 [utils.py:253] non-default args: {'model': 'm', 'enforce_eager': True}"]
    + [stats(10 * i, 2, 33) for i in range(6)],
)
case(("PREFIX_CACHE_INEFFECTIVE",), "prefix 0", metrics=[p0 % (5000, 0), p0 % (95000, 0)], enable_prefix_caching="true")
case(
    ("PREFIX_CACHE_INEFFECTIVE",),
    "prefix facts",
    prefix_cache_queries=50000,
    prefix_cache_hits=0,
    enable_prefix_caching=1,
)
case(
    ("PREFIX_SHORTER_THAN_BLOCK",),
    "block",
    log="INFO 04-23 10:00:00 [config.py:281] Setting attention block size to 1056 tokens to ensure that attention page size is >= mamba page size.",
    shared_prefix_tokens=900,
)
case(("PREFIX_SHORTER_THAN_BLOCK",), "block facts", attention_block_size=784, shared_prefix_tokens=512)
case(("PREFIX_CACHE_INEFFECTIVE",), "prefix log", log=[prefill(20 * i, 6144) for i in range(4)])
case(
    ("PREFILL_STARVES_DECODE",),
    "starve",
    log=[
        x
        for i in range(6)
        for x in [
            prefill(24 * i + 2 * j, 8192, running=44, queue=20 + j, pending=120000, usage=0.5, seqs=2)
            for j in range(11)
        ]
        + [decode(24 * i + 23, 44, 70, queue=31, usage=0.5)]
    ],
)
case(
    ("PREFILL_STARVES_DECODE",),
    "stall vllm",
    log=[stats(10 * i, 3, 95, kv=30, prompt=0.0) for i in range(4)]
    + [stats(40 + 10 * i, 3, 1.2, kv=30, prompt=0.0) for i in range(12)]
    + [stats(160, 3, 70, kv=44, prompt=9800.0)],
)
case(
    ("PREFILL_STARVES_DECODE",),
    "experiment",
    decode_alone=180,
    decode_during_prefill=12,
    prefill_alone=6000,
    prefill_mixed=5100,
)
case(("TP_NEGATIVE_SCALING",), "tp", compare="tp,tok_s\n1,120\n2,101\n4,97\n")
case(
    ("CUSTOM_AR_OFF",),
    "car",
    log="[2026-09-12 09:00:00 TP0] Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed.",
)
case(("PREEMPTION_STORM",), "preempt", metrics=[pr % (3, 0.5), pr % (903, 0.995)], window_s=120)
case(("PREEMPTION_STORM",), "preempt facts", preemptions=420, window_s=60, kv_usage="99%")
case(
    ("RETRACTION_LIVELOCK",),
    "livelock",
    log=[
        f"[{stamp(2 * i)} TP0] KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_tokens_gained: 300"
        for i in range(9)
    ],
)
case(
    ("PREEMPTION_STORM",),
    "storm",
    log=[
        x
        for i in range(20)
        for x in (
            f"[{stamp(2 * i)}] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 300",
            decode(2 * i + 1, 40, 900, usage=0.98, queue=5),
            "[" + stamp(2 * i + 1) + '] INFO:     10.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        )
    ],
)
case(
    ("SCHEDULER_BLOCKED",),
    "blocked",
    log=[decode(i, 5, 200) for i in range(5)] + [decode(305 + i, 5, 200) for i in range(5)],
)
case(
    ("ATTENTION_BACKEND",),
    "attn",
    compare="backend,short,long\ntriton,50,29\nflashinfer,51,44\n",
    log="[2026-09-08 09:00:00] Attention backend not specified. Use triton backend by default.",
)
case(
    ("GPU_THROTTLED",),
    "throttle",
    gpu="index, clocks.sm [MHz], clocks.max.sm [MHz], temperature.gpu, power.draw [W], power.limit [W], clocks_event_reasons.active\n0, 810 MHz, 1980 MHz, 91, 210.20 W, 700.00 W, 0x0000000000000040\n",
)
case(("GPU_THROTTLED",), "throttle facts", clock_mhz=700, clock_max_mhz=2100, temperature_c=94, throttle="hw-thermal")
case(
    ("HEALTH_FALSE_POSITIVE",),
    "health+",
    log=[access("/health_generate").replace("POST", "GET")] * 4,
    in_flight=24,
    tokens_last_60s=0,
)
case(
    ("HEALTH_FALSE_NEGATIVE",),
    "health-",
    log=[
        "[2026-05-18 10:00:20] Health check failed. Server couldn't get a response from detokenizer for last 30 seconds. tic start time: 10:00:00. last_heartbeat time: 09:59:58"
    ]
    + [prefill(37000 + i, 8192, running=5, queue=4, pending=160000) for i in range(3)],
)

case(("LOST_REQUESTS",), "lost", running=0, queue=0, in_flight=310, completed=88)
case(("REJECTED",), "rejected", ok=30, http_503=170, concurrency=200, reported_tok_s=300)
case(("CLIENT_TIMEOUT",), "timeouts", completed=7, total=16, failure_elapsed_s="300 300 300 300 300 300 300 300 300")
case(("CLIENT_BOUND",), "client bound", gen_tok_s=900, client_tok_s=210, loop_lag_ms=700)
case(("CLIENT_BOUND",), "client bound2", server_tps=900, client_tps=210)
case(("CLIENT_LIMIT",), "client limit", concurrency=512, connector_limit=100, running=100, waiting=0)
case(("CLIENT_LIMIT",), "client limit log", log=[stats(10 * i, 100, 1900, kv=40) for i in range(6)], concurrency=256)
case(("CHUNKS_NOT_TOKENS",), "chunks", output_tok_s=520, peak_tok_s=140)
case(("ITL_IS_PER_CHUNK",), "itl", concurrency=4, output_tok_s=640, median_itl_ms=18)
case(("WARM_PREFIX",), "warm", prefix_cache_queries=80000, prefix_cache_hits=66000, prompt_kind="random")
case(("WARM_PREFIX",), "warm metrics", metrics=[p0 % (1000, 0), p0 % (91000, 80000)], prompt_kind="random")
case(("DUPLICATE_PROMPTS",), "dup", prompts_unique=2, prompts=500)
case(("LENGTH_MISMATCH",), "length", nominal=4096, mean_out=3300)
case(("OUTPUT_TRUNCATED",), "truncated", num_prompts=200, total_output_tokens=200, requested_len=512)
case(("STREAM_STALLED",), "stalled", last_byte_age_s=3000)
case(("COLD_START",), "cold", compare="name,tok_s,decode_tok_s,ttft_s\ncold,31,36.1,4.1\nwarm,35.5,36.0,0.5\n")
case(
    ("COLD_START",),
    "jit",
    log="(EngineCore pid=9) WARNING 09-19 10:00:05 [jit_monitor.py:44] Triton kernel JIT compilation during inference: some_kernel. This causes a latency spike; consider extending warmup to cover this shape/config\n"
    + stats(10, 1, 9),
)
case(
    ("COUNT_MISMATCH",),
    "count",
    compare="name,latency_s,ttft_s,tok_s,usage_tokens\na,8.1,.1,18,800\nb,7.9,.1,101,800\n",
)
case(("NO_USAGE",), "no usage", usage_reported="false")
case(("PCIE_DEGRADED",), "pcie", pcie_gen=1, pcie_gen_max=5, pcie_width=4, pcie_width_max=16, gpu_util="90%")
case(("HOST_SWAPPING",), "swap", swap_in_mb_s=80, swap_used_gb=12)
case(("ORPHAN_ENGINE",), "orphans", orphans=2, orphan_gpu_gb=70)
case(("CPU_STEAL",), "steal", cpu_steal="18%")
case(("CPU_STEAL",), "steal2", cpu_steal=22)
case(("MEMORY_PRESSURE",), "psi", memory_pressure="30%")
case(("NUMA_REMOTE",), "numa", gpu_numa=1, cpu_numa=0)
case(
    ("HICACHE_DOUBLED_ON_HYBRID",),
    "hicache",
    hicache_size=100,
    mem_available_gb=180,
    engine_version="0.5.12",
    hybrid="true",
)
case(
    ("HICACHE_PER_RANK",),
    "hicache tp",
    hicache_size=40,
    mem_available_gb=120,
    tp=4,
    engine_version="0.5.3",
    hybrid="false",
)
case(
    ("SPEC_TOO_SHORT",),
    "gap facts only",
    accept_len=1.8,
    accept_rate=0.8,
    draft_tokens=1,
    measured_tps=31,
    remembered_tok_s=60,
    weights_gb=70,
    gpu_name="L40S",
    tp=2,
)
case(
    ("RATE_ABOVE_CEILING",),
    "gap no spec",
    measured_tps=24,
    remembered_tok_s=70,
    weights_gb=54,
    gpu_name="RTX A6000",
    tp=2,
)
case(
    ("GPU_LOST",),
    "lost gpu",
    gpu="Oct 25 05:03:41 n kernel: NVRM: Xid (PCI:0000:41:00): 79, pid=1234, GPU has fallen off the bus.",
)
case(
    ("GPU_THROTTLED_PAST",),
    "thr past",
    gpu="    Clocks Event Reasons\n        SW Thermal Slowdown               : Not Active\n    Clocks Event Reasons Counters\n        SW Power Capping                  : 5 us\n        SW Thermal Slowdown               : 4403158 us\n        HW Thermal Slowdown               : 0 us\n",
)
case(
    ("GPU_POWER_CAPPED",),
    "power",
    gpu="index, pstate, utilization.gpu [%], power.draw [W], enforced.power.limit [W], clocks_event_reasons.sw_power_cap\n0, P2, 88 %, 299.10 W, 300.00 W, Active\n",
)
case(
    ("GAP_CANDIDATES",),
    "two deployments",
    logs=[
        [
            "[2026-10-02 08:00:00] server_args=ServerArgs(model_path='m', tp_size=2, quantization='fp8', speculative_num_steps=3)"
        ]
        + [decode(i, 1, 70 + i % 3, spec=(2.7, 0.57)) for i in range(9)],
        [
            "[2026-10-03 08:00:00] server_args=ServerArgs(model_path='m', tp_size=2, quantization='None', speculative_num_steps=3)"
        ]
        + [decode(i, 1, 41 + i % 3, spec=(2.7, 0.57)) for i in range(9)],
    ],
)
case(
    ("SWEEPS_CROSS",),
    "cross",
    sweeps=[
        head + "1,8,8,0,80,60\n4,8,8,0,40,150\n8,16,16,0,40,232\n16,32,32,0,64,300\n",
        head + "1,8,8,0,60,80\n4,8,8,0,30,160\n8,16,16,0,44,218\n16,32,32,0,80,240\n",
    ],
)
case(("REJECTED",), "err sweep", sweep=head + "1,8,8,0,80,60\n4,8,8,0,32,150\n8,16,9,7,40,135\n16,32,11,21,66,100\n")
case(("ZERO_TOKENS_SUSPECT",), "zero", sweep=head + "1,8,8,0,9.1,0\n4,8,8,0,9.4,0\n")

# nothing is wrong
case(
    (),
    "sweep rising",
    sweep=head + "1,8,8,0,80,60\n2,8,8,0,42,115\n4,8,8,0,23,210\n8,16,16,0,26,372\n16,32,32,0,32,604\n",
)
case(
    (),
    "facts",
    accept_len=2.9,
    accept_rate=0.63,
    draft_tokens=3,
    baseline_tps=27,
    spec_tps=61,
    weights_gb=54,
    gpu_name="RTX PRO 6000 Blackwell",
)
case(
    (), "vllm spec", log=[x for i in range(20) for x in (stats(10 * i, 6, 380, kv=20.0), spec(10 * i, 2.6, 1400, 900))]
)
case((), "idle", log=[stats(10 * i, 0, 0.0, kv=0.0, prompt=0.0) for i in range(30)])
case(
    (),
    "ctx growth",
    log=[decode(i, 1, 60 - i * 0.05, tokens=500 + 800 * i, usage=0.02 + i * 0.001, spec=(2.8, 0.6)) for i in range(60)],
)
case((), "queue burst", log=[decode(i, 8 + i, 300 + 20 * i, queue=max(0, 6 - i), usage=0.3) for i in range(20)])
case((), "prefix", metrics=[p0 % (5000, 3000), p0 % (95000, 52000)], enable_prefix_caching="true")
case(
    (),
    "multi-turn",
    log=[x for i in range(20) for x in (prefill(10 * i, 300, cached=4000 + 300 * i), decode(10 * i + 4, 1, 60))],
)
case((), "diff prompts", log=[x for i in range(20) for x in (prefill(10 * i, 300 + 37 * i), decode(10 * i + 4, 1, 60))])
case(
    (),
    "gpu",
    gpu="index, name, clocks.sm [MHz], clocks.max.sm [MHz], temperature.gpu, power.draw [W], power.limit [W], clocks_event_reasons.active\n0, NVIDIA H100, 1755 MHz, 1980 MHz, 62, 510.20 W, 700.00 W, 0x0000000000000000\n",
)
case(
    (),
    "idle gpu low clock",
    gpu="index, name, utilization.gpu [%], clocks.sm [MHz], clocks.max.sm [MHz], temperature.gpu, power.draw [W], power.limit [W], clocks_event_reasons.active\n0, NVIDIA H100, 0 %, 345 MHz, 1980 MHz, 31, 70.20 W, 700.00 W, 0x0000000000000001\n",
)
case((), "memory", mem_available_gb=400, mem_total_gb=512, hicache_gb=40, tp=1, engine_version="0.5.11", hybrid="true")
case(
    (),
    "bench",
    concurrency=8,
    output_tok_s=400,
    median_itl_ms=20,
    num_prompts=100,
    total_output_tokens=51200,
    requested_len=512,
    client_tok_s=398,
    server_tps=401,
)
case((), "pcie idle", pcie_gen=1, pcie_gen_max=5, pcie_width=16, pcie_width_max=16, gpu_util="0%")
case((), "steal", cpu_steal="0.4%", swap_used_gb=1)
case((), "retry prompt", log=[prefill(20 * i, 90) for i in range(3)] + [decode(70, 1, 60)])
case(
    (),
    "same-length random",
    log=[x for i in range(5) for x in (prefill(20 * i, 1024), decode(20 * i + 4, 1, 60))],
    prompt_kind="random",
)
case((), "tp", compare="tp,tok_s\n1,60\n2,101\n4,160\n")
case((), "attn", log="[2026-09-08 09:00:00] Attention backend not specified. Use flashinfer backend by default.")
case((), "car", log="[2026-09-08 09:00:00 TP0] Custom allreduce is disabled.")


CAPPED = ("QUEUE_LIMITED_BY_MAX_RUNNING", "QUEUE_LIMITED_BY_CAP")
case(
    CAPPED,
    "vllm cap log",
    log=["(APIServer pid=1) INFO 10-02 08:00:00 [utils.py:253] non-default args: {'model': 'm', 'max_num_seqs': 16}"]
    + [stats(10 * i, 16, 700, waiting=30 + i, kv=22.0) for i in range(8)],
)
case(
    CAPPED,
    "sglang cap log no state",
    log=[
        "[2026-10-02 08:02:00] max_total_num_tokens=412000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=24, context_len=65536, available_gpu_mem=3.10 GB"
    ]
    + [decode(i, 24, 900, queue=40, usage=0.2) for i in range(10)],
)
case(CAPPED, "vllm waiting no args", log=[stats(10 * i, 16, 700, waiting=30 + i, kv=22.0) for i in range(8)])
case(
    ("QUEUE_LIMITED_BY_KV",),
    "vllm kv full waiting",
    log=[stats(10 * i, 40 + i % 3, 900, waiting=30 + i, kv=99.1) for i in range(8)],
)
case(
    ("PREEMPTION_STORM",),
    "vllm preempt log",
    log=[stats(10 * i, 60, 900, waiting=9, kv=99.5, extra=f", Preemptions: {40 + i}") for i in range(8)],
)
case(("HOST_MEM_CGROUP",), "cgroup", cgroup_limit_gb=64, mem_total_gb=512, hicache_gb=50)
case(("FASTER_THAN_MEMORY",), "too fast", weights_gb=54, gpu_name="RTX A6000", measured_tps=60)
case(("ROOFLINE",), "roofline", weights_gb=54, gpu_name="RTX A6000", tp=2, measured_tps=23)
case(("ROOFLINE",), "roofline low", weights_gb=16, gpu_name="H100", measured_tps=40)
case(("SPEC_OVERHEAD",), "spec loses facts2", without_spec_tps=88, with_spec_tps=70, accept_len=2.4, draft_tokens=3)
case(("SPEC_STEP_COST",), "spec pays", baseline_tps=30, spec_tps=66, accept_len=2.9, draft_tokens=3)
case(("CLIENT_BOUND",), "client tokens", client_tokens=1000, server_tokens=5200)
case(
    ("LITTLE",),
    "little",
    sweep="concurrency,requests,ok,err,elapsed_s,output_tps,e2e_mean_s\n8,32,32,0,40,400,30\n16,64,64,0,60,500,15\n",
)
case(
    ("GPU_MIG",),
    "mig",
    gpu=[
        "index, name, mig.mode.current, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n0, NVIDIA A100-SXM4-80GB, Enabled, [N/A], 1000 MiB, 81920 MiB\n",
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-0)\n  MIG 3g.40gb     Device  0: (UUID: MIG-a)\n  MIG 3g.40gb     Device  1: (UUID: MIG-b)\n",
    ],
)
case(
    ("GPU_ORDER",),
    "order",
    gpu="GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-a)\nGPU 1: NVIDIA RTX A6000 (UUID: GPU-b)\n",
    CUDA_VISIBLE_DEVICES="0",
)
case(
    ("GPU_UNIFIED",),
    "gb10",
    gpu=[
        "index, name, memory.used [MiB], memory.total [MiB]\n0, NVIDIA GB10, 100000 MiB, 119000 MiB\n",
        "MemTotal:       127600748 kB\nMemAvailable:    50000000 kB\n",
    ],
)
case(
    ("DRIVER_MISMATCH",),
    "driver mismatch",
    gpu=[
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 560.35\n",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  555.42.06\n",
    ],
)
case(("RUNNING_ON_CPU",), "cpu", log="warning: no usable GPU found, --gpu-layers option will be ignored")
case(
    ("PREFIX_CACHE_INEFFECTIVE",),
    "log hits 0",
    log=[
        "(APIServer pid=1) INFO 10-02 08:00:00 [utils.py:253] non-default args: {'model': 'm', 'enable_prefix_caching': True}"
    ]
    + [stats(10 * i, 6, 300, hits=0.0, prompt=2000.0) for i in range(12)],
    shared_prefix_tokens=4000,
)
case(
    ("SCHEDULER_BLOCKED",),
    "blocked vllm",
    log=[stats(10 * i, 6, 300) for i in range(6)] + [stats(400 + 10 * i, 6, 300) for i in range(6)],
)
case(("TP_NEGATIVE_SCALING",), "tp json", compare='[{"tp":1,"tok_s":64},{"tp":2,"tok_s":55}]')

# nothing is wrong either
case(
    (),
    "vllm at cap briefly",
    log=["(APIServer pid=1) INFO 10-02 08:00:00 [utils.py:253] non-default args: {'model': 'm', 'max_num_seqs': 16}"]
    + [stats(10 * i, 10 + i % 5, 500, waiting=0, kv=22.0) for i in range(20)],
)
case((), "vllm one waiting", log=[stats(10 * i, 6, 300, waiting=1 if i == 4 else 0) for i in range(20)])
case(
    (),
    "vllm restart gap",
    log=[stats(10 * i, 6, 300) for i in range(6)]
    + ["(APIServer pid=2) INFO 10-02 10:00:00 [api_server.py:1] vLLM API server version 0.11.0"]
    + [stats(9000 + 10 * i, 6, 300) for i in range(6)],
)
case(
    (),
    "vllm idle gaps",
    log=[stats(10 * i, 6, 300) for i in range(6)]
    + [stats(60, 0, 0.0, prompt=0.0), stats(4000, 1, 60), stats(4010, 1, 60)],
)
case(
    (),
    "sweep noise flat tail rising",
    sweep="concurrency,requests,ok,err,elapsed_s,output_tps\n1,8,8,0,80,60\n2,8,8,0,42,116\n4,8,8,0,24,203\n8,16,16,0,27.5,354\n",
)
case(
    (),
    "sglang with radix hits",
    log=[
        x
        for i in range(20)
        for x in (prefill(5 * i, 120 + i, cached=2000 + 50 * i, running=3), decode(5 * i + 2, 4, 200, usage=0.3))
    ],
)
case(
    (),
    "retraction once",
    log=[decode(i, 30, 900, usage=0.9) for i in range(30)]
    + ["[2026-10-02 08:21:00] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 300"]
    + [decode(70 + i, 30, 900, usage=0.9) for i in range(30)],
)
case(
    (),
    "two gpus same",
    gpu="GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-b)\n",
    CUDA_VISIBLE_DEVICES="0",
)
case(
    (),
    "prefill heavy but ok",
    log=[
        x
        for i in range(20)
        for x in (
            prefill(4 * i, 4000 + i, running=10, queue=1, pending=0, usage=0.3),
            prefill(4 * i + 1, 3000 + 3 * i, running=11, usage=0.3),
            decode(4 * i + 2, 12, 300, usage=0.3),
            decode(4 * i + 3, 12, 310, usage=0.3),
        )
    ],
)
case((), "accept varies", log=[decode(i, 2, 150, spec=(1.6 + (i % 7) * 0.3, 0.2 + (i % 7) * 0.1)) for i in range(60)])
case(
    (),
    "bench honest",
    requests=100,
    ok=100,
    err=0,
    client_tps=500,
    server_tps=505,
    concurrency=16,
    server_running=16,
    server_queued=0,
    output_tokens=510,
    requested_output=512,
)
case((), "hicache fits", hicache_gb=60, mem_available_gb=300, hybrid="true", engine_version="0.5.12", tp=2)


@pytest.mark.parametrize(("want", "inputs"), CASES)
def test_the_right_verdict_is_on_top_or_nothing_is_said(
    want: tuple[str, ...], inputs: dict[str, Any], tmp_path: Path
) -> None:
    on_top_or_silent(want, inputs, tmp_path)
