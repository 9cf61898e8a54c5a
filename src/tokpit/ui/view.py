"""What the console is looking at: the session, the host and server selected, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tokpit.domain.finding import Finding
from tokpit.domain.job import BatchJob
from tokpit.domain.records import GpuRecord, LinkState
from tokpit.engines.registry import titles
from tokpit.store.live import HostState, LiveStore, ServerState
from tokpit.store.past import at_moment
from tokpit.ui.clock import STALE_S, Clock
from tokpit.ui.session_protocol import SessionLike
from tokpit.ui.text import safe

if TYPE_CHECKING:
    from tokpit.ops.alarms import Alarm, Book
    from tokpit.ops.records.replay import Player


@dataclass(frozen=True)
class Diagnosed:
    """What the rules said of a server, and what a step can cost at best there."""

    t: float
    """On the host's clock."""
    findings: tuple[Finding, ...]
    steps_per_s: float | None = None
    """Ceiling that memory bandwidth sets; None where weights or GPU are not known."""
    ceiling_words: str = ""


@dataclass
class View:
    """Shared by all panels of a screen; `host` and `server_id` are the selection."""

    session: SessionLike
    clock: Clock
    host: str | None = None
    server_id: str | None = None
    window_s: float = 300.0
    """Time shown by live charts, seconds on the host's clock."""
    diagnosed: dict[str, Diagnosed] = field(default_factory=dict)
    """The last diagnosis of each server, by its id."""

    edge: float | None = None
    """Real time of the right edge of charts while time is held."""
    past: LiveStore | None = None
    """What was known at the moment at which time is held."""

    @property
    def store(self) -> LiveStore:
        """The live store, or what it held at the moment at which time is held."""
        return self.past or self.session.store

    @property
    def player(self) -> Player | None:
        """What plays the recording that is looked at; None for hosts themselves."""
        found: Player | None = getattr(self.session, "player", None)
        return found

    def alarms(self, *subjects: str | None) -> list[Alarm]:
        """Alarms that stand for servers (by id) and hosts (by name)."""
        book: Book | None = getattr(self.session, "alarms", None)
        return [alarm for name in subjects if name for alarm in book.standing(name)] if book is not None else []

    def hold(self, wall: float) -> None:
        """Show everything as it was at a real time; charts move only where it would be out of sight."""
        now, span = self.clock.wall(), self.span()
        wall = min(wall, now)
        if self.edge is None:
            self.edge = now
        if not self.edge - span <= wall <= self.edge:
            self.edge = min(now, wall + span / 2)
        self.clock.held = wall
        self.past = at_moment(self.session.store, self.clock.now)

    def span(self) -> float:
        """Real seconds that charts show."""
        return self.window_s / (self.clock.factor(self.host) if self.host else 1.0)

    def release(self) -> None:
        """Back to what is now."""
        self.clock.held = self.edge = self.past = None

    @property
    def live_server(self) -> ServerState | None:
        """The selected server as it is known now."""
        return self.session.store.servers.get(self.server_id) if self.server_id else None

    def edge_now(self) -> float:
        """Right edge of charts on the selected host's clock."""
        if self.host is None:
            return 0.0
        return self.clock.now(self.host) if self.edge is None else self.clock.at(self.host, self.edge)

    @property
    def server(self) -> ServerState | None:
        """State of the selected server."""
        return self.store.servers.get(self.server_id) if self.server_id else None

    @property
    def host_state(self) -> HostState | None:
        """State of the selected host."""
        return self.store.hosts.get(self.host) if self.host else None

    @property
    def gpus(self) -> GpuRecord | None:
        """GPUs of the machine that the selected server runs on, else of the selected host."""
        if (server := self.server) is not None:
            return self.store.gpus_of(server.info)
        return self.host_state.gpus if self.host_state is not None else None

    @property
    def job(self) -> BatchJob | None:
        """The batch job that the selected server is."""
        return self.server.info.job if self.server is not None else None

    def topics(self, *kinds: str) -> tuple[str, ...]:
        """Topic names of the selection: `host`, `server`, `log`."""
        names = {"host": self.host, "server": self.server_id, "log": self.server_id}
        return tuple(f"{kind}:{names[kind]}" for kind in kinds if names[kind])

    def linked(self, host: str | None = None) -> bool:
        """Whether the link to the host is up (or nothing was said against it)."""
        name = host or self.host
        state = self.store.hosts.get(name) if name else None
        return state is None or state.link is None or state.link.state is LinkState.UP

    def age(self, t: float | None) -> float | None:
        """Real seconds since `t` on the selected host's clock."""
        return self.clock.age(self.host, t) if self.host else None

    def stale(self, t: float | None) -> bool:
        """Whether a figure of that time must not pass for a live one."""
        return self.host is None or self.stale_on(self.host, t)

    def stale_here(self, t: float | None) -> bool:
        """`stale` for a figure of the selected server; of one that has ended every figure is."""
        return self.stale(t) or (self.server is not None and not self.server.alive)

    def stale_on(self, host: str, t: float | None) -> bool:
        """`stale` for any host."""
        age = self.clock.age(host, t)
        return age is None or age > STALE_S or not self.linked(host)

    def now(self) -> float:
        """Now on the selected host's clock."""
        return self.clock.now(self.host) if self.host else 0.0


def phase_of(view: View, server: ServerState) -> str:
    """The server's phase; `serving` where no line of its log says one but fresh figures come, `gone` once it ended.

    `queued`: its batch job waits.
    """
    if not server.alive:
        return "gone"
    phase = server.phase.phase if server.phase else "unknown"
    if phase == "unknown" and server.info.job is not None and server.info.job.waiting:
        return "queued"
    newest = max((s.last_t or 0.0 for s in server.series.values()), default=None)
    if phase == "unknown" and not view.stale_on(server.info.host, newest):
        return "serving"
    return phase


def steps_per_s(view: View, server: ServerState) -> float | None:
    """Decode steps a second now: generation rate / (running x acceptance length); None where one is not fresh."""
    tps, running = server.get("gen_tps"), server.get("running_reqs")
    if not tps.last or not running.last or view.stale_here(tps.last_t) or view.stale(running.last_t):
        return None
    accept = server.series.get("accept_len")
    speculates = server.info.settings.spec_method is not None
    if speculates and (accept is None or accept.last is None or view.stale(accept.last_t)):
        return None
    length = accept.last if speculates and accept is not None and accept.last else 1.0
    return tps.last / (running.last * length)


def engine_title(name: str) -> str:
    """The engine's name as its makers write it."""
    return titles().get(name, safe(name))


def model_name(path: str | None) -> str:
    """The last part of a model's path or repository name."""
    return safe(path.rstrip("/").rsplit("/", 1)[-1]) if path else "model unknown"


def simulated_label(session: SessionLike, host: str | None) -> str:
    """What marks a host that is not a real machine: its label and clock factor; empty for real ones."""
    spec = session.host_specs.get(host) if host else None
    if spec is None:
        return ""
    factor = f"clock ×{spec.clock_factor:g}" if spec.clock_factor != 1 else ""
    if f"×{spec.clock_factor:g}" in spec.label:
        factor = ""
    return " · ".join(part for part in (safe(spec.label), factor) if part)
