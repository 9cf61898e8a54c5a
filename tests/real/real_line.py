"""tokpit's own commands against a real host, and what the host and the server say without tokpit."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sshd import Sshd

SOURCES = Path(__file__).parents[2] / "src"


class Tokpit:
    """tokpit's command line against one real host, with folders of its own."""

    def __init__(self, folder: Path, sshd: Sshd) -> None:
        self.folder = folder
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
            "PYTHONPATH": str(SOURCES),
        }

    def argv(self, *words: str) -> list[str]:
        """The command line of `tokpit WORDS...`."""
        return [sys.executable, "-m", "tokpit", "--inventory", str(self.inventory), *words]

    def run(self, *words: str, timeout_s: float = 900) -> subprocess.CompletedProcess[str]:
        """Run `tokpit WORDS...`."""
        return subprocess.run(
            self.argv(*words), env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def json(self, *words: str, timeout_s: float = 900) -> Any:
        """The JSON that `tokpit WORDS... --json` prints; fails with its stderr."""
        done = self.run(*words[:1], "--json", *words[1:], timeout_s=timeout_s)
        assert done.returncode == 0, f"tokpit {' '.join(words)}: exit {done.returncode}\n{done.stderr[-3000:]}"
        return json.loads(done.stdout)

    def records(self, path: str | Path, text: str | None = None) -> list[dict[str, Any]]:
        """The records of `tokpit parse-log`: of a whole log, or of `text` taken from it."""
        if text is not None:
            path = self.folder / "part.log"
            path.write_text(text)
        done = self.run("parse-log", "--json", str(path))
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    @contextlib.contextmanager
    def begin(self, *words: str) -> Iterator[Begun]:
        """`tokpit WORDS...` that runs beside the test; it is ended afterwards."""
        begun = Begun(self, words)
        try:
            yield begun
        finally:
            begun.end()


class Begun:
    """A command under way; its output goes to files that can be read meanwhile."""

    def __init__(self, tokpit: Tokpit, words: tuple[str, ...]) -> None:
        stem = tokpit.folder / f"{words[0]}-{time.monotonic_ns()}"
        self._out, self._err = stem.with_suffix(".out"), stem.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(tokpit.argv(*words), env=tokpit.env, stdout=out, stderr=err)

    @property
    def out(self) -> str:
        """Its stdout so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """Its stderr so far."""
        return self._err.read_text()

    def until(self, word: str, *, timeout_s: float = 300) -> None:
        """Wait until its output says `word`; fails if it ends without."""
        wait(lambda: word in self.out + self.err or self.process.poll() is not None, timeout_s)
        assert word in self.out + self.err, f"it never said {word!r}:\n{self.out[-2000:]}\n{self.err[-2000:]}"

    def result(self, *, timeout_s: float = 900) -> int:
        """Its exit status."""
        return self.process.wait(timeout_s)

    def end(self) -> None:
        """Kill it if it is still there."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def wait(true: Callable[[], Any], timeout_s: float = 60) -> bool:
    """Whether the condition came true within the time."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.3)
    return True


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def counter(port: int, name: str) -> float:
    """The sum of a metric over its label sets, read from the server without tokpit."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + "{", name + " ")))


class Stream(threading.Thread):
    """A completion that streams, read without tokpit; `text` is what came, `ended` whether it ended as it should.

    `prompts` of them in one request take so long that a stop comes in the middle.
    """

    def __init__(self, port: int, model: str, tokens: int, *, prompts: int = 1) -> None:
        super().__init__(daemon=True)
        body = {
            "model": model,
            "prompt": ["ash bay cab"] * prompts,
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
        }
        self._request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/completions",
            json.dumps({**body, "stream": True}).encode(),
            {"Content-Type": "application/json"},
        )
        self.text = ""
        self.ended = False
        self.start()

    def run(self) -> None:
        """Read until it ends, however it ends."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            with urllib.request.urlopen(self._request, timeout=300) as answer:
                for line in answer:
                    self.text += line.decode()
            self.ended = self.text.rstrip().endswith("[DONE]") and '"error"' not in self.text

    def until_tokens(self) -> None:
        """Wait for the first chunk."""
        assert wait(lambda: "data:" in self.text, 120), "no token came"


def group(pgid: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(fields[2]) == pgid and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def options(env: dict[str, str]) -> list[str]:
    """`-e NAME=VALUE` for each variable."""
    return [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
