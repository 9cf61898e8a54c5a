"""Rules before a start, SGLang: what must be said, and what must not be said one step beside it."""

from __future__ import annotations

import pytest

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.settings import Settings
from tokpit.domain.verdict import RuleAnswer
from tokpit.engines.registry import engine

GB = 10**9
HYBRID = ModelFacts(hybrid=True)
DENSE = ModelFacts(hybrid=False)
MTP = (
    "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 4"
)


def ask(
    flags: str | Settings,
    version: str | None = None,
    model: ModelFacts = ModelFacts(),
    env: dict[str, str] | None = None,
    **host: object,
) -> dict[str, RuleAnswer]:
    sglang = engine("sglang")
    settings = flags if isinstance(flags, Settings) else sglang.from_flags(flags.split(), version)
    answers = sglang.check_rules(settings, version, model, HostFacts(**host), env or {})  # type: ignore[arg-type]
    return {answer.code: answer for answer in answers}


def test_the_plateau_of_nine_is_told_before_the_start() -> None:
    told = ask(
        MTP + " --mamba-scheduler-strategy extra_buffer --max-mamba-cache-size 48 --max-running-requests 48",
        "0.5.11",
        HYBRID,
    )["QUEUE_LIMITED_BY_STATE_SLOTS"]
    assert told.severity == "warning"
    assert "Only 9 requests" in told.sentence
    assert "48 state slots // 5 per request = 9" in told.arithmetic
    assert told.fixes[0].settings == {"state_slots": 240}


def test_one_request_on_seven_slots() -> None:
    told = ask(MTP + " --mamba-scheduler-strategy extra_buffer --max-mamba-cache-size 7", "0.5.11", HYBRID)
    assert "7 state slots // 5 per request = 1" in told["QUEUE_LIMITED_BY_STATE_SLOTS"].arithmetic


def test_a_cap_that_was_asked_for_is_only_information() -> None:
    told = ask(
        "--mamba-scheduler-strategy no_buffer --max-mamba-cache-size 48 --max-running-requests 8", "0.5.11", HYBRID
    )
    assert "QUEUE_LIMITED_BY_STATE_SLOTS" not in told
    assert told["RUNNING_CAP"].severity == "info"


def test_slots_say_nothing_on_a_plain_model() -> None:
    told = ask("--max-mamba-cache-size 48 --max-running-requests 48", "0.5.11", DENSE)
    assert "QUEUE_LIMITED_BY_STATE_SLOTS" not in told
    assert told["FLAG_NO_EFFECT"].severity == "info"


def test_host_cache_doubled_on_a_hybrid_does_not_fit_200_gb() -> None:
    told = ask("--enable-hierarchical-cache --hicache-size 150", "0.5.11", HYBRID, mem_available_bytes=200 * GB)[
        "HICACHE_DOUBLED_ON_HYBRID"
    ]
    assert told.severity == "error"
    assert "300.0 GB" in told.sentence
    assert "150 GB x 2 pools" in told.arithmetic
    assert "reserve" in told.arithmetic
    assert told.fixes[0].settings == {"hicache_gb": 94}


@pytest.mark.parametrize(
    ("flags", "version", "model", "available", "code", "severity"),
    [
        ("--hicache-size 150", "0.5.17", HYBRID, 200, None, ""),
        ("--hicache-size 150", "0.5.17", HYBRID, 155, "HOST_MEM_RESERVE", "error"),
        ("--hicache-size 90", "0.5.12", HYBRID, 205, "HICACHE_DOUBLED_ON_HYBRID", "info"),
        ("--tp 4 --hicache-size 40", "0.5.3", DENSE, 60, "HICACHE_PER_RANK", "error"),
        ("--tp 4 --hicache-size 40", "0.5.3", DENSE, 251, "HICACHE_PER_RANK", "info"),
        ("--tp 4 --hicache-size 40", "0.5.3", DENSE, None, "HICACHE_PER_RANK", "warning"),
        ("--hicache-size 40", "0.5.3", DENSE, 251, None, ""),
    ],
)
def test_host_cache_against_the_host(
    flags: str, version: str, model: ModelFacts, available: int | None, code: str | None, severity: str
) -> None:
    told = ask(
        "--enable-hierarchical-cache " + flags,
        version,
        model,
        mem_available_bytes=None if available is None else available * GB,
    )
    found = {key: answer.severity for key, answer in told.items() if "HICACHE" in key or "HOST_MEM" in key}
    assert found == ({} if code is None else {code: severity})


def test_the_cgroup_limit_counts_where_it_is_lower() -> None:
    told = ask(
        "--enable-hierarchical-cache --hicache-size 60",
        "0.5.20",
        DENSE,
        mem_available_bytes=500 * GB,
        cgroup_limit_bytes=64 * GB,
    )["HOST_MEM_RESERVE"]
    assert "cgroup limit" in told.arithmetic
    assert told.fixes[0].settings == {"hicache_gb": 53}


@pytest.mark.parametrize(
    ("flags", "version", "model", "severity"),
    [
        (MTP, "0.5.10", HYBRID, "error"),
        (MTP + " --mamba-scheduler-strategy no_buffer", "0.5.12", HYBRID, "error"),
        (MTP, "0.5.9", HYBRID, "warning"),
        (MTP, None, HYBRID, "warning"),
        (MTP, "0.5.10", ModelFacts(architecture="Qwen3_5MoeForConditionalGeneration"), "error"),
        (MTP, "0.5.16", HYBRID, None),
        (MTP + " --mamba-radix-cache-strategy no_buffer --disable-overlap-schedule", "0.5.14", HYBRID, None),
        (MTP, "0.5.10", DENSE, None),
        (MTP, "0.5.10", ModelFacts(), None),
        (MTP + " --disable-radix-cache", "0.5.10", HYBRID, None),
        (MTP + " --mamba-scheduler-strategy extra_buffer", "0.5.10", HYBRID, None),
        ("--mamba-scheduler-strategy no_buffer", "0.5.10", HYBRID, None),
    ],
)
def test_speculation_on_a_hybrid_needs_buffers(
    flags: str, version: str | None, model: ModelFacts, severity: str | None
) -> None:
    told = ask(flags, version, model).get("FLAG_SPEC_NEEDS_EXTRA_BUFFER")
    assert (told and told.severity) == severity


def test_the_fix_names_a_flag_and_a_variable_and_on_rocm_neither() -> None:
    cuda = ask(MTP, "0.5.10", HYBRID)["FLAG_SPEC_NEEDS_EXTRA_BUFFER"].fixes
    rocm = ask(MTP, "0.5.10", HYBRID, platform="rocm")["FLAG_SPEC_NEEDS_EXTRA_BUFFER"].fixes
    assert cuda[0].settings == {"mamba_strategy": "extra_buffer"}
    assert cuda[0].env == {"SGLANG_ENABLE_SPEC_V2": "1"}
    assert cuda[1].settings == {"prefix_cache": False}
    assert [fix.settings for fix in rocm] == [{"prefix_cache": False}]


@pytest.mark.parametrize(
    ("flags", "version", "model", "code", "severity"),
    [
        (
            "--mamba-scheduler-strategy extra_buffer --disable-radix-cache",
            None,
            ModelFacts(),
            "FLAG_EXTRA_BUFFER_USELESS",
            "warning",
        ),
        (
            "--mamba-scheduler-strategy extra_buffer --disable-radix-cache",
            "0.5.12",
            HYBRID,
            "FLAG_EXTRA_BUFFER_USELESS",
            "error",
        ),
        ("--mamba-scheduler-strategy extra_buffer", "0.5.12", HYBRID, "FLAG_EXTRA_BUFFER_USELESS", None),
        (
            "--mamba-scheduler-strategy no_buffer --disable-radix-cache",
            "0.5.12",
            HYBRID,
            "FLAG_EXTRA_BUFFER_USELESS",
            None,
        ),
        ("--mamba-radix-cache-strategy extra_buffer", "0.5.20", DENSE, "FLAG_MAMBA_ON_NON_HYBRID", "error"),
        ("--mamba-radix-cache-strategy extra_buffer", "0.5.20", ModelFacts(), "FLAG_MAMBA_ON_NON_HYBRID", None),
        ("--mamba-radix-cache-strategy auto", "0.5.20", DENSE, "FLAG_MAMBA_ON_NON_HYBRID", None),
        (
            "--speculative-num-draft-tokens 8 --mamba-track-interval 4 --page-size 64",
            None,
            ModelFacts(),
            "FLAG_TRACK_INTERVAL",
            "error",
        ),
        (
            "--speculative-num-draft-tokens 8 --mamba-track-interval 128 --page-size 64",
            None,
            ModelFacts(),
            "FLAG_TRACK_INTERVAL",
            None,
        ),
        ("--mamba-track-interval 96 --page-size 64", None, ModelFacts(), "FLAG_TRACK_INTERVAL", "error"),
        (MTP.replace("tokens 4", "tokens 9"), "0.5.11", DENSE, "SPEC_DRAFT_TOKENS_ADJUSTED", "warning"),
        (MTP, "0.5.11", DENSE, "SPEC_DRAFT_TOKENS_ADJUSTED", None),
        ("--speculative-algorithm EAGLE --speculative-eagle-topk 4", "0.5.11", DENSE, "FLAG_SPEC_INCOMPLETE", "error"),
        ("--speculative-algorithm EAGLE", "0.5.11", DENSE, "FLAG_SPEC_INCOMPLETE", None),
        ("--disable-radix-cache --enable-hierarchical-cache", "0.5.11", DENSE, "FLAG_CONFLICT", "error"),
        ("--enable-hierarchical-cache", "0.5.11", DENSE, "FLAG_CONFLICT", None),
        (
            "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 4 "
            "--speculative-num-draft-tokens 16 --page-size 16 --attention-backend triton",
            "0.5.11",
            DENSE,
            "FLAG_CONFLICT",
            "error",
        ),
        (
            "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 4 "
            "--speculative-num-draft-tokens 16 --page-size 16 --attention-backend triton",
            "0.5.13",
            DENSE,
            "FLAG_CONFLICT",
            None,
        ),
        (MTP + " --pp-size 2", "0.5.20", DENSE, "FLAG_CONFLICT", "error"),
        (MTP + " --pp-size 2", "0.5.21", DENSE, "FLAG_CONFLICT", None),
        ("--page-size 16 --mamba-scheduler-strategy no_buffer", "0.5.14", HYBRID, "FLAG_CONFLICT", "error"),
        ("--page-size 16 --mamba-scheduler-strategy no_buffer", "0.5.12", HYBRID, "FLAG_CONFLICT", "warning"),
        (
            "--page-size 1 --mamba-scheduler-strategy no_buffer --disable-overlap-schedule",
            "0.5.14",
            HYBRID,
            "FLAG_CONFLICT",
            None,
        ),
        ("--mamba-scheduler-strategy no_buffer", "0.5.14", HYBRID, "FLAG_CONFLICT", "error"),
        ("--mamba-scheduler-strategy no_buffer", "0.5.13", HYBRID, "FLAG_CONFLICT", None),
        (
            "--page-size 48 --mamba-scheduler-strategy extra_buffer --mamba-track-interval 96",
            "0.5.12",
            HYBRID,
            "FLAG_CONFLICT",
            "error",
        ),
        ("--chunked-prefill-size 1000 --page-size 64", "0.5.12", DENSE, "FLAG_CONFLICT", "error"),
        ("--chunked-prefill-size 1024 --page-size 64", "0.5.12", DENSE, "FLAG_CONFLICT", None),
        ("--speculative-algorithm NGRAM --enable-dp-attention", "0.5.12", DENSE, "FLAG_CONFLICT", "error"),
        ("--speculative-algorithm DFLASH", "0.5.10", DENSE, "FLAG_BAD_VALUE", "error"),
        ("--mamba-scheduler-strategy extra_buffer_lazy", "0.5.12", HYBRID, "FLAG_BAD_VALUE", "error"),
        ("--speculative-algorithm EAGLE3", "0.5.10", DENSE, "SPEC_NO_DRAFT_MODEL", "error"),
        (MTP, "0.5.12", ModelFacts(hybrid=False, mtp_layers=0), "SPEC_NO_DRAFT_MODEL", "error"),
        (MTP, "0.5.12", ModelFacts(hybrid=False, mtp_layers=1), "SPEC_NO_DRAFT_MODEL", None),
        (MTP, "0.5.11", HYBRID, "SPEC_DEFAULT_MAX_RUNNING", "warning"),
        (MTP, "0.5.20", HYBRID, "SPEC_DEFAULT_MAX_RUNNING", "info"),
        (MTP + " --max-running-requests 8", "0.5.11", HYBRID, "SPEC_DEFAULT_MAX_RUNNING", None),
        (MTP + " --enable-hierarchical-cache", "0.5.12", HYBRID, "KNOWN_BUG_HICACHE_MTP", "warning"),
        (MTP + " --enable-hierarchical-cache", "0.5.14", HYBRID, "KNOWN_BUG_HICACHE_MTP", None),
        (
            MTP + " --enable-hierarchical-cache --hicache-io-backend direct",
            "0.5.12",
            HYBRID,
            "KNOWN_BUG_HICACHE_MTP",
            None,
        ),
        ("--enable-hierarchical-cache --mem-fraction-static 0.95", "0.4.6", DENSE, "OOM_HICACHE_HEADROOM", "warning"),
        ("--enable-hierarchical-cache --mem-fraction-static 0.88", "0.4.6", DENSE, "OOM_HICACHE_HEADROOM", None),
        ("--mem-fraction-static 0.95", "0.4.6", DENSE, "OOM_HICACHE_HEADROOM", None),
        ("--enable-hierarchical-cache --hicache-ratio 0.8", "0.5.11", DENSE, "HICACHE_TOO_SMALL", "error"),
        ("--enable-hierarchical-cache --hicache-ratio 0.8", "0.5.15", DENSE, "HICACHE_TOO_SMALL", None),
        (
            "--dp-size 8 --enable-dp-attention --cuda-graph-max-bs 256 --max-running-requests 400",
            "0.5.2",
            DENSE,
            "GRAPH_OFF",
            "warning",
        ),
        (
            "--dp-size 8 --enable-dp-attention --cuda-graph-max-bs 512 --max-running-requests 400",
            "0.5.2",
            DENSE,
            "GRAPH_OFF",
            None,
        ),
    ],
)
def test_a_rule_speaks_where_it_should_and_is_quiet_beside_it(
    flags: str, version: str | None, model: ModelFacts, code: str, severity: str | None
) -> None:
    told = ask(flags, version, model).get(code)
    assert (told and told.severity) == severity
    if told is not None:
        assert told.sentence


def test_the_smallest_legal_interval_is_offered() -> None:
    told = ask("--speculative-num-draft-tokens 8 --mamba-track-interval 4 --page-size 64")["FLAG_TRACK_INTERVAL"]
    assert told.fixes[0].raw_add == ("--mamba-track-interval", "64")


def test_a_host_cache_of_half_a_gigabyte_more_is_refused_with_whole_ones() -> None:
    told = ask(Settings(hicache=True, hicache_gb=99.5), "0.5.11")["FLAG_BAD_VALUE"]
    assert told.fixes[0].settings == {"hicache_gb": 99}


def test_speculation_switched_off_by_zero_steps_is_no_speculation() -> None:
    assert ask(Settings(spec_method="mtp", spec_steps=0), "0.5.10", HYBRID) == {}


@pytest.mark.parametrize(
    ("flags", "model", "host", "code", "fix"),
    [
        ("--tp 8", ModelFacts(), {"gpu_count": 4}, "TP_EXCEEDS_GPUS", {"tp": 4}),
        ("--tp 4", ModelFacts(), {"gpu_count": 4}, "TP_EXCEEDS_GPUS", None),
        ("--tp 8 --nnodes 2", ModelFacts(), {"gpu_count": 4}, "TP_EXCEEDS_GPUS", None),
        ("--tp 8", ModelFacts(attention_heads=20, kv_heads=4), {}, "TP_NOT_DIVISIBLE", {"tp": 4}),
        ("--tp 8", ModelFacts(attention_heads=32, kv_heads=4), {}, "TP_NOT_DIVISIBLE", None),
        ("--port 30000", ModelFacts(), {"ports_in_use": frozenset({30000, 30001})}, "PORT_IN_USE", {"port": 30002}),
        ("--port 30002", ModelFacts(), {"ports_in_use": frozenset({30000, 30001})}, "PORT_IN_USE", None),
        ("", ModelFacts(), {"ports_in_use": frozenset({30000})}, "PORT_IN_USE", {"port": 30001}),
        (
            "--model-path /w/tpyo",
            ModelFacts(),
            {"missing_paths": frozenset({"/w/tpyo"}), "existing_paths": frozenset({"/w/typo", "/else"})},
            "MODEL_PATH_MISSING",
            {"model": "/w/typo"},
        ),
        ("--model-path org/name", ModelFacts(), {"missing_paths": frozenset({"/w/tpyo"})}, "MODEL_PATH_MISSING", None),
        ("--context-length 99000", ModelFacts(max_context=32768), {}, "CTX_TOO_LONG", {"context_len": 32768}),
        ("--context-length 32768", ModelFacts(max_context=32768), {}, "CTX_TOO_LONG", None),
        (
            "--tp 2",
            ModelFacts(weight_bytes=54 * GB),
            {"gpu_count": 2, "gpu_mem_mib": (24564.0, 24564.0)},
            "WEIGHTS_TOO_LARGE",
            (),
        ),
        (
            "--tp 2",
            ModelFacts(weight_bytes=54 * GB),
            {"gpu_count": 4, "gpu_mem_mib": (24564.0,) * 4},
            "WEIGHTS_TOO_LARGE",
            {"tp": 4},
        ),
        ("--tp 2", ModelFacts(weight_bytes=54 * GB), {"gpu_mem_mib": (49140.0, 49140.0)}, "WEIGHTS_TOO_LARGE", None),
        ("--tp 2", ModelFacts(), {"gpu_mem_mib": (16376.0, 24576.0)}, "UNBALANCED_GPUS", ()),
        (
            "--tp 2",
            ModelFacts(),
            {"gpu_mem_mib": (24576.0, 24576.0), "gpu_free_mib": (24000.0, 9000.0)},
            "UNBALANCED_GPUS",
            (),
        ),
        (
            "--tp 2",
            ModelFacts(),
            {"gpu_mem_mib": (24576.0, 24576.0), "gpu_free_mib": (24000.0, 23900.0)},
            "UNBALANCED_GPUS",
            None,
        ),
        ("--tp 1", ModelFacts(), {"gpu_mem_mib": (16376.0, 24576.0)}, "UNBALANCED_GPUS", None),
        ("", ModelFacts(), {"gpu_count": 0}, "RUNNING_ON_CPU", ()),
        ("--device cpu", ModelFacts(), {"gpu_count": 0}, "RUNNING_ON_CPU", None),
    ],
)
def test_flags_against_the_host(
    flags: str, model: ModelFacts, host: dict[str, object], code: str, fix: dict[str, object] | tuple[()] | None
) -> None:
    told = ask(flags, "0.5.20", model, **host).get(code)
    if fix is None:
        assert told is None
        return
    assert told is not None
    if fix:
        assert told.fixes[0].settings == fix


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ({"CUDA_HOME": ":/usr/local/cuda-12"}, True),
        ({"CUDA_HOME": "$CUDA_HOME:/usr/local/cuda-12"}, True),
        ({"CUDA_HOME": "/usr/local/cuda-12"}, False),
        ({"PATH": "/usr/bin:/bin"}, False),
        ({"NOTE": "a::b"}, False),
    ],
)
def test_a_path_in_the_environment_is_one_path(env: dict[str, str], code: bool) -> None:
    assert ("ENV_MALFORMED" in ask("", "0.5.20", env=env)) is code


def test_visible_devices_narrow_the_host() -> None:
    told = ask("--tp 4", "0.5.20", env={"CUDA_VISIBLE_DEVICES": "0,1"}, gpu_count=8)
    assert told["TP_EXCEEDS_GPUS"].fixes[0].settings == {"tp": 2}


def test_what_is_not_known_is_not_judged() -> None:
    assert ask("--model-path /w/m --tp 8 --context-length 100000 --enable-hierarchical-cache", None) == {}


def test_errors_come_first() -> None:
    answers = engine("sglang").check_rules(
        Settings(spec_method="mtp", spec_steps=3, spec_draft_tokens=9, pp=2), "0.5.11", HYBRID, HostFacts(), {}
    )
    severities = [answer.severity for answer in answers]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert len(answers) >= 3
