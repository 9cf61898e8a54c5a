"""Alarms: findings that stay, told once, until they have stayed away; acknowledged per server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from tokpit.config.settings import AlarmPreferences, quiet_minutes
from tokpit.domain.finding import SEVERITIES, Finding
from tokpit.domain.records import LinkState
from tokpit.domain.text import sanitize
from tokpit.ops.passing import passed_on

if TYPE_CHECKING:
    from tokpit.ops.session import Session

log = logging.getLogger(__name__)

MOST_RECORDS = 2000
"""Log records looked at, the newest: 32 ms of a core a server."""
HOOK_S = 30.0
"""A hook that runs longer is ended."""


class Alarm(msgspec.Struct, kw_only=True):
    """One finding that calls for attention."""

    subject: str
    """Server id, or host name for what is about a host."""
    label: str
    """How people name it: host:port, or the host."""
    finding: Finding
    since: float
    """UTC seconds of this machine at which it was raised."""
    acknowledged: bool = False
    raised: bool = False
    """Whether it has been seen often enough."""
    seen: int = 1
    """Looks in a row with it; negative: without it."""

    @property
    def code(self) -> str:
        """The finding's code."""
        return self.finding.code


class Book:
    """Alarms by subject and code. Pure: looks in, news out."""

    def __init__(self, preferences: AlarmPreferences) -> None:
        self._preferences = preferences
        self._alarms: dict[tuple[str, str], Alarm] = {}

    def look(
        self, subject: str, label: str, findings: Iterable[Finding], now: float
    ) -> tuple[tuple[Alarm, ...], tuple[Alarm, ...]]:
        """What one look at a subject found; gives the alarms that it raises and those that it ends."""
        wanted = {f.code: f for f in findings if self._wanted(f)}
        raised: list[Alarm] = []
        ended: list[Alarm] = []
        for code, finding in wanted.items():
            alarm = self._alarms.get((subject, code))
            if alarm is None:
                alarm = self._alarms[subject, code] = Alarm(
                    subject=subject, label=label, finding=finding, since=now, seen=0
                )
            alarm.finding, alarm.seen = finding, max(0, alarm.seen) + 1
            if not alarm.raised and alarm.seen >= self._preferences.raise_after:
                alarm.raised, alarm.since = True, now
                raised.append(alarm)
        for key, alarm in list(self._alarms.items()):
            if key[0] != subject or key[1] in wanted:
                continue
            alarm.seen = min(0, alarm.seen) - 1
            # One that was never raised was a flicker: it has to come anew.
            if not alarm.raised or -alarm.seen >= self._preferences.clear_after:
                del self._alarms[key]
                if alarm.raised:
                    ended.append(alarm)
        return tuple(raised), tuple(ended)

    def standing(self, subject: str | None = None) -> list[Alarm]:
        """Raised alarms of a subject, or all; the gravest first."""
        found = [a for a in self._alarms.values() if a.raised and subject in (None, a.subject)]
        return sorted(found, key=lambda a: (SEVERITIES.index(a.finding.severity), a.since))

    def acknowledge(self, subject: str) -> int:
        """Somebody knows: the alarms of a subject that stand are quiet until they have ended; how many."""
        fresh = [alarm for alarm in self.standing(subject) if not alarm.acknowledged]
        for alarm in fresh:
            alarm.acknowledged = True
        return len(fresh)

    def subjects(self) -> set[str]:
        """Everything that has an alarm, raised or not."""
        return {subject for subject, _ in self._alarms}

    def _wanted(self, finding: Finding) -> bool:
        return finding.severity in self._preferences.severities and finding.code not in self._preferences.ignore


def quiet(preferences: AlarmPreferences, now: float) -> bool:
    """Whether it is a quiet hour, in local time."""
    hours = quiet_minutes(preferences.quiet)
    if hours is None:
        return False
    local = time.localtime(now)
    minute = local.tm_hour * 60 + local.tm_min
    begin, end = hours
    # Begin and end alike are the whole day.
    return begin <= minute < end if begin < end else minute >= begin or minute < end


Tell = Callable[[Alarm, bool], None]
"""Gets an alarm and whether it begins (False: it ends)."""
Complain = Callable[[str], None]
"""Gets a sentence on an alarm command that does not do its work: who relies on being called must hear of it."""


class Watch:
    """Looks at every server and host of a session, tells what begins and ends, and runs the hook.

    One that could not even be started is complained of at once.
    """

    def __init__(
        self, session: Session, preferences: AlarmPreferences, tell: Tell, complain: Complain = log.warning
    ) -> None:
        self.book = Book(preferences)
        self.preferences = preferences
        self._session, self._tell, self._complain = session, tell, complain
        self._hooks: set[asyncio.Task[None]] = set()
        self._hooked: set[tuple[str, str]] = set()
        """Alarms whose begin the command was told."""
        self._kept_back: set[tuple[str, str]] = set()
        """Alarms that began in a quiet hour."""
        self._last_complaint = ""
        self._down: dict[str, float] = {}
        self._alive: set[str] = set()
        if problem := hook_problem(preferences.command):
            complain(problem)

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(self.preferences.every_s)
            await asyncio.to_thread(import_module, "tokpit.ops.diagnose.store")  # the rules: 90 ms the first time
            await self.look()

    async def look(self) -> None:
        """One look at everything; the rules run in a thread."""
        from tokpit.ops.diagnose.store import judge_sight, sight

        store, now = self._session.store, time.time()
        looked: set[str] = set()
        self._after_quiet(now)
        for name in list(store.hosts):
            looked.add(name)
            self._told(name, name, self._link(name, now), now)
        for server_id, state in list(store.servers.items()):
            if server_id not in store.host(state.info.host).server_ids:
                continue
            looked.add(server_id)
            findings = self._gone(server_id)
            if state.alive:
                self._alive.add(server_id)
                found = await asyncio.to_thread(judge_sight, sight(store, server_id, most=MOST_RECORDS))
                findings += found.findings
            self._told(server_id, state.info.label, findings, now)
        for subject in self.book.subjects() - looked:
            self._told(subject, subject, (), now)

    def _told(self, subject: str, label: str, findings: Iterable[Finding], now: float) -> None:
        raised, ended = self.book.look(subject, label, findings, now)
        for alarm in raised:
            if quiet(self.preferences, now):
                self._kept_back.add((alarm.subject, alarm.code))
            self._news(alarm, True, now)
        for alarm in ended:
            self._kept_back.discard((alarm.subject, alarm.code))
            self._news(alarm, False, now)

    def _after_quiet(self, now: float) -> None:
        """What began in a quiet hour, still stands and is not known to anybody is told when the hour is over."""
        if not self._kept_back or quiet(self.preferences, now):
            return
        late = [alarm for alarm in self.book.standing() if (alarm.subject, alarm.code) in self._kept_back]
        self._kept_back.clear()
        for alarm in late:
            if not alarm.acknowledged:
                self._news(alarm, True, now)

    def _news(self, alarm: Alarm, begins: bool, now: float) -> None:
        self._tell(alarm, begins)
        key = (alarm.subject, alarm.code)
        # The end of one that the command knows of wakes nobody, and leaves nothing open where it was filed.
        told = not quiet(self.preferences, now) if begins else key in self._hooked
        (self._hooked.add if begins and told else self._hooked.discard)(key)
        if self.preferences.command and told:
            task = asyncio.create_task(self._run_hook(alarm, begins))
            self._hooks.add(task)
            task.add_done_callback(self._hooks.discard)

    async def _run_hook(self, alarm: Alarm, begins: bool) -> None:
        problem = await run_hook(self.preferences.command, alarm, begins=begins)
        if problem and problem != self._last_complaint:
            self._complain(problem)
        self._last_complaint = problem

    def _link(self, host: str, now: float) -> tuple[Finding, ...]:
        link = self._session.store.hosts[host].link
        if link is None or link.state not in {LinkState.LOST, LinkState.FAILED}:
            self._down.pop(host, None)
            return ()
        since = self._down.setdefault(host, now)
        if now - since < self.preferences.link_after_s:
            return ()
        why = f": {link.reason}" if link.reason else ""
        return (_finding("LINK_LOST", f"There is no link to {host}{why}.", "Look at the host and the way to it."),)

    def _gone(self, server_id: str) -> tuple[Finding, ...]:
        """A server that ran while somebody watched and has ended without being stopped from here."""
        state = self._session.store.servers[server_id]
        stopped = state.phase is not None and state.phase.phase in {"stopping", "gone"}
        if state.alive or stopped or server_id not in self._alive:
            return ()
        claim = f"{state.info.label} has ended; nobody stopped it from here."
        return (_finding("SERVER_GONE", claim, "Read the end of its log: tokpit diagnose says why."),)


def _finding(code: str, claim: str, action: str) -> Finding:
    return Finding(code=code, severity="error", claim=claim, next_action=action)


def environment(alarm: Alarm, *, begins: bool) -> Mapping[str, str]:
    """What a hook finds in its environment: text of hosts is never a part of a command line."""
    finding = alarm.finding
    return {
        "TOKPIT_ALARM_STATE": "raised" if begins else "ended",
        "TOKPIT_ALARM_CODE": finding.code,
        "TOKPIT_ALARM_SEVERITY": finding.severity,
        "TOKPIT_ALARM_SERVER": sanitize(alarm.label),
        "TOKPIT_ALARM_TEXT": sanitize(finding.claim),
        "TOKPIT_ALARM_ACTION": sanitize(finding.next_action),
        "TOKPIT_ALARM_SINCE": f"{alarm.since:.0f}",
    }


def hook_problem(command: str) -> str:
    """Why the alarm command could not even be started; empty where it can be."""
    words = _words(command)
    if not words or shutil.which(words[0]) is not None:
        return ""
    why = "may not be run" if os.path.exists(words[0]) else "was not found"  # noqa: PTH110 - it may be any text
    return f"the alarm command {words[0]!r} {why}: no alarm will reach it; see [alarms] in config.toml"


def _words(command: str) -> list[str]:
    first, *rest = shlex.split(command) or [""]
    return [os.path.expanduser(first), *rest] if first else []  # noqa: PTH111 - a name without a slash stays one


async def run_hook(command: str, alarm: Alarm, *, begins: bool) -> str:
    """Run the user's program, in a group of its own; one sentence on what went wrong with it, else empty."""
    env = {**os.environ, **environment(alarm, begins=begins)}
    quiet_io = asyncio.subprocess.DEVNULL
    what = f"the alarm command, called for {alarm.code} on {sanitize(alarm.label)},"
    try:
        process = await asyncio.create_subprocess_exec(
            *_words(command), env=env, stdin=quiet_io, stdout=quiet_io, stderr=quiet_io, start_new_session=True
        )
    except (OSError, ValueError) as error:
        return f"{what} did not start: {error}"
    try:
        async with asyncio.timeout(HOOK_S):
            status = await process.wait()
    except TimeoutError:
        return f"{what} ran longer than {HOOK_S:g} s and was ended"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return f"{what} ended with status {status}" if status else ""


def osc(kind: str, text: str, environment: Mapping[str, str] = os.environ) -> str:
    """A desktop notification as a terminal's escape sequence; empty for `off`. The text is only text.

    tmux and screen hand on only what is wrapped for them (tmux, if its option `allow-passthrough` is on).
    """
    clean = sanitize(text).replace("\ufffd", " ")[:200]
    if kind == "osc9":
        return passed_on(f"\x1b]9;{clean}\x07", environment)
    if kind == "osc777":
        return passed_on(f"\x1b]777;notify;tokpit;{clean.replace(';', ',')}\x07", environment)
    return ""
