"""The load of one level from many hosts: the same generator on each, begun together, put together from all samples."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.errors import HostError, LoadError, RemoteFailed
from tokpit.load.crew import HEADSTART_S, Crew
from tokpit.load.member import CLOCKS, Look, Member, compare_clocks
from tokpit.load.plan import Plan
from tokpit.load.results import Check, SweepResult
from tokpit.ops.sweep.member import HELLO_S, RemoteMember
from tokpit.transport.base import Host

if TYPE_CHECKING:
    from tokpit.load.events import Event

PER_PLACE = 4
"""Processes of one host at most: each is a session of its connection."""
MAX_SKEW_S = 0.05
"""Clocks of the hosts may be this far apart for the in-flight count and the steady window, which are of seconds."""
_ERRORS_KEPT = 3


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a generator runs. `command` starts one, `url` is the server as seen from there (empty: as planned)."""

    host: Host
    name: str
    command: str
    url: str = ""
    hello_s: float = HELLO_S
    most: int = PER_PLACE
    put: Callable[[], Any] | None = None
    """Brings the generator's file there; awaited once."""


class Team(Crew):
    """A crew on other hosts. A place that is lost stays out; the levels after it are divided among the others."""

    elsewhere = True

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__()
        self._places = places
        self._members: dict[str, list[RemoteMember]] = {}
        self._looks: dict[int, tuple[Member, Look]] = {}
        self._skew_s = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """The places that take part still."""
        return tuple(name for name, members in self._members.items() if any(member.alive for member in members))

    @property
    def cores(self) -> int:
        """Twice the processes that all places together may run, as `share.processes_for` takes half of the cores."""
        return 2 * sum(self._room(place) for place in self._places)

    def _room(self, place: Place) -> int:
        members = [member for member in self._members.get(place.name, ()) if member.alive]
        return min(place.most, max(1, members[0].cores // 2)) if members else 0

    async def open(self) -> None:
        """Start one generator a place. Raises HostError for the first place that has none, with all ended."""
        results = await asyncio.gather(*(self._first(place) for place in self._places), return_exceptions=True)
        failed = [result for result in results if isinstance(result, BaseException)]
        if failed:
            await self.close()
            raise failed[0]

    async def _first(self, place: Place) -> None:
        await place.host.connect()
        if place.put is not None:
            await place.put()
        self._members[place.name] = [await self._start(place)]

    async def _start(self, place: Place) -> RemoteMember:
        if not place.host.lasting_free():
            raise RemoteFailed(f"the connection to {place.host.name} has no place for one more session")
        member = RemoteMember(place.host, place.command, place=place.name, url=place.url, hello_s=place.hello_s)
        await member.open()
        return member

    async def reach(self, url: str) -> None:
        """See that every place gets to the server. Raises RemoteFailed, which names those that do not."""
        ones = [(place, self._members[place.name][0]) for place in self._places]
        answers = await asyncio.gather(*(member.reach(_models(place, url)) for place, member in ones))
        bad = [(place, said) for (place, _), said in zip(ones, answers, strict=True) if said]
        if bad:
            words = "; ".join(f"{place.name} to {_models(place, url)}: {said}" for place, said in bad[:_ERRORS_KEPT])
            raise RemoteFailed(
                f"the server does not answer {len(bad)} of {len(ones)} load generators ({words})",
                hint="the server must listen on an address that they reach (--host 0.0.0.0); give its URL as TARGET",
            )

    def processes(self, plan: Plan, concurrency: int | None, rate: float | None) -> int:
        """See Crew: the same number on every place, and at least one."""
        places = max(1, len(self.names))
        many = super().processes(plan, concurrency, rate)
        least = min(self._room(place) for place in self._places if place.name in self.names) if self.names else 1
        return places * max(1, min(-(-many // places), max(least, 1)))

    async def gather(self, count: int) -> Sequence[Member]:
        """See Crew: members of all places in turn. Raises OSError where no place is left."""
        places = [place for place in self._places if place.name in self.names]
        if not places:
            raise OSError("no host is left to send the load from")
        each = -(-count // len(places))
        for place in places:
            members = [member for member in self._members[place.name] if member.alive]
            self._members[place.name] = members
            with contextlib.suppress(HostError):  # fewer processes make the same load, less exactly
                while len(members) < min(each, place.most):
                    members.append(await self._start(place))
        turns = [self._members[place.name][i : i + 1] for i in range(each) for place in places]
        found = [member for turn in turns for member in turn][:count]
        while len(found) < count:  # a share for everybody who is there, none for who is not
            raise OSError(f"only {len(found)} of {count} load generators could be started")
        return found

    async def before_level(self, members: Sequence[Member]) -> None:
        """See Crew: the distance of each clock, by its shortest round trip."""
        self._looks = await _looks(members)
        for member, seen in self._looks.values():
            member.offset_ns = seen.offset_ns
        self.headstart_s = (
            HEADSTART_S + 2 * max((seen.round_trip_ns for _, seen in self._looks.values()), default=0) / 1e9
        )

    async def after_level(self, members: Sequence[Member]) -> None:
        """See Crew: the distances again; the mean of both counts, and what they moved is told."""
        worst_ns = 0
        for key, (member, seen) in (await _looks(members)).items():
            before = self._looks[key][1]
            member.offset_ns = (before.offset_ns + seen.offset_ns) // 2
            apart_ns = abs(seen.offset_ns - before.offset_ns) // 2
            worst_ns = max(worst_ns, apart_ns + max(before.round_trip_ns, seen.round_trip_ns) // 2)
        self._skew_s = worst_ns / 1e9

    def checks(self) -> tuple[Check, ...]:
        """See Crew."""
        ok = self._skew_s <= MAX_SKEW_S
        sentence = f"the clocks of {len(self.names)} load generators agree to {self._skew_s * 1000:.1f} ms"
        if not ok:
            sentence += ": too far apart for what needs all of them at one time"
        return (
            Check(
                CLOCKS,
                ok,
                sentence,
                () if ok else ("steady_tps", "mean_in_flight"),
                self._skew_s,
                MAX_SKEW_S,
            ),
        )

    async def close(self) -> None:
        """See Crew."""
        everyone = [member for members in self._members.values() for member in members]
        self._members.clear()
        await asyncio.gather(*(member.close() for member in everyone), return_exceptions=True)


def _models(place: Place, url: str) -> str:
    return f"{place.url}/v1/models" if place.url else url


async def _looks(members: Sequence[Member]) -> dict[int, tuple[Member, Look]]:
    """Each living member's clock, by the member's identity."""
    alive = [member for member in members if member.alive]
    found = await asyncio.gather(*(compare_clocks(member) for member in alive))
    return {id(member): (member, seen) for member, seen in zip(alive, found, strict=True) if seen is not None}


class FromHosts:
    """See sweep_from.Source: the load of every level from several hosts at once."""

    def __init__(self, places: Sequence[Place], target: Host | None) -> None:
        self._places, self._target = places, target
        self._team = Team(places)
        self._reached = False
        self.where = f"hosts {', '.join(place.name for place in places)}"
        self.command = "\n".join(f"{place.name}: {place.command}" for place in places)

    async def ready(self) -> None:
        """See Source."""
        await self._team.open()

    async def close(self) -> None:
        """See Source."""
        await self._team.close()

    async def run(self, plan: Plan, on_event: Callable[[Event], None], stop: asyncio.Event) -> SweepResult:
        """See Source."""
        from tokpit.load.run import run_sweep

        if not self._reached:
            await self._team.reach(plan.models_url)
            self._reached = True
        if not self._team.names:
            raise LoadError("every load generator is lost")
        factory = self._target.session if self._target is not None and not self._target.spec.local else None
        return await run_sweep(plan, session_factory=factory, on_event=on_event, stop=stop, crew=self._team)
