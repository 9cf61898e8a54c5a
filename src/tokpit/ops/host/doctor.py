"""Doctor: everything a launch needs of a host, one line each: how it is, what that means, how to mend it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from tokpit.engines.registry import env_prefixes
from tokpit.errors import HostError
from tokpit.ops.host import checks
from tokpit.ops.host.checks import Check
from tokpit.ops.host.environments import find_environments
from tokpit.ops.lifecycle import occupants
from tokpit.probes.checkup import CLOCK, Checkup, checkup_script, parse_checkup, parse_clock
from tokpit.probes.environments import Found
from tokpit.probes.preflight import parse_preflight, preflight_script
from tokpit.probes.survival import parse_survival, survival_script

if TYPE_CHECKING:
    from tokpit.ops.session import Session
    from tokpit.transport.base import Host

_SKEW_S = 5.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All lines of one host, and the environments and models found there."""

    host: str
    checks: tuple[Check, ...]
    found: Found = Found()

    @property
    def blocked(self) -> bool:
        """Whether something would prevent a launch."""
        return any(check.status == "fail" for check in self.checks)


async def examine(session: Session, host_name: str, *, fresh: bool = True) -> Report:
    """Examine a host; nothing is changed. A host that cannot be reached is a report of one failed line."""
    host = session.host(host_name)
    try:
        started = time.monotonic()
        await host.connect()
        took_s = time.monotonic() - started
        began = time.time()
        told = await host.run(CLOCK)
        clock = parse_clock(told.out)
        ended = time.time()
        facts = parse_checkup((await host.run(checkup_script(), timeout_s=30.0)).out, env_prefixes())
        survival = parse_survival((await host.run(survival_script("~/.local/state/tokpit/logs"))).out)
        room = parse_preflight((await host.run(preflight_script(), timeout_s=30.0)).out)
        found = await find_environments(session, host_name, fresh=fresh)
        servers = await session.find(host_name)
        held = await occupants.occupants(session, host) if occupants.busy(room) else ()
    except HostError as error:
        return Report(
            host=host.name,
            checks=(Check(name="link", status="fail", says=error.message, mend=error.hint or "see ssh -v to it"),),
        )
    lines = [
        _link(session, host, facts, took_s),
        *_clock(host, clock, began, ended),
        *checks.shell(facts, told.noise),
        *checks.gpus(facts, room),
        *checks.room(room, survival, facts),
        *checks.survival(survival),
        *checks.ports(room, {server.port for server in servers if server.port}),
        *checks.engines(found),
        *checks.models(found),
    ]
    lines += [
        Check(name="gpu memory", status="info" if kind in {"server", "worker"} else "warn", says=says)
        for kind, says in occupants.told(held, host.name)
    ]
    orphans = session.store.host(host.name).orphans
    if orphans:
        listed = ", ".join(f"{host.name}/{orphan.pid} {orphan.title}" for orphan in orphans)
        lines.append(
            Check(
                name="orphans",
                status="warn",
                says=f"{len(orphans)} workers whose server is gone may hold GPU memory: {listed}",
                mend=f"tokpit stop {host.name}/{orphans[0].pid}",
            )
        )
    return Report(host=host.name, checks=tuple(lines), found=found)


def _link(session: Session, host: Host, facts: Checkup, took_s: float) -> Check:
    link = session.link(host.name)
    rtt = f", round trip {link.rtt_s * 1000:.0f} ms" if link is not None and link.rtt_s else ""
    where = "this machine" if host.spec.local else f"connected in {took_s:.1f} s{rtt}, host key known"
    slow = link is not None and (link.rtt_s or 0) > 0.5
    return Check(
        name="link",
        status="warn" if slow else "ok",
        says=f"{where}, login {facts.user}, {facts.os or facts.system}",
        mend="a slow link: screens lag, servers do not notice" if slow else "",
    )


def _clock(host: Host, clock: float | None, began: float, ended: float) -> list[Check]:
    if clock is None or host.spec.clock_factor != 1:
        return []
    # The answer was made some time between question and answer: what lies between them is no skew.
    skew = clock - ended if clock > ended else min(clock - began, 0.0)
    if abs(skew) <= _SKEW_S:
        return [
            Check(name="clock", status="ok", says=f"agrees with this machine's to {abs(skew) + ended - began:.1f} s")
        ]
    return [
        Check(
            name="clock",
            status="warn",
            says=f"{abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} this machine: times in logs look shifted",
            mend="let it be set by chrony or systemd-timesyncd: timedatectl set-ntp true",
        )
    ]
