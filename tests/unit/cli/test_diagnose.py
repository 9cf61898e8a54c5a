from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tokpit as tokpit_package
from insight_logs import decode
from tokpit.cli.context import Options
from tokpit.cli.main import tokpit
from tokpit.errors import UsageError
from tokpit.insight.digest import KEPT_ROWS
from tokpit.ops.diagnose.files import digest_lines

_SWEEP = """concurrency,requests,ok,err,elapsed_s,output_tps
1,8,8,0,133.8,61.2
4,8,8,0,39.5,207.2
8,16,16,0,44.3,369.7
16,32,32,0,85.2,384.5
32,64,64,0,166.9,392.7
48,96,96,0,240.3,409.0
"""


def run(*words: object, stdin: str = "") -> Result:
    return CliRunner().invoke(tokpit, ["diagnose", *map(str, words)], obj=Options(), input=stdin, standalone_mode=False)


def parsed(result: Result) -> dict:
    assert result.exception is None, result.exception
    return json.loads(result.stdout)


def test_sweep_table_alone_gives_the_cap_as_json(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(_SWEEP)
    found = parsed(run("--sweep", tmp_path / "s.csv", "--fact", "max_running_requests=9", "--json"))
    first = found["findings"][0]
    assert first["code"] == "QUEUE_LIMITED_BY_CAP"
    assert {"severity", "claim", "arithmetic", "evidence", "next_action"} <= first.keys()
    assert found["sweep"]["advised"]["concurrency"] == 8
    assert [level["queue_limited"] for level in found["sweep"]["levels"]] == [False, False, False, True, True, True]


def test_log_alone_needs_no_host(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("\n".join(decode(i, 2, 33, spec=(1.0, 0.0)) for i in range(5)))
    assert [f["code"] for f in parsed(run("--log", tmp_path / "a.log", "--json"))["findings"]] == ["DRAFT_DEAD"]


def test_log_on_stdin(tmp_path: Path) -> None:
    text = "\n".join(decode(i, 2, 33, spec=(1.0, 0.0)) for i in range(5))
    assert "DRAFT_DEAD" in run("--log", "-", stdin=text).stdout


def test_nothing_wrong_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("\n".join(decode(i, 2, 120) for i in range(5)))
    assert "no finding" in run("--log", tmp_path / "a.log").stdout


def test_failed_start_is_judged_by_its_engine(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        "usage: launch_server.py [-h] --model-path MODEL_PATH\n"
        "launch_server.py: error: unrecognized arguments: --mamba-scheduler-strategy extra_buffer\n"
    )
    assert parsed(run("--log", tmp_path / "a.log", "--engine", "sglang", "--json"))["findings"][0]["code"].startswith(
        "FLAG_"
    )


def test_unknown_fact_is_noted_with_the_nearest_and_ignored() -> None:
    result = run("--fact", "max_runing=9", "--fact", "orphans=1")
    assert "did you mean max_running" in result.stderr
    assert "ORPHAN_ENGINE" in result.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "nothing to diagnose"),
        (("--fact", "nine"), "KEY=VALUE"),
        (("--fact", "accept_len=long"), "is a number"),
        (("--log", "/nonexistent/x.log"), "No such file"),
    ],
)
def test_bad_input_is_a_sentence(words: tuple[str, ...], text: str) -> None:
    result = run(*words)
    assert isinstance(result.exception, UsageError)
    assert text in str(result.exception)


def test_table_that_is_none_names_its_columns(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("a,b\n1,2\n")
    result = run("--sweep", tmp_path / "s.csv")
    assert isinstance(result.exception, UsageError)
    assert "concurrency,requests,ok,err,elapsed_s,output_tps" in result.exception.hint


def test_cell_that_is_no_number_names_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(_SWEEP.replace("39.5", "soon"))
    result = run("--sweep", tmp_path / "s.csv")
    assert isinstance(result.exception, UsageError)
    assert "line 3: elapsed_s" in str(result.exception)


def test_gpu_texts_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "smi").write_text(
        "index, clocks.sm [MHz], clocks.max.sm [MHz], temperature.gpu, power.draw [W], power.limit [W], "
        "clocks_event_reasons.active\n0, 600 MHz, 2100 MHz, 92, 70.00 W, 140.00 W, 0x0000000000000040\n"
    )
    (tmp_path / "list").write_text(
        "GPU 0: NVIDIA GeForce RTX 5090 (UUID: GPU-a)\nGPU 1: NVIDIA RTX A6000 (UUID: GPU-b)\n"
    )
    words = ("--gpu", tmp_path / "smi", "--gpu", tmp_path / "list", "--fact", "CUDA_VISIBLE_DEVICES=0", "--json")
    assert [f["code"] for f in parsed(run(*words))["findings"]] == ["GPU_THROTTLED", "GPU_ORDER"]


def test_two_metrics_pages_give_differences(tmp_path: Path) -> None:
    page = (
        '# TYPE vllm:prefix_cache_queries_total counter\nvllm:prefix_cache_queries_total{engine="0"} %d\n'
        '# TYPE vllm:prefix_cache_hits_total counter\nvllm:prefix_cache_hits_total{engine="0"} %d\n'
    )
    (tmp_path / "a").write_text(page % (1000, 900))
    (tmp_path / "b").write_text(page % (9000, 900))
    words = ("--metrics", tmp_path / "a", "--metrics", tmp_path / "b", "--fact", "enable-prefix-caching=true", "--json")
    assert "8,000" in parsed(run(*words))["findings"][0]["claim"]


def test_runs_to_compare_come_from_json_or_csv(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps([{"tp": 1, "tok_s": 80}, {"tp": 2, "tok_s": 70}]))
    (tmp_path / "r.csv").write_text("tp,tok_s\n1,80\n2,70\n")
    for name in ("r.json", "r.csv"):
        found = parsed(run("--compare", tmp_path / name, "--json"))["findings"]
        assert [f["code"] for f in found] == ["TP_NEGATIVE_SCALING"]


def test_own_table_of_gpus_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKPIT_CONFIG_DIR", str(tmp_path))
    (tmp_path / "gpus.toml").write_text('[bandwidth]\n"RTX 4090" = 500\n')
    words = ("--fact", "gpu=NVIDIA GeForce RTX 4090", "--fact", "weights_gb=10", "--fact", "single_tps=40")
    assert "50 steps/s" in run(*words).stdout
    (tmp_path / "gpus.toml").write_text('[bandwidth]\n"RTX 4090" = "fast"\n')
    assert "above 0" in str(run(*words).exception)


def test_a_terminal_sees_how_far_a_long_log_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "server.log"
    os.mkfifo(pipe)
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "tokpit", "diagnose", "--log", str(pipe)]
    source = str(Path(tokpit_package.__file__).parents[1])
    seen = b""
    block = "".join(decode(i, 2, 120) + "\n" for i in range(200)).encode()
    env = {**os.environ, "PYTHONPATH": source}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=theirs, env=env) as child:
        os.close(theirs)
        with pipe.open("wb", buffering=0) as out:
            os.set_blocking(ours, False)
            while b"reading server.log" not in seen:
                out.write(block)
                try:
                    seen += os.read(ours, 4096)
                except BlockingIOError:
                    pass
        assert child.stdout is not None
        told = child.stdout.read().decode()
    os.close(ours)
    assert child.returncode == 0
    assert "MB/s" in seen.decode()
    assert "no finding" in told


def test_a_log_is_read_as_a_stream_and_only_the_newest_rows_are_kept() -> None:
    made = 0

    def lines() -> Iterator[str]:
        nonlocal made
        for made in range(1, 25_001):
            yield decode(made, 2, 100 + made % 7)

    found, verdict = digest_lines(lines(), name="long.log")
    assert verdict is None
    assert made == found.lines == 25_000
    assert len(found.rows) == KEPT_ROWS
    assert found.rows[-1].line == 25_000


def test_an_unknown_fact_is_told_with_the_names_that_are_like_it() -> None:
    wrong = run("--fact", "slotz=48")
    assert isinstance(wrong.exception, UsageError)
    assert "no rule knows the fact 'slotz'; did you mean state_slots?" in wrong.exception.message
    beside = run("--fact", "state_slots=48", "--fact", "acept_len=3")
    assert beside.exception is None
    assert "note: no rule knows the fact 'acept_len'; did you mean accept_len" in beside.stderr


def test_facts_are_listed_with_their_units_and_other_names() -> None:
    listed = run("--facts")
    rows = {line.split()[0]: line for line in listed.stdout.splitlines()}
    assert "also max_running, running_cap, cap, max_num_seqs" in rows["max_running_requests"]
    assert "number, tok/s" in rows["baseline_tps"]
    assert len(rows) > 100


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--log", "hello\nworld\n", "no line of a known engine in 2 lines"),
        ("--log", "", "it is empty"),
        ("--gpu", "hello\n", "no output of a GPU tool that is known"),
        ("--compare", "name,host\na,b\n", "no run with a figure in it"),
    ],
)
def test_a_file_that_says_nothing_is_not_taken_for_good_news(tmp_path: Path, option: str, text: str, said: str) -> None:
    (tmp_path / "file").write_text(text)
    found = run(option, tmp_path / "file")
    assert said in found.stderr
    assert "nothing in the figures that could be used is off" in found.stdout


def test_a_table_with_no_level_says_so(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(_SWEEP.splitlines()[0] + "\n")
    found = run("--sweep", tmp_path / "s.csv")
    assert isinstance(found.exception, UsageError)
    assert "a table without a level" in found.exception.message
