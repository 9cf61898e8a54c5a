"""What both transports share: run, stream and write_file in terms of one framed, guarded remote process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from tokpit.domain.text import decode_line
from tokpit.errors import HostError, LinkLost, RemoteFailed
from tokpit.transport.base import Completed, Dialog, HostSpec
from tokpit.transport.script import Unframer, new_marker, wrap

CHUNK = 1 << 16
STDERR_KEPT = 1 << 14
STOP_GRACE_S = 3.0
"""The watchman needs a second to end a stubborn process group."""


class Process(Protocol):
    """One running remote shell. Reads give b"" at the end and raise LinkLost if the link breaks."""

    async def write(self, data: bytes) -> None:
        """Send to stdin, waiting while the window is closed."""
        ...

    def write_eof(self) -> None:
        """End stdin."""
        ...

    async def read(self, size: int) -> bytes:
        """Up to `size` bytes of stdout."""
        ...

    async def read_stderr(self, size: int) -> bytes:
        """Up to `size` bytes of stderr."""
        ...

    async def wait(self) -> int | None:
        """The exit status, negative for a signal; None: the link broke before it came."""
        ...

    def close(self) -> None:
        """Give the channel up."""
        ...


class ScriptHost(ABC):
    """Runs scripts over processes that a subclass opens."""

    def __init__(self, spec: HostSpec) -> None:
        self.spec = spec
        self._origin = time.time()
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """Name of the host as the user knows it."""
        return self.spec.name

    def now(self) -> float:
        """UTC seconds on this host's clock, scaled from the object's making on by `spec.clock_factor`."""
        return self._origin + (time.time() - self._origin) * self.spec.clock_factor

    @abstractmethod
    def _process(self, *, lasting: bool) -> AbstractAsyncContextManager[Process]:
        """A fresh shell running the bootstrap line; `lasting` ones do not take the places of short commands."""

    @abstractmethod
    async def wait_up(self) -> None:
        """Return once the link is up. Raises HostError if it will not come up by itself."""

    def lasting_free(self) -> bool:
        """Whether a lasting stream would start at once."""
        return True

    def _lost(self) -> LinkLost:
        return LinkLost(
            f"The connection to {self.name} broke during a command.",
            hint="It is opened again as soon as the host answers.",
        )

    async def run(self, script: str, *, stdin: bytes = b"", timeout_s: float = 30.0, check: bool = False) -> Completed:
        """Run a POSIX shell script; see Host.run."""
        marker = new_marker()
        first = wrap(script, marker, reads_stdin=bool(stdin)) + stdin
        frame = Unframer(marker)
        try:
            async with asyncio.timeout(timeout_s), self._process(lasting=False) as process:
                try:
                    done = await self._communicate(process, first, frame, ends_stdin=bool(stdin))
                except BaseException:
                    self._end(process, frame.pid if stdin else None)
                    raise
        except TimeoutError:
            raise RemoteFailed(
                f"{self.name}: the command did not end within {timeout_s:g} s and was stopped.",
                hint="The host may be overloaded.",
            ) from None
        if check and done.status != 0:
            raise RemoteFailed(f"{self.name}: {reason(done)}", status=done.status)
        return done

    async def _communicate(self, process: Process, first: bytes, frame: Unframer, *, ends_stdin: bool) -> Completed:
        err_frame = Unframer(frame.marker)
        out: list[bytes] = []
        err: list[bytes] = []

        async def feed() -> None:
            # A command may end without reading its input; its status then says how it fared.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError, OSError):
                await process.write(first)
                if ends_stdin:
                    process.write_eof()

        async def read_out() -> None:
            while data := await process.read(CHUNK):
                out.append(frame.feed(data))

        async def read_err() -> None:
            while data := await process.read_stderr(CHUNK):
                err.append(err_frame.feed(data))

        tasks = [asyncio.ensure_future(job()) for job in (feed, read_out, read_err)]
        try:
            await asyncio.gather(*tasks[1:])
            status = await process.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if status is None:
            raise self._lost()
        if not frame.found:
            raise self._no_shell(frame, err_frame, status)
        return Completed(b"".join(out), b"".join(err), status, frame.noise)

    def _no_shell(self, out: Unframer, err: Unframer, status: int) -> RemoteFailed:
        said = decode_line((err.noise.strip() or out.noise.strip()).split(b"\n")[-1])
        return RemoteFailed(
            f"{self.name}: the login shell did not start /bin/sh" + (f": {said}" if said else "."),
            status=status,
            hint="Is the account allowed to run commands?",
        )

    def _end(self, process: Process, pid: int | None) -> None:
        """End a process group without waiting: ending its stdin wakes the watchman, or a second command signals it."""

        async def end() -> None:
            with contextlib.suppress(HostError, OSError, TimeoutError):
                if pid is not None:
                    await self.run(f"kill -TERM -{pid} 2>/dev/null; sleep 1; kill -KILL -{pid} 2>/dev/null; :")

        process.write_eof()
        if pid is not None:
            task = asyncio.ensure_future(end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def stream(self, script: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Run a script and give its stdout in chunks as they come; see Host.stream."""
        return self.open_stream(script)

    @contextlib.asynccontextmanager
    async def open_stream(self, script: str, *, lasting: bool = True) -> AsyncIterator[AsyncIterator[bytes]]:
        """Like stream(); with `lasting` False it takes the place of a short command."""
        marker = new_marker()
        frame = Unframer(marker)
        err_frame = Unframer(marker)
        async with self._process(lasting=lasting) as process:
            tail = bytearray()

            async def drain() -> None:
                # Unread stderr would fill the window that stdout shares.
                with contextlib.suppress(HostError):
                    while data := await process.read_stderr(CHUNK):
                        tail.extend(err_frame.feed(data))
                        del tail[:-STDERR_KEPT]

            async def chunks() -> AsyncIterator[bytes]:
                while data := await process.read(CHUNK):
                    if payload := frame.feed(data):
                        yield payload
                status = await process.wait()
                if status is None:
                    raise self._lost()
                if not frame.found:
                    raise self._no_shell(frame, err_frame, status)

            drainer = asyncio.ensure_future(drain())
            iterator = chunks()
            try:
                await process.write(wrap(script, marker))
                yield iterator
            finally:
                process.write_eof()
                drainer.cancel()
                await asyncio.gather(drainer, return_exceptions=True)
                await iterator.aclose()  # type: ignore[attr-defined]  # AsyncIterator is what callers may rely on

    @contextlib.asynccontextmanager
    async def dialog(self, script: str) -> AsyncIterator[Dialog]:
        """Run a script that reads its stdin; see Host.dialog."""
        from tokpit.transport.dialog import ScriptDialog

        marker = new_marker()
        async with self._process(lasting=True) as process:
            talk = ScriptDialog(process, marker, self._lost, self._no_shell)
            try:
                await process.write(wrap(script, marker, reads_stdin=True))
                yield talk
            finally:
                await talk.close()
                if talk.status is None:
                    self._end(process, talk.pid)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Write a file atomically; see Host.write_file."""
        from tokpit.transport.files import write_file

        await write_file(self, path, data, mode=mode)

    def follow(self, path: str, *, offset: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        """The bytes of a file from `offset` on, for ever; see Host.follow."""
        from tokpit.transport.follow import follow

        return follow(self, path, offset=offset)

    async def _end_all(self) -> None:
        for task in list(self._ending):
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)


def reason(done: Completed) -> str:
    """The decisive line of a failed command: the last line of stderr, or of stdout, or the status itself."""
    for text in (done.stderr, done.stdout):
        lines = [line for line in text.strip().split(b"\n") if line.strip()]
        if lines:
            return decode_line(lines[-1].strip())
    return f"the command ended with status {done.status}."
