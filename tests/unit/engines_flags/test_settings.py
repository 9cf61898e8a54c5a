"""What people change (MTP steps, host cache, tp ...) becomes the right flags of each engine and version, and back."""

from __future__ import annotations

import json

import msgspec
import pytest

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.settings import Settings
from tokpit.engines import registry
from tokpit.engines.base import Engine
from tokpit.errors import UsageError

SGLANG, VLLM, LLAMA = registry.engine("sglang"), registry.engine("vllm"), registry.engine("llamacpp")


def after(flags: tuple[str, ...], option: str) -> str:
    return flags[flags.index(option) + 1]


def test_sglang_gets_all_three_draft_figures_because_one_alone_kills_it() -> None:
    flags = SGLANG.to_flags(Settings(model="/m/a", spec_method="mtp", spec_steps=3), "0.5.11")
    assert " ".join(flags) == (
        "--model-path /m/a --speculative-algorithm NEXTN --speculative-num-steps 3"
        " --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
    )


def test_no_draft_steps_means_no_speculation() -> None:
    wanted = Settings(model="/m/a", spec_method="mtp", spec_steps=0, spec_topk=1, draft_model="/m/d")
    for made in (SGLANG, VLLM, LLAMA):
        assert not any("spec" in word or "/m/d" in word for word in made.to_flags(wanted, None))


def test_a_change_of_steps_takes_the_draft_tokens_of_a_chain_with_it() -> None:
    line = "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1"
    found = SGLANG.from_flags([*line.split(), "--speculative-num-draft-tokens", "4"], "0.5.11")
    changed = SGLANG.to_flags(msgspec.structs.replace(found, spec_steps=5), "0.5.11")
    assert after(changed, "--speculative-num-draft-tokens") == "6"


def test_a_draft_tree_of_unknown_size_is_refused() -> None:
    with pytest.raises(UsageError, match="spec_topk=4"):
        SGLANG.to_flags(Settings(spec_method="eagle", spec_steps=3, spec_topk=4), "0.5.11")


def test_a_block_drafter_gets_its_block_size() -> None:
    flags = SGLANG.to_flags(Settings(spec_method="dflash", spec_steps=15, draft_model="/m/d"), "0.5.11")
    assert after(flags, "--speculative-num-draft-tokens") == "16"
    assert "--speculative-num-steps" not in flags


def test_a_method_that_the_version_does_not_know_is_refused_with_those_it_knows() -> None:
    with pytest.raises(UsageError, match="DFLASH") as caught:
        SGLANG.to_flags(Settings(spec_method="dflash", draft_model="/m/d"), "0.5.6")
    assert "NGRAM" in caught.value.hint
    with pytest.raises(UsageError, match="dflash") as caught:
        VLLM.to_flags(Settings(spec_method="dflash", spec_steps=7), "0.19.1")
    assert "0.25.0" in caught.value.hint


def test_the_host_cache_is_switched_on_with_its_size_and_off_at_zero() -> None:
    on = SGLANG.to_flags(Settings(hicache_gb=150.0), "0.5.11")
    assert on == ("--enable-hierarchical-cache", "--hicache-size", "150")
    assert SGLANG.to_flags(Settings(hicache=True, hicache_gb=0, hicache_ratio=2.0), "0.5.11") == ()
    with pytest.raises(UsageError, match="whole GB"):
        SGLANG.to_flags(Settings(hicache_gb=99.5), "0.5.11")


def test_a_sized_but_disabled_host_cache_stays_disabled() -> None:
    found = SGLANG.from_flags(("--hicache-size", "40"), "0.5.11")
    assert (found.hicache, found.hicache_gb) == (False, 40.0)
    assert SGLANG.to_flags(found, "0.5.11") == ("--hicache-size", "40")


def test_host_cache_gb_become_gib_of_kv_offload_on_vllm() -> None:
    flags = VLLM.to_flags(Settings(hicache=True, hicache_gb=150.0), "0.32.0")
    assert float(after(flags, "--kv-offloading-size")) * 2**30 == pytest.approx(150e9, rel=1e-5)
    with pytest.raises(UsageError) as caught:
        VLLM.to_flags(Settings(hicache_gb=150.0), "0.10.0")
    assert "0.11.2 and later" in caught.value.hint


def test_the_change_of_unit_is_said() -> None:
    def said(engine: Engine, wanted: Settings) -> list[str]:
        answers = engine.check_rules(wanted, None, ModelFacts(), HostFacts(), {})
        return [answer.sentence for answer in answers if answer.code in ("OFFLOAD_UNIT", "HICACHE_PER_RANK")]

    assert "139.698 GiB" in said(VLLM, Settings(hicache_gb=150.0))[0]
    assert "600.0 GB" in said(SGLANG, Settings(hicache_gb=150.0, tp=4))[0]
    assert said(VLLM, Settings(tp=4)) == []


def test_a_renamed_flag_is_written_as_the_version_calls_it_whatever_it_was_read_as() -> None:
    for written in ("--mamba-scheduler-strategy", "--mamba-radix-cache-strategy"):
        found = SGLANG.from_flags((written, "extra_buffer"), "0.5.23")
        assert found.mamba_strategy == "extra_buffer"
        assert SGLANG.to_flags(found, "0.5.11") == ("--mamba-scheduler-strategy", "extra_buffer")
        assert SGLANG.to_flags(found, "0.5.23") == ("--mamba-radix-cache-strategy", "extra_buffer")
    with pytest.raises(UsageError) as caught:
        SGLANG.to_flags(Settings(mamba_strategy="extra_buffer"), "0.5.2")
    assert "0.5.7" in caught.value.hint or "0.5.14" in caught.value.hint


VLLM_SPEC = [
    ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}'],
    ["--speculative-config.method", "mtp", "--speculative-config.num_speculative_tokens", "3"],
    ["-sc.method=mtp", "-sc.num_speculative_tokens=3"],
    ['--speculative_config={"method": "qwen3_next_mtp", "num_speculative_tokens": 3}'],
    ["--spec-method", "mtp", "--spec-tokens", "3"],
    [
        "--speculative-config",
        '{"method": "ngram"}',
        "--speculative-config.method=mtp",
        "-sc.num_speculative_tokens",
        "3",
    ],
]


@pytest.mark.parametrize("flags", VLLM_SPEC)
def test_vllm_speculation_is_understood_in_every_spelling(flags: list[str]) -> None:
    found = VLLM.from_flags(["/m/a", *flags], "0.33.0")
    assert (found.spec_method, found.spec_steps, found.raw) == ("mtp", 3, ())
    written = VLLM.to_flags(found, "0.33.0")
    assert json.loads(after(written, "--speculative-config")) == {"method": "mtp", "num_speculative_tokens": 3}


def test_keys_of_the_speculative_json_without_a_canonical_name_survive_a_change_of_steps() -> None:
    config = {"method": "eagle3", "model": "/m/d", "num_speculative_tokens": 2, "draft_tensor_parallel_size": 1}
    found = VLLM.from_flags(["/m/a", "--speculative-config", json.dumps(config)], "0.33.0")
    changed = VLLM.to_flags(Settings(**{**found.given(), "spec_steps": 5, "raw": found.raw}), "0.33.0")
    assert json.loads(after(changed, "--speculative-config")) == config | {"num_speculative_tokens": 5}
    assert changed.count("--speculative-config") == 1


def test_mtp_is_called_as_the_vllm_version_calls_it() -> None:
    def method(version: str) -> str:
        flags = VLLM.to_flags(Settings(spec_method="mtp", spec_steps=1), version)
        return str(json.loads(after(flags, "--speculative-config"))["method"])

    assert (method("0.10.0"), method("0.12.0"), method("0.33.0")) == ("deepseek_mtp", "mtp", "mtp")
    with pytest.raises(UsageError, match="mtp"):
        method("0.8.5")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["/m/a", "-tp", "2"], {"model": "/m/a", "tp": 2}),
        (["--max_model_len", "128k", "/m/a"], {"context_len": 128000, "model": "/m/a"}),
        (["/m/a", "--max-model-len=16K"], {"context_len": 16384, "model": "/m/a"}),
        (["/m/a", "--max-model-len", "auto"], {"context_len": -1, "model": "/m/a"}),
        (["/m/a", "--no-enable-prefix-caching"], {"prefix_cache": False, "model": "/m/a"}),
        (["/m/a", "--gpu-memory-util", ".85"], {"mem_fraction": 0.85, "model": "/m/a"}),
        (["/m/a", "-qfp8", "--port", "1", "--port", "2"], {"quantization": "fp8", "port": 2, "model": "/m/a"}),
        (["/m/a", "--kv_cache_dtype=fp8"], {"kv_dtype": "fp8", "model": "/m/a"}),
    ],
)
def test_vllm_spellings_are_understood(flags: list[str], expected: dict[str, object]) -> None:
    assert VLLM.from_flags(flags, "0.32.0").given() == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--model-path", "/m/a", "--tp", "4", "--dp=2"], {"model": "/m/a", "tp": 4, "dp": 2}),
        (["/m/a", "--context-length", "32k"], {"model": "/m/a", "context_len": 32000}),
        (["--chunked-prefill-size", "-1", "--disable-radix-cache"], {"chunked_prefill": -1, "prefix_cache": False}),
        (["--mem-fraction", "0.9", "--enable_metrics"], {"mem_fraction": 0.9, "metrics": True}),
        (
            ["--speculative-algo", "EAGLE3", "--speculative-draft-model", "/m/d"],
            {"spec_method": "eagle3", "draft_model": "/m/d"},
        ),
    ],
)
def test_sglang_spellings_are_understood(flags: list[str], expected: dict[str, object]) -> None:
    assert SGLANG.from_flags(flags, "0.5.15").given() == expected


def test_flags_without_a_canonical_name_stay_word_for_word_in_order() -> None:
    line = "/m/a -O3 -tp=2 --served-model-name x y --api-key s3 --unheard-of 7 8 --enforce-eager --max-num-seqs many"
    found = VLLM.from_flags(line.split(), "0.32.0")
    rest = "-O3 --served-model-name x y --api-key s3 --unheard-of 7 8 --enforce-eager --max-num-seqs many"
    assert found.raw == tuple(rest.split())


def test_the_old_api_server_module_gets_its_model_as_a_flag() -> None:
    wanted = Settings(model="/m/a", tp=2)
    old = VLLM.command(("python", "-m", "vllm.entrypoints.openai.api_server"), wanted, "0.32.0")
    assert old[3:5] == ("--model", "/m/a")
    assert VLLM.command(("/e/bin/vllm", "serve"), wanted, "0.32.0")[2] == "/m/a"


@pytest.mark.parametrize(
    ("engine", "wanted"),
    [
        (VLLM, Settings(kv_tokens=5)),
        (VLLM, Settings(mamba_strategy="extra_buffer")),
        (VLLM, Settings(metrics=False)),
        (VLLM, Settings(spec_method="eagle", spec_steps=2, spec_topk=4)),
        (VLLM, Settings(hicache=True)),
        (SGLANG, Settings(kv_offload_gib=10.0)),
        (LLAMA, Settings(tp=2)),
        (LLAMA, Settings(mem_fraction=0.9)),
    ],
)
def test_what_an_engine_cannot_take_is_refused_with_what_to_do(engine: object, wanted: Settings) -> None:
    with pytest.raises(UsageError) as caught:
        engine.to_flags(wanted, None)  # type: ignore[attr-defined]  # parametrized over engines
    assert caught.value.hint


def test_llama_server_flags_go_both_ways_in_short_and_long() -> None:
    line = "-m a.gguf -c 8192 -np 4 -ngl 99 -ctk q8_0 -ctv q8_0 --no-cache-prompt"
    line += " --spec-type draft-mtp --spec-draft-n-max 2"
    found = LLAMA.from_flags(line.split(), "b10434")
    assert found.given() == {
        "model": "a.gguf",
        "context_len": 8192,
        "max_running": 4,
        "kv_dtype": "q8_0",
        "prefix_cache": False,
        "spec_method": "mtp",
        "spec_steps": 2,
    }
    assert found.raw == ("-ngl", "99")
    assert LLAMA.from_flags(LLAMA.to_flags(found, "b10434"), "b10434") == found


def test_unlike_types_of_keys_and_values_stay_as_they_are() -> None:
    found = LLAMA.from_flags(["-ctk", "q8_0", "-ctv", "f16"], None)
    assert (found.kv_dtype, found.raw) == (None, ("-ctk", "q8_0", "-ctv", "f16"))


def test_old_llama_server_builds_get_the_old_draft_flags_and_no_mtp() -> None:
    wanted = Settings(spec_method="draft", spec_steps=8, draft_model="d.gguf")
    assert LLAMA.to_flags(wanted, "b6200") == ("--model-draft", "d.gguf", "--draft-max", "8")
    assert LLAMA.from_flags(("-md", "d.gguf", "--draft-max", "8"), "b6200").spec_steps == 8
    with pytest.raises(UsageError, match="draft model only"):
        LLAMA.to_flags(Settings(spec_method="mtp", spec_steps=2), "b6200")
