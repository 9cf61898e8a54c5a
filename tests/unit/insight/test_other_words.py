# ruff: noqa: E501 - lines of logs as servers print them
"""The same field problems through other doors: facts by the names of other tools, metrics pages, tables, other engines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from insight_logs import decode, spec, stats
from insight_variants import on_top_or_silent

CASES: list[Any] = []
HEAD = "concurrency,requests,ok,err,elapsed_s,output_tps\n"
CAPPED = ("QUEUE_LIMITED_BY_MAX_RUNNING", "QUEUE_LIMITED_BY_CAP")
SLOTS = ("QUEUE_LIMITED_BY_STATE_SLOTS",)
ARGS = "(APIServer pid=77) INFO 10-02 08:00:00 [utils.py:253] non-default args: {'model_tag': 'x/y', %s}"
PLATEAU = HEAD + "1,8,8,0,110,55\n3,8,8,0,40,160\n6,12,12,0,33,300\n12,24,24,0,64,306\n24,48,48,0,126,309\n"


def case(want: tuple[str, ...], name: str, **inputs: Any) -> None:
    CASES.append(pytest.param(want, inputs, id=name))


def limits(cap: int) -> str:
    return f"[2026-10-02 08:00:00 TP0] max_total_num_tokens=300100, chunked_prefill_size=4096, max_prefill_tokens=16384, max_running_requests={cap}, context_len=32768, available_gpu_mem=4.10 GB"


def drafts(length: float, drafted: int, accepted: int) -> Iterable[str]:
    return [line for i in range(6) for line in (stats(10 * i, 2, 90.1), spec(10 * i, length, drafted, accepted))]


def counted(**values: float) -> str:
    return "".join(f'vllm:{name}{{engine="0"}} {value}\n' for name, value in values.items())


# caps and pools
case(
    SLOTS,
    "36 slots, 3 each",
    state_slots=36,
    slots_per_request=3,
    log=[limits(12), *(decode(5 * i, 12, 700, queue=18, usage=0.22, mamba=(36, 1.0)) for i in range(6))],
)
case(SLOTS, "names of flags", sweep=PLATEAU, max_mamba_cache_size=31, mamba_slots_per_request=5, max_running_requests=6)
case(
    SLOTS, "names with hyphens", sweep=PLATEAU, **{"state-slots": 31, "slots-per-request": 5, "max-running-requests": 6}
)
case(
    CAPPED,
    "a cap of 24",
    max_num_seqs=24,
    sweep=HEAD
    + "4,32,32,0,40,300\n12,48,48,0,24,850\n24,96,96,0,26,1600\n48,192,192,0,51,1620\n96,192,192,0,50,1630\n",
)
case(
    CAPPED,
    "a cap of 8 in the log",
    log=[
        ARGS % "'max_num_seqs': 8, 'max_model_len': 8192",
        *(stats(10 * i, 8, 420.5, waiting=25 - i, kv=18.2) for i in range(7)),
    ],
)
case(
    ("QUEUE_LIMITED_BY_KV",),
    "KV by its arithmetic",
    kv_tokens=100_000,
    input_tokens=11_000,
    requested_output=100,
    sweep=HEAD + "4,16,16,0,40,160\n8,32,32,0,45,284\n16,64,64,0,80,320\n32,128,128,0,158,324\n",
)
# speculation
case(("DRAFT_DEAD",), "accepted by chance", log=drafts(1.0, 2700, 3))
case(
    ("DRAFT_DEAD",),
    "two slots of llama.cpp",
    log=[
        f"0.44.10{i}.001 I slot print_timing: id  {i} | task 1{i} | draft acceptance = 0.00000 (    0 accepted /  {n} generated)"
        for i, n in enumerate((812, 640))
    ],
)
case(("DRAFT_DEAD",), "counts as facts", drafted_tokens=52_000, accepted_tokens=11)
case(("DRAFT_DEAD",), "a rate of 0", accept_rate=0, num_speculative_tokens=4)
case(
    ("DRAFT_DEAD",),
    "a metrics page",
    metrics=[
        counted(
            spec_decode_num_drafts_total=9000,
            spec_decode_num_draft_tokens_total=27_000,
            spec_decode_num_accepted_tokens_total=0,
        )
    ],
)
case(("DRAFT_WASTEFUL",), "five drafted, few accepted", log=drafts(1.45, 5000, 450))
case(("SPEC_OVERHEAD",), "a table of two runs", compare="name,tok_s,accept_len\nplain,205,\nmtp3,164,2.6\n")
case(
    ("SPEC_OVERHEAD",),
    "two sweeps, the draft accepted in vain",
    sweeps=[
        "concurrency,requests,ok,elapsed_s,output_tps,accept_len\n1,8,8,40,122,1.2\n2,8,8,22,217,1.2\n4,8,8,12,410,1.2\n",
        "concurrency,requests,ok,elapsed_s,output_tps\n1,8,8,20,235\n2,8,8,11,461\n4,8,8,6,830\n",
    ],
)
case(
    ("LOW_ACCEPT_LONG_CONTEXT",),
    "four lengths",
    log=[
        decode(60 * i, 1, tps, tokens=tokens, spec=of)
        for i, (tps, tokens, of) in enumerate(
            ((120, 1500, (3.4, 0.8)), (80, 20_000, (2.2, 0.4)), (60, 52_000, (1.6, 0.2)), (52, 80_000, (1.5, 0.17)))
        )
    ],
)
case(
    ("SPEC_TOO_SHORT",),
    "one step drafted",
    measured_tps=33,
    accept_len=1.8,
    draft_tokens=1,
    remembered_tps=62,
    weights_gb=54,
    gpu_name="2x RTX A6000",
    tp=2,
)
# graphs, prefixes, prefill
case(("GRAPH_OFF",), "eager by a flag", log=[ARGS % "'enforce_eager': True", *(stats(10 * i, 2, 61) for i in range(5))])
case(
    ("GRAPH_OFF",),
    "above the largest graph",
    log=[
        "[2026-10-02 07:00:00] server_args=ServerArgs(model_path='m', tp_size=2, cuda_graph_max_bs=32)",
        *(decode(3 * i, 40, 900, graph=False) for i in range(6)),
    ],
)
case(
    ("PREFIX_CACHE_INEFFECTIVE",),
    "between two pages",
    enable_prefix_caching="true",
    metrics=[counted(prefix_cache_queries_total=q, prefix_cache_hits_total=h) for q, h in ((1000, 0), (90_000, 100))],
)
case(("PREFILL_STARVES_DECODE",), "an experiment", decode_alone=140, decode_with_prefill=21)
case(
    ("TTFT_FAR_ABOVE_PREFILL",),
    "a first token that waits",
    isl=12_000,
    ttft=19,
    gpu_name="H100 PCIe",
    model="org/Qwen3-32B",
)
case(("PREEMPTION_STORM",), "counted", preemptions=900, window_s=120, kv_usage=0.995)
case(
    ("HOST_CACHE_COSTS",),
    "slow loads",
    total_prompt_tokens=900_000,
    cached_from_host=200_000,
    cached_from_device=100_000,
    load_back_s=80,
    load_back_gb=12,
    prefill_rate=9000,
)
# GPUs
case(
    ("GPU_SENSOR_DEAD",),
    "four polls in one file",
    gpu="index, name, utilization.gpu [%], power.draw [W], clocks.sm [MHz]\n"
    + "".join(
        f"0, NVIDIA L40S, 0 %, {w} W, {mhz} MHz\n" for w, mhz in ((31, 210), (240, 2400), (251, 2410), (249, 2405))
    ),
)
case(("GPU_TRANSIENT",), "polls without a header", gpu=["0, 240.10 W", "0, [Unknown Error]", "0, 239.80 W"])
case(("GPU_POLL_SLOW",), "how long polls took", nvidia_smi_ms="290,310,4200,5600,None,None")
case(("GPU_THROTTLED",), "heat as facts", sm_clock_mhz=705, sm_clock_max_mhz=1980, temp_c=91, throttle="sw-thermal")
# clients
case(("CLIENT_LIMIT",), "64 connections", concurrency=200, max_connections=64, running=64, waiting=0)
case(("DUPLICATE_PROMPTS",), "4 of 400", distinct_prompts=4, num_prompts=400)
case(("OUTPUT_TRUNCATED",), "one token each", total_output_tokens=300, num_prompts=300, ok=300, max_tokens=500)
# nothing is wrong
case((), "drafts that pay", log=drafts(2.7, 6000, 3400))
case(
    (),
    "facts of a good server",
    baseline_tps=26,
    spec_tps=60,
    accept_len=3.0,
    draft_tokens=3,
    weights_gb=54,
    gpu_name="RTX PRO 6000 Blackwell",
    max_running_requests=16,
)
case(
    (),
    "a long prompt at a good rate",
    input_tokens=6000,
    ttft_s=2.2,
    gpu_name="RTX A6000",
    tp=2,
    model="Qwen3.6-27B",
    single_tps=24,
    weights_gb=54,
)
case(
    (),
    "a host cache that pays",
    total_prompt_tokens=900_000,
    host_hits=200_000,
    device_hits=100_000,
    load_back_s=2,
    load_back_gb=12,
    prefill_rate=9000,
    hicache_usage=0.97,
)
case(
    (),
    "idle, then two requests",
    log=[
        *(stats(10 * i, 0, 0.0, kv=0.0, prompt=0.0) for i in range(5)),
        *(stats(50 + 10 * i, 2, 120) for i in range(6)),
    ],
)


@pytest.mark.parametrize(("want", "inputs"), CASES)
def test_the_right_verdict_is_on_top_or_nothing_is_said(
    want: tuple[str, ...], inputs: dict[str, Any], tmp_path: Path
) -> None:
    on_top_or_silent(want, inputs, tmp_path)
