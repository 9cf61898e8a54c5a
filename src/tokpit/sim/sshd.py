"""The simulated host's SSH server: real sessions under /bin/sh inside the sandbox, and TCP to loopback.

Sessions behave as under OpenSSH without a terminal: the command runs in a process group of its own, its end and both
output pipes' ends close the channel, and a client that leaves closes the pipes and nothing else, so that whatever left
the group (setsid) lives on.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncssh

from tokpit.sim.sandbox import environment, view

CHUNK = 1 << 16
FIRST_LINE_LIMIT = 1 << 22


class _Connection(asyncssh.SSHServer):
    """Lets clients with the sandbox's key in, and forwards to loopback only."""

    def begin_auth(self, username: str) -> bool:
        return True

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return dest_host in {"127.0.0.1", "localhost", "::1"}


class SshServer:
    """Owns the listening socket and the keys under `ssh/`."""

    def __init__(self, root: Path, children: set[int]) -> None:
        self._root = root
        self._children = children
        self.port = 0

    async def start(self) -> None:
        """Make the keys, listen, and write `known_hosts`."""
        ssh = self._root / "ssh"
        host_key = asyncssh.generate_private_key("ssh-ed25519")
        user_key = asyncssh.generate_private_key("ssh-ed25519")
        user_key.write_private_key(str(ssh / "id_ed25519"))
        (ssh / "id_ed25519").chmod(0o600)
        user_key.write_public_key(str(ssh / "authorized_keys"))
        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=_Connection,
            server_host_keys=[host_key],
            authorized_client_keys=str(ssh / "authorized_keys"),
            process_factory=self._session,
            encoding=None,
            line_editor=False,
            allow_scp=False,
        )
        self.port = server.sockets[0].getsockname()[1]
        public = host_key.export_public_key().decode().strip()
        (ssh / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public}\n", encoding="utf-8")

    async def _session(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        argv: tuple[str | bytes, ...] = ("/bin/sh",)
        if process.command is not None:
            argv = ("/bin/sh", "-c", view(self._root, process.command.encode()))
        child_in, our_in = os.pipe()
        our_out, child_out = os.pipe()
        our_err, child_err = os.pipe()
        try:
            child = await asyncio.create_subprocess_exec(
                *argv,
                stdin=child_in,
                stdout=child_out,
                stderr=child_err,
                env=environment(self._root),
                cwd=self._root / "home",
                start_new_session=True,
            )
        finally:
            for fd in (child_in, child_out, child_err):
                os.close(fd)
        self._children.add(child.pid)
        feed = asyncio.create_task(_feed(self._root, process, child, our_in))
        drains = [
            asyncio.create_task(_drain(our_out, process.stdout)),
            asyncio.create_task(_drain(our_err, process.stderr)),
        ]
        closed = asyncio.create_task(process.wait_closed())
        work = asyncio.create_task(_all_over(drains, child))
        try:
            await asyncio.wait({work, closed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (feed, closed, *drains):
                task.cancel()
            await asyncio.gather(feed, closed, work, return_exceptions=True)
        status = child.returncode
        if status is None:
            status = await child.wait()
        self._children.discard(child.pid)
        with suppress(OSError, asyncssh.Error):
            if status < 0:
                process.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
            else:
                process.exit(status)


async def _all_over(drains: list[asyncio.Task[None]], child: asyncio.subprocess.Process) -> None:
    await asyncio.gather(*drains)
    await child.wait()


async def _feed(
    root: Path, process: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process, fd: int
) -> None:
    """Client's input to the child's; a client's signal goes to the process group.

    Only the first line goes through `view`: a script comes as one line, and what follows may be a file's content.
    """
    loop = asyncio.get_running_loop()
    protocol = asyncio.streams.FlowControlMixin(loop=loop)
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(fd, "wb", buffering=0))
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    held: bytes | None = b""
    try:
        while True:
            try:
                data = await process.stdin.read(CHUNK)
            except asyncssh.SignalReceived as received:
                number = getattr(signal, f"SIG{received.signal}", None)
                if number is not None:
                    with suppress(ProcessLookupError):
                        os.killpg(child.pid, number)
                continue
            except asyncssh.BreakReceived:
                continue
            if held is not None:
                held += data
                line, newline, rest = held.partition(b"\n")
                if data and not newline and len(held) < FIRST_LINE_LIMIT:
                    continue
                writer.write(view(root, line) + newline + rest)
                held = None
            else:
                writer.write(data)
            if not data:
                return
            await writer.drain()
    except (OSError, asyncssh.Error):
        return
    finally:
        transport.close()


async def _drain(fd: int, out: Any) -> None:
    """The child's output to the client, until the last writer closes it or the client has gone."""
    reader = asyncio.StreamReader(limit=CHUNK)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    try:
        while data := await reader.read(CHUNK):
            out.write(data)
            await out.drain()
    except (OSError, asyncssh.Error):
        return
    finally:
        transport.close()
