"""Relaunch of one server over several hosts: every rank ends, every rank begins again, and all go back together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.domain.text import mask_secrets
from tokpit.engines.base import Engine
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import LaunchError, UsageError
from tokpit.ops.difference import in_words, launch_differences
from tokpit.ops.gate import Prepared
from tokpit.ops.host import environment
from tokpit.ops.lifecycle import methods, nodes, relaunch, stop, turn
from tokpit.ops.lifecycle.launch import Launched
from tokpit.ops.targets import address_of
from tokpit.transport.base import quote

if TYPE_CHECKING:
    from tokpit.ops.session import Session


async def prepare(session: Session, named: ServerInfo, args: Mapping[str, Any]) -> Prepared:
    """See `relaunch.prepare`; `named` is any of the ranks, what is changed holds for all.

    Raises LaunchError where a rank is gone or its command line cannot be started again.
    """
    ranks = await nodes.running(session, named)
    if len(ranks) < len(named.ranks):
        gone = sorted(set(range(len(named.ranks))) - {one.rank for one in ranks})
        said = ", ".join(f"rank {number} on {named.ranks[number]}" for number in gone)
        raise LaunchError(
            f"{said} does not run any more: there is nothing whole to relaunch, or to go back to",
            hint="stop what is left of it with tokpit stop, and launch it anew",
        )
    first, engine = ranks[0], engine_of(named.engine)
    old = await asyncio.gather(*(_spec_of(session, engine, info) for info in ranks))
    given = args.get("env") or {}
    changed = changed_settings(engine, first, old[0].settings, args.get("changes") or {})
    # What differs from rank to rank (its program, its variables) stays with each; a change is one for all.
    changes = {
        name: getattr(changed, name)
        for name in Settings.__struct_fields__
        if getattr(changed, name) != getattr(old[0].settings, name)
    }
    new = [
        msgspec.structs.replace(
            one, settings=msgspec.structs.replace(one.settings, **changes), env={**one.env, **given}, log_path=None
        )
        for one in old
    ]
    head = engine.without_ranks(first.argv).head or address_of(session.host(first.host))
    after = await nodes.plan_each(session, new, head=head, force=bool(args.get("force")), replacing=ranks)
    before = tuple(_as_it_was(session, spec, info) for spec, info in zip(old, ranks, strict=True))
    ending = await nodes.endings(session, ranks)
    timeout_s = args.get("timeout_s") or 1800.0

    async def back() -> float:
        fresh = [await _logged(session, rank) for rank in before]
        return (await nodes.start(session, fresh, timeout_s=timeout_s)).ready_s

    async def cleared() -> None:
        """A start over several hosts that fails has ended what it began."""

    steps = turn.Turn(
        info=first,
        end=lambda: nodes.end(session, ending, term_wait_s=stop.TERM_WAIT_S),
        begin=lambda: nodes.start(session, after, timeout_s=timeout_s),
        clear=cleared,
        back=back,
        back_lines=lambda: nodes.shown_lines(session, before),
        rollback=args.get("rollback"),
    )

    async def work() -> Launched:
        return await turn.run(session, steps)

    found = launch_differences(old[0], new[0])
    return Prepared(
        title=f"relaunch {first.label} on {len(ranks)} hosts ({', '.join(named.ranks)}) with {in_words(found)}",
        host=first.host,
        run=work,
        lines=(
            *(f"# {change.text}" for change in found),
            *nodes.ending_lines(ending),
            *(f"# {info.host} was: {mask_secrets(quote(info.argv))}" for info in ranks),
            *await nodes.shown_lines(session, after),
        ),
        warnings=tuple(f"{rank.host}: {warning}" for rank in after for warning in rank.plan.warnings),
        typed_word=str(first.port or first.group),
    )


def changed_settings(engine: Engine, info: ServerInfo, old: Settings, changes: Mapping[str, Any]) -> Settings:
    """`old`, which is without the flags of a rank, as `changes` of what the whole command line says make it.

    Raises UsageError for a change of how many ranks there are, or where they meet.
    """
    if "raw" not in changes:
        return msgspec.structs.replace(old, **changes)
    new = engine.without_ranks(changes["raw"])
    if new.ranked and new.ranked != engine.without_ranks(info.settings.raw).ranked:
        raise UsageError(
            f"the flags of a rank are tokpit's own and stay as they are: {' '.join(new.ranked)}",
            hint="for other hosts or another number of them, stop it and launch it anew",
        )
    return msgspec.structs.replace(old, **{**changes, "raw": new.words})


async def _spec_of(session: Session, engine: Engine, info: ServerInfo) -> LaunchSpec:
    """One rank as a server of its own, without what makes it a rank."""
    argv = engine.without_ranks(info.argv).words
    alone = msgspec.structs.replace(info, argv=argv, ranks=(), group="")
    recognised = engine.recognise(argv)
    if recognised is not None:
        alone = msgspec.structs.replace(alone, settings=recognised.settings)
    return await relaunch.spec_of(session, alone)


def _as_it_was(session: Session, spec: LaunchSpec, info: ServerInfo) -> nodes.Rank:
    host = session.host(info.host)
    plan = relaunch.exactly(host, spec, info.argv, info.port or 0, "cuda")
    return nodes.Rank(number=info.rank, host=info.host, plan=plan)


async def _logged(session: Session, rank: nodes.Rank) -> nodes.Rank:
    """With a log file and a name of its own, as of now."""
    host, spec = session.host(rank.host), rank.plan.spec
    spec = msgspec.structs.replace(spec, log_path=await environment.default_log_path(host, spec))
    handle = methods.handle(spec, rank.plan.port, host.now())
    return msgspec.structs.replace(rank, plan=msgspec.structs.replace(rank.plan, spec=spec, handle=handle))
