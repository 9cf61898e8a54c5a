"""How quick the console is: `python benchmarks/console.py WHAT` (first-paint, flood, idle, memory, fleet, link, all).

`flood` and `first-paint` also run the peers whose programs are given: `--lnav lnav --toolong TL --aiperf AIPERF
--vllmstat VLLMSTAT`.

The real program in a pseudo-terminal. Key to paint: from writing the key to the terminal until the bytes that can only
be its effect have been read from it. CPU and memory are the kernel's figures for the program's process.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import pty
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
RECORDING = ROOT / "tests" / "data" / "demo.tokrec"
Peers = Mapping[str, str]
"""Programs of others, by name."""
TICKS = os.sysconf("SC_CLK_TCK")


class Screen:
    """A program in a pseudo-terminal, in a folder of its own. `read` gives what came."""

    def __init__(self, words: list[str], folder: Path, size: tuple[int, int] = (120, 40)) -> None:
        state = folder / "state"
        state.mkdir(exist_ok=True)
        (state / "tour-seen").touch()
        env = {
            **os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT / "src"),
            "TOKPIT_STATE_DIR": str(state), "TOKPIT_CONFIG_DIR": str(folder / "config"), "HOME": str(folder),
        }  # fmt: skip
        self.began = time.monotonic()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            first()
            os.chdir(folder)
            os.execvpe(words[0], words, env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def read(self, seconds: float) -> bytes:
        """What comes within some time, at once when something is there."""
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return b""
        try:
            return os.read(self.fd, 1 << 20)
        except OSError:
            return b""

    def until(self, marker: bytes, within: float = 60.0) -> float:
        """Seconds until the marker has come; inf where it has not."""
        started, seen = time.monotonic(), b""
        while time.monotonic() - started < within:
            seen = seen[-4096:] + self.read(0.05)
            if marker in seen:
                return time.monotonic() - started
        return float("inf")

    def drain(self, seconds: float) -> list[tuple[float, int]]:
        """Everything that comes: (time, bytes) of each piece."""
        end, pieces = time.monotonic() + seconds, []
        while (left := end - time.monotonic()) > 0:
            if data := self.read(left):
                pieces.append((time.monotonic(), len(data)))
        return pieces

    def press(self, key: str) -> None:
        os.write(self.fd, key.encode())

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_mb(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0

    def peak_mb(self) -> float:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def first() -> None:
    """Before others on a crowded machine, where NICE says so: the kernel weighs sessions, then processes."""
    if nice := os.environ.get("NICE"):
        os.setpriority(os.PRIO_PROCESS, 0, int(nice))
        Path("/proc/self/autogroup").write_text(nice)


def tokpit(*words: str) -> list[str]:
    return [sys.executable, "-m", "tokpit", *words]


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values: list[float]) -> dict[str, float]:
    return {
        "n": len(values), "p50_ms": round(median(values) * 1e3, 1), "p99_ms": round(percentile(values, 0.99) * 1e3, 1),
        "max_ms": round(max(values) * 1e3, 1),
    }  # fmt: skip


Key = tuple[str, bytes]
"""A key, and bytes that only it can cause; none: it puts back what the other did and is not measured."""
OURS = (("-", b"-10m"), ("+", b"-5m"))
"""Charts show ten minutes, or five; their axes say so."""


def keys_to_paint(screen: Screen, count: int, keys: Sequence[Key] = OURS) -> dict[str, float]:
    """The keys in turn."""
    took, chance = [], random.Random(1)
    for n in range(count):
        key, marker = keys[n % len(keys)]
        screen.drain(0.1 + chance.random() * 0.2)
        screen.press(key)
        if marker:
            took.append(screen.until(marker, 10.0))
    return spread(took)


def first_paint(folder: Path, peers: Peers) -> dict[str, object]:
    """From the start of the process until its own first row is painted, warm disk cache."""
    found = {}
    programs = {
        "local": (tokpit("local"), b"tokpit "),
        "replay": (tokpit("replay", "--paused", str(RECORDING)), b"tokpit "),
    }
    if aiperf := peers.get("aiperf"):
        words = "profile --model m --url http://127.0.0.1:9 --endpoint-type chat --tokenizer builtin --request-count 4"
        programs["aiperf"] = ([aiperf, *words.split(), "--ui", "dashboard"], b"NVIDIA AIPerf")
    if vllmstat := peers.get("vllmstat"):
        programs["vllmstat"] = ([vllmstat, "--mock"], b"CONCURRENCY")
    for name, (words_of, marker) in programs.items():
        took = []
        for _ in range(7):
            screen = Screen(words_of, folder)
            took.append(screen.until(marker))
            screen.close()
        found[name] = {"median_s": round(median(took[1:]), 2), "worst_s": round(max(took[1:]), 2), "n": len(took) - 1}
    return found


def _server(folder: Path, rate: int, *, hybrid: bool = False) -> subprocess.Popen[bytes]:
    from tmux_screen import stand_in

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    return stand_in(folder, rate=rate, port=port, hybrid=hybrid)


def _count(folder: Path) -> int:
    """Lines that the server has written: the number in the last whole one."""
    with (folder / "server.log").open("rb") as log:
        log.seek(max(0, log.seek(0, 2) - 4096))
        return int(re.findall(rb"token: (\d+)", log.read())[-2])


def _only(folder: Path, screen: Screen) -> None:
    if screen.until(b"Decode batch", 60) == float("inf"):
        raise SystemExit("the log never came; do other servers run on this machine?")


def flood(folder: Path, peers: Peers, rate: int = 20_000, presses: int = 200) -> dict[str, object]:
    """Keys while a log of so many lines/s streams, the ring being kept: from this machine's file, the same through a
    real sshd, and with the longer lines of a hybrid model with drafts.

    The peers read the first file, each after the one before has ended: lnav's histogram and back, toolong's field for a
    search.
    """
    log = str(folder / "server.log")
    programs: dict[str, tuple[list[str], Sequence[Key]]] = {"tokpit": (tokpit("local"), OURS)}
    if lnav := peers.get("lnav"):
        programs["lnav"] = ([lnav, log], (("i", b"HIST"), ("i", b"LOG")))
    if toolong := peers.get("toolong"):
        programs["toolong"] = ([toolong, log], (("\x06", b"Regex"), ("\x1b", b"")))
    found: dict[str, object] = {}
    with _running(folder, rate):
        for name, (words, keys) in programs.items():
            found[name] = _under_flood(folder, words, keys, presses)
        with _reached(folder):
            found["tokpit over ssh"] = _under_flood(folder, tokpit("far"), OURS, presses)
    with _running(folder, rate, hybrid=True):
        found["tokpit, hybrid model"] = _under_flood(folder, tokpit("local"), OURS, presses)
    return found


def _under_flood(folder: Path, words: list[str], keys: Sequence[Key], presses: int) -> dict[str, object]:
    screen = Screen(words, folder)
    try:
        _only(folder, screen)
        screen.drain(5)
        cpu, since, before = screen.cpu_s(), time.monotonic(), _count(folder)
        took = keys_to_paint(screen, presses, keys)
        seconds = time.monotonic() - since
        return {
            "lines_per_s": round((_count(folder) - before) / seconds), "key_to_paint": took,
            "cpu_of_a_core": round((screen.cpu_s() - cpu) / seconds, 2), "rss_mb": round(screen.rss_mb()),
        }  # fmt: skip
    finally:
        screen.close()


@contextmanager
def _running(folder: Path, rate: int, *, hybrid: bool = False) -> Iterator[None]:
    server = _server(folder, rate, hybrid=hybrid)
    try:
        yield
    finally:
        server.kill()
        server.wait()


def idle(folder: Path, peers: Peers, seconds: float = 30.0) -> dict[str, object]:
    """Repaints (bursts of output more than 30 ms apart) and CPU while nothing happens."""
    found = {}
    for name, words in (
        ("host without servers", ("local",)),
        ("paused replay", ("replay", "--paused", "--at", "+15s", str(RECORDING))),
    ):
        screen = Screen(tokpit(*words), folder)
        screen.until(b"tokpit ")
        screen.drain(8)
        cpu = screen.cpu_s()
        pieces = screen.drain(seconds)
        bursts, last = 0, 0.0
        for t, _ in pieces:
            bursts += t - last > 0.03
            last = t
        found[name] = {
            "repaints_per_s": round(bursts / seconds, 2), "bytes_per_s": round(sum(n for _, n in pieces) / seconds),
            "cpu_of_a_core": round((screen.cpu_s() - cpu) / seconds, 3),
        }  # fmt: skip
        screen.close()
    return found


def memory(
    folder: Path, peers: Peers, lines: int = 10_000_000, rate: int = 40_000, within: float = 560.0
) -> dict[str, object]:
    """Memory after so many lines."""
    with _running(folder, rate):
        return _memory(Screen(tokpit("local"), folder), folder, lines, within)


def _memory(screen: Screen, folder: Path, lines: int, within: float) -> dict[str, object]:
    try:
        _only(folder, screen)
        started, seen, number = time.monotonic(), b"", 0
        samples = []
        while number < lines and time.monotonic() - started < within:
            seen = seen[-8192:] + screen.read(0.5)
            numbers = re.findall(rb"(\d{4,}) .{0,40}?following", seen)
            number = max([number, *(int(n) for n in numbers)])
            samples.append(screen.rss_mb())
        took = time.monotonic() - started
        return {
            "lines": number, "seconds": round(took), "lines_per_s": round(number / took), "rss_mb": round(samples[-1]),
            "peak_mb": round(screen.peak_mb()),
        }  # fmt: skip
    finally:
        screen.close()


def fleet(folder: Path, peers: Peers, hosts: int = 64, seconds: float = 40.0) -> dict[str, object]:
    """So many hosts whose records come once a second, on the fleet screen; without the SSH connections themselves."""
    words = [sys.executable, str(Path(__file__).resolve()), "fleet-app", "--hosts", str(hosts)]
    screen = Screen(words, folder, (160, 80))
    try:
        screen.until(b"tokpit ")
        screen.drain(4)
        screen.press("1")
        screen.drain(6)
        cpu, since = screen.cpu_s(), time.monotonic()
        screen.drain(seconds)
        return {
            "hosts": hosts, "cpu_of_a_core": round((screen.cpu_s() - cpu) / (time.monotonic() - since), 2),
            "rss_mb": round(screen.rss_mb()),
        }  # fmt: skip
    finally:
        screen.close()


async def fleet_app(hosts: int) -> None:
    """The program of `fleet`: the real session, ring, alarms and console; records made here instead of read."""
    import msgspec

    import console_feed as feed
    from tokpit.config.inventory import Inventory
    from tokpit.domain.hostspec import HostSpec
    from tokpit.domain.records import GpuRecord, HostRecord, LinkRecord, LinkState, LogBatch, Sample, ServersRecord
    from tokpit.ops.session import Session
    from tokpit.ui.run import run_app

    names = [f"gpu-{n:03d}" for n in range(hosts)]
    session = Session(
        Inventory(hosts={name: HostSpec(name=name) for name in names}), history_path=Path(tempfile.mkdtemp()) / "h"
    )
    session.watch_host = lambda name: None  # type: ignore[method-assign]
    session.watch_server = lambda server_id, **_: None  # type: ignore[method-assign]
    infos = {name: msgspec.structs.replace(feed.server(), host=name) for name in names}

    async def run() -> None:
        line = 0
        for name in names:
            session.add_host(name)
        while True:
            started = time.monotonic()
            line += 1
            for number, name in enumerate(names):
                now, info = time.time(), infos[name]
                if line % 5 == 1:
                    session.store.apply(LinkRecord(name, now, LinkState.UP, rtt_s=0.012))
                    session.store.apply(ServersRecord(name, now, (info,)))
                gpus = tuple(feed.gpu(n, util=random.random(), temp_c=60 + random.random() * 9) for n in range(8))
                session.store.apply(GpuRecord(name, now, gpus))
                session.store.apply(HostRecord(name, now, 1 << 40, 1 << 39, 1 << 30, 0, 7.5, 64, random.random()))
                tps = 300 + random.random() * 50
                values = {"gen_tps": tps, "running_reqs": 7.0, "queue_reqs": 0.0, "kv_usage": 0.2, "accept_len": 3.1}
                session.store.apply(Sample(info.id, now, "log", values))
                session.store.apply(LogBatch(info.id, now, (feed.decode_line(line, now, 7, 0, tps, 3.1),), line * 200))
                if number % 8 == 7:
                    await asyncio.sleep(0)
            await asyncio.sleep(max(0.0, 1.0 - (time.monotonic() - started)))

    session.host = lambda name: _Now()  # type: ignore[assignment, method-assign, return-value]
    async with session:
        session.supervisor.start("feed", run())
        await run_app(session)


class _Now:
    def now(self) -> float:
        return time.time()

    async def close(self) -> None:
        pass


class Relay(threading.Thread):
    """A link with a delay each way and a rate: TCP connections pass through it."""

    def __init__(self, port: int, delay_s: float, bytes_per_s: float) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.down = 0
        self._to, self._delay_s, self._rate = port, delay_s, bytes_per_s

    def run(self) -> None:
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self._to))
            for source, target, down in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pipe, args=(source, target, down), daemon=True).start()

    def _pipe(self, source: socket.socket, target: socket.socket, down: bool) -> None:
        queue: list[tuple[float, bytes]] = []
        ready = threading.Condition()

        def send() -> None:
            free = 0.0
            while True:
                with ready:
                    while not queue:
                        ready.wait()
                    came, data = queue.pop(0)
                # The line is busy with what went before; then the way takes its time.
                free = max(free, came) + len(data) / self._rate
                time.sleep(max(0.0, free + self._delay_s - time.monotonic()))
                try:
                    target.sendall(data)
                except OSError:
                    return

        threading.Thread(target=send, daemon=True).start()
        while True:
            try:
                data = source.recv(4096)
            except OSError:
                return
            if not data:
                return
            if down:
                self.down += len(data)
            with ready:
                while sum(len(d) for _, d in queue) > 65536:  # a full buffer pushes back
                    ready.wait(0.01)
                queue.append((time.monotonic(), data))
                ready.notify()


@contextmanager
def _reached(folder: Path, relay: Callable[[int], Relay] | None = None) -> Iterator[Relay | None]:
    """This machine as the host `far`, through a real sshd, behind a relay where one is made."""
    from sshd import Sshd

    with Sshd.start(folder) as sshd:
        between = relay(sshd.port) if relay else None
        if between is not None:
            between.start()
            sshd.write_known_hosts(sshd.host_key_line(f"[127.0.0.1]:{between.port}"))
        spec = sshd.spec(port=between.port) if between is not None else sshd.spec()
        config = folder / "config"
        config.mkdir(exist_ok=True)
        rows = {"address": spec.address, "port": spec.port, "user": spec.user, "known_hosts": spec.known_hosts}
        body = "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items() if value is not None)
        keys = json.dumps(list(spec.identity_files))
        (config / "hosts.toml").write_text(f"[hosts.far]\n{body}identity_files = {keys}\n")
        yield between


def link(folder: Path, peers: Peers, rtt_s: float = 0.2, mbit: float = 1.0, rate: int = 100) -> dict[str, object]:
    """A real sshd behind 200 ms and 1 Mbit/s; a server whose log grows by 100 lines/s."""
    with _running(folder, rate), _reached(folder, lambda port: Relay(port, rtt_s / 2, mbit * 1e6 / 8)) as relay:
        assert relay is not None
        screen = Screen(tokpit("far"), folder)
        try:
            found = {"first_paint_s": round(screen.until(b"tokpit "), 2)}
            screen.until(b"Decode batch", 120)
            found["log_there_s"] = round(time.monotonic() - screen.began, 2)
            screen.drain(10)
            before, since = relay.down, time.monotonic()
            sent = sum(n for _, n in screen.drain(30))
            took = time.monotonic() - since
            found["kbit_per_s_from_host"] = round((relay.down - before) * 8 / took / 1000, 1)
            found["kbit_per_s_to_terminal"] = round(sent * 8 / took / 1000, 1)
            return {**found, "key_to_paint": keys_to_paint(screen, 60)}
        finally:
            screen.close()


PARTS = {"first-paint": first_paint, "flood": flood, "idle": idle, "memory": memory, "fleet": fleet, "link": link}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+", choices=[*PARTS, "all", "fleet-app"])
    parser.add_argument("--hosts", type=int, default=64)
    for name in ("lnav", "toolong", "aiperf", "vllmstat"):
        parser.add_argument(f"--{name}", default="", metavar="PROGRAM")
    asked = parser.parse_args()
    first()
    if asked.what == ["fleet-app"]:
        asyncio.run(fleet_app(asked.hosts))
        return
    for what in PARTS if "all" in asked.what else asked.what:
        with tempfile.TemporaryDirectory(prefix="tokpit-bench-") as folder:
            load = os.getloadavg()[0]
            print(
                json.dumps({what: PARTS[what](Path(folder), vars(asked)), "load_average_before": round(load, 1)}),
                flush=True,
            )


if __name__ == "__main__":
    main()
