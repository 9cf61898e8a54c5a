"""A real HTTP server that streams exactly what a script says, byte by byte where it matters."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sleep:
    seconds: float


@dataclass(frozen=True)
class Raw:
    """Bytes past the chunked framing."""

    data: bytes


@dataclass(frozen=True)
class Head:
    status: int = 200
    headers: tuple[str, ...] = ("Content-Type: text/event-stream", "Transfer-Encoding: chunked")
    version: str = "1.1"


FIN = "fin"
"""Close the connection here, without the end of the body."""
RST = "rst"
"""Reset the connection here."""
END = "end"
"""The proper end of a chunked body."""
HOLD = "hold"
"""Never send another byte."""

Step = Any
Script = Callable[[dict[str, Any], int], Iterable[Step]]


def event(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data, separators=(",", ":")).encode()) + b"\n\n"


def token(text: str = " ok", field_name: str = "content", **extra: Any) -> bytes:
    choice = {"index": 0, "delta": {field_name: text}, "finish_reason": None}
    return event({"id": "r", "object": "chat.completion.chunk", "choices": [choice], **extra})


def role() -> bytes:
    return event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})


def finish(reason: str = "length") -> bytes:
    return event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})


def usage(completion: int, prompt: int = 12, **extra: Any) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **extra}})


DONE = event(b"[DONE]")


def answer(tokens: int = 4, *, per_chunk: int = 1, reason: str = "length", gap_s: float = 0.0) -> list[Step]:
    """A good answer of `tokens` tokens."""
    steps: list[Step] = [role()]
    for _ in range(0, tokens, per_chunk):
        if gap_s:
            steps.append(Sleep(gap_s))
        steps.append(token(" t" * per_chunk))
    return [*steps, finish(reason), usage(tokens), DONE, END]


@dataclass
class ScriptServer:
    """Answers every POST with the steps of `script(body, number of the request)`."""

    script: Script
    bodies: list[dict[str, Any]] = field(default_factory=list)
    connections: int = 0
    running: int = 0
    peak: int = 0
    port: int = 0
    models: list[str] = field(default_factory=lambda: ["the-model"])
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def __aenter__(self) -> ScriptServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((int(row.split(":")[1]) for row in head.split("\r\n") if row.lower().startswith("content-l")), 0)
        body = await reader.readexactly(length)
        if head.startswith("GET"):
            data = json.dumps({"data": [{"id": name} for name in self.models]}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
            return True
        self.bodies.append(json.loads(body))
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            return await self._answer(writer, list(self.script(self.bodies[-1], len(self.bodies) - 1)))
        finally:
            self.running -= 1

    async def _answer(self, writer: asyncio.StreamWriter, steps: list[Step]) -> bool:
        if not steps or not (isinstance(steps[0], Head) or steps[0] in (FIN, RST, HOLD)):
            steps = [Head(), *steps]
        for step in steps:
            if isinstance(step, Head):
                rows = [f"HTTP/{step.version} {step.status} X", *step.headers, "", ""]
                writer.write("\r\n".join(rows).encode())
            elif isinstance(step, Sleep):
                await writer.drain()
                await asyncio.sleep(step.seconds)
            elif isinstance(step, Raw):
                writer.write(step.data)
                await writer.drain()
            elif isinstance(step, bytes):
                writer.write(b"%x\r\n%s\r\n" % (len(step), step))
                await writer.drain()
            elif step == END:
                writer.write(b"0\r\n\r\n")
                await writer.drain()
            elif isinstance(step, asyncio.Event):
                await writer.drain()
                await step.wait()
            elif step == HOLD:
                await asyncio.Event().wait()
            elif step in (FIN, RST):
                await writer.drain()
                if step == RST:
                    sock = writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
        return True
