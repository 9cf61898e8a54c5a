"""A against B as one action: two launch specs, the same prompts, alternating blocks, a verdict with its interval."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.domain.text import mask_secrets
from tokpit.domain.tuning import CurvePoint
from tokpit.errors import LaunchError, TokpitError, UsageError
from tokpit.insight.words import within
from tokpit.ops.difference import launch_differences
from tokpit.ops.gate import Prepared
from tokpit.ops.lifecycle import launch
from tokpit.ops.lifecycle.launch import Plan
from tokpit.ops.progress import Progress
from tokpit.ops.sweep.plan import read_args
from tokpit.ops.tuning.place import Place
from tokpit.ops.tuning.plan import check_none_open, find_server, first_of, server_word
from tokpit.store.history import new_id
from tokpit.store.journal import First, Journal
from tokpit.transport.base import quote
from tokpit.tune.experiment import DEFAULT_LEVELS, Objective
from tokpit.tune.score import point_of, pooled, score
from tokpit.tune.versus import Versus, compare, order

if TYPE_CHECKING:
    from tokpit.ops.session import Session


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One block: which side, its value by the objective, its curve."""

    side: str
    value: float
    half: float
    points: tuple[CurvePoint, ...]
    run: str
    restarted: bool


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison that is over. `a` is the server as it ran."""

    id: str
    target: str
    changes: tuple[str, ...]
    a_line: str
    b_line: str
    blocks: tuple[Block, ...]
    versus: Versus
    by_level: dict[int, Versus]
    verdict: str
    unit: str


class Sides(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared."""

    info: ServerInfo
    first: First
    b: Plan
    changes: tuple[str, ...]


async def prepare(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`ab.start`: `target`, what B is (`changes` of settings and `env`, or a whole `spec`), `blocks`, `workload`.

    Also `objective`, `noise`, `timeout_s`, `stop`. Runs to a Compared. Raises as `tune.start`.
    """
    blocks = int(args.get("blocks") or 3)
    if blocks < 1:
        raise UsageError(f"{blocks} blocks compare nothing: at least 1")
    sweep = {"levels": DEFAULT_LEVELS, **(args.get("workload") or {})}
    read_args(sweep)
    sides = await _sides(session, args)
    host = session.host(sides.info.host)

    async def run() -> Compared:
        begin = {"title": f"A/B: {', '.join(sides.changes)}", "host": sides.info.host, "port": sides.first.port}
        with Journal.create(session.journals, new_id(), sides.first, begin) as journal:
            return await _Duel(session, sides, journal, sweep, blocks, args).run()

    restarts = sum(1 for one, other in zip(["A", *order(blocks)], [*order(blocks), "A"], strict=True) if one != other)
    return Prepared(
        title=f"compare {sides.info.label} with {', '.join(sides.changes)}: {2 * blocks} blocks, {restarts} restarts",
        host=host.name,
        run=run,
        lines=(
            f"A: {mask_secrets(quote(sides.first.argv))}",
            f"B: {mask_secrets(quote(sides.b.argv))}",
            f"# order: {' '.join(order(blocks))}, then A stays",
        ),
        warnings=sides.b.warnings,
        typed_word=server_word(sides.info),
    )


async def _sides(session: Session, args: Mapping[str, Any]) -> Sides:
    info = await find_server(session, str(args["target"]))
    first = await first_of(session, info)
    check_none_open(session.journals, first.spec.host, first.port)
    old = first.spec
    spec: LaunchSpec | None = args.get("spec")
    if spec is None:
        changes = dict(args.get("changes") or {})
        unknown = set(changes) - set(Settings.__struct_fields__)
        if unknown:
            raise UsageError(f"unknown setting: {', '.join(sorted(unknown))}")
        settings = msgspec.structs.replace(old.settings, **changes)
        spec = msgspec.structs.replace(old, settings=settings, env={**old.env, **(args.get("env") or {})})
    else:
        settings = msgspec.structs.replace(spec.settings, port=first.port)
        spec = msgspec.structs.replace(spec, host=old.host, settings=settings)
    b = await launch.plan(session, spec, force=bool(args.get("force")), replacing=info)
    changes_told = [change.text for change in launch_differences(old, b.spec)]
    if old.engine != b.spec.engine:
        changes_told = [f"engine: {old.engine} -> {b.spec.engine}"]
    if not changes_told:
        raise UsageError("A and B are the same", hint="name at least one setting that B has otherwise")
    return Sides(info=info, first=first, b=b, changes=tuple(changes_told))


class _Duel:
    """One comparison under way."""

    def __init__(
        self,
        session: Session,
        sides: Sides,
        journal: Journal,
        sweep: Mapping[str, Any],
        blocks: int,
        args: Mapping[str, Any],
    ) -> None:
        self._session, self._sides, self._journal, self._sweep = session, sides, journal, sweep
        self._order, self._noise = order(blocks), float(args.get("noise") or 0.02)
        self._objective: Objective = args.get("objective") or Objective()
        self._stop: asyncio.Event = args.get("stop") or asyncio.Event()
        self._place = Place(session, sides.first, journal, timeout_s=float(args.get("timeout_s") or 1800.0))
        self._progress = Progress(
            session.store,
            kind="ab",
            target=sides.info.id,
            title=f"comparison {journal.id} on {sides.info.label}: {', '.join(sides.changes)}",
            now=session.host(sides.info.host).now,
            operation_id=args.get("operation_id"),
        )
        self._blocks: list[Block] = []
        self._first_points: tuple[CurvePoint, ...] = ()

    async def run(self) -> Compared:
        """Every block, then A again. Raises what ended it; A runs again then, unless that is what failed."""
        self._session.stops[self._journal.id] = self._stop
        error: BaseException | None = None
        try:
            for side in self._order:
                if self._stop.is_set():
                    break
                await self._block(side)
        except (TokpitError, asyncio.CancelledError) as caught:
            error = caught
        finally:
            self._session.stops.pop(self._journal.id, None)
            await self._back(error)
        if error is not None:
            self._progress.failed(error)
            if isinstance(error, TokpitError):
                error.hint = "; ".join(filter(None, (error.hint, "A, the first server, runs again")))
            raise error
        return self._compared()

    async def _block(self, side: str) -> None:
        number = len(self._blocks) + 1
        restarted = (bool(self._blocks) and self._blocks[-1].side != side) or (not self._blocks and side == "B")
        if side == "A":
            server = await self._place.put_first_back()
        else:
            server = await self._place.put(self._sides.b)
        run = await self._place.sweep(server, self._sweep, self._stop)
        if self._stop.is_set():
            return
        points = pooled(map(point_of, run.levels))
        value = score(points, self._objective, 0.02, self._first_points)
        if value.value is None:
            raise LaunchError(f"block {number} ({side}) gives no value: {value.reason}")
        self._first_points = self._first_points or points
        block = Block(side=side, value=value.value, half=value.half, points=points, run=run.id, restarted=restarted)
        self._blocks.append(block)
        self._journal.add("block", block=block)
        self._progress.step(f"block-{number}", f"block {number}, {side}: {within(value.value, value.half)}")

    async def _back(self, error: BaseException | None) -> None:
        try:
            await self._place.put_first_back()
        except TokpitError as second:
            first = f"{error.message}; " if isinstance(error, TokpitError) else ""
            self._progress.failed(second)
            raise LaunchError(
                f"{first}the first server was not put back: {second.message}",
                hint=f"put it back with: tokpit tune --restore {self._journal.id}",
            ) from second
        self._journal.add("restored", kept="")
        self._journal.add("end", status="stopped" if self._stop.is_set() else "done" if error is None else "failed")
        self._journal.forget_first()

    def _compared(self) -> Compared:
        a = [block for block in self._blocks if block.side == "A"]
        b = [block for block in self._blocks if block.side == "B"]
        try:
            versus = compare([block.value for block in a], [block.value for block in b])
        except ValueError as error:
            self._progress.stopped("stopped before there was a pair of blocks")
            raise UsageError("nothing can be compared: it was stopped before both sides were measured") from error
        verdict = versus.verdict(self._noise)
        self._progress.done(verdict=verdict)
        levels = sorted({p.concurrency for block in self._blocks for p in block.points})
        return Compared(
            id=self._journal.id,
            target=self._sides.info.label,
            changes=self._sides.changes,
            a_line=mask_secrets(quote(self._sides.first.argv)),
            b_line=mask_secrets(quote(self._sides.b.argv)),
            blocks=tuple(self._blocks),
            versus=versus,
            by_level={c: found for c in levels if (found := _at(c, a, b)) is not None},
            verdict=verdict,
            unit=self._objective.kind,
        )


def _at(concurrency: int, a: list[Block], b: list[Block]) -> Versus | None:
    def rates(blocks: list[Block]) -> list[float]:
        return [p.tps for block in blocks for p in block.points if p.concurrency == concurrency and not p.void]

    try:
        return compare(rates(a), rates(b))
    except ValueError:
        return None
