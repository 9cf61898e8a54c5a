"""The one door: every command, whoever asks for it, is checked, confirmed, audited and run here."""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.records import ActionRecord
from tokpit.domain.text import mask_secrets
from tokpit.errors import TokpitError, UsageError

if TYPE_CHECKING:
    from tokpit.ops.session import Session


log = logging.getLogger(__name__)

_TELL_S = 10.0


class Risk(enum.Enum):
    """What a command can do to a machine that serves people."""

    READ = "read"
    """Asks only."""
    LOAD = "load"
    """Sends requests to a server."""
    CHANGE = "change"
    """Starts something or writes a file."""
    DESTRUCTIVE = "destructive"
    """Ends something that may be in use; the user types a word to confirm."""


class ConfirmRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the user is asked before a change: a title, the exact remote command lines, warnings, the word to type."""

    title: str
    lines: tuple[str, ...]
    risk: Risk
    warnings: tuple[str, ...] = ()
    typed_word: str | None = None


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A command made ready: what it will do, in words and in exact command lines, and the coroutine that does it."""

    title: str
    host: str
    run: Callable[[], Awaitable[Any]]
    lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    typed_word: str | None = None


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a person can do. `prepare` looks and decides but changes nothing; its answer is confirmed first."""

    id: str
    title: str
    help: str
    risk: Risk
    prepare: Callable[[Session, Mapping[str, Any]], Awaitable[Prepared]]
    keys: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    """Where the command makes sense: `host`, `server`, `sweep`, `app`."""
    asks: bool = False
    """Asks although it changes nothing: it takes many servers at once."""


class Refused(TokpitError):
    """The user said no, or read-only mode did."""

    exit_code = 1


async def execute(session: Session, command: Command, args: Mapping[str, Any], *, consented: bool = False) -> Any:
    """Run a command: read-only check, prepare, confirm, audit intent, run, audit outcome.

    `consented`: it is part of a command that was shown as a whole, with this one's lines, and agreed to; it is audited
    by itself all the same.

    Raises Refused where the user or read-only mode says no; what the command itself raises passes through, audited.
    """
    if session.read_only and command.risk in {Risk.CHANGE, Risk.DESTRUCTIVE}:
        raise Refused(f"{command.title}: refused, tokpit runs in read-only mode", hint="start without --read-only")
    prepared = await command.prepare(session, args)
    if command.risk is Risk.READ:
        return await prepared.run()
    lines = tuple(mask_secrets(line) for line in prepared.lines)
    if (command.risk is not Risk.LOAD or command.asks) and not (session.assume_yes or consented):
        request = ConfirmRequest(
            title=prepared.title,
            lines=lines,
            risk=command.risk,
            warnings=prepared.warnings,
            typed_word=prepared.typed_word if command.risk is Risk.DESTRUCTIVE else None,
        )
        if session.confirm is None:
            raise UsageError(
                f"{prepared.title}: nobody to ask for consent", hint="add --yes to run it without being asked"
            )
        if not await session.confirm(request):
            raise Refused(f"{prepared.title}: not confirmed, nothing was changed")
    return await _audited(session, command, prepared, lines)


async def _audited(session: Session, command: Command, prepared: Prepared, lines: tuple[str, ...]) -> Any:
    history = await session.history()
    entry = await history.audit_intent(host=prepared.host, command=command.id, title=prepared.title, lines=lines)
    started = time.monotonic()
    outcome, detail = "failed", ""
    _tell_store(session, command, prepared, lines)
    try:
        result = await prepared.run()
        outcome = "done"
        return result
    except TokpitError as error:
        detail = error.message
        raise
    except BaseException as error:
        outcome, detail = "cancelled", type(error).__name__
        raise
    finally:
        _tell_store(session, command, prepared, lines, outcome, detail)
        took_s = time.monotonic() - started
        await history.audit_outcome(entry, outcome=outcome, detail=detail, duration_s=took_s)
        if command.risk in {Risk.CHANGE, Risk.DESTRUCTIVE} and prepared.host:
            await _tell_host(session, command, prepared, outcome, detail, took_s)


def _tell_store(
    session: Session,
    command: Command,
    prepared: Prepared,
    lines: tuple[str, ...],
    outcome: str = "begun",
    detail: str = "",
) -> None:
    """Into the stream of records too, so that a recording shows what was done."""
    session.store.apply(
        ActionRecord(
            t=time.time(),
            host=prepared.host,
            command=command.id,
            title=prepared.title,
            lines=lines,
            outcome=outcome,
            detail=mask_secrets(detail),
        )
    )


async def _tell_host(
    session: Session, command: Command, prepared: Prepared, outcome: str, detail: str, took_s: float
) -> None:
    """Leave a line on the host too, for others who work there; a host that cannot take it is no reason to fail."""
    from tokpit.ops.lifecycle.adopt import audit_line
    from tokpit.store.history import getpass_user
    from tokpit.transport.records import append_audit

    line = audit_line(
        user=getpass_user(),
        command=command.id,
        title=prepared.title,
        outcome=outcome,
        detail=detail,
        at=time.time(),
        duration_s=took_s,
        lines=prepared.lines,
    )
    try:
        async with asyncio.timeout(_TELL_S):
            await append_audit(session.host(prepared.host), line)
    except (TokpitError, TimeoutError) as error:
        log.info("no audit line on %s: %s", prepared.host, error)
