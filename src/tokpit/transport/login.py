"""Who answers during a login: the callbacks that asyncssh calls, and the user behind them. Import it late."""

from __future__ import annotations

import weakref
from typing import Any

import asyncssh
import msgspec

from tokpit.transport.base import Prompt
from tokpit.transport.hostkeys import KnownHosts

Ends = weakref.WeakKeyDictionary[asyncssh.SSHClientConnection, Exception]


class Hop(msgspec.Struct, frozen=True):
    """One SSH server on the way, as asked for; ssh_config fills the rest."""

    address: str
    user: str | None = None
    port: int | None = None
    identity_files: tuple[str, ...] = ()
    known_hosts: str | None = None


class Client(asyncssh.SSHClient):
    """Callbacks of one connection attempt."""

    def __init__(self, known: KnownHosts, hop: Hop, answers: Answers, ends: Ends) -> None:
        self._known = known
        self._hop = hop
        self._answers = answers
        self._ends = ends
        self._connection: asyncssh.SSHClientConnection | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """Remember which connection this is."""
        self._connection = conn

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep why it ended."""
        if self._connection is not None and exc is not None:
            self._ends[self._connection] = exc

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Judge a key by known_hosts."""
        return self._known.vouches(host, port, key)

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """No CA is trusted that is not recorded."""
        self._known.offered = key
        return False

    async def password_auth_requested(self) -> str | None:
        """The password, or None."""
        return await self._answers.give("password", f"Password for {self._hop.address}", once=True)

    def kbdint_auth_requested(self) -> str | None:
        """Any method that the server likes."""
        return ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Any
    ) -> list[str] | None:
        """Pass the server's questions on."""
        replies = []
        for text, _echo in prompts:
            reply = await self._answers.give("password", f"{self._hop.address}: {str(text).strip()}", once=True)
            if reply is None:
                return None
            replies.append(reply)
        return replies


class Answers:
    """What the user typed, asked for at most once per attempt and question, kept for later reconnects."""

    def __init__(self, prompt: Prompt | None) -> None:
        self._prompt = prompt
        self._kept: dict[str, str] = {}
        self._tried: set[str] = set()
        self.live = False
        self.wanted = False

    def begin(self, *, live: bool) -> None:
        """Start an attempt; `live`: a person may be asked during it."""
        self.live, self.wanted = live, False
        self._tried.clear()

    async def give(self, kind: str, question: str, *, once: bool = False) -> str | None:
        """The answer to a question, or None; None also where the kept answer was just refused."""
        self.wanted = True
        if once and question in self._tried:
            self._kept.pop(question, None)
            if not self.live:
                return None
        elif question in self._kept:
            self._tried.add(question)
            return self._kept[question]
        if not self.live or self._prompt is None:
            return None
        again = " (not accepted, once more)" if question in self._tried else ""
        self._tried.add(question)
        answer = await self._prompt(kind, question + again)
        if answer is not None:
            self._kept[question] = answer
        return answer
