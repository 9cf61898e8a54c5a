"""One port of one host, on which an experiment puts one server after the other, and the first one back at the end.

Everything that starts, stops or measures goes through the commands of the console, so that it is shown, checked and
audited as if a person had asked for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.run import Level, Run
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec
from tokpit.errors import HostError, LaunchError, StopError, TargetError, TokpitError
from tokpit.ops import gate
from tokpit.ops.lifecycle import launch, managers, ready, relaunch, stop
from tokpit.ops.lifecycle.launch import Plan
from tokpit.ops.progress import Progress
from tokpit.ops.sweep.underway import Rate
from tokpit.store.journal import First, Journal
from tokpit.transport.base import Host

if TYPE_CHECKING:
    from tokpit.ops.session import Session

LINK_WAIT_S = 600.0
"""How long a lost link is waited for before the first server is given up to `tokpit tune --restore`."""
_RETRY_S = 2.0


class Place:
    """See the module docstring. Each start is in the journal before it; earlier ones of the experiment are its own."""

    def __init__(self, session: Session, first: First, journal: Journal, *, timeout_s: float) -> None:
        self.first = first
        self._session, self._journal, self._timeout_s = session, journal, timeout_s
        starts = [event.data for event in journal.events() if event.kind == "start"]
        self._ours = {digest(first.argv), *(str(start["line"]) for start in starts)}
        self._told_to_end = {tuple(start["ends"]) for start in starts if "ends" in start}
        self._known_ready = ""

    @property
    def host(self) -> Host:
        """The host."""
        return self._session.host(self.first.spec.host)

    async def standing(self) -> ServerInfo | None:
        """What runs on the port, or was started for it and does not listen yet."""
        servers = await self._session.find(self.host.name)
        return next((server for server in servers if server.port == self.first.port), None)

    async def plan(self, spec: LaunchSpec) -> Plan:
        """What a candidate's start will be, checked against host and version now. Raises LaunchError, UsageError."""
        return await launch.plan(self._session, spec, replacing=await self.standing() or _nobody(self.first))

    async def put(self, plan: Plan) -> ServerInfo:
        """Have this server run on the port: start it, in the place of what runs there. Raises LaunchError, HostError.

        A server that already runs with this command line is waited for, unless an experiment that was cut off had
        told it to end: it may answer still, and be gone the next moment. What this experiment did not start is not
        touched: TargetError.
        """
        standing = await self._staying()
        if standing is not None and standing.argv == plan.argv:
            if standing.id == self._known_ready:
                return standing
            try:
                await self._wait(standing)
            except LaunchError:
                standing = await self.standing()  # it was on its way out
            else:
                self._known_ready = standing.id
                return standing
        if standing is not None:
            self._check_ours(standing)
        line = digest(plan.argv)
        ends = {} if standing is None else {"ends": (standing.pid, standing.start_ticks)}
        self._journal.add("start", line=line, **ends)
        self._ours.add(line)
        if standing is None:
            done = await self.command("server.launch", plan=plan, clear=True, timeout_s=self._timeout_s)
        else:
            done = await self.command(
                "server.relaunch",
                server_id=standing.id,
                plan=plan,
                rollback=False,
                clear=True,
                timeout_s=self._timeout_s,
            )
        server = done.server
        assert isinstance(server, ServerInfo)
        self._known_ready = server.id
        return server

    async def put_first_back(self) -> ServerInfo:
        """Have the first server run again, with its own command line, through its unit where it had one.

        Raises LaunchError where it does not come up, TargetError where somebody else's server holds the port,
        HostError.
        """
        await self._link()
        spec, unit = self.first.spec, self._unit()
        exact = relaunch.exactly(self.host, spec, self.first.argv, self.first.port, self.first.platform)
        if unit is None:
            return await self.put(exact)
        standing = await self._staying()
        if standing is not None:
            job = await stop.plan(self.host, standing)
            if job.manager == unit:
                await self._wait(standing)
                return standing
            self._check_ours(standing)
            await self.command("server.stop", server_id=standing.id)
        info = _nobody(self.first)
        await relaunch.bring_back(self._session, self.host, info, exact, unit, timeout_s=self._timeout_s)
        back = await self.standing()
        if back is None:
            raise LaunchError(f"{info.label}: its unit was started, and no server is there")
        return back

    async def sweep(
        self,
        server: ServerInfo,
        args: Mapping[str, Any],
        stop_event: asyncio.Event,
        *,
        enough: Callable[[tuple[Level, ...]], str] | None = None,
        hopeless: Callable[[Rate], str] | None = None,
    ) -> Run:
        """Measure a server; `enough` and `hopeless` as for `sweep.start`. Raises LoadError, HostError."""
        run = await self.command(
            "sweep.start", target=server.id, stop=stop_event, enough=enough, hopeless=hopeless, **args
        )
        assert isinstance(run, Run)
        return run

    async def command(self, command_id: str, **args: Any) -> Any:
        """Run a command of the console as a part of this experiment, which was agreed to as a whole."""
        from tokpit.ops.commands import command

        return await gate.execute(self._session, command(command_id), args, consented=True)

    # --- inside

    async def _staying(self) -> ServerInfo | None:
        """What stands on the port, after what was told to end before a crash has ended."""
        standing = await self.standing()
        if standing is None or (standing.pid, standing.start_ticks) not in self._told_to_end:
            return standing
        with contextlib.suppress(TargetError, StopError):  # gone by itself meanwhile
            await self.command("server.stop", server_id=standing.id)
        return await self.standing()

    def _unit(self) -> managers.Manager | None:
        return None if self.first.unit is None else msgspec.convert(self.first.unit, managers.Manager)

    def _check_ours(self, server: ServerInfo) -> None:
        if digest(server.argv) in self._ours:
            return
        raise TargetError(
            f"{server.label}: a server that this experiment did not start has the port (pid {server.pid})",
            hint="end it yourself if it may go (tokpit stop), then ask for the first server again",
        )

    async def _wait(self, server: ServerInfo) -> None:
        progress = Progress(
            self._session.store,
            kind="launch",
            target=self.host.name,
            title=f"{server.label} runs already: is it ready?",
            now=self.host.now,
        )
        try:
            self._session.watch_server(server.id)
            await ready.wait_ready(self._session, self.host, server, progress, timeout_s=self._timeout_s)
        except TokpitError as error:
            progress.failed(error)
            raise
        progress.done(server=server.id)

    async def _link(self) -> None:
        """Wait for the link. Raises HostError where it does not come back."""
        deadline = asyncio.get_running_loop().time() + LINK_WAIT_S
        while True:
            try:
                await self._session.connected(self.host.name)
                return
            except HostError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(_RETRY_S)


def digest(argv: Iterable[str]) -> str:
    """A command line as a word that tells nothing of it."""
    return hashlib.sha256("\0".join(argv).encode()).hexdigest()[:16]


def _nobody(first: First) -> ServerInfo:
    """The first server where no process is there to describe it."""
    spec = first.spec
    return ServerInfo(
        host=spec.host, engine=spec.engine, pid=0, start_ticks=0, pgid=0, argv=first.argv, port=first.port,
        listen=spec.settings.listen or "127.0.0.1", model=spec.settings.model, settings=spec.settings,
    )  # fmt: skip
