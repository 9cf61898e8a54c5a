"""The cause is named whatever collects the log puts in front of its lines, and whoever else writes into it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from failurelogs import HIT, SIGQUIT, TRACEBACK, by_grammar, core_error
from tokpit.engines.logkit.read import detect
from tokpit.engines.registry import engine

FAILURES = {
    "sglang-host-memory": (
        "sglang",
        "[2026-04-01 08:00:01] server_args=ServerArgs(model_path='/w/m', tp_size=2)\n"
        + HIT
        + "ValueError: Not enough host memory available. Requesting 70.00 GB but only have 72.50 GB free."
        + SIGQUIT,
        "HOST_MEM_RESERVE",
    ),
    "sglang-flag": (
        "sglang",
        "usage: launch_server.py [-h] --model-path PATH\nlaunch_server.py: error: unrecognized arguments: --tpp 2",
        "FLAG_UNRECOGNIZED",
    ),
    "vllm-cache": (
        "vllm",
        core_error(
            "EngineCore failed to start.\n" + TRACEBACK + "ValueError: No available memory for the cache blocks."
        ),
        "NO_KV_MEMORY",
    ),
    "llamacpp-file": (
        "llamacpp",
        "0.00.210.000 E gguf_init_from_file: failed to open GGUF file '/w/none.gguf' (No such file or directory)\n"
        "0.00.330.000 E main: exiting due to model loading error",
        "MODEL_PATH_MISSING",
    ),
}


def _each(front: Callable[[int], str]) -> Callable[[str], str]:
    return lambda log: "\n".join(front(i) + line for i, line in enumerate(log.split("\n")))


WRAPPED: dict[str, Callable[[str], str]] = {
    "docker compose": _each(lambda i: "llm-2  | "),
    "docker --timestamps": _each(lambda i: f"2026-04-01T08:00:02.{i:09d}Z "),
    "container runtime": _each(lambda i: f"2026-04-01T08:00:02.{i:09d}+00:00 stderr F "),
    "kubectl --prefix": _each(lambda i: "[pod/llm-7c9/server] "),
    "journal": _each(lambda i: "Apr 01 08:00:02 node-3 serve.sh[917]: "),
    "journal with the zone": _each(lambda i: "2026-04-01T08:00:02+0200 node-3 serve.sh[917]: "),
    "journal, precise": _each(lambda i: f"Apr 01 08:00:02.{i:06d} node-3 serve.sh[917]: "),
    "journal, unix time": _each(lambda i: f"1775030402.{i:06d} node-3 serve.sh[917]: "),
    "journal, full time": _each(lambda i: "Wed 2026-04-01 08:00:02 UTC node-3 serve.sh[917]: "),
    "syslog by RFC 5424": _each(lambda i: "<30>1 2026-04-01T08:00:02.5Z node-3 serve 917 - - "),
    "docker service": _each(lambda i: "llm.1.x7c9@node-3    | "),
    "log shipper": _each(lambda i: "2026-04-01 08:00:02.512\t"),
    "docker's json-file": lambda log: "\n".join(
        json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-04-01T08:00:02Z"}) for line in log.split("\n")
    ),
    "journalctl -o json": lambda log: "\n".join(
        json.dumps({"PRIORITY": "6", "MESSAGE": line, "_PID": "917"}) for line in log.split("\n")
    ),
    "srun --label": _each(lambda i: "3: "),
    "colour": lambda log: "\n".join(f"\x1b[33m{line}\x1b[0m" for line in log.split("\n")),
    "begins in the middle": lambda log: "st of a line that was cut\n" + log,
    "another rank in between": lambda log: log.replace("\n", "\n[2026-04-01 08:00:08 TP5] still here\n", 1),
}


@pytest.mark.parametrize("how", WRAPPED)
@pytest.mark.parametrize("what", FAILURES)
def test_what_stands_in_front_of_the_lines_does_not_hide_the_cause(what: str, how: str) -> None:
    name, log, code = FAILURES[what]
    text = WRAPPED[how](log)
    verdict = engine(name).verdict(by_grammar(name, text))
    assert verdict is not None
    assert verdict.code == code


@pytest.mark.parametrize("how", [name for name in WRAPPED if name != "another rank in between"])
@pytest.mark.parametrize("what", FAILURES)
def test_whose_log_it_is_can_be_told_through_what_stands_in_front(what: str, how: str) -> None:
    name, log, _ = FAILURES[what]
    assert detect(WRAPPED[how](log).split("\n")) == name


def test_a_dead_scheduler_whose_exit_code_stands_on_the_next_line_was_killed() -> None:
    log = (
        "[2026-04-01 08:00:03 TP0] Load weight begin. avail mem=70.10 GB\n"
        "[2026-04-01 08:02:10] Rank 2 scheduler is dead. Please check if there are relevant logs.\n"
        "[2026-04-01 08:02:11] Exit code: -9"
    )
    verdict = engine("sglang").verdict(by_grammar("sglang", log))
    assert verdict is not None
    assert (verdict.code, verdict.figures["rank"], verdict.figures["status"]) == ("HOST_OOM_KILLED", 2, -9)


def test_a_worker_killed_by_the_kernel_outranks_the_core_that_then_failed_to_start() -> None:
    log = (
        "(EngineCore_DP0 pid=31) ERROR 04-01 08:00:09 [multiproc_executor.py:230] Worker proc VllmWorker-2 died "
        "unexpectedly (exit code: -9), shutting down executor.\n" + core_error("EngineCore failed to start.")
    )
    verdict = engine("vllm").verdict(by_grammar("vllm", log))
    assert verdict is not None
    assert verdict.code == "HOST_OOM_KILLED"


def test_a_rendezvous_port_in_use_is_no_trouble_of_the_http_port() -> None:
    verdict = engine("sglang").verdict(by_grammar("sglang", "Port is already in use. dist_init_port=25111" + SIGQUIT))
    assert verdict is not None
    assert (verdict.code, verdict.figures["port"]) == ("INTERNAL_PORT_IN_USE", 25111)
    assert "25111" in verdict.sentence
