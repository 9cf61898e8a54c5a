"""A real Chromium without a window, driven over its debugging protocol: what a page logs, fetches and looks like."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp


def chromium() -> str | None:
    """Path of an installed Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


@dataclass
class Page:
    """One tab. `console`: errors, warnings and exceptions; `requests`: every URL asked for."""

    socket: aiohttp.ClientWebSocketResponse
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _answers: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    _loaded: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, method: str, **params: Any) -> Any:
        number = len(self._answers) + 1
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": number, "method": method, "params": params})
        return await self._answers[number]

    async def listen(self) -> None:
        async for message in self.socket:
            data = json.loads(message.data)
            if "id" in data:
                waiting = self._answers[data["id"]]
                if "error" in data:
                    waiting.set_exception(RuntimeError(str(data["error"])))
                else:
                    waiting.set_result(data["result"])
                continue
            method, params = data["method"], data["params"]
            if method == "Page.loadEventFired":
                self._loaded.set()
            elif method == "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            elif method == "Runtime.exceptionThrown":
                self.console.append(str(params["exceptionDetails"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                self.console.append(params["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                self.console.append(str(params["args"]))

    async def open(self, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load a file and wait until it is shown."""
        self._loaded.clear()
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Page.navigate", url=path.resolve().as_uri())
        await self._loaded.wait()

    async def value(self, expression: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    async def picture(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of the page."""
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def browser(program: str) -> AsyncIterator[Page]:
    """A tab in a fresh profile; the browser is gone afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = (
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"),
            *("--disable-dev-shm-usage", "--disable-background-networking", f"--user-data-dir={profile}"),
        )
        process = await asyncio.create_subprocess_exec(
            program, *options, "about:blank", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        try:
            assert process.stderr is not None
            port = ""
            async for line in process.stderr:
                if (match := re.search(rb"DevTools listening on ws://[^:]+:(\d+)/", line)) is not None:
                    port = match[1].decode()
                    break
            assert port, "the browser did not start"
            drain = asyncio.ensure_future(process.stderr.read())
            async with aiohttp.ClientSession() as web:
                async with web.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    tabs = await answer.json()
                where = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
                async with web.ws_connect(where, max_msg_size=0) as socket:
                    page = Page(socket)
                    task = asyncio.ensure_future(page.listen())
                    for domain in ("Page", "Network", "Runtime", "Log"):
                        await page.call(f"{domain}.enable")
                    yield page
                    task.cancel()
            drain.cancel()
        finally:
            process.terminate()
            await process.wait()
