"""An experiment made ready: the server as it runs, its candidates, what the rules refuse, and how long it will take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.domain.tuning import Choice, LeftOut
from tokpit.engines.base import Engine, FlagSpec
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import TargetError, TokpitError, UsageError
from tokpit.insight.roofline import Roofline, stream_roofline
from tokpit.ops.host import environment
from tokpit.ops.host.schema import installed_schema
from tokpit.ops.lifecycle import managers, relaunch, stop
from tokpit.ops.sweep.advice import facts_of
from tokpit.ops.sweep.plan import read_args
from tokpit.ops.targets import resolve_server
from tokpit.store.journal import First, entries
from tokpit.tune import estimate, suggest
from tokpit.tune.estimate import Times
from tokpit.tune.experiment import Experiment, checked
from tokpit.tune.knowledge import Cap, Knowledge
from tokpit.tune.search import Search
from tokpit.tune.space import choice_of
from tokpit.tune.target import check_target

if TYPE_CHECKING:
    from pathlib import Path

    from tokpit.ops.session import Session

OPTUNA_PAYS = 12
"""From so many candidates on, `auto` asks Optuna as well."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an experiment needs and that does not change while it runs."""

    experiment: Experiment
    first: First
    info: ServerInfo
    choice: Choice
    """The varied settings as the first server has them."""
    levels: tuple[int, ...]
    times: Times
    notes: tuple[str, ...] = ()


class Refusals:
    """What the engine says of a candidate's settings before a start, with the host and the model asked once."""

    def __init__(
        self, engine: Engine, first: First, schema: Sequence[FlagSpec] | None, model: ModelFacts, facts: HostFacts
    ) -> None:
        self._engine, self._first, self._schema = engine, first, schema
        self._model, self._facts = model, facts

    def why(self, settings: Settings) -> str:
        """Why the start would be refused; empty where it would not."""
        version, env = self._first.spec.version, self._first.spec.env
        try:
            flags = self._engine.to_flags(settings, version)
        except UsageError as error:
            return error.message
        issues = [i.sentence for i in self._engine.check_flags(flags, version, self._schema) if i.severity == "error"]
        for said in self._engine.check_rules(settings, version, self._model, self._facts, env):
            if said.severity == "error":
                issues.append(said.sentence + (f" ({said.arithmetic})" if said.arithmetic else ""))
        return "; ".join(issues)

    def cap(self, settings: Settings) -> Cap:
        """Most requests that run at once."""
        spec = self._first.spec
        value, words = self._engine.running_cap(settings, spec.version, self._model, self._facts, spec.env)
        return Cap(value, words)


async def look(session: Session, experiment: Experiment) -> Ready:
    """Look at everything before anything is touched.

    Raises UsageError for an experiment that cannot be run, TargetError, LaunchError where the server could not be
    started again, HostError.
    """
    checked(experiment)
    asked = read_args(experiment.sweep_args())
    info = await find_server(session, experiment.target)
    first = await first_of(session, info)
    check_none_open(session.journals, first.spec.host, first.port)
    space = experiment.space()
    notes = []
    levels = tuple(sorted(set(asked.levels)))
    if experiment.objective.kind in {"single", "pareto"} and min(levels) > 1:
        notes.append(f"the speed of one stream is taken at C={min(levels)}, the lowest level")
    return Ready(
        experiment=experiment,
        first=first,
        info=info,
        choice=choice_of(info.settings, space),
        levels=levels,
        times=await _times(session, info, experiment, levels),
        notes=tuple(notes),
    )


async def search_of(session: Session, ready: Ready) -> Search:
    """The search over the candidates of an experiment, with the rules asked about each."""
    experiment, first = ready.experiment, ready.first
    host = session.host(first.spec.host)
    engine = engine_of(first.spec.engine)
    schema = await installed_schema(host, engine, first.spec.program, first.spec.version)
    facts = await environment.host_facts(host, first.spec, replacing=ready.info)
    model = await environment.model_facts(host, first.spec)
    refusals = Refusals(engine, first, schema, model, facts)
    space = experiment.space()
    sweep = experiment.sweep_args()
    knowledge = Knowledge(
        space,
        first.spec.settings,
        levels=ready.levels,
        objective=experiment.objective,
        error_rate=experiment.limits.error_rate,
        cap_of=refusals.cap,
        roofline=await _roofline(session, ready),
        shared_prefix=bool(sweep.get("prefix_share")) or int(sweep.get("turns") or 1) > 1 or "dataset" in sweep,
    )
    refused = [
        LeftOut(choice, "rules", why)
        for choice in space.candidates()
        if (why := refusals.why(knowledge.settings(choice)))
    ]
    search = experiment.search
    with_optuna = search.method == "optuna" or (
        search.method == "auto" and suggest.installed() and space.size >= OPTUNA_PAYS
    )
    return Search(
        knowledge,
        noise=search.noise,
        patience=search.patience_for(space.size),
        refused=refused,
        suggest=suggest.optuna(space, search.seed) if with_optuna else None,
    )


async def first_of(session: Session, info: ServerInfo) -> First:
    """What is needed to put a running server back.

    Raises UsageError for a server in a container, a batch job or on several hosts, LaunchError, TargetError, StopError,
    HostError.
    """
    check_target(info)
    host = await session.connected(info.host)
    spec = await relaunch.spec_of(session, info)
    if info.port is None:
        raise TargetError(f"{info.label}: its port is not known", hint="start it with --port, then tune it")
    job = await stop.plan(host, info)
    unit = job.manager
    keeps = unit is not None and not unit.name.startswith("tokpit-")
    facts = await environment.host_facts(host, spec, replacing=info)
    return First(
        spec=spec,
        argv=info.argv,
        port=info.port,
        platform=facts.platform,
        unit=msgspec.to_builtins(unit) if keeps and isinstance(unit, managers.Manager) else None,
    )


async def find_server(session: Session, target: str) -> ServerInfo:
    """The server that is to be restarted. Where none runs because an experiment was cut off, UsageError says so.

    Raises TargetError, HostError as well.
    """
    try:
        return await resolve_server(session, target)
    except TargetError:
        host, _, port = target.partition(":")
        check_none_open(session.journals, host, int(port) if port.isdigit() else None)
        raise


def check_none_open(folder: Path, host: str, port: int | None) -> None:
    """Raises UsageError where an experiment on this port is under way or was cut off: this is not its first server.

    `port` None: on any port of the host.
    """
    for entry in entries(folder):
        if entry.state == "ended" or entry.host != host or (port is not None and entry.port != port):
            continue
        if entry.state == "running":
            raise UsageError(f"experiment {entry.id} is under way on this server, in another tokpit")
        where = f" {entry.where}" if entry.where else ""
        raise UsageError(
            f"experiment {entry.id} on {entry.host}:{entry.port} was cut off{where}, and its first server was not put "
            "back",
            hint=f"go on with: tokpit tune --resume {entry.id}, or put it back with: tokpit tune --restore {entry.id}",
        )


async def _times(session: Session, info: ServerInfo, experiment: Experiment, levels: Sequence[int]) -> Times:
    history = await session.history()
    clock = session.host(info.host).spec.clock_factor
    earlier = [
        entry.duration_s * clock
        for entry in await history.audit(200)
        if entry.host == info.host
        and entry.command in {"server.launch", "server.relaunch"}
        and entry.outcome == "done"
        and entry.duration_s
    ]
    rates: dict[int, float] = {}
    model = info.served_name or info.model or ""
    if (run := await history.baseline(model, info.host)) is not None:
        rates = {level.concurrency: level.output_tps for level in run.levels if level.output_tps > 0}
    return estimate.before(earlier, experiment.sweep_args(), levels, rates)


async def _roofline(session: Session, ready: Ready) -> Roofline | None:
    """The ceiling of steps on this host's GPUs; None where weights or bandwidth are not known."""
    from tokpit.domain.run import Run
    from tokpit.ops.sweep.advice import frozen_facts

    state = session.store.servers.get(ready.info.id)
    spec = ready.first.spec
    context: dict[str, object] = {"settings": spec.settings.given()}
    if state is not None:
        context["facts"] = frozen_facts(state.facts)
    if (gpus := session.store.host(spec.host).gpus) is not None:
        context["gpus"] = [gpu.name for gpu in gpus.gpus]
    try:
        facts = facts_of(Run(id="", kind="", target="", started_at=0.0, engine=spec.engine, context=context))
        return stream_roofline(facts)
    except TokpitError:
        return None


def spec_for(ready: Ready, settings: Settings) -> LaunchSpec:
    """A candidate as something to launch: the first server's program, environment and method with other settings."""
    spec = ready.first.spec
    env = {**spec.env, **ready.experiment.env}
    return msgspec.structs.replace(spec, settings=settings, env=env, log_path=None, name="")


def server_word(info: ServerInfo) -> str:
    """The word that is typed to agree to restarts of this server."""
    return re.sub(r"\s+", "", str(info.port or info.pid))
