"""One tokpit at work: the hosts it is connected to, the live store, the history and the tasks that feed them.

Front ends hold a Session and nothing else. It lives outside the Textual app, so that links are closed in order however
the screen ends: `async with Session(inventory) as session: ...`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tokpit.config.inventory import Inventory
from tokpit.domain.records import LinkRecord, ServersRecord
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchState
from tokpit.errors import StoreError
from tokpit.ops.gate import ConfirmRequest
from tokpit.ops.supervisor import Supervisor
from tokpit.store.live import LiveStore
from tokpit.transport.base import Host, HostSpec, Prompt

if TYPE_CHECKING:
    from tokpit.config.settings import AlarmPreferences
    from tokpit.ops.alarms import Book, Complain, Tell
    from tokpit.ops.older import Older
    from tokpit.ops.records.recording import Recorder, Sink
    from tokpit.store.history import History


def recorded(info: ServerInfo, state: LaunchState | None) -> ServerInfo:
    """`info` with what the record of its launch knows; a job is known without one."""
    if state is None:
        return info
    return msgspec.structs.replace(
        info,
        launched_by_tokpit=True,
        group=state.group,
        rank=state.rank,
        ranks=state.ranks,
        port=info.port if not state.rank else None,
    )


class Session:
    """See the module docstring."""

    def __init__(
        self,
        inventory: Inventory,
        *,
        history_path: Path | None = None,
        read_only: bool = False,
        assume_yes: bool = False,
    ) -> None:
        self.inventory = inventory
        self.store = LiveStore()
        self.supervisor = Supervisor()
        self.read_only = read_only
        self.assume_yes = assume_yes
        self.confirm: Callable[[ConfirmRequest], Awaitable[bool]] | None = None
        self.prompt: Prompt | None = None
        self.host_specs: dict[str, HostSpec] = {}
        self.stops: dict[str, asyncio.Event] = {}
        """Stop events of sweeps under way, by operation id."""
        self.rings_folder: Path | None = None
        """Where the ring of the last minutes goes; None: the user's folder."""
        self.ring: Path | None = None
        """Folder of the ring of the last minutes, once it is kept."""
        self.recording: Path | None = None
        """The recording that was asked for and is under way."""
        self._hosts: dict[str, Host] = {}
        self.alarms: Book | None = None
        """Alarms that stand, while they are watched."""
        self._recorders: dict[str, Recorder] = {}
        self._history_path = history_path
        self._history: History | None = None
        self._history_lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all tasks, then the links, then the history; servers on the hosts live on."""
        await self.supervisor.close()
        for recorder in self._recorders.values():
            await recorder.close()
        await asyncio.gather(*(host.close() for host in self._hosts.values()), return_exceptions=True)
        self._hosts.clear()
        if self._history is not None:
            await self._history.close()
            self._history = None

    async def history(self) -> History:
        """The stored runs, launches and audit; opened on first use. Raises StoreError."""
        async with self._history_lock:
            if self._history is None:
                from tokpit.config.paths import state_dir
                from tokpit.store.history import History

                self._history = await History.open(self._history_path or state_dir() / "history.sqlite")
        return self._history

    @property
    def journals(self) -> Path:
        """Folder of the journals of experiments: beside the history."""
        from tokpit.config.paths import state_dir

        return (self._history_path.parent if self._history_path is not None else state_dir()) / "tune"

    def add_host(self, name: str) -> HostSpec:
        """Make a host known by inventory name, ssh_config name or address. Raises UnknownHost, ConfigError."""
        spec = self.inventory.resolve(name)
        self.host_specs.setdefault(spec.name, spec)
        self.store.host(spec.name)
        return self.host_specs[spec.name]

    def host(self, name: str) -> Host:
        """The host of that name, made on first use; not necessarily connected."""
        spec = self.add_host(name)
        if spec.name not in self._hosts:
            from tokpit.transport.open import open_host

            host = open_host(spec, prompt=self._ask)
            host.on_link(self.store.apply)
            self._hosts[spec.name] = host
        return self._hosts[spec.name]

    async def connected(self, name: str) -> Host:
        """The host of that name, connected. Raises HostError."""
        host = self.host(name)
        await host.connect()
        return host

    async def find(self, name: str) -> tuple[ServerInfo, ...]:
        """The servers that run on a host now; the store is told, of orphan workers as well. Raises HostError."""
        from tokpit.collect.find import Finder
        from tokpit.transport.detached import read_states

        host = await self.connected(name)
        found, states = await asyncio.gather(Finder(host).find(), read_states(host))
        ours = {(state.pid, state.start_ticks): state for state in states}
        servers = tuple(recorded(info, ours.get((info.pid, info.start_ticks))) for info in found.servers)
        self.store.apply(ServersRecord(host.name, host.now(), servers, found.orphans))
        return servers

    def watch_host(self, name: str) -> None:
        """Keep a host's link, processes, GPUs and memory in the store until the session ends."""
        from tokpit.collect.pulse import watch_pulse

        host = self.host(name)
        self.supervisor.start("pulse", watch_pulse(self.store.apply))
        self.supervisor.start(f"host:{host.name}", self._watch_host(host))

    async def _watch_host(self, host: Host) -> None:
        from tokpit.collect.host import watch_host

        await watch_host(host, self.store.apply)

    def watch_server(self, server_id: str, *, log_path: str | None = None, log_offset: int | None = None) -> None:
        """Keep a server's log and metrics in the store; does nothing if it is watched already.

        `log_offset`: byte to read the log from, instead of its last part.
        """
        state = self.store.servers[server_id]
        host = self.host(state.info.host)
        self.supervisor.start(f"server:{server_id}:log", self._watch_log(host, state.info, log_path, log_offset))
        self.supervisor.start(f"server:{server_id}:metrics", self._watch_metrics(host, state.info))
        if state.info.job is not None:
            self.supervisor.start(f"server:{server_id}:gpus", self._watch_job_gpus(host, server_id))

    async def _watch_log(self, host: Host, info: ServerInfo, path: str | None, offset: int | None) -> None:
        from tokpit.collect.log import watch_log

        await watch_log(host, info, self.store.apply, path=path, offset=offset)

    async def _watch_metrics(self, host: Host, info: ServerInfo) -> None:
        from tokpit.collect.metrics import watch_metrics

        await watch_metrics(host, info, self.store.apply)

    async def _watch_job_gpus(self, host: Host, server_id: str) -> None:
        from tokpit.collect.job_gpus import watch_job_gpus

        def known() -> ServerInfo | None:
            state = self.store.servers.get(server_id)
            return state.info if state is not None and state.alive else None

        await watch_job_gpus(host, known, self.store.apply)

    async def older_log(self, server_id: str, end: int, skip: int = 0, **more: int) -> Older:
        """Lines of a server's log from its host's disk, see `ops.older.older_lines`. Raises HostError."""
        from tokpit.ops.older import older_lines

        return await older_lines(self, server_id, end, skip, **more)

    async def unwatch_server(self, server_id: str) -> None:
        """Stop reading a server's log and metrics; what is in the store stays."""
        await self.supervisor.stop(f"server:{server_id}:")

    async def execute(self, command_id: str, **args: Any) -> Any:
        """Run a command through the gate and return what it returns; progress is in the store's operations."""
        from tokpit.ops.commands import command
        from tokpit.ops.gate import execute

        return await execute(self, command(command_id), args)

    def watch_alarms(self, preferences: AlarmPreferences, tell: Tell, complain: Complain) -> None:
        """Look at all servers and hosts regularly; `tell` hears of alarms as they begin and end."""
        from tokpit.ops.alarms import Watch

        watch = Watch(self, preferences, tell, complain)
        self.alarms = watch.book
        self.supervisor.start("alarms", watch.run())

    def keep_ring(self, *, minutes: float, max_bytes: int) -> None:
        """Keep the last minutes of all records on disk until the session ends. Raises StoreError."""
        from tokpit.ops.records import recording

        folder = self.rings_folder or recording.rings_dir()
        try:
            ring = recording.new_ring(folder, minutes=minutes, max_bytes=max_bytes)
        except OSError as error:
            raise StoreError(f"the last minutes cannot be recorded: {error.strerror or error}") from error
        self.ring = ring.folder
        self._recorder("ring", ring)

    async def save_ring(self, target: Path | None = None) -> Path:
        """The last minutes as one file. Raises StoreError."""
        from tokpit.ops.records import recording

        if self.ring is None:
            raise StoreError("the last minutes are not recorded", hint="set [recording] ring_minutes in config.toml")
        if (recorder := self._recorders.get("ring")) is not None:
            await recorder.flush()
        return await asyncio.to_thread(recording.save_ring, self.ring, target)

    def start_recording(self, path: Path | None = None) -> Path:
        """Record from now on, into a new file. Raises StoreError."""
        from tokpit.ops.records import recording

        if self.recording is not None:
            raise StoreError(f"recording into {self.recording} already")
        self.recording = path or recording.new_path()
        try:
            self._recorder("file", recording.open_sink(self.recording))
        except StoreError:
            self.recording = None
            raise
        return self.recording

    async def stop_recording(self) -> Path | None:
        """End the recording that was asked for; its file, None where there was none."""
        path, self.recording = self.recording, None
        await self.supervisor.stop("recorder:file")
        if (recorder := self._recorders.pop("file", None)) is not None:
            await recorder.close()
        return path

    @property
    def recording_problem(self) -> str:
        """Why something is not recorded any more; empty where all is well."""
        return next((one.problem for one in self._recorders.values() if one.problem), "")

    def _recorder(self, name: str, sink: Sink) -> None:
        from tokpit.ops.records.recording import Recorder, head_of

        recorder = self._recorders[name] = Recorder(self.store, sink, lambda: head_of(self))
        recorder.start()
        self.supervisor.start(f"recorder:{name}", recorder.run())

    def link(self, name: str) -> LinkRecord | None:
        """The last known state of a host's link."""
        return self.store.host(name).link

    async def _ask(self, kind: str, question: str) -> str | None:
        return await self.prompt(kind, question) if self.prompt is not None else None
