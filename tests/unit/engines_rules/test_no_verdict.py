"""Logs of servers that did not fail: none of their scary words may become a verdict."""

from __future__ import annotations

import pytest

from failurelogs import DECODE, HIT, READY, SIGQUIT, TRACEBACK, VLLM_READY, VLLM_STATS, judge
from startfailures import CASES, KINDS

HEALTHY = {
    "user_prompt_quotes_an_error": (
        "sglang",
        READY
        + "[2026-04-01 08:00:06] Receive: obj=GenerateReqInput(text='explain: torch.OutOfMemoryError: CUDA out of "
        "memory. Tried to allocate 2.00 GiB. Killed. ValueError: Not enough host memory available')\n" + DECODE,
    ),
    "model_name_with_an_error_in_it": (
        "sglang",
        "[2026-04-01 08:00:03] Load weight begin. avail mem=70.10 GB\n"
        "Loading safetensors checkpoint shards for /weights/error-corrector-out-of-memory-7b\n" + READY,
    ),
    "optional_import_missing": (
        "sglang",
        "Ignore import error when loading sglang.srt.models.qwen9_vl: No module named 'decord'\n" + READY + DECODE,
    ),
    "traceback_that_the_start_survived": (
        "sglang",
        TRACEBACK + "ImportError: cannot import name 'fancy' from 'kernels'\n"
        "[2026-04-01 08:00:03] Load weight begin. avail mem=70.10 GB\n" + READY + DECODE,
    ),
    "driver_warning_of_a_server_at_work": (
        "vllm",
        "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount()\n" + VLLM_READY + VLLM_STATS,
    ),
    "retries_of_the_hub": (
        "vllm",
        "'(MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded\"))' thrown "
        "while "
        "requesting HEAD https://huggingface.co/x\nRetrying in 2s [Retry 2/5].\n" + VLLM_READY,
    ),
    "advice_about_open_files": (
        "vllm",
        "WARNING 04-01 08:00:01 [system_utils.py:3] Found ulimit of 20000 and failed to automatically increase with "
        "error "
        "current limit exceeds maximum limit. This can cause fd limit errors like `OSError: [Errno 24] Too many open "
        "files`. Consider increasing with ulimit -n",
    ),
    "request_refused_for_its_length": (
        "vllm",
        VLLM_READY
        + "(APIServer pid=7) ERROR 04-01 08:00:06 [serving_chat.py:203] Error in preprocessing prompt inputs\n"
        "(APIServer pid=7) ERROR 04-01 08:00:06 [serving_chat.py:203] Traceback (most recent call last):\n"
        '(APIServer pid=7) ERROR 04-01 08:00:06 [serving_chat.py:203]   File "/srv/v.py", line 2, in f\n'
        "(APIServer pid=7) ERROR 04-01 08:00:06 [serving_chat.py:203] ValueError: The decoder prompt (length 90000) is "
        "longer than the maximum model length of 8192.",
    ),
    "two_waits_while_compiling": (
        "vllm",
        "\n".join(
            "(EngineCore pid=6) INFO 04-01 08:00:00 [shm_broadcast.py:466] No available shared memory broadcast block "
            "found in 60 seconds. This typically happens when some processes are hanging"
            for _ in range(2)
        )
        + "\n"
        + VLLM_READY,
    ),
    "waits_with_progress_between": (
        "vllm",
        "\n".join(
            "(EngineCore pid=6) INFO 04-01 08:00:00 [shm_broadcast.py:466] No available shared memory broadcast block "
            f"found in 60 seconds. This typically happens\n{VLLM_STATS.strip()}"
            for _ in range(4)
        ),
    ),
    "retraction": (
        "sglang",
        READY + "[2026-04-01 08:00:06] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: "
        "0.5 -> 0.8\n" + DECODE,
    ),
    "soft_watchdog": (
        "sglang",
        "[2026-04-01 08:00:06 TP0] Scheduler watchdog timeout (self.watchdog_timeout=30, self.soft=True)\n" + DECODE,
    ),
    "deprecated_flag": (
        "sglang",
        "[2026-04-01 08:00:01] WARNING: --disable-cuda-graph is deprecated and will raise an error in a later release\n"
        + READY,
    ),
    "waiting_for_a_port_that_frees_up": (
        "sglang",
        "[2026-04-01 08:00:01] port 29500 is in use. Waiting for 1 seconds...\n" + READY,
    ),
    "earlier_start_in_the_same_log_failed": (
        "sglang",
        "[2026-04-01 07:00:01] server_args=ServerArgs(model_path='/m')\n"
        + HIT
        + "AssertionError: 28 is not divisible by 8"
        + SIGQUIT
        + "\n[2026-04-01 08:00:01] server_args=ServerArgs(model_path='/m')\n"
        + READY
        + DECODE,
    ),
    "flag_corrected_and_starting_again": (
        "sglang",
        "launch_server.py: error: unrecognized arguments: --nope\n"
        "[2026-04-01 08:00:01] server_args=ServerArgs(model_path='/m')\n"
        "[2026-04-01 08:00:03] Load weight begin. avail mem=70.10 GB",
    ),
    "asked_to_end": (
        "sglang",
        READY
        + DECODE
        + "[2026-04-01 08:00:09] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"
        "[2026-04-01 08:00:09] Subprocess scheduler_0 (pid=71) crashed with exit code -15. Triggering SIGQUIT for "
        "cleanup...\n"
        "[2026-04-01 08:00:09] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n",
    ),
    "still_loading": ("sglang", "[2026-04-01 08:00:03] Load weight begin. avail mem=70.10 GB"),
    "requests_too_long_for_llama": (
        "llamacpp",
        "0.01.000.000 I srv  llama_server: listening on http://127.0.0.1:8080\n"
        "0.09.000.000 E srv    send_error: task id = 3, error: the request exceeds the available context size, try "
        "increasing it\n0.10.000.000 I slot      release: id  1 | task 0 | stop processing: n_tokens = 67, truncated "
        "= 0",
    ),
    "engine_dump_that_quotes_settings": (
        "vllm",
        VLLM_READY + "(EngineCore pid=6) ERROR 04-01 08:00:06 [dump_input.py:69] Dumping input data for V1 LLM engine "
        "(v0.14.1) with config: model='/m', trust_remote_code=True, note='CUDA out of memory. Tried to allocate 1 "
        "GiB'\n" + VLLM_STATS,
    ),
    "empty": ("vllm", ""),
}


@pytest.mark.parametrize(("name", "log"), HEALTHY.values(), ids=HEALTHY)
def test_scary_words_are_no_failure(name: str, log: str) -> None:
    assert judge(name, log) is None


@pytest.mark.parametrize(
    ("exit_code", "signal"), [(0, None), (-15, None), (143, None), (None, "TERM"), (130, "SIGINT")]
)
def test_a_server_that_was_asked_to_end_did_not_fail(exit_code: int | None, signal: str | None) -> None:
    log = READY + DECODE + "[2026-04-01 08:10:00] SIGTERM received. signum=None frame=None. Draining requests\n"
    assert judge("sglang", log, exit_code, signal) is None


def test_a_processor_run_that_was_asked_for_is_no_finding() -> None:
    assert judge("sglang", "[2026-04-01 08:00:01] server_args=ServerArgs(device='cpu')\n" + READY + DECODE) is None


QUOTING = {
    "sglang": "[2026-04-01 08:00:06] Receive: obj=GenerateReqInput(text={text!r}, sampling_params={{}})",
    "vllm": "(APIServer pid=7) INFO 04-01 08:00:06 [logger.py:39] Received request cmpl-1: prompt: {text!r}, params: "
    "None",
    "llamacpp": '0.02.000.000 D srv  log_server_r: request:  {{"prompt": {text!r}}}',
}
LIFE = {
    "sglang": READY + DECODE,
    "vllm": VLLM_READY + VLLM_STATS,
    "llamacpp": "0.01.000.000 I srv  llama_server: listening on http://127.0.0.1:8080\n"
    "0.10.000.000 I slot      release: id  1 | task 0 | stop processing: n_tokens = 67, truncated = 0\n",
}
ALL = [(name, log) for name, _code, log in KINDS] + [(case[1], case[2]) for case in CASES]


@pytest.mark.parametrize(("name", "log"), ALL, ids=range(len(ALL)))
def test_the_same_words_in_a_users_prompt_are_no_failure(name: str, log: str) -> None:
    assert judge(name, LIFE[name] + QUOTING[name].format(text=log)) is None


@pytest.mark.parametrize(("name", "log"), ALL, ids=range(len(ALL)))
def test_the_same_words_in_a_users_prompt_while_starting_are_no_failure(name: str, log: str) -> None:
    assert judge(name, QUOTING[name].format(text=log)) is None


@pytest.mark.parametrize(("name", "log"), ALL, ids=range(len(ALL)))
def test_the_same_words_as_a_warning_of_a_server_at_work_are_no_failure(name: str, log: str) -> None:
    verdict = judge(name, log)
    assert verdict is not None
    words = verdict.evidence[0].partition(": ")[2] or verdict.evidence[0]
    warning = {
        "sglang": f"2026-04-01 08:00:06 WARNING 71 [utils.py:3] ignored: {words}\n",
        "vllm": f"(EngineCore pid=31) WARNING 04-01 08:00:06 [utils.py:3] ignored: {words}\n",
        "llamacpp": f"0.02.000.000 W srv  init: ignored: {words}\n",
    }[name]
    assert judge(name, warning + LIFE[name]) is None
