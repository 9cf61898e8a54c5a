"""The generator as one process on the server's host: sent as a file, started under a Python found there, talked to.

Its standard input stays open for as long as it runs and it ends when that ends, so nothing is left on the host after a
stop, a lost link or a killed tokpit.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import posixpath
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.domain.text import LineSplitter, sanitize
from tokpit.errors import LoadError, RemoteFailed
from tokpit.transport.base import Dialog, Host, quote

if TYPE_CHECKING:
    from tokpit.load.events import Event
    from tokpit.load.plan import Plan
    from tokpit.load.results import SweepResult

BEAT_S = 5.0
PATIENCE_S = 60.0
"""The generator on the host ends after this long without a sign of life: a link can die without telling anybody."""
_LONGEST_LINE = 64 << 20
_PROBE = """\
cd /
dir=${XDG_CACHE_HOME:-$HOME/.cache}/tokpit
printf 'dir %s\\n' "$dir"
[ -s "$dir/@FILE@" ] && [ "$(wc -c <"$dir/@FILE@")" -eq @SIZE@ ] && printf 'have\\n'
for python in @PYTHONS@; do
  "$python" -c '@CODE@' 2>/dev/null && { printf 'python %s\\n' "$python"; exit 0; }
done
exit 0
"""
_CODE = 'import sys, importlib.util as u; sys.exit(sys.version_info < (3, 9) or u.find_spec("aiohttp") is None)'


class OnHost:
    """The generator on the host: one process for all plans, begun with the first one. Made by `find_on_host`."""

    where = "host"

    def __init__(self, host: Host, *, python: str, path: str, data: bytes, have: bool) -> None:
        self._host, self._path, self._data, self._have = host, path, data, have
        self.python = python
        self._stack = contextlib.AsyncExitStack()
        self._dialog: Dialog | None = None
        self._events: AsyncIterator[Event] | None = None
        self._alive = False

    @property
    def command(self) -> str:
        """The remote command line; plans go to its standard input."""
        return f"TOKPIT_LOAD_PATIENCE_S={PATIENCE_S:g} {quote((self.python, self._path))}"

    @property
    def worker_command(self) -> str:
        """The same file as a member of a crew that is led from here."""
        return f"{self.command} worker"

    @property
    def sent(self) -> bool:
        """Whether the generator's file is on the host."""
        return self._have

    async def ready(self) -> None:
        """Put the generator's file there and start it.

        Raises RemoteFailed, also where the connection has no place for one more session; LinkLost.
        """
        await self.put()
        if not self._host.lasting_free():
            raise RemoteFailed(f"the connection to {self._host.name} has no place for one more session")
        await self._start()

    async def put(self) -> None:
        """Put the generator's file into the cache folder, unless it is there. Raises RemoteFailed, LinkLost."""
        if not self._have:
            folder = quote([posixpath.dirname(self._path)])
            await self._host.run(f"umask 077; mkdir -p -- {folder} && chmod 700 -- {folder}", check=True)
            await self._host.write_file(self._path, self._data)
            self._have = True

    async def _start(self) -> Dialog:
        dialog = await self._stack.enter_async_context(self._host.dialog(f"cd / && {self.command}"))
        self._dialog, self._events = dialog, _events(dialog, self._host.name)
        return dialog

    async def close(self) -> None:
        """End the process on the host: its standard input ends, and with it everything that it does."""
        self._dialog = self._events = None
        self._alive = False
        await self._stack.aclose()

    async def run(self, plan: Plan, on_event: Callable[[Event], None], stop: asyncio.Event) -> SweepResult:
        """See Source."""
        from tokpit.load.events import SweepFinished

        dialog = self._dialog or await self._start()
        assert self._events is not None
        await dialog.write(plan.to_json().encode() + b"\n")
        if not self._alive:  # from the first plan on: nothing else may come before it
            self._alive = True
            await self._stack.enter_async_context(_alive(dialog))
        async with _stoppable(dialog, stop):
            async for event in self._events:
                on_event(event)
                if isinstance(event, SweepFinished):
                    return event.result
        last = dialog.errors.strip().splitlines()[-1:] or [f"its status is {dialog.status}"]
        await self.close()
        raise LoadError(f"the load generator on {self._host.name} ended without a result: {last[0]}")


@contextlib.asynccontextmanager
async def _alive(dialog: Dialog) -> AsyncIterator[None]:
    """Tells the generator every few seconds that somebody is there."""

    async def beat() -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await dialog.write(b"here\n")

    async with _beside(beat()):
        yield


@contextlib.asynccontextmanager
async def _stoppable(dialog: Dialog, stop: asyncio.Event) -> AsyncIterator[None]:
    """Passes a stop on to the generator."""

    async def pass_on() -> None:
        await stop.wait()
        await dialog.write(b"stop\n")

    async with _beside(pass_on()):
        yield


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs `work` while the context is open. A link that breaks is told by whoever reads from it."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _events(dialog: Dialog, host: str) -> AsyncIterator[Event]:
    from tokpit.load import events

    splitter = LineSplitter(limit=_LONGEST_LINE)
    async for chunk in dialog.chunks():
        for line in splitter.feed(chunk):
            try:
                data = clean(msgspec.json.decode(line))
                if data.get("event") == "error":
                    raise LoadError(f"the load generator on {host}: {data.get('message')}")
                event = events.from_dict(data)
            except (ValueError, TypeError, KeyError, AttributeError, msgspec.DecodeError) as error:
                sentence = f"the load generator on {host} said something that is no event ({error})"
                raise RemoteFailed(sentence) from error
            yield event


def clean(value: Any) -> Any:
    """Decoded JSON with every text in it made safe to print."""
    if isinstance(value, str):
        return sanitize(value)
    if isinstance(value, dict):
        return {sanitize(key): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    return value


async def find_on_host(host: Host, server: ServerInfo | None) -> OnHost:
    """The generator, to be sent to `host`, and the interpreter for it. Changes nothing there.

    Raises RemoteFailed with the reason why it cannot run there.
    """
    from tokpit.load.zipapp import build

    data = await asyncio.to_thread(build)
    name = f"load-{hashlib.sha256(data).hexdigest()[:16]}.pyz"
    pythons = candidates(host, server)
    script = _PROBE.replace("@FILE@", name).replace("@SIZE@", str(len(data)))
    script = script.replace("@PYTHONS@", quote(pythons)).replace("@CODE@", _CODE)
    answer = await host.run(script, timeout_s=60.0)
    said = dict(line.partition(" ")[::2] for line in answer.out.splitlines())
    if not said.get("python"):
        raise RemoteFailed(
            f"no Python with aiohttp was found on {host.name} (tried {', '.join(pythons)})",
            hint="install aiohttp in the engine's environment there, or measure with --from here",
        )
    if not said.get("dir", "").startswith("/"):
        raise RemoteFailed(f"{host.name}: the login has neither a home nor a cache folder")
    path = posixpath.join(said["dir"], name)
    return OnHost(host=host, python=said["python"], path=path, data=data, have="have" in said)


def candidates(host: Host, server: ServerInfo | None) -> tuple[str, ...]:
    """Interpreters to try, best first: the server's own, those of the inventory's programs, then the PATH's."""
    found: list[str] = []
    if server is not None and server.python:
        found.append(server.python)
    for program in host.spec.programs.values():
        words = _words(program)
        if not words:
            continue
        first = words[0].rstrip("/")
        if posixpath.basename(first).startswith("python"):
            found.append(first)
        elif len(words) == 1 and first.startswith(("/", "~")):
            found += [posixpath.join(first, "bin", "python"), posixpath.join(posixpath.dirname(first), "python")]
        elif first.startswith("/"):
            found.append(posixpath.join(posixpath.dirname(first), "python"))
    if host.spec.local:
        found.append(sys.executable)
    found += ["python3", "python"]
    return tuple(dict.fromkeys(found))


def _words(program: str) -> Sequence[str]:
    try:
        return shlex.split(program)
    except ValueError:
        return ()
