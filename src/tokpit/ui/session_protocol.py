"""What the console needs of a session: the store it reads, and the one door through which it acts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from tokpit.store.live import LiveStore
from tokpit.transport.base import HostSpec


class ConfirmRequest(Protocol):
    """A question before something changes: what, the exact command lines, how risky, and the word to type if any."""

    @property
    def title(self) -> str:
        """One line: what will happen."""
        ...

    @property
    def lines(self) -> tuple[str, ...]:
        """The exact command lines, as they will run."""
        ...

    @property
    def risk(self) -> Any:
        """Risk of the command; its text (or value) is shown."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the checks said."""
        ...

    @property
    def typed_word(self) -> str | None:
        """Word that must be typed for a destructive command; None: a button is enough."""
        ...


Confirm = Callable[[ConfirmRequest], Awaitable[bool]]
AskText = Callable[[str, str], Awaitable["str | None"]]


class SessionLike(Protocol):
    """See the module docstring. Its life (start, close) belongs to the caller, outside the application."""

    history: Any
    host_specs: Mapping[str, HostSpec]
    read_only: bool
    confirm: Any
    prompt: Any

    @property
    def store(self) -> LiveStore:
        """What is known now."""
        ...

    def watch_host(self, name: str) -> Any:
        """Keep a host's records coming; may return an awaitable."""
        ...

    def watch_server(self, server_id: str) -> Any:
        """Keep a server's log and figures coming; may return an awaitable."""
        ...

    async def execute(self, command_id: str, **args: Any) -> Any:
        """Run a command through the gate. Raises TokpitError."""
        ...
