"""Does one bad host slow the others? 64 hosts watched at once, one frozen, one flapping, one at 2 s round trip.

    python benchmarks/fleet.py [--hosts 64] [--seconds 40]

All hosts are one sshd on loopback, each over a connection of its own; the bad ones are behind proxies in a process of
their own that freeze, cut or delay the bytes. Once with the bad hosts and once with good ones in their place: how long
a good host's memory figures are apart (they are asked for every 2 s), this process's CPU and memory, and the time from
a key on the fleet screen to its paint.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from sshd import Sshd, free_port
from tokpit.config.inventory import Inventory
from tokpit.domain.records import HostRecord
from tokpit.load.stats import percentile
from tokpit.ops.session import Session
from tokpit.ui.app import TokpitApp

KINDS = ("frozen", "flapping", "slow")


async def proxies(target: int, ports: dict[str, int]) -> None:
    """Forward each port to the sshd in its bad way, for ever."""

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


async def measure(server: Sshd, ports: dict[str, int], hosts: int, seconds: float, *, bad: bool) -> None:
    names = [f"host{n:02d}" for n in range(hosts)]
    specs = {name: server.spec(name) for name in names}
    if bad:
        for kind, name in zip(KINDS, names, strict=False):
            entry = f"[127.0.0.1]:{ports[kind]} " + server.host_key_line().split(" ", 1)[1]
            known = server.folder / f"known-{kind}"
            known.write_text(entry)
            specs[name] = server.spec(name, port=ports[kind], known_hosts=str(known))
    came: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        async with Session(Inventory(hosts=specs), history_path=Path(folder) / "h.sqlite") as session:
            apply = session.store.apply

            def tap(record: Any) -> None:
                if isinstance(record, HostRecord):
                    came[record.host].append(time.monotonic())
                apply(record)

            session.store.apply = tap  # type: ignore[method-assign]
            for name in names:
                session.add_host(name)
            app = TokpitApp(session)
            begun = time.monotonic()
            async with app.run_test(size=(120, 40)) as pilot:
                good = names[len(KINDS) :]
                while not all(came[name] for name in good):
                    await asyncio.sleep(0.1)
                connected_s = time.monotonic() - begun
                await pilot.press("1")
                await asyncio.sleep(3.0)
                start, cpu = time.monotonic(), time.process_time()
                paints = []
                while time.monotonic() - start < seconds:
                    pressed = time.monotonic()
                    await pilot.press("down")
                    paints.append(time.monotonic() - pressed)
                    await asyncio.sleep(0.5)
                lasted, cpu = time.monotonic() - start, time.process_time() - cpu
    gaps = sorted(
        b - a for name in good for a, b in zip(came[name], came[name][1:], strict=False) if a >= start and b - a > 0
    )
    paints.sort()
    rss = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    label = "with bad hosts" if bad else "all good"
    print(
        f"{label:15} {connected_s:7.1f} {len(gaps):6d} {statistics.median(gaps):6.2f} "
        f"{percentile(gaps, 0.99):6.2f} {gaps[-1]:6.2f}   {cpu / lasted:6.1%} {int(rss.split()[1]) / 1024:6.0f}   "
        f"{percentile(paints, 0.5) * 1e3:6.0f} {percentile(paints, 0.95) * 1e3:6.0f}   {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Does one bad host slow the others?")
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--proxies", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.proxies:
        target, *listen = map(int, args.proxies.split(","))
        asyncio.run(proxies(target, dict(zip(KINDS, listen, strict=True))))
        return
    with tempfile.TemporaryDirectory() as folder, Sshd.start(Path(folder) / "sshd") as server:
        ports = {kind: free_port() for kind in KINDS}
        words = ",".join(map(str, (server.port, *ports.values())))
        helper = subprocess.Popen([sys.executable, __file__, "--proxies", words])
        try:
            print(f"{args.hosts} hosts, {args.seconds:g} s")
            print("                connect s   gaps  p50 s  p99 s  max s      CPU    MiB   key ms p50 p95  load")
            for bad in (False, True):
                asyncio.run(measure(server, ports, args.hosts, args.seconds, bad=bad))
        finally:
            helper.terminate()
            helper.wait()


if __name__ == "__main__":
    main()
