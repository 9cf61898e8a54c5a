"""Rules before a start, vLLM and llama-server: what must be said, and what must not be said one step beside it."""

from __future__ import annotations

import pytest

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.verdict import RuleAnswer
from tokpit.engines.registry import engine

GIB = 2**30
HYBRID = ModelFacts(hybrid=True, mtp_layers=1)
DENSE = ModelFacts(hybrid=False)
MTP = '--speculative-config {"method":"mtp","num_speculative_tokens":3}'


def ask(name: str, flags: str, version: str | None, model: ModelFacts, **host: object) -> dict[str, RuleAnswer]:
    found = engine(name)
    settings = found.from_flags(flags.split(), version)
    return {a.code: a for a in found.check_rules(settings, version, model, HostFacts(**host), {})}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flags", "version", "model", "host", "code", "severity"),
    [
        ("/m --kv-offloading-size 8", "0.32.0", DENSE, {"platform": "cpu"}, "OFFLOAD_UNSUPPORTED", "error"),
        ("/m --kv-offloading-size 8", "0.32.0", DENSE, {}, "OFFLOAD_UNSUPPORTED", None),
        (
            "/m --kv-offloading-size 100",
            "0.32.0",
            DENSE,
            {"mem_available_bytes": 150 * GIB},
            "HOST_MEM_RESERVE",
            "warning",
        ),
        (
            "/m --kv-offloading-size 200",
            "0.32.0",
            DENSE,
            {"mem_available_bytes": 150 * GIB},
            "HOST_MEM_RESERVE",
            "error",
        ),
        ("/m --kv-offloading-size 50", "0.32.0", DENSE, {"mem_available_bytes": 150 * GIB}, "HOST_MEM_RESERVE", None),
        ("/m --kv-offloading-size 50", "0.32.0", DENSE, {"shm_free_bytes": 32 * GIB}, "SHM_TOO_SMALL", "error"),
        ("/m --kv-offloading-size 50", "0.30.0", HYBRID, {}, "KNOWN_RISK_OFFLOAD_HYBRID", "warning"),
        ("/m --kv-offloading-size 50", "0.25.1", HYBRID, {}, "KNOWN_RISK_OFFLOAD_HYBRID", None),
        ("/m " + MTP, "0.30.0", HYBRID, {}, "SPEC_SHRINKS_CONCURRENCY", "info"),
        ("/m " + MTP, "0.30.0", DENSE, {}, "SPEC_SHRINKS_CONCURRENCY", None),
        ("/m " + MTP, "0.32.0", HYBRID, {"platform": "cpu"}, "KNOWN_BUG_PREFIX_MTP_CPU", "error"),
        (
            "/m --no-enable-prefix-caching " + MTP,
            "0.32.0",
            HYBRID,
            {"platform": "cpu"},
            "KNOWN_BUG_PREFIX_MTP_CPU",
            None,
        ),
        (
            "/m",
            "0.25.1",
            HYBRID,
            {"gpu_mem_mib": (81559.0,), "gpu_names": ("NVIDIA H100",)},
            "MAMBA_BLOCKS_LT_MAX_SEQS",
            "warning",
        ),
        ("/m --max-num-seqs 64", "0.25.1", HYBRID, {"gpu_mem_mib": (81559.0,)}, "MAMBA_BLOCKS_LT_MAX_SEQS", None),
        ("/m", "0.19.1", HYBRID, {"gpu_mem_mib": (81559.0,)}, "MAMBA_BLOCKS_LT_MAX_SEQS", None),
        ("/m", "0.25.1", DENSE, {"gpu_mem_mib": (81559.0,)}, "MAMBA_BLOCKS_LT_MAX_SEQS", None),
        ("/m", "0.32.0", DENSE, {"gpu_mem_mib": (81559.0,), "gpu_free_mib": (20000.0,)}, "GPU_MEMORY_TAKEN", "error"),
        ("/m", "0.32.0", DENSE, {"gpu_mem_mib": (81559.0,), "gpu_free_mib": (81000.0,)}, "GPU_MEMORY_TAKEN", None),
        ("/m --gpu-memory-utilization 1.2", "0.32.0", DENSE, {}, "FLAG_BAD_VALUE", "error"),
        ("/m --gpu-memory-utilization 0.98", "0.32.0", DENSE, {}, "OOM_GRAPH_CAPTURE", "warning"),
        ("/m --gpu-memory-utilization 0.92", "0.32.0", DENSE, {}, "OOM_GRAPH_CAPTURE", None),
        ("/m --max-num-seqs 256 --max-num-batched-tokens 128", "0.32.0", DENSE, {}, "BATCHED_TOKENS_LT_CTX", "error"),
        ("/m --max-num-seqs 256 --max-num-batched-tokens 8192", "0.32.0", DENSE, {}, "BATCHED_TOKENS_LT_CTX", None),
        ("/m " + MTP, "0.32.0", ModelFacts(mtp_layers=0), {}, "SPEC_NO_DRAFT_MODEL", "error"),
        ("/m", "0.32.0", DENSE, {"ports_in_use": frozenset({8000})}, "PORT_IN_USE", "error"),
        ("/m --port 8001", "0.32.0", DENSE, {"ports_in_use": frozenset({8000})}, "PORT_IN_USE", None),
        ("/m --max-model-len 99000", "0.32.0", ModelFacts(max_context=4096), {}, "CTX_TOO_LONG", "error"),
        ("/m -tp 4", "0.32.0", ModelFacts(attention_heads=14), {}, "TP_NOT_DIVISIBLE", "error"),
    ],
)
def test_vllm(
    flags: str, version: str, model: ModelFacts, host: dict[str, object], code: str, severity: str | None
) -> None:
    told = ask("vllm", flags, version, model, **host).get(code)
    assert (told and told.severity) == severity


def test_state_pages_are_counted_out() -> None:
    told = ask("vllm", "/m " + MTP, "0.30.0", HYBRID)["SPEC_SHRINKS_CONCURRENCY"]
    assert told.arithmetic == "2 + 3 = 5; without prefix caching 1 + 3 = 4"


def test_an_automatic_context_is_no_context() -> None:
    assert "CTX_TOO_LONG" not in ask("vllm", "/m --max-model-len auto", "0.32.0", ModelFacts(max_context=4096))


@pytest.mark.parametrize(
    ("flags", "code", "severity"),
    [
        ("-m /m.gguf -c 32768 -np 4", "CTX_PER_SLOT", "info"),
        ("-m /m.gguf -c 8192 -np 8", "CTX_PER_SLOT", "warning"),
        ("-m /m.gguf -c 32768 -np 1", "CTX_PER_SLOT", None),
        ("-m /m.gguf -c 32768 -np 4 -kvu", "CTX_PER_SLOT", None),
        ("-m /m.gguf -np 4", "CTX_PER_SLOT", None),
        ("-m /m.gguf -c 65536", "CTX_TOO_LONG", "warning"),
        ("-m /m.gguf -c 65536 -np 2", "CTX_TOO_LONG", None),
        ("-m /gone.gguf", "MODEL_PATH_MISSING", "error"),
        ("-m /m.gguf --port 8088", "PORT_IN_USE", "error"),
        ("-m /m.gguf", "PORT_IN_USE", None),
        ("-m /m.gguf --cache-type-v q8_0 --flash-attn off", "FLAG_CONFLICT", "error"),
        ("-m /m.gguf --cache-type-v q8_0", "FLAG_CONFLICT", None),
    ],
)
def test_llama_server(flags: str, code: str, severity: str | None) -> None:
    told = ask(
        "llamacpp",
        flags,
        "b11434",
        ModelFacts(max_context=32768),
        ports_in_use=frozenset({8088}),
        missing_paths=frozenset({"/gone.gguf"}),
    ).get(code)
    assert (told and told.severity) == severity


def test_each_slot_gets_its_share() -> None:
    told = ask("llamacpp", "-m /m.gguf -c 32768 -np 4", "b11434", ModelFacts(max_context=32768))["CTX_PER_SLOT"]
    assert told.arithmetic == "32768 / 4 = 8192"
    assert told.fixes[0].settings == {"context_len": 131072}
