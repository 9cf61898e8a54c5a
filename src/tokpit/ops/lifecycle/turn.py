"""One server in another's place: the old one ends, the new one begins, and where it fails the old one comes back.

What these steps are depends on what the server is (one process, a rank on each of several hosts, a batch job); their
order, the question and the sentences are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.domain.text import mask_secrets
from tokpit.errors import LaunchError, LinkLost, RemoteFailed, TokpitError
from tokpit.ops.gate import ConfirmRequest, Risk
from tokpit.ops.lifecycle.launch import Launched
from tokpit.ops.lifecycle.leftovers import told

if TYPE_CHECKING:
    from tokpit.ops.session import Session

log = logging.getLogger(__name__)


async def _as_it_is(error: LaunchError) -> LaunchError:
    return error


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The steps. `rollback`: True starts the earlier server again where the new one fails, None asks then."""

    info: ServerInfo
    end: Callable[[], Awaitable[object]]
    begin: Callable[[], Awaitable[Launched]]
    clear: Callable[[], Awaitable[None]]
    """End what is left of a begin that failed."""
    back: Callable[[], Awaitable[float]]
    """Start the earlier server again; seconds until it was ready."""
    back_lines: Callable[[], Awaitable[tuple[str, ...]]]
    """What `back` will run, as it is shown."""
    rollback: bool | None
    unmade: Callable[[LaunchError], Awaitable[LaunchError]] = _as_it_is
    """The error of a begin that failed, once what it left was asked for: where the earlier server stays down."""


async def run(session: Session, turn: Turn) -> Launched:
    """End, begin, and go back where that fails and is wanted. Raises LaunchError that says how both went.

    A step that fails leaves the one before it done: the error says so.
    """
    await turn.end()
    host = turn.info.host
    try:
        return await turn.begin()
    except LinkLost as broken:
        raise LaunchError(
            f"{turn.info.label} was stopped, and the link broke before the new server was recorded: {broken.message}",
            hint=f"tokpit ps {host} shows whether it runs; tokpit history {host} names the earlier one",
        ) from broken
    except (LaunchError, RemoteFailed) as caught:
        error = caught if isinstance(caught, LaunchError) else _not_begun(turn, caught)
        if await _wanted(session, turn, error):
            raise told(error, message=f"{error.message}; {await _roll_back(turn)}") from caught
        error = await turn.unmade(error)
        raise error from (caught if error is not caught else None)


def _not_begun(turn: Turn, error: RemoteFailed) -> LaunchError:
    return LaunchError(
        f"{turn.info.label} was stopped, and the new server was not started: {error.message}", hint=error.hint
    )


async def _wanted(session: Session, turn: Turn, error: LaunchError) -> bool:
    if turn.rollback is not None:
        return turn.rollback
    if session.confirm is None or session.assume_yes:
        return False
    request = ConfirmRequest(
        title=f"the new server failed ({error.message}). Start the earlier one again",
        lines=tuple(mask_secrets(line) for line in await turn.back_lines()),
        risk=Risk.CHANGE,
    )
    return await session.confirm(request)


async def _roll_back(turn: Turn) -> str:
    """Clear away the failed server and start the earlier one; a clause that says how it went."""
    try:
        await turn.clear()
        seconds = await turn.back()
    except TokpitError as second:
        log.warning("rollback of %s failed: %s", turn.info.label, second)
        return f"the earlier server did not come back either: {second.message}"
    return f"the earlier server was started again and was ready after {seconds:.0f} s"
