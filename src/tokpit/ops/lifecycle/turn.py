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
from tokpit.errors import LaunchError, StartFailed, TokpitError
from tokpit.ops.gate import ConfirmRequest, Risk
from tokpit.ops.lifecycle.launch import Launched

if TYPE_CHECKING:
    from tokpit.ops.session import Session

log = logging.getLogger(__name__)


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


async def run(session: Session, turn: Turn) -> Launched:
    """End, begin, and go back where that fails and is wanted. Raises LaunchError that says how both went."""
    await turn.end()
    try:
        return await turn.begin()
    except LaunchError as error:
        if not await _wanted(session, turn, error):
            raise
        said = await _roll_back(turn)
        if isinstance(error, StartFailed):
            raise StartFailed(
                f"{error.message}; {said}", code=error.code, evidence=error.evidence, hint=error.hint
            ) from error
        raise LaunchError(f"{error.message}; {said}", hint=error.hint) from error


async def _wanted(session: Session, turn: Turn, error: LaunchError) -> bool:
    if turn.rollback is not None:
        return turn.rollback
    if session.confirm is None or session.assume_yes:
        return False
    request = ConfirmRequest(
        title=f"the new server failed ({error.message}). Start the earlier one again",
        lines=await turn.back_lines(),
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
