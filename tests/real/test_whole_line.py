"""The whole line on software that we did not write: a real sshd, a real engine, and tokpit's own commands."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import real_install

from sshd import Sshd

pytestmark = pytest.mark.real

TINY = ("--load-format", "dummy", "--dtype", "bfloat16")


class Tokpit:
    """tokpit's command line against one real host, with folders of its own."""

    def __init__(self, folder: Path, sshd: Sshd) -> None:
        self.folder, self.host = folder, "real"
        self.inventory = folder / "hosts.toml"
        self.inventory.write_text(
            f'[hosts.real]\naddress = "127.0.0.1"\nport = {sshd.port}\nuser = "{sshd.user}"\n'
            f'identity_files = ["{sshd.user_key}"]\nknown_hosts = "{sshd.known_hosts}"\n'
        )
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("TOKPIT", "SSH_"))},
            "TOKPIT_CONFIG_DIR": str(folder),
            "TOKPIT_STATE_DIR": str(folder),
            "TOKPIT_CACHE_DIR": str(folder),
        }

    def run(self, *words: str, timeout_s: float = 900) -> subprocess.CompletedProcess[str]:
        """Run `tokpit WORDS...`."""
        argv = [sys.executable, "-m", "tokpit", "--inventory", str(self.inventory), *words]
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False)

    def json(self, *words: str, timeout_s: float = 900) -> Any:
        """The JSON that `tokpit WORDS... --json` prints; fails with its stderr."""
        done = self.run(*words[:1], "--json", *words[1:], timeout_s=timeout_s)
        assert done.returncode == 0, f"tokpit {' '.join(words)}: exit {done.returncode}\n{done.stderr[-3000:]}"
        return json.loads(done.stdout)


@pytest.fixture
def tokpit(tmp_path: Path, sshd: Sshd) -> Tokpit:
    return Tokpit(tmp_path, sshd)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def counter(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + "{", name + " ")))


def settled(port: int, name: str, wanted: float) -> float:
    """The counter once it stands at `wanted`, or what it says after 15 s."""
    for _ in range(30):
        if counter(port, name) == wanted:
            break
        time.sleep(0.5)
    return counter(port, name)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def drive(tokpit: Tokpit, engine: str, program: str, env: dict[str, str], flags: tuple[str, ...], tokens: str) -> None:
    """Launch, ps, log, sweep, stop: each checked against what the host and the server say themselves."""
    port = free_port()
    words = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
    model = str(real_install.model())
    launched = tokpit.json(
        *("launch", "real", engine, "--yes", "--program", program, "--model", model, "--served-name", "tiny"),
        *("--port", str(port), "--context", "2048", "--max-running", "3", *words, "--", *flags),
    )
    try:
        assert launched["ready_s"] > 1
        kinds = [step["kind"] for step in launched["milestones"]]
        assert kinds[0] == "started"
        assert kinds[-3:] == ["listening", "healthy", "token"]
        assert len(kinds) > 5, f"milestones of the log are missing: {kinds}"

        found = [s for s in tokpit.json("ps", "real")["servers"] if s["port"] == port]
        assert [(s["engine"], s["pid"], s["start_ticks"]) for s in found] == [
            (engine, launched["pid"], launched["start_ticks"])
        ]
        assert found[0]["version"].startswith(real_install.VLLM if engine == "vllm" else real_install.SGLANG)
        assert found[0]["settings"]["max_running"] == 3
        assert found[0]["log_path"] == launched["log_path"]

        before = counter(port, tokens)
        run = tokpit.json("sweep", f"real:{port}", "-c", "1,2,4", "--max-tokens", "160", "--warmup", "0")
        assert [(level["concurrency"], level["requests"]) for level in run["levels"]] == [(1, 8), (2, 8), (4, 8)]
        assert all(level["err"] == 0 and level["ok"] == level["requests"] for level in run["levels"]), run
        counted = sum(round(level["avg_output"] * level["ok"]) for level in run["levels"])
        assert settled(port, tokens, before + counted) - before == counted

        stored = tokpit.json("runs", run["id"])
        assert [level["concurrency"] for level in stored["levels"]] == [1, 2, 4]

        parsed = tokpit.run("parse-log", "--json", launched["log_path"])
        records = [json.loads(line) for line in parsed.stdout.splitlines()]
        stats = [r["fields"] for r in records if r["kind"] in {"decode_batch", "stats"}]
        assert stats, "no statistics line of the real log was understood"
        assert max(fields.get("running_reqs") or 0 for fields in stats) <= 3
        assert any((fields.get("gen_tps") or 0) > 0 for fields in stats)
    finally:
        stopped = tokpit.json("stop", f"real:{port}", "--yes")
    assert stopped["pid"] == launched["pid"]
    assert not alive(launched["pid"])
    assert tokpit.json("ps", "real")["servers"] == [] or port not in [
        s["port"] for s in tokpit.json("ps", "real")["servers"]
    ]


def test_vllm_through_sshd(tokpit: Tokpit) -> None:
    program = f"{real_install.vllm()}/bin/vllm serve"
    drive(tokpit, "vllm", program, real_install.vllm_env(), (*TINY, "--enforce-eager"), "vllm:generation_tokens_total")


def test_sglang_through_sshd(tokpit: Tokpit) -> None:
    program = f"{real_install.sglang()}/bin/python -m sglang.launch_server"
    flags = (
        *TINY,
        *("--device", "cpu", "--attention-backend", "torch_native", "--disable-cuda-graph", "--enable-metrics"),
        *("--mem-fraction-static", "0.2", "--max-total-tokens", "20000"),
    )
    drive(tokpit, "sglang", program, real_install.sglang_env(), flags, "sglang:generation_tokens_total")
