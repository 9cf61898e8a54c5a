"""One thing done to several servers, one after another: one question that lists each, a failure stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.errors import TargetError, TokpitError, UsageError
from tokpit.ops.gate import Prepared
from tokpit.ops.progress import Progress

if TYPE_CHECKING:
    from tokpit.ops.session import Session

ACTIONS = {"stop": "server.stop", "check": "server.check", "sweep": "sweep.start"}
_MOST_NAMED = 4


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How it went on one server. `ok`: it was done, and a check found nothing wrong."""

    target: str
    ok: bool
    sentence: str
    run: str = ""
    """Id of the stored run, of a check or a sweep."""


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, in the order in which they were done."""

    action: str
    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """Whether every one went well."""
        return all(one.ok for one in self.results)


async def prepare_stop(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`fleet.stop`: see `_prepare`."""
    return await _prepare(session, "stop", args)


async def prepare_check(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`fleet.check`: see `_prepare`."""
    return await _prepare(session, "check", args)


async def prepare_sweep(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`fleet.sweep`: see `_prepare`."""
    return await _prepare(session, "sweep", args)


async def _prepare(session: Session, action: str, args: Mapping[str, Any]) -> Prepared:
    """`targets`: servers by id or name, or hosts, which stand for all of their servers; the rest is passed on.

    Raises UsageError for no target; TargetError, HostError where one of them cannot be looked at.
    """
    from tokpit.ops.commands import command

    infos = await servers_of(session, args.get("targets") or ())
    more = {name: value for name, value in args.items() if name not in ("targets", "operation_id", "stop")}
    inner = command(ACTIONS[action])
    prepared = [await inner.prepare(session, {**more, **_named(action, info)}) for info in infos]
    lines, warnings = [], []
    for info, one in zip(infos, prepared, strict=True):
        lines.append(f"{info.label}: {one.title}")
        lines += [f"    {line}" for line in one.lines]
        warnings += [f"{info.label}: {said}" for said in one.warnings]
    names = ", ".join(info.label for info in infos[:_MOST_NAMED])
    more_names = f" and {len(infos) - _MOST_NAMED} more" if len(infos) > _MOST_NAMED else ""

    async def run() -> Results:
        return await _each(session, action, infos, more, args)

    return Prepared(
        title=f"{action} {len(infos)} servers, one after another: {names}{more_names}",
        host="",
        run=run,
        lines=tuple(lines),
        warnings=tuple(warnings),
        typed_word=f"{action} {len(infos)}",
    )


async def servers_of(session: Session, targets: Sequence[str]) -> tuple[ServerInfo, ...]:
    """The servers that the targets name, each once, in their order. Raises UsageError, TargetError, HostError."""
    from tokpit.ops.targets import resolve_server

    if not targets:
        raise UsageError("nothing is selected", hint="pick hosts, or name servers")
    found: dict[str, ServerInfo] = {}
    for text in targets:
        known = session.store.servers.get(text)
        if known is not None:
            found[known.info.id] = known.info
        elif text in session.host_specs or text in session.inventory.hosts:
            for info in await session.find(text):
                found[info.id] = info
        else:
            info = await resolve_server(session, text)
            found[info.id] = info
    # A server over several hosts is one, whichever of its ranks is named.
    once = {(info.group or info.id): info for info in sorted(found.values(), key=lambda info: -info.rank)}
    kept = tuple(info for info in found.values() if once[info.group or info.id].id == info.id)
    if not kept:
        raise TargetError("no server runs on what is selected", hint="look with: tokpit ps")
    return kept


def _named(action: str, info: ServerInfo) -> dict[str, Any]:
    # A check and a sweep are of a port; a stop is of exactly that process.
    return {"server_id": info.id, "target": info.id}


async def _each(
    session: Session, action: str, infos: Sequence[ServerInfo], more: Mapping[str, Any], args: Mapping[str, Any]
) -> Results:
    from tokpit.ops.commands import command
    from tokpit.ops.gate import execute

    stop: asyncio.Event = args.get("stop") or asyncio.Event()
    progress = Progress(
        session.store,
        kind="fleet",
        target="",
        title=f"{action} {len(infos)} servers",
        now=session.host(infos[0].host).now,
        operation_id=args.get("operation_id"),
    )
    session.stops[progress.operation.id] = stop
    done: list[Result] = []
    try:
        for number, info in enumerate(infos):
            if stop.is_set():
                break
            progress.update(result={"note": f"{number + 1} of {len(infos)}: {info.label}"})
            passed = {**more, **_named(action, info), **({"stop": stop} if action == "sweep" else {})}
            try:
                answer = await execute(session, command(ACTIONS[action]), passed, consented=True)
                result = _result(action, info.label, answer)
            except TokpitError as error:
                result = Result(target=info.label, ok=False, sentence=error.message)
            done.append(result)
            progress.step(f"{action}-{number}", f"{'ok' if result.ok else 'FAILED'}  {info.label}", result.sentence)
    finally:
        session.stops.pop(progress.operation.id, None)
    if len(done) < len(infos):
        progress.stopped(f"stopped after {len(done)} of {len(infos)}")
    else:
        progress.update(status="done", result={"note": ""})
    return Results(action=action, results=tuple(done))


def _result(action: str, label: str, answer: Any) -> Result:
    if action == "stop":
        return Result(target=label, ok=True, sentence=f"gone by {answer.signal} after {answer.elapsed_s:.1f} s")
    if action == "check":
        failed = [item for item in answer.items if item.ok is False]
        said = "; ".join(f"{item.name}: {item.sentence}" for item in failed) or "nothing failed"
        return Result(target=label, ok=answer.ok, sentence=said, run=str(answer.run or ""))
    best = max((level.output_tps for level in answer.levels), default=0.0)
    said = f"{len(answer.levels)} levels, {best:.1f} tok/s at most"
    return Result(target=label, ok=answer.status == "done", sentence=said, run=answer.id)
