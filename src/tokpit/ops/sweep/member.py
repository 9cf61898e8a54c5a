"""One load generator on another host, as a member of a crew that this process leads."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from tokpit.domain.text import sanitize
from tokpit.errors import HostError, RemoteFailed
from tokpit.load.member import Frames
from tokpit.ops.sweep.onhost import BEAT_S, clean
from tokpit.transport.base import Dialog, Host

SILENCE_S = 30.0
"""Without a message for this long a member counts as lost: while it works it tells something four times a second."""
HELLO_S = 30.0


class RemoteMember:
    """See load.member.Member. `command`: the shell command that starts it. Made ready by `open`, ended by `close`."""

    def __init__(self, host: Host, command: str, *, place: str, url: str = "", hello_s: float = HELLO_S) -> None:
        self._host, self._command, self._hello_s = host, command, hello_s
        self.place, self.url = place, url
        self.alive = False
        self.offset_ns = 0
        self.cores = 1
        self.round_trip_s = 0.0
        self._why = ""
        self._stack = contextlib.AsyncExitStack()
        self._dialog: Dialog | None = None
        self._messages: asyncio.Queue[tuple[dict[str, Any], bytes] | None] = asyncio.Queue()

    async def open(self) -> None:
        """Start it and hear its first word. Raises RemoteFailed where it does not start, HostError."""
        self._dialog = await self._stack.enter_async_context(self._host.dialog(f"cd / && {self._command}"))
        self.alive = True
        for work in (self._read(self._dialog), self._beat(self._dialog)):
            task = asyncio.ensure_future(work)
            self._stack.push_async_callback(_ended, task)
        first = await self._within(self._hello_s)
        facts = first[0].get("hello") if first is not None else None
        if not isinstance(facts, dict):
            said = self._why
            await self.close()
            raise RemoteFailed(f"the load generator on {self.place} did not start: {said or 'it says nothing'}")
        if facts.get("order") != "little":
            await self.close()
            raise RemoteFailed(f"{self.place} writes numbers the other way round; its records cannot be merged here")
        self.cores = max(1, int(facts.get("cores") or 1))

    @property
    def end(self) -> str:
        """See Member."""
        return f"was lost ({self._why})" if self._why else "ended by itself"

    async def send(self, **command: Any) -> None:
        """See Member."""
        if self._dialog is None:
            return
        try:
            await self._dialog.write(json.dumps(command, separators=(",", ":")).encode() + b"\n")
        except HostError as error:
            self._gone(error.message)

    async def next(self) -> tuple[dict[str, Any], bytes] | None:
        """See Member."""
        return await self._within(SILENCE_S)

    async def reach(self, url: str) -> str:
        """Why no HTTP server answers it at `url`; empty where one does. Raises RemoteFailed where it is gone."""
        await self.send(reach=url)
        while (message := await self.next()) is not None:
            if "reached" in message[0]:
                return sanitize(str(message[0]["reached"]))
        raise RemoteFailed(f"the load generator on {self.place} {self.end}")

    async def close(self) -> None:
        """See Member."""
        self.alive = False
        self._dialog = None
        with contextlib.suppress(HostError):
            await self._stack.aclose()

    def kill(self) -> None:
        """Nothing is left to be killed: it ends with its input."""

    async def _within(self, patience_s: float) -> tuple[dict[str, Any], bytes] | None:
        if not self.alive:
            return None
        try:
            message = await asyncio.wait_for(self._messages.get(), patience_s)
        except TimeoutError:
            self._gone(f"not a word for {patience_s:g} s")
            return None
        if message is None:
            self._gone("")
            return None
        if "failed" in message[0]:
            self._why = self._why or f"it failed: {message[0]['failed']}"
        return message

    def _gone(self, why: str) -> None:
        self.alive = False
        self._why = self._why or sanitize(why)

    async def _read(self, dialog: Dialog) -> None:
        frames = Frames()
        try:
            async for chunk in dialog.chunks():
                for data, raw in frames.feed(chunk):
                    self._messages.put_nowait((clean(data) if "records" not in data else data, raw))
            last = dialog.errors.strip().splitlines()[-1:] or [f"it ended with status {dialog.status}"]
            self._why = self._why or last[0]
        except (HostError, ValueError) as error:
            self._why = self._why or sanitize(str(error))
        finally:
            self._messages.put_nowait(None)

    async def _beat(self, dialog: Dialog) -> None:
        with contextlib.suppress(HostError):
            while True:
                await asyncio.sleep(BEAT_S)
                await dialog.write(b"here\n")


async def _ended(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
