"""What Slurm's commands print, as recorded from 22.05; the live queue is in the real tier."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpit.collect.jobs import server_of
from tokpit.domain.job import BatchJob, BatchRequest
from tokpit.engines.registry import engine
from tokpit.errors import UsageError
from tokpit.ops.lifecycle.batch import batch_script
from tokpit.ops.lifecycle.slurm import ended, waits
from tokpit.ops.sweep.place import read_slurm
from tokpit.probes.slurm import expand, parse, request_of, seconds

DOWN = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
PAGE = f"""\
@tokpit:here login1.lab
@tokpit:list
2|PENDING|broken|ada|||n/a|1:00:00|1:00:00|N/A|1796023243|{DOWN}|a|b
1|RUNNING|gpu|ada|n[07-09]|n08|1-02:03:04|2-00:00:00|1796023245|1796023243|None|serve
@tokpit:job 2
@tokpit:script 2

@tokpit:job 1
JobId=1 JobName=serve UserId=ada(7) Comment=for the demo NodeList=n[07-09] StdOut=/data/my logs/1.log Power=
@tokpit:script 1
#!/bin/bash
#SBATCH --job-name=serve
export CUDA_VISIBLE_DEVICES=0,1
srun vllm serve /models/Qwen --port 8123 --tensor-parallel-size 2 --max-num-seqs 64

@tokpit:nodes
NodeName=n08 Arch=x86_64 NodeAddr=10.0.0.8 NodeHostName=n08 OS=Linux 6.1 #1 SMP State=ALLOCATED
@tokpit:end
"""


def test_jobs_with_their_node_their_log_and_what_is_left_of_their_time() -> None:
    waiting, running = parse(PAGE.replace("|||n/a|", "||n/a|"))
    assert (waiting.job.state, waiting.job.name, waiting.job.reason) == ("PENDING", "a|b", DOWN)
    assert waiting.job.nodes == ()
    job = running.job
    assert job.nodes == ("n08", "n07", "n09")
    assert (job.address, job.log_path, job.reason) == ("10.0.0.8", "/data/my logs/1.log", "")
    assert (job.time_left_s, job.limit_s, job.start_at) == (93_784.0, 172_800.0, 1796023245.0)
    assert not running.here


def test_a_server_is_found_in_anybodys_script() -> None:
    info = server_of("login1", parse(PAGE)[-1])
    assert info is not None
    assert (info.engine, info.model, info.port, info.settings.tp) == ("vllm", "/models/Qwen", 8123, 2)
    assert info.url == "http://10.0.0.8:8123"
    assert (info.label, info.id, info.pid) == ("login1:8123", "login1/0@1", 0)
    assert not info.launched_by_tokpit


def test_a_job_that_the_queue_has_forgotten_is_over() -> None:
    text = "@tokpit:here x\n@tokpit:list\n\n@tokpit:past 7|TIMEOUT|0:0\n@tokpit:job 7\n@tokpit:nodes\n@tokpit:end\n"
    (one,) = parse(text)
    assert (one.job.id, one.job.state, one.job.alive) == ("7", "TIMEOUT", False)
    (gone,) = parse(text.replace("TIMEOUT|0:0", ""))
    assert ended(gone.job) == "the queue knows nothing of it any more"


def test_an_answer_that_is_cut_is_no_answer() -> None:
    assert parse("") == ()
    with pytest.raises(ValueError, match="cut"):
        parse(PAGE[:400])


@given(st.text(max_size=300))
def test_any_text_is_read_without_a_fall(text: str) -> None:
    parse(f"@tokpit:list\n{text}\n@tokpit:end")


def test_node_lists_and_times() -> None:
    assert expand("gpu[001-003,7],login") == ("gpu001", "gpu002", "gpu003", "gpu7", "login")
    assert expand("(null)") == ()
    assert [seconds(word) for word in ("59:59", "1:00:00", "2-00:00:01", "UNLIMITED", "INVALID")] == [
        3599.0, 3600.0, 172_801.0, None, None,
    ]  # fmt: skip


def test_why_a_job_waits_and_until_when() -> None:
    job = BatchJob(id="9", state="PENDING", reason="Priority", start_at=1000.0 + 5400)
    assert waits(job, 1000.0) == (
        "job 9 is PENDING: Priority (jobs of higher priority are before it); expected to start in 1.5 h"
    )


def test_a_script_asks_for_what_was_asked_and_takes_only_options() -> None:
    request = BatchRequest(partition="gpu", gpus="h100:4", time_limit="02:00:00", args=("--qos=high",))
    text = batch_script(request, ("vllm", "serve", "my model"), name="x", log_path="/l/a.log")
    assert "#SBATCH --gpus-per-node=h100:4\n" in text
    assert "#SBATCH --qos=high\n" in text
    assert text.endswith("exec vllm serve 'my model'\n")
    assert "account" not in text
    for bad in ("qos=high", "--qos=a\nrm -rf /", "; ls"):
        with pytest.raises(UsageError):
            batch_script(BatchRequest(args=(bad,)), ("vllm",), name="x", log_path="/l")


def test_what_a_script_asked_for_is_read_back() -> None:
    for request in (
        BatchRequest(),
        BatchRequest(partition="gpu", nodes=2, gpus="h100:4", time_limit="02:00:00", account="x", args=("--qos=high",)),
        BatchRequest(partition="gpu", args=("--requeue", "--time=1:00", "--output=/else/where")),
    ):
        ranks = [("--a", "0"), ("--a", "$SLURM_NODEID")] if request.nodes > 1 else []
        text = batch_script(request, ("vllm", "serve", "m"), name="x", log_path="/l/a.log", ranks=ranks)
        again = batch_script(request_of(text), ("vllm", "serve", "m"), name="x", log_path="/l/a.log", ranks=ranks)
        assert sorted(again.splitlines()) == sorted(text.splitlines())
    assert request_of(text.replace("a.log", "b.log")) != BatchRequest()


def test_ranks_in_each_engines_own_way() -> None:
    sglang = engine("sglang").rank_flags("0.5.11", nodes=2, rank="1", head="10.0.0.1", port=29600)
    assert sglang == ("--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "10.0.0.1:29600")
    first, second = (
        engine("vllm").rank_flags("0.32.0", nodes=2, rank=rank, head="10.0.0.1", port=29600) for rank in ("0", "1")
    )
    assert first == ("--nnodes", "2", "--node-rank", "0", "--master-addr", "10.0.0.1", "--master-port", "29600")
    assert second == (*first[:3], "1", *first[4:], "--headless")
    with pytest.raises(UsageError, match="Ray"):
        engine("vllm").rank_flags("0.10.0", nodes=2, rank="0", head="h", port=1)
    with pytest.raises(UsageError):
        engine("llamacpp").rank_flags(None, nodes=2, rank="0", head="h", port=1)
    for name, version, flags in (("sglang", "0.5.23", sglang), ("vllm", "0.32.0", second)):
        assert not engine(name).check_flags(flags, version)
    for flags, headless in ((first, False), (second, True)):
        found = engine("vllm").recognise(("/opt/v/bin/python", "/opt/v/bin/vllm", "serve", "m", *flags))
        assert found is not None
        assert found.headless is headless


def test_nodes_of_a_partition_as_the_place_of_the_load() -> None:
    assert read_slurm("gpu1") is None
    asked = read_slurm("slurm:login/cpu:4")
    assert asked is not None
    assert (asked.login, asked.partition, asked.count) == ("login", "cpu", 4)
    for bad in ("slurm:cpu", "slurm:cpu:0", "slurm:cpu:99", "slurm::2"):
        with pytest.raises(UsageError):
            read_slurm(bad)
