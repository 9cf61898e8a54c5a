"""`lint` and `parse-log` at the shell: what they print and how they exit, without any host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tokpit.cli.context import Options
from tokpit.cli.errors import guarded
from tokpit.cli.lint import lint
from tokpit.cli.parse_log import parse_log
from tokpit.errors import UsageError


@pytest.fixture(autouse=True)
def own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"TOKPIT_{name}_DIR", str(tmp_path / name.lower()))


def run_lint(*words: str) -> tuple[int, list[dict[str, object]]]:
    result: Result = CliRunner().invoke(lint, ["--json", *words], obj=Options(), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value), json.loads(result.output)["issues"]


def run_parse(log: str, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(parse_log, ["-", *words], input=log.encode(), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value), result.output


MTP = ("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1")
SGLANG = ("python", "-m", "sglang.launch_server")
BIG = (*SGLANG, "--model-path", "/w/Qwen3.6-27B", *MTP, "--mamba-scheduler-strategy", "extra_buffer")
CACHE = ("--enable-hierarchical-cache", "--hicache-size", "150", "--max-mamba-cache-size", "48")


def test_a_host_cache_that_a_hybrid_model_doubles_is_told_before_the_start() -> None:
    code, issues = run_lint(
        "--engine-version", "0.5.11", "--fact", "hybrid=true", "--fact", "mem_available_gb=200", "--", *BIG, *CACHE
    )
    by_code = {issue["code"]: issue for issue in issues}
    assert code == 1
    assert by_code["HICACHE_DOUBLED_ON_HYBRID"]["severity"] == "error"
    assert "300.0 GB" in str(by_code["HICACHE_DOUBLED_ON_HYBRID"]["arithmetic"])
    assert "48 state slots // 5 per request = 9" in str(by_code["QUEUE_LIMITED_BY_STATE_SLOTS"]["arithmetic"])


def test_a_hybrid_family_known_by_name_only_warns() -> None:
    code, issues = run_lint("--engine-version", "0.5.11", "--fact", "mem_available_gb=200", "--", *BIG, *CACHE)
    doubled = next(issue for issue in issues if issue["code"] == "HICACHE_DOUBLED_ON_HYBRID")
    assert code == 0
    assert doubled["severity"] == "warning"
    assert "config.json" in str(doubled["sentence"])


def test_the_same_size_fits_a_plain_model() -> None:
    code, issues = run_lint(
        "--engine-version", "0.5.11", "--fact", "hybrid=false", "--fact", "mem_available_gb=200",
        "--", *SGLANG, "--model-path", "/w/Qwen3.6-27B", *CACHE[:3],
    )  # fmt: skip
    assert code == 0
    assert not [issue for issue in issues if "HICACHE" in str(issue["code"])]


def test_slots_that_a_running_server_showed_tell_how_many_requests_run_at_once() -> None:
    _, issues = run_lint("--engine-version", "0.5.11", "--fact", "state_slots=7", "--", *BIG, "--tp", "2")
    cap = next(issue for issue in issues if issue["code"] == "QUEUE_LIMITED_BY_STATE_SLOTS")
    assert str(cap["arithmetic"]).startswith("7 state slots // 5 per request = 1")


def test_without_a_strategy_the_cap_is_that_of_the_only_one_that_starts() -> None:
    plain = (*SGLANG, "--model-path", "/w/m", *MTP, *CACHE)
    _, issues = run_lint("--engine-version", "0.5.11", "--fact", "hybrid=true", "--", *plain)
    by_code = {issue["code"]: issue for issue in issues}
    assert by_code["FLAG_SPEC_NEEDS_EXTRA_BUFFER"]["severity"] == "error"
    assert str(by_code["QUEUE_LIMITED_BY_STATE_SLOTS"]["arithmetic"]).startswith("48 state slots // 5 per request = 9")


def test_a_config_json_stands_in_for_the_model_on_a_host(tmp_path: Path) -> None:
    page = {
        "architectures": ["Qwen3NextForCausalLM"],
        "num_attention_heads": 40,
        "max_position_embeddings": 32768,
        "layer_types": ["linear_attention", "full_attention"],
    }
    (tmp_path / "config.json").write_text(json.dumps(page))
    code, issues = run_lint(
        "--engine-version", "0.5.11", "--model-config", str(tmp_path), "--fact", "gpu_count=3",
        "--", *SGLANG, "--model-path", "/w/m", "--tp", "3", "--context-length", "90000", *MTP,
    )  # fmt: skip
    assert code == 1
    assert {"TP_NOT_DIVISIBLE", "CTX_TOO_LONG", "FLAG_SPEC_NEEDS_EXTRA_BUFFER"} <= {issue["code"] for issue in issues}


@pytest.mark.parametrize("fact", ["gpus", "gpu_count=two", "colour=red", "hybrid=perhaps"])
def test_a_fact_that_is_none_is_refused_in_a_sentence(fact: str) -> None:
    with pytest.raises(UsageError, match="fact"):
        run_lint("--fact", fact, "--", *SGLANG)


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_model_config_that_cannot_be_read_is_refused_in_a_sentence(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=r"config\.json"):
        run_lint("--model-config", str(path), "--", *SGLANG)


def test_flags_alone_tell_their_engine() -> None:
    code, issues = run_lint("--", "--model-path", "/w/m", "--mem-fraction-static", "0.8", "--tp-sizes", "2")
    assert code == 1
    assert [issue["code"] for issue in issues] == ["FLAG_UNKNOWN"]


FAILED = (
    "[2026-04-01 08:00:01] server_args=ServerArgs(model_path='/w/m', tp_size=2)\n"
    "[2026-04-01 08:00:09 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/srv/py/lib/serve.py", line 41, in start\n'
    "    run(args)\n"
    "ValueError: Not enough host memory available. Requesting 70.00 GB but only have 72.50 GB free. Please reduce the "
    "size of the hierarchical cache.\n"
    "\n[2026-04-01 08:00:10] Received sigquit from a child process. It usually means the child failed.\n"
)


def test_a_failed_starts_log_names_its_cause_with_figures_and_line() -> None:
    code, said = run_parse(FAILED, "--verdict")
    assert code == 1
    assert "HOST_MEM_RESERVE" in said
    assert "free 72.50 GB - 10 GB reserve = 62.50 GB usable" in said
    assert "line 5: " in said


def test_the_same_as_json() -> None:
    code, said = run_parse(FAILED, "--verdict", "--json")
    page = json.loads(said)
    assert code == 1
    assert (page["engine"], page["failed"], page["verdicts"][0]["code"]) == ("sglang", True, "HOST_MEM_RESERVE")
    assert page["verdicts"][0]["lines"][0] == 5


def test_lines_are_counted_as_an_editor_counts_them_though_bars_overwrite_each_other() -> None:
    bars = "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.00s/it]\r" * 40
    _, said = run_parse(bars + "\n" + FAILED, "--verdict", "--json")
    assert json.loads(said)["verdicts"][0]["lines"][0] == 6


def test_the_command_line_sharpens_the_verdict() -> None:
    log = (
        "[2026-04-01 08:00:09 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 640.00 MiB. GPU 0 has a total capacity of 79.11 "
        "GiB of which 511.50 MiB is free.\n"
    )
    command = "python -m sglang.launch_server --model-path /w/m --enable-hierarchical-cache --mem-fraction-static 0.94"
    _, without = run_parse(log, "--verdict", "--json")
    _, with_it = run_parse(log, "--verdict", "--json", "--command", command)
    assert json.loads(without)["verdicts"][0]["code"] == "OOM_GPU"
    assert json.loads(with_it)["verdicts"][0]["code"] == "OOM_HICACHE_HEADROOM"


def test_an_exit_status_is_evidence() -> None:
    code, said = run_parse(
        "[2026-04-01 08:00:09 TP0] Load weight begin. avail mem=90.10 GB\n", "--verdict", "--exit-code", "137"
    )
    assert code == 1
    assert "HOST_OOM_KILLED" in said


def test_a_start_under_way_is_no_failure_and_says_how_long_it_takes() -> None:
    bar = "Loading safetensors checkpoint shards:  10% Completed | 3/30 [01:00<09:00, 20.00s/it]"
    code, said = run_parse("[2026-04-01 08:00:09 TP0] Load weight begin. avail mem=90.10 GB\n" + bar, "--verdict")
    assert code == 0
    assert "no failure" in said
    assert "3/30 shards, about 9 min 0 s left" in said


def test_silence_while_ranks_join_points_at_the_network() -> None:
    log = (
        "[2026-04-01 08:00:09 TP0] Init torch distributed begin.\n"
        "n1:9:9 [0] NCCL INFO Bootstrap: Using ib7:10.9.0.4<0>\n"
    )
    code, said = run_parse(log, "--verdict", "--silent-s", "400")
    assert code == 0
    assert "STUCK_NCCL_INIT" in said
    assert "ib7" in said
    assert "NCCL_SOCKET_IFNAME" in said


def test_host_cache_pools_of_all_ranks_are_summed() -> None:
    log = "".join(
        f"[2026-04-01 08:00:0{rank} TP{rank}] Allocating {size} GB host memory for hierarchical {pool} cache.\n"
        for rank in range(2)
        for pool, size in (("KV", "30.00"), ("Mamba", "30.25"))
    )
    _, said = run_parse(log, "--verdict")
    assert "HICACHE_DOUBLED_ON_HYBRID" in said
    assert "= 120.50 GB" in said


def test_a_log_that_is_not_there_is_refused_in_a_sentence() -> None:
    assert guarded(lambda: parse_log.main(["/no/such.log"], standalone_mode=False)) == 2
