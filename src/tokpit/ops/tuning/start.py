"""The commands of experiments: start, stop, resume, and put the first server back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.text import mask_secrets
from tokpit.domain.tuning import Trial, Tuning
from tokpit.errors import UsageError
from tokpit.ops.gate import Prepared
from tokpit.ops.tuning.place import Place
from tokpit.ops.tuning.plan import Ready, look, search_of, server_word
from tokpit.ops.tuning.run import Tuner
from tokpit.store.history import new_id
from tokpit.store.journal import Journal
from tokpit.transport.base import quote
from tokpit.tune import estimate
from tokpit.tune.experiment import Experiment
from tokpit.tune.search import Search
from tokpit.tune.space import name_of, value_of, words_of

if TYPE_CHECKING:
    from tokpit.ops.session import Session


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment before anything is touched."""

    title: str
    candidates: int
    to_try: int
    """Candidates that are neither refused nor stood for."""
    restarts: int
    """At most, the way back included."""
    minutes: float
    """At most, on the host's clock."""
    lines: tuple[str, ...]
    left_out: tuple[tuple[str, str, str], ...]
    """Candidate, code and reason."""


async def preview(session: Session, experiment: Experiment) -> Preview:
    """What an experiment would do. Raises what `tune.start` raises before it begins."""
    ready = await look(session, experiment)
    return _preview(ready, await search_of(session, ready))


async def prepare(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`tune.start`: `experiment`, `stop` (an event), `operation_id`. Runs to a Tuning.

    Raises UsageError, TargetError, LaunchError (the server could not be started again), HostError.
    """
    experiment: Experiment = args["experiment"]
    ready = await look(session, experiment)
    search = await search_of(session, ready)
    shown = _preview(ready, search)

    async def run() -> Tuning:
        begin = {
            "title": experiment.title,
            "host": ready.first.spec.host,
            "port": ready.first.port,
            "experiment": experiment,
            "server": ready.info,
        }
        with Journal.create(session.journals, new_id(), ready.first, begin) as journal:
            return await _run(session, ready, search, journal, args)

    return Prepared(
        title=f"tune {ready.info.label}: restart it up to {shown.restarts} times, "
        f"{estimate.minutes(shown.minutes * 60)} at most",
        host=ready.info.host,
        run=run,
        lines=shown.lines,
        warnings=_warnings(ready),
        typed_word=server_word(ready.info),
    )


async def prepare_resume(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`tune.resume`: `id`, `stop`. Goes on where a crash, a lost link or a stop left it."""
    journal = Journal.find(session.journals, str(args["id"]))
    first = journal.first()
    if first is None:
        raise UsageError(f"experiment {journal.id} has ended, and its first server was put back")
    events = journal.events()
    begin = next(event for event in events if event.kind == "begin")
    if "experiment" not in begin.data:
        raise UsageError(
            f"{journal.id} is a comparison, which is not resumed",
            hint=f"put the first server back with: tokpit tune --restore {journal.id}",
        )
    experiment = msgspec.convert(begin.data["experiment"], Experiment)
    if hidden := [name for name, value in experiment.env.items() if value == "***"]:
        raise UsageError(
            f"experiment {journal.id} set {', '.join(hidden)}, whose value is a secret and was not written down",
            hint=f"put the first server back with: tokpit tune --restore {journal.id}, and begin anew",
        )
    await session.connected(first.spec.host)
    ready = _again(experiment, first, begin.data)
    trials = [msgspec.convert(event.data["trial"], Trial) for event in events if event.kind == "trial"]
    search = await search_of(session, ready)

    async def run() -> Tuning:
        with journal:
            return await _run(session, ready, search, journal, args, trials=trials)

    return Prepared(
        title=f"go on with experiment {journal.id} on {ready.info.label}, {len(trials)} results so far",
        host=first.spec.host,
        run=run,
        lines=(f"# first server: {mask_secrets(quote(first.argv))}",),
        typed_word=str(first.port),
    )


async def prepare_restore(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`tune.restore`: `id`. Puts the first server of an experiment back and closes its journal."""
    journal = Journal.find(session.journals, str(args["id"]))
    first = journal.first()
    if first is None:
        raise UsageError(f"experiment {journal.id}: its first server was put back already")
    await session.connected(first.spec.host)
    place = Place(session, first, journal, timeout_s=float(args.get("timeout_s") or 1800.0))

    async def run() -> Any:
        with journal:
            server = await place.put_first_back()
            journal.add("restored", kept="")
            journal.add("end", status="restored")
            journal.forget_first()
            return server

    standing = await place.standing()
    now = f"# runs now: {mask_secrets(quote(standing.argv))}" if standing is not None else "# nothing runs there now"
    return Prepared(
        title=f"put the first server of experiment {journal.id} back on {first.spec.host}:{first.port}",
        host=first.spec.host,
        run=run,
        lines=(now, mask_secrets(quote(first.argv))),
        typed_word=str(first.port),
    )


async def prepare_stop(session: Session, args: Mapping[str, Any]) -> Prepared:
    """`tune.stop`: `id`. Ends the experiment; the first server is put back. Raises UsageError."""
    stop = session.stops.get(str(args["id"]))
    if stop is None:
        raise UsageError("no experiment is under way")

    async def run() -> None:
        stop.set()

    return Prepared(title="stop the experiment", host="", run=run)


async def _run(
    session: Session,
    ready: Ready,
    search: Search,
    journal: Journal,
    args: Mapping[str, Any],
    *,
    trials: list[Trial] | None = None,
) -> Tuning:
    stop: asyncio.Event = args.get("stop") or asyncio.Event()
    session.stops[journal.id] = stop
    try:
        tuner = Tuner(
            session, ready, search, journal, stop, trials=trials or (),
            operation_id=args.get("operation_id"),
        )  # fmt: skip
        return await tuner.run()
    finally:
        session.stops.pop(journal.id, None)


def _again(experiment: Experiment, first: Any, begin: Mapping[str, Any]) -> Ready:
    from tokpit.domain.server import ServerInfo
    from tokpit.ops.sweep.plan import read_args
    from tokpit.tune.space import choice_of

    info = msgspec.convert(begin["server"], ServerInfo)
    info = msgspec.structs.replace(info, argv=first.argv, settings=first.spec.settings)
    sweep = experiment.sweep_args()
    levels = tuple(sorted(set(read_args(sweep).levels)))
    return Ready(
        experiment=experiment,
        first=first,
        info=info,
        choice=choice_of(first.spec.settings, experiment.space()),
        levels=levels,
        times=estimate.before((), sweep, levels, {}),
    )


def _preview(ready: Ready, search: Search) -> Preview:
    experiment, times = ready.experiment, ready.times
    space = experiment.space()
    end = max(1, experiment.search.repeats * (experiment.search.finalists + 1)) + int(experiment.keep)
    restarts = search.waiting + end
    if experiment.limits.restarts is not None:
        restarts = min(restarts, experiment.limits.restarts)
    seconds = times.sweep_s + restarts * times.each_s
    if experiment.limits.minutes is not None:
        seconds = min(seconds, experiment.limits.minutes * 60)
    out = search.left_out
    lines = [
        *(f"# {name_of(axis.name)}: {', '.join(map(value_of, axis.values))}" for axis in space.axes),
        f"# {space.told}: {search.waiting} to try, "
        + ", ".join(
            f"{sum(o.code == c for o in out)} left out ({w})"
            for c, w in _WORDS.items()
            if any(o.code == c for o in out)
        )
        if out
        else f"# {space.told}",
        f"# at most {restarts} restarts, {end} of them to confirm and to put the first server back",
        f"# {estimate.minutes(seconds)} at most: a start {times.restart_s:.0f} s ({times.restart_from}), "
        f"a measurement {times.sweep_s:.0f} s ({times.sweep_from})",
        f"# first server: {mask_secrets(quote(ready.first.argv))}",
    ]
    return Preview(
        title=experiment.title,
        candidates=space.size,
        to_try=search.waiting,
        restarts=restarts,
        minutes=seconds / 60,
        lines=tuple(lines),
        left_out=tuple((words_of(o.choice), o.code, o.reason) for o in out),
    )


_WORDS = {"rules": "refused by rules", "same": "another stands for them", "memory": "memory", "ceiling": "ceiling"}


def _warnings(ready: Ready) -> tuple[str, ...]:
    said = [
        "while it runs, the server is away during each restart and busy with the measurements in between",
        *ready.notes,
    ]
    if ready.first.unit is not None:
        said.append(f"{ready.first.unit.get('name')} is stopped meanwhile, and started again at the end")
    return tuple(said)
