"""One request: sent, read to its end and put into exactly one outcome class."""

from __future__ import annotations

import asyncio
import errno
import json
import math
from collections.abc import Callable
from typing import Any

import aiohttp

from .clock import now_ns
from .stream import Decoder, Exchange, conclude, error_text, shown
from .wire import Relay, StampedBody, untap

BODY_BYTES = 8192


class Client:
    """Sends request bodies to one URL through one session."""

    def __init__(self, session: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> None:
        self.session = session
        self.url = url
        self.headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", **headers}

    async def send(self, x: Exchange, body: bytes, on_first: Callable[[], None] | None = None) -> None:
        """Runs the request of `x` to its end; sets its outcome and never raises for what the server does.

        A cancellation is an outcome too: `timeout.…` when `x.timeout` was set before it, else `cancelled`.
        """
        x.t_start = now_ns()
        try:
            try:
                await self._attempt(x, body, on_first)
            except (aiohttp.ServerDisconnectedError, ConnectionResetError, aiohttp.ClientOSError) as error:
                # A connection that lay idle until the server closed it says nothing about this request.
                if x.reads or x.status or not getattr(error, "tokpit_stale", False):
                    raise
                x.stale_retries += 1
                x.t_sent = 0
                await self._attempt(x, body, on_first)
        except asyncio.CancelledError:
            if x.timeout == "done":
                conclude(x)
            elif x.timeout:
                x.outcome, x.detail = x.timeout, x.detail or "the client's own limit"
            else:
                x.outcome, x.detail = "cancelled", "stopped before its end"
            task = asyncio.current_task()
            if task is not None and hasattr(task, "uncancel"):
                task.uncancel()
        except Exception as error:
            failure(x, error)
        if not x.t_end:
            x.t_end = now_ns()

    async def _attempt(self, x: Exchange, body: bytes, on_first: Callable[[], None] | None) -> None:
        data = StampedBody(body, x)
        async with self.session.post(self.url, data=data, headers=self.headers, allow_redirects=False) as response:
            x.status = response.status
            tap: Relay | None = getattr(response, "tap", None)
            if response.status != 200:
                untap(response)
                x.t_last_rx = now_ns()
                await _refused(x, response)
                return
            decoder = Decoder(x, on_first)
            try:
                await _read(response, tap, decoder)
            except (aiohttp.ClientError, ConnectionError, OSError) as error:
                lost = tap.lost if tap is not None else None
                reset = isinstance(lost, ConnectionResetError) or "ConnectionResetError" in repr(error)
                how = "was reset" if reset else "closed"
                x.t_end = now_ns()
                conclude(x, f"the connection {how} after {len(x.stamps)} chunks of text", reset=reset)
                return
            finally:
                untap(response)
            x.t_end = now_ns()
            decoder.end(x.t_end)
            conclude(x)


async def _read(response: Any, tap: Relay | None, decoder: Decoder) -> None:
    if tap is not None:
        await tap.attach(response, decoder)
        return
    async for data in response.content.iter_any():
        decoder.spread(decoder.feed(data, now_ns()), 0)


async def _refused(x: Exchange, response: aiohttp.ClientResponse) -> None:
    status = response.status
    x.outcome = "429" if status == 429 else f"{status // 100}xx"
    try:
        x.retry_after_s = float(response.headers.get("Retry-After", ""))
        if not math.isfinite(x.retry_after_s) or x.retry_after_s < 0:
            x.retry_after_s = None
    except ValueError:
        pass
    text = shown(response.reason or "")
    try:
        body = await response.content.read(BODY_BYTES)
        text = _message(body) or text
    except (aiohttp.ClientError, OSError):
        pass
    x.detail = f"{status} {text}".strip()
    response.close()


def _message(body: bytes) -> str:
    try:
        parsed = json.loads(body)
    except ValueError:
        return shown(body)
    if isinstance(parsed, dict):
        if isinstance(parsed.get("detail"), str):
            return shown(str(parsed["detail"]))
        return error_text(parsed)
    return shown(body)


def failure(x: Exchange, error: Exception) -> None:
    """Sets the outcome for an exception before or instead of an answer; the detail is never blank."""
    detail = f"{type(error).__name__}: {shown(str(error)) or 'no message'}"
    number = getattr(error, "errno", None)
    if isinstance(error, asyncio.TimeoutError):
        x.outcome, detail = "timeout.connect", f"no connection within the limit ({type(error).__name__})"
    elif isinstance(error, aiohttp.ClientConnectorError) or not x.t_sent:
        x.outcome = "connect"
        if number == errno.EMFILE:
            detail = "this machine has no file descriptors left: raise `ulimit -n`"
        elif number == errno.ECONNREFUSED:
            detail = "connection refused: nothing listens at this address"
    elif isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError)):
        x.outcome = "reset"
    elif isinstance(error, aiohttp.ClientResponseError):
        x.outcome = "bad_sse"
    else:
        x.outcome = "reset"
    x.detail = detail
