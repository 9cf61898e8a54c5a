"""A server that looks like vLLM to a process table and is a few lines of Python: real processes for lifecycle tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokpit.ops.session import Session

# Roles: `serve` listens, starts an engine core with a title of its own, and answers as the API does.
_SERVE = """\
import http.server, json, mmap, os, signal, subprocess, sys, threading, time

def flag(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default

title = os.environ.get("FAKE_TITLE", "VLLM::EngineCore")
code = "import signal,sys,time\\n"
if os.environ.get("FAKE_STUBBORN"):
    code += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n"
if os.environ.get("FAKE_SHM"):
    code += ("import mmap,os\\nf=open(%r,'w+b'); f.truncate(8192); m=mmap.mmap(f.fileno(),8192)\\n"
             % os.environ["FAKE_SHM"])
code += "time.sleep(600)\\n"
worker = subprocess.Popen([title, "-c", code], executable=sys.executable,
                          start_new_session=bool(os.environ.get("FAKE_LEAVES")))
if os.environ.get("FAKE_WAITS") and "--headless" not in sys.argv:
    time.sleep(600)
rank = flag("--node-rank", "")
if os.environ.get("FAKE_FAILS") and rank == os.environ.get("FAKE_FAILS_RANK", rank):
    print(os.environ["FAKE_FAILS"], flush=True)
    worker.kill()
    sys.exit(1)

def stays():  # told to end, and takes its time: while the file is there
    path = os.environ.get("FAKE_STAYS", "")
    if path and os.path.exists(path):
        open(path + ".asked", "w").close()
        while os.path.exists(path):
            time.sleep(0.02)

def end(number, frame):
    threading.Thread(target=leave).start()  # the port goes on being served

def leave():
    stays()
    if not os.environ.get("FAKE_STUBBORN"):
        worker.terminate()
        worker.wait()
        os._exit(0)

signal.signal(signal.SIGTERM, end)
if os.environ.get("FAKE_FORGETS"):
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))

if "--headless" in sys.argv:
    print("INFO 11-30 03:00:02 [core.py:1] rank %s waits for work" % flag("--node-rank", "?"), flush=True)
    while True:
        time.sleep(1)

class Api(http.server.BaseHTTPRequestHandler):
    def answer(self, page):
        body = json.dumps(page).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer({"data": [{"id": "tiny"}]} if "models" in self.path else {})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if asked.get("stream"):
            self.stream(int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 8))
            return
        self.answer({"choices": [{"text": " Paris"}], "usage": {"completion_tokens": 1}})
    def stream(self, tokens):
        streams.append(1)
        hold(len(streams))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        with lanes:
            for n in range(tokens):
                time.sleep(float(os.environ.get("FAKE_STEP_S", "0.001")))
                end = "length" if n == tokens - 1 else None
                self.event({"choices": [{"index": 0, "delta": {"content": " a"}, "text": " a", "finish_reason": end}]})
        usage = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}
        self.event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\\n\\n")
    def event(self, page):
        self.wfile.write(b"data: " + json.dumps({"id": "x", "model": "tiny", **page}).encode() + b"\\n\\n")
    def log_message(self, *words):
        pass

streams = []

def hold(number):  # while the file is there, every stream after as many as it says waits
    path = os.environ.get("FAKE_HOLD", "")
    while path:
        try:
            with open(path) as file:
                allowed = int(file.read())
        except OSError:
            return
        if number <= allowed:
            return
        time.sleep(0.02)

while os.environ.get("FAKE_GATE") and not os.path.exists(os.environ["FAKE_GATE"]):
    open(os.environ["FAKE_GATE"] + ".waits", "w").close()
    time.sleep(0.02)
lanes = threading.Semaphore(int(flag("--max-num-seqs", "64")))
print("INFO 11-30 03:00:01 [api_server.py:1] vLLM API server version 0.30.1", flush=True)
http.server.ThreadingHTTPServer.request_queue_size = 64
http.server.ThreadingHTTPServer(("127.0.0.1", int(flag("--port", "8000"))), Api).serve_forever()
"""


def make_engine(folder: Path, *, version: str = "0.30.1") -> Path:
    """An environment folder with `bin/python`, `bin/vllm` and the metadata of a vLLM of that version."""
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (folder / "bin").mkdir(parents=True)
    site.mkdir(parents=True)
    real = Path(os.path.realpath(sys.executable))
    (folder / "pyvenv.cfg").write_text(
        f"home = {real.parent}\nversion = {sys.version_info.major}.{sys.version_info.minor}.0\n"
    )
    (folder / "bin" / "python").symlink_to(real)
    script = folder / "bin" / "vllm"
    script.write_text(f"#!{folder}/bin/python\n{_SERVE}")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    info = site / f"vllm-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    return folder


@contextlib.contextmanager
def nothing_left(mark: str) -> Iterator[None]:
    """Kill at the end every process whose environment names `mark`: tests must not leave servers behind."""
    try:
        yield
    finally:
        for pid in marked(mark):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Traces:
    """What launches and stops may leave: on the host, and in the process that drives them."""

    processes: tuple[int, ...]
    """Whose environment names the mark."""
    files: tuple[str, ...]
    """Under the home folder, logs and the audit left out."""
    logs: int
    open_files: int
    tasks: int
    servers: int
    """States in the live store."""
    rss_mib: float


def traces(session: Session, home: Path, mark: str) -> Traces:
    """What is there now."""
    folder = home / ".local/state/tokpit"
    every = [path.relative_to(home) for path in home.rglob("*") if path.is_file()]
    logs = [path for path in every if (home / path).parent == folder / "logs"]
    files = [str(p) for p in every if p not in logs and (home / p) != folder / "audit.log"]
    status = Path("/proc/self/status").read_text()
    return Traces(
        processes=tuple(marked(mark)),
        files=tuple(sorted(files)),
        logs=len(logs),
        open_files=len(list(Path("/proc/self/fd").iterdir())),
        tasks=len(asyncio.all_tasks()),
        servers=len(session.store.servers),
        rss_mib=int(status.partition("VmRSS:")[2].split()[0]) / 1024,
    )


def marked(mark: str) -> Iterator[int]:
    """Living processes whose environment names `mark`."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if b"=" + mark.encode() + b"\0" in path.read_bytes():
                yield int(path.parent.name)


async def serve(
    engine_dir: Path, port: int, *flags: str, shell: str = "", starter: Sequence[str] = (), **env: str
) -> subprocess.Popen[bytes]:
    """Start the stand-in engine as somebody else would, and wait until it listens."""
    command = [f"{engine_dir}/bin/python", f"{engine_dir}/bin/vllm", "serve", "tiny", "--port", str(port), *flags]
    argv = ["sh", "-c", shell.format(command=" ".join(command))] if shell else list(starter) or command
    log = (engine_dir / f"{port}.log").open("ab")
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **env}
    )
    log.close()
    for _ in range(400):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return process
        except OSError:
            await asyncio.sleep(0.02)
    raise AssertionError("the stand-in engine does not listen")
