"""Starts that fail, on real engines: what is refused before, and what is said after."""

from __future__ import annotations

import http.server
import json
import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest
import real_install
from real_line import Tokpit, free_port, group, options

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
FAILED = 5


def launch(tokpit: Tokpit, engine: str, port: int, *words: str) -> subprocess.CompletedProcess[str]:
    where = real_install.vllm() if engine == "vllm" else real_install.sglang()
    env = real_install.vllm_env() if engine == "vllm" else real_install.sglang_env()
    flags = () if engine == "vllm" else real_install.SGLANG_ON_CPU
    return tokpit.run(
        *("launch", "real", engine, "--yes", "--json", "--env-dir", str(where), *options(env)),
        *("--model", str(real_install.model("dense")), "--port", str(port), "--listen", "127.0.0.1", *words),
        *([] if "--" in words else ["--"]),
        *("--load-format", "dummy", *flags),
    )


def nothing_runs(tokpit: Tokpit, port: int) -> None:
    assert [row for row in tokpit.json("ps", "real")["servers"] if row["port"] == port] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--", "--max-model-lenght", "2048"), "--max-model-lenght"),
        (("--context", "100000"), "100000"),
        (("--", "--max-num-seqs", "several"), "several"),
    ],
)
def test_vllm_is_refused_before_the_start(tokpit: Tokpit, words: tuple[str, ...], said: str) -> None:
    port = free_port()
    done = launch(tokpit, "vllm", port, *words)
    assert done.returncode == FAILED, done.stderr
    assert "refused before the start" in done.stderr
    assert said in done.stderr
    assert "started" not in done.stderr
    nothing_runs(tokpit, port)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--force", "--", "--max-model-lenght", "2048"), "--max-model-lenght"),
        (("--force", "--context", "100000"), "4096"),
    ],
)
def test_vllm_that_fails_at_its_start_is_explained(tokpit: Tokpit, words: tuple[str, ...], said: str) -> None:
    port = free_port()
    done = launch(tokpit, "vllm", port, *words)
    assert done.returncode == FAILED, done.stderr
    last = done.stderr.splitlines()[-2:]
    assert "the process has ended" in last[0]
    assert said in last[0]
    assert last[1].startswith("        ")
    assert done.stdout == ""
    nothing_runs(tokpit, port)


class _Answers(http.server.BaseHTTPRequestHandler):
    """Answers whatever it is asked, as another server on that port would."""

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.dumps(
            {"model_path": "other", "is_generation": True, "text": "x", "data": [{"id": "other"}]}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer

    def log_message(self, *words: object) -> None:
        """Nothing."""


@pytest.fixture(params=["silent", "answers"])
def taken(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port that another program listens on: one that answers nothing, or one that answers SGLang's warm-up."""
    if request.param == "answers":
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield int(server.server_address[1])
            server.shutdown()
        return
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield int(other.getsockname()[1])


def test_sglang_on_a_port_in_use_is_never_ready(tokpit: Tokpit, taken: int) -> None:
    refused = launch(tokpit, "sglang", taken)
    assert refused.returncode == FAILED, refused.stderr
    assert str(taken) in refused.stderr
    done = launch(tokpit, "sglang", taken, "--force")
    assert done.returncode == FAILED, done.stderr
    assert "READY" not in done.stdout + done.stderr
    assert f"port {taken} is held by" in done.stderr
    assert done.stdout == ""
    why = done.stderr.splitlines()[-2]
    assert f"port {taken} is held by pid {os.getpid()}" in why, why
    # Its warm-up request goes to the program that holds the port, and it waits for an answer: with --yes it is ended.
    (pid,) = re.findall(r"started  pid (\d+),", done.stderr)
    assert not group(int(pid))
    nothing_runs(tokpit, taken)
