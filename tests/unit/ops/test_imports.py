"""Results that other tools wrote themselves, read back."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tokpit.cli.context import Options
from tokpit.cli.main import tokpit
from tokpit.domain.run import Run
from tokpit.errors import UsageError
from tokpit.ops.records.imports import Given, joined, known
from tokpit.ops.records.report import document_of, judged
from tokpit.ops.records.run_files import read_runs
from tokpit.report import FORMATS

DATA = Path(__file__).parents[2] / "data" / "bench_results"
FILES = {
    "vllm bench serve": ("vllm-0.32.0-c1.json", "vllm-0.32.0-c4.json"),
    "sglang.bench_serving": ("sglang-0.5.23.jsonl",),
    "AIPerf": ("aiperf-0.13.0-c1.json", "aiperf-0.13.0-c4.json"),
    "GuideLLM": ("guidellm-0.8.1.json",),
}


def cli(*words: object) -> Result:
    return CliRunner().invoke(tokpit, list(map(str, words)), obj=Options(), standalone_mode=False)


def read(*names: str) -> Run:
    runs = joined([known(run, Given()) for name in names for run in read_runs(str(DATA / name))])
    assert len(runs) == 1
    return runs[0]


@pytest.mark.parametrize("tool", FILES)
def test_every_tool_gives_the_levels_that_the_server_served(tool: str) -> None:
    run = read(*FILES[tool])
    assert run.context["source"] == tool
    assert [level.concurrency for level in run.levels] == [1, 4]
    for level in run.levels:
        assert level.err == 0
        assert level.ok >= 6
        assert level.avg_output == 16
        # 30 ms to the first token and 15 gaps of 4 ms, one stream: 16 / 0.09 = 178 tok/s and less.
        assert 0.030 <= level.result["ttft_s"]["p50"] < 0.060
        assert 0.090 <= level.result["e2e_s"]["p50"] < 0.140
        assert 100 < level.output_tps / level.concurrency < 178
        if "tpot_s" in level.result:
            assert 0.004 <= level.result["tpot_s"]["p50"] < 0.006
    assert (tool == "AIPerf") == ("tpot_s" not in run.levels[0].result)


def test_tokens_are_those_of_the_server_where_the_tool_counted_its_own() -> None:
    level = read(*FILES["AIPerf"]).levels[1]
    assert level.result["output_tokens"] == 384
    check = level.result["checks"][0]
    assert (check["code"], check["value"], check["expected"]) == ("TOKEN_COUNT", 768, 384)


def test_detailed_results_keep_each_request() -> None:
    rows = read(*FILES["vllm bench serve"]).levels[1].result["rows"]
    assert len(rows) == 24
    sent, ttft, e2e, tokens, outcome = rows[0]
    assert (sent, tokens, outcome) == (0.0, 16, "ok")
    assert 0.03 < ttft < e2e < 0.2
    assert len(read(*FILES["GuideLLM"]).levels[0].result["rows"]) == 12


def test_a_percentile_that_the_file_lacks_is_not_made_up() -> None:
    spread = read(*FILES["vllm bench serve"]).levels[1].result["ttft_s"]
    assert "p95" in spread["thin"]
    assert spread["p95"] == spread["p90"]


def test_a_failed_request_is_counted_and_an_open_loop_is_named_by_its_rate(tmp_path: Path) -> None:
    page = json.loads((DATA / "vllm-0.32.0-c4.json").read_text())
    page |= {"max_concurrency": None, "request_rate": 2.5, "failed": 3, "completed": 21}
    page["errors"] = ["refused"] * 3 + [""] * 21
    (tmp_path / "r.json").write_text(json.dumps(page))
    (level,) = read_runs(str(tmp_path / "r.json"))[0].levels
    assert (level.ok, level.err, level.result["rate"], level.result["label"]) == (21, 3, 2.5, "2.5 req/s")
    assert len(level.result["rows"]) == 21


VLLM = {
    "model_id": "m", "num_prompts": 64, "request_rate": "inf", "max_concurrency": 8, "duration": 100.0,
    "completed": 64, "failed": 0, "total_input_tokens": 6400, "total_output_tokens": 41475,
    "output_throughput": 414.75, "mean_ttft_ms": 200, "median_ttft_ms": 190, "p99_ttft_ms": 400,
    "mean_itl_ms": 18.7, "median_itl_ms": 18.7, "mean_e2el_ms": 12300, "median_e2el_ms": 12300,
    "max_output_tokens_per_s": 470.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"max_output_tokens_per_s": 111.0, "spec_decode_acceptance_length": 4.1}, "CHUNKS_NOT_TOKENS", "455 tok/s"),
        ({"max_output_tokens_per_s": 300.0}, "CHUNKS_NOT_TOKENS", "impossible"),
        ({"mean_itl_ms": 78, "median_itl_ms": 78}, "ITL_IS_PER_CHUNK", "per token"),
        ({"mean_itl_ms": 40, "median_itl_ms": 40}, "ITL_IS_PER_CHUNK", "tokens per gap"),
        (
            {"failed": 16, "completed": 48, "total_output_tokens": 31106, "output_throughput": 311.06},
            "REJECTED",
            "16 of 64",
        ),
        ({"total_output_tokens": 0, "output_throughput": 0.0}, "ZERO_TOKENS_SUSPECT", "not 0 tok/s"),
    ],
)
def test_a_result_whose_figures_contradict_one_another_is_marked(
    tmp_path: Path, changes: dict[str, object], code: str, said: str
) -> None:
    (tmp_path / "r.json").write_text(json.dumps(VLLM | changes))
    (level,) = read_runs(str(tmp_path / "r.json"))[0].levels
    failed = {check["code"]: check["sentence"] for check in level.result["checks"] if check["ok"] is False}
    assert said in failed[code]
    assert len(failed) == 1


def test_a_sound_result_has_no_failed_check(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(VLLM))
    runs = [run for words in FILES.values() for run in [read(*words)]]
    for level in [*read_runs(str(tmp_path / "r.json"))[0].levels, *(level for run in runs for level in run.levels)]:
        failed = [check["code"] for check in level.result.get("checks", ()) if check["ok"] is False]
        assert failed in ([], ["TOKEN_COUNT"])  # the reader's own, of a file whose tool counted otherwise


def test_one_token_for_a_thousand_asked_is_told_of_a_foreign_result(tmp_path: Path) -> None:
    page = json.loads((DATA / "sglang-0.5.23.jsonl").read_text().splitlines()[0])
    page |= {"random_output_len": 1024, "total_output_tokens": page["completed"]}
    (tmp_path / "r.jsonl").write_text(json.dumps(page))
    (level,) = read_runs(str(tmp_path / "r.jsonl"))[0].levels
    failed = [check["code"] for check in level.result["checks"] if check["ok"] is False]
    assert "LENGTH_MISMATCH" in failed


def test_results_of_other_tools_are_diagnosed_as_a_sweep_is() -> None:
    found = cli("diagnose", "--sweep", DATA / "guidellm-0.8.1.json", "--json")
    assert [level["concurrency"] for level in json.loads(found.stdout)["sweep"]["levels"]] == [1, 4]


def test_imported_runs_are_stored_compared_and_shown(tmp_path: Path) -> None:
    where = ("--history", tmp_path / "h.sqlite")
    words = ("--host", "gpu1", "--engine", "vllm", "--version", "0.32.0", "--set", "spec_steps=3")
    done = cli(*where, "import", *(DATA / name for name in FILES["vllm bench serve"]), *words, "--json")
    (run,) = json.loads(done.stdout)
    assert (run["kind"], run["host"], run["engine"]) == ("import", "gpu1", "vllm")
    assert run["context"]["settings"] == {"spec_steps": "3"}
    assert "C=4" in cli(*where, "runs", run["id"]).stdout
    other = cli(*where, "compare", run["id"], DATA / "guidellm-0.8.1.json")
    assert other.return_value in (0, 1)
    assert "another benchmark tool" in other.stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "no result of a benchmark"),
        ('{"a": 1', "no JSON from character"),
        ('{"model_id":"m","num_prompts":4,"completed":4,"request_rate":"inf"}', "duration is missing"),
        ("hello,world\n1,2\n", "no table of a sweep"),
        ("", "no table of a sweep"),
    ],
)
def test_a_file_that_is_none_is_told_and_nothing_is_stored(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "x.json").write_text(text)
    done = cli("--history", tmp_path / "h.sqlite", "import", DATA / "guidellm-0.8.1.json", tmp_path / "x.json")
    assert isinstance(done.exception, UsageError)
    assert told in done.exception.message
    assert json.loads(cli("--history", tmp_path / "h.sqlite", "runs", "--json").stdout) == []


def spoiled(page: object, rng: random.Random) -> None:
    """Replace one value somewhere in a document by something that it should not be."""
    odd = (None, "x", [], {}, -1, 0, float("nan"), 1e308, True, [[]])
    keys = list(page) if isinstance(page, dict) else list(range(len(page))) if isinstance(page, list) else []
    if not keys:
        return
    key = rng.choice(keys)
    inner = page[key]  # type: ignore[index]
    if isinstance(inner, (dict, list)) and inner and rng.random() < 0.6:
        spoiled(inner, rng)
    else:
        page[key] = rng.choice(odd)  # type: ignore[index]


@pytest.mark.parametrize("name", [name for names in FILES.values() for name in names])
def test_a_spoiled_result_is_read_or_told_never_a_crash(tmp_path: Path, name: str) -> None:
    rng = random.Random(7)
    whole = (DATA / name).read_text()
    text = whole.splitlines()[0] if name.endswith(".jsonl") else whole
    for _ in range(40):
        page = json.loads(text)
        for _ in range(rng.randrange(1, 4)):
            spoiled(page, rng)
        (tmp_path / "x.json").write_text(json.dumps(page))
        try:
            runs = read_runs(str(tmp_path / "x.json"))
        except UsageError:
            continue
        for run in runs:
            assert FORMATS["md"](document_of(judged(run)))
