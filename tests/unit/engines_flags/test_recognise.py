"""Servers are found however they were started, and nothing else is taken for one."""

from __future__ import annotations

import shlex

import pytest

from tokpit.engines import registry

SERVERS = [
    ("python -m sglang.launch_server --model-path /m/a --port 31000", "sglang", 3, "python"),
    ("/opt/e/bin/python3.12 -u -X dev -m sglang.launch_server --model-path /m/a", "sglang", 6, "/opt/e/bin/python3.12"),
    ("sglang serve /m/a", "sglang", 2, None),
    ("/opt/e/bin/sglang serve --model-path /m/a", "sglang", 2, "/opt/e/bin/python"),
    ("/opt/e/bin/python /opt/e/bin/sglang serve --model-path /m/a", "sglang", 3, "/opt/e/bin/python"),
    ("python3 /src/python/sglang/launch_server.py --model-path /m/a", "sglang", 2, "python3"),
    ("python3 -m vllm.entrypoints.openai.api_server --model /m/a", "vllm", 3, "python3"),
    ("/opt/e/bin/python /opt/e/bin/vllm serve /m/a --tp 2", "vllm", 3, "/opt/e/bin/python"),
    ("vllm serve /m/a", "vllm", 2, None),
    ("vllm serve --config serve.yaml", "vllm", 2, None),
    ("/usr/lib/vllm-rs serve /m/a", "vllm", 2, None),
    ("env -u HTTP_PROXY CUDA_VISIBLE_DEVICES=0,1 nice -n 5 vllm serve /m/a", "vllm", 9, None),
    (
        "numactl --cpunodebind=0 -m 0 -l /e/bin/python -m sglang.launch_server --model-path /m/a",
        "sglang",
        8,
        "/e/bin/python",
    ),
    ("nohup taskset -c 0-15 python -m sglang.launch_server --model-path /m/a", "sglang", 7, "python"),
    ("stdbuf -oL setsid llama-server -m a.gguf", "llamacpp", 4, None),
    ("/opt/llama.cpp/build/bin/llama-server -m a.gguf -c 8192", "llamacpp", 1, None),
]


@pytest.mark.parametrize(("line", "engine", "words", "python"), SERVERS)
def test_a_server_is_recognised_however_it_was_started(line: str, engine: str, words: int, python: str | None) -> None:
    argv = shlex.split(line)
    found = registry.recognise(argv)
    assert found is not None
    assert (found.engine, found.program, found.python) == (engine, tuple(argv[:words]), python)


@pytest.mark.parametrize(
    "line",
    [
        "grep vllm serve",
        "sh -c 'vllm serve /m/a'",
        "bash /root/vllm serve",
        "tail -f vllm.log",
        "vim /opt/e/bin/vllm",
        "python -c 'import sglang.launch_server'",
        "python3 -B -c 'from multiprocessing.spawn import spawn_main' --multiprocessing-fork",
        "sudo vllm serve /m/a",
        "timeout 60 vllm serve /m/a",
        "docker run vllm/vllm-openai --model /m/a",
        "ssh host vllm serve /m/a",
        "vllm bench serve --model /m/a",
        "vllm run-batch -i a -o b",
        "vllm-rs frontend --listen-fd 5",
        "sglang version",
        "sglang generate --model-path a",
        "python -m sglang.bench_serving --backend sglang",
        "python",
        "env A=1",
        "python -m",
        "VLLM::EngineCore",
        "sglang::scheduler_TP0",
        "less /var/log/llama-server",
        "",
    ],
)
def test_other_processes_are_no_servers(line: str) -> None:
    assert registry.recognise(shlex.split(line)) is None


@pytest.mark.parametrize(
    ("title", "engine", "role"),
    [
        ("VLLM::EngineCore", "vllm", "engine-core"),
        ("VLLM::EngineCore_DP1", "vllm", "engine-core"),
        ("VLLM::Worker_TP0_EP0", "vllm", "worker"),
        ("VLLM::DPCoordinator", "vllm", "dp-coordinator"),
        ("VLLM::APIServer_2", "vllm", "api-server"),
        ("TEAM-A::Worker_TP1", "vllm", "worker"),
        ("sglang::scheduler_TP0", "sglang", "scheduler"),
        ("sglang::scheduler", "sglang", "scheduler"),
        ("sglang::detokenizer", "sglang", "detokenizer"),
        ("sglang::data_parallel_controller", "sglang", "data-parallel-controller"),
        ("sglang::tokenizer_worker:4711", "sglang", "tokenizer-worker"),
    ],
)
def test_workers_are_told_by_their_titles_to_one_engine_only(title: str, engine: str, role: str) -> None:
    roles = {name: registry.engine(name).recognise_worker((title,)) for name in registry.names()}
    assert {name: found for name, found in roles.items() if found} == {engine: role}


def test_the_rust_front_end_is_a_worker() -> None:
    assert registry.engine("vllm").recognise_worker(("/x/vllm/vllm-rs", "frontend", "--listen-fd", "7")) == "frontend"


def test_settings_are_as_given_and_the_port_in_use_without_one_is_a_fact_of_the_engine() -> None:
    found = registry.recognise(("vllm", "serve", "/m/a"))
    assert found is not None
    assert found.settings.port is None
    assert {name: registry.engine(name).http.default_port for name in registry.names()} == {
        "sglang": 30000,
        "vllm": 8000,
        "llamacpp": 8080,
    }


def test_a_default_program_is_recognised_with_its_interpreter() -> None:
    for name in registry.names():
        engine = registry.engine(name)
        found = engine.recognise(engine.default_program("/opt/e/", None))
        assert found is not None
        assert found.python == (None if name == "llamacpp" else "/opt/e/bin/python")
