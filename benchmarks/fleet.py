"""What a fleet costs, and whether one bad host slows the others: python benchmarks/fleet.py [--hosts 64] [--seconds 40]

The real session and console in a pseudo-terminal, each host over an SSH connection of its own, its memory and GPUs
asked for every second, its processes every five. The far side is one SSH server in a process of its own, which runs
each script once and from then on answers it from memory: 64 sshds that fork for every question are too heavy to be
played beside what is measured (`--sshd`: a real sshd all the same). Once with good hosts only, and once with three of
them behind proxies, in another process, that freeze, cut or delay the bytes.

Printed: seconds until all good hosts had answered, seconds between two memory readings of a good host, CPU and memory
of the console's process, and the time from writing a key (the fleet's order) until its paint has been read.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from console import Screen, first, spread

from sshd import Sshd, free_port, make_key
from tokpit.domain.hostspec import HostSpec
from tokpit.load.stats import percentile
from tokpit.transport.script import READ_AND_RUN

KINDS = ("frozen", "flapping", "slow")
ORDERS = (b"by tok/s", b"by queue", b"by GPU use", b"by link", b"")
_SMI = """#!/bin/sh
case "$*" in *--query-gpu*) for n in 0 1 2 3 4 5 6 7; do
  echo "$n, GPU-$n, 00000000:0$n:00.0, [N/A], 9$n, 120000, 143771, 512.5, 700.0, 6$n, 1755, 1980, 0x0, NVIDIA H200"
done ;; esac
"""


# The far side


async def far(port: int, folder: Path) -> None:
    """An SSH server that runs each script once; a word that differs each time (the marker) is put back in."""
    import asyncssh

    answers: dict[bytes, asyncio.Future[tuple[bytes, bytes, int]]] = {}

    async def really(line: bytes, marker: bytes) -> tuple[bytes, bytes, int]:
        child = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", READ_AND_RUN, stdin=-1, stdout=-1, stderr=-1,
            env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)},
        )  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdin.write(line)
        out, err = await asyncio.gather(child.stdout.read(), child.stderr.read())
        status = await child.wait()
        return out.replace(marker, b"MARKER"), err.replace(marker, b"MARKER"), status

    async def session(process: Any) -> None:
        line = await process.stdin.readline()
        found = re.search(rb"tokpit-[0-9a-f]{24}", line)
        if found is None:
            process.exit(1)
            return
        key = line.replace(found[0], b"MARKER")
        if key not in answers:
            answers[key] = asyncio.ensure_future(really(line, found[0]))
        out, err, status = await answers[key]
        process.stdout.write(out.replace(b"MARKER", found[0]))
        process.stderr.write(err.replace(b"MARKER", found[0]))
        process.exit(status)

    await asyncssh.listen(
        "127.0.0.1", port, server_host_keys=[str(folder / "host_ed25519")],
        authorized_client_keys=str(folder / "user_ed25519.pub"), process_factory=session, encoding=None,
        line_editor=False,
    )  # fmt: skip
    await asyncio.Event().wait()


async def proxies(target: int, ports: dict[str, int]) -> None:
    """Forward each port to the far side in its bad way, for ever."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it tells of every write after a cut

    async def pump(kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, begun: float) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if kind == "slow":
                    asyncio.get_running_loop().call_later(1.0, writer.write, data)
                    continue
                if kind == "frozen" and time.monotonic() - begun > 6:
                    await asyncio.Event().wait()
                writer.write(data)
                await writer.drain()

    async def serve(kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", target)
        begun = time.monotonic()
        both = [
            asyncio.ensure_future(pump(kind, reader, up_writer, begun)),
            asyncio.ensure_future(pump(kind, up_reader, writer, begun)),
        ]
        await asyncio.wait(both, timeout=3.0 if kind == "flapping" else None, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
        for one in (writer, up_writer):
            one.transport.abort()

    for kind, port in ports.items():
        await asyncio.start_server(lambda r, w, kind=kind: serve(kind, r, w), "127.0.0.1", port)
    await asyncio.Event().wait()


# The console


async def console(specs: Path, came: Path) -> None:
    """The program that is measured; when each host's memory came goes to a file."""
    import msgspec

    from tokpit.collect.host import watch_host
    from tokpit.config.inventory import Inventory
    from tokpit.domain.records import HostRecord, Record
    from tokpit.ops.session import Session
    from tokpit.transport.base import Host
    from tokpit.ui.run import run_app

    hosts = msgspec.json.decode(specs.read_bytes(), type=dict[str, HostSpec])
    session = Session(Inventory(hosts=hosts), history_path=specs.parent / "history.sqlite")
    log = came.open("a", buffering=1)

    def tap(record: Record) -> None:
        if isinstance(record, HostRecord):
            log.write(f"{record.host} {time.monotonic():.3f}\n")

    async def every_second(host: Host) -> None:
        await watch_host(host, session.store.apply, gpus_every_s=1.0, memory_every_s=1.0)

    session.store.listen(tap)
    session._watch_host = every_second  # type: ignore[method-assign]
    async with session:
        for name in hosts:
            session.add_host(name)
        await run_app(session)


def readings(came: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for line in came.read_text().splitlines() if came.exists() else ():
        name, _, at = line.partition(" ")
        found[name].append(float(at))
    return found


def measure(folder: Path, specs: dict[str, HostSpec], seconds: float, patience_s: float, *, bad: bool) -> None:
    import msgspec

    folder.mkdir()
    (folder / "specs.json").write_bytes(msgspec.json.encode(specs))
    came = folder / "came"
    screen = Screen([sys.executable, __file__, "--console", str(folder / "specs.json"), str(came)], folder, (160, 80))
    good = list(specs)[len(KINDS) :]
    try:
        while len(readings(came).keys() & set(good)) < len(good):
            if os.waitpid(screen.pid, os.WNOHANG)[0]:
                raise SystemExit(f"the console ended: {screen.read(0.1).decode(errors='replace')[-2000:]}")
            screen.drain(0.2)
            if time.monotonic() - screen.began > patience_s:
                answered = len(readings(came))
                raise SystemExit(f"only {answered} of {len(specs)} hosts had answered after {patience_s:.0f} s")
        connected_s = time.monotonic() - screen.began
        screen.press("1")
        screen.drain(8.0)
        start, cpu, took, presses = time.monotonic(), screen.cpu_s(), [], 0
        while time.monotonic() - start < seconds:
            screen.drain(0.3)
            screen.press("o")
            order = ORDERS[presses % len(ORDERS)]
            presses += 1
            if order:
                took.append(screen.until(order, 20.0))
            else:
                screen.drain(0.5)
        lasted, cpu, rss = time.monotonic() - start, screen.cpu_s() - cpu, screen.rss_mb()
    finally:
        screen.close()
    times = readings(came)
    gaps = sorted(b - a for name in good for a, b in zip(times[name], times[name][1:], strict=False) if a >= start)
    keys = spread(took)
    label = "with bad hosts" if bad else "all good"
    print(
        f"{label:15} {connected_s:9.1f} {len(gaps):6d} {statistics.median(gaps):6.2f} "
        f"{percentile(gaps, 0.99):6.2f} {gaps[-1]:6.2f}   {cpu / lasted:6.1%} {rss:6.0f}   {len(took):4d} "
        f"{keys['p50_ms']:6.0f} {keys['p99_ms']:6.0f}   {os.getloadavg()[0]:.1f}",
        flush=True,
    )


@contextlib.contextmanager
def helper(*words: str, alone: bool = False) -> Iterator[None]:
    """`alone`: it sees its own processes only (as root): servers of this machine would be found and followed."""
    apart = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc") if alone and os.geteuid() == 0 else ()
    process = subprocess.Popen([*apart, sys.executable, __file__, *words])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def far_side(folder: Path, stack: contextlib.ExitStack, *, real: bool) -> HostSpec:
    """Start it; how to reach it."""
    if real:
        server = stack.enter_context(Sshd.start(folder))
        return server.spec("one")
    folder.mkdir()
    key, host_key, port = make_key(folder / "user_ed25519"), make_key(folder / "host_ed25519"), free_port()
    (folder / "nvidia-smi").write_text(_SMI)
    (folder / "nvidia-smi").chmod(0o755)
    known = folder / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {host_key.with_suffix('.pub').read_text()}")
    stack.enter_context(helper("--far", str(port), str(folder), alone=True))
    return HostSpec(
        name="one", address="127.0.0.1", port=port, user="root", identity_files=(str(key),), known_hosts=str(known)
    )


def main() -> None:
    import msgspec

    parser = argparse.ArgumentParser(description="What a fleet costs, and whether one bad host slows the others.")
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--patience", type=float, default=200.0, help="Seconds that connecting may take.")
    parser.add_argument("--sshd", action="store_true", help="A real sshd, which forks for every question.")
    for name in ("--proxies", "--far", "--console"):
        parser.add_argument(name, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.console:
        first()
    if args.far:
        asyncio.run(far(int(args.far[0]), Path(args.far[1])))
    elif args.proxies:
        asyncio.run(proxies(int(args.proxies[0]), json.loads(args.proxies[1])))
    elif args.console:
        asyncio.run(console(Path(args.console[0]), Path(args.console[1])))
    else:
        with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
            folder = Path(name)
            one = far_side(folder / "far", stack, real=args.sshd)
            ports = {kind: free_port() for kind in KINDS}
            stack.enter_context(helper("--proxies", str(one.port), json.dumps(ports)))
            names = [f"host{n:02d}" for n in range(args.hosts)]
            print(f"{args.hosts} hosts, {args.seconds:g} s")
            print("                connect s   gaps  p50 s  p99 s  max s      CPU    MiB   keys p50 ms p99 ms   load")
            for bad in (False, True):
                specs = {name: msgspec.structs.replace(one, name=name) for name in names}
                for kind, host in zip(KINDS, names if bad else (), strict=False):
                    known = folder / f"known-{kind}"
                    known.write_text(
                        Path(one.known_hosts or "").read_text().replace(f":{one.port} ", f":{ports[kind]} ")
                    )
                    specs[host] = msgspec.structs.replace(specs[host], port=ports[kind], known_hosts=str(known))
                measure(folder / f"run-{bad}", specs, args.seconds, args.patience, bad=bad)


if __name__ == "__main__":
    main()
