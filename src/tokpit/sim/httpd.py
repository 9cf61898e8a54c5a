"""A small HTTP/1.1 server on asyncio streams: keep-alive, JSON in and out, chunked streaming. No framework needed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

MAX_BODY = 64 << 20


@dataclass(slots=True)
class Query:
    """One request as it came, with the connection to answer on."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    peer: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int = 200
    keep: bool = True

    def json(self) -> Any:
        """The body as JSON; ValueError if it is none."""
        return json.loads(self.body or b"{}")

    @property
    def gone(self) -> bool:
        """The client has hung up."""
        return self.reader.at_eof() or self.writer.is_closing()


@dataclass(slots=True)
class Answer:
    """A whole answer."""

    body: bytes
    status: int = 200
    kind: str = "application/json"
    extra: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(data: Any, status: int = 200) -> Answer:
        """A JSON answer."""
        return Answer(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(), status)


Handler = Callable[[Query], Awaitable[Answer | None]]
"""Returns the answer, or None if it wrote and logged a stream itself (see `Stream`)."""


class Stream:
    """A chunked event stream: `start`, any number of `send`, `end`."""

    def __init__(self, query: Query) -> None:
        self._writer = query.writer

    def start(self) -> None:
        """Write the head."""
        self._writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    def send(self, data: bytes) -> None:
        """One chunk."""
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        """The last chunk."""
        self._writer.write(b"0\r\n\r\n")


async def serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler, log: Callable[[Query], None]
) -> None:
    """Answer one connection until either side ends it."""
    try:
        while (query := await _read(reader, writer)) is not None:
            answer = await handler(query)
            if answer is not None:
                query.status = answer.status
                log(query)
                writer.write(_head(answer, query.keep) + answer.body)
            await writer.drain()
            if not query.keep:
                break
    except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        pass
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Query | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *rows = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {}
    for row in rows:
        name, colon, value = row.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = b""
    if "chunked" in headers.get("transfer-encoding", ""):
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readuntil(b"\r\n")
    elif (size := int(headers.get("content-length", "0"))) <= MAX_BODY:
        body = await reader.readexactly(size)
    parts = urlsplit(target)
    peer = writer.get_extra_info("peername") or ("127.0.0.1", 0)
    return Query(
        method=method,
        path=parts.path,
        query=parts.query,
        headers=headers,
        body=body,
        peer=f"{peer[0]}:{peer[1]}",
        reader=reader,
        writer=writer,
        keep=headers.get("connection", "").lower() != "close",
    )


def _head(answer: Answer, keep: bool) -> bytes:
    rows = [
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        "server: uvicorn",
        f"content-type: {answer.kind}",
        f"content-length: {len(answer.body)}",
        *(f"{k}: {v}" for k, v in answer.extra.items()),
        *(() if keep else ("connection: close",)),
    ]
    return ("\r\n".join(rows) + "\r\n\r\n").encode("latin-1")
