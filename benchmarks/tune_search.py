"""How many starts the search of `tokpit tune` needs, beside random search and plain Optuna on the same budget.

The landscape is the simulated host's own model of a server (memory, slots, cap, step time: src/tokpit/sim/plan.py),
calibrated to the first story and asked without real time: tok/s of a standing load at each level, with noise on every
measurement. The optimum is found by brute force over the whole grid. The search sees what it sees on a real host: the
engine's cap for given flags, the measured levels with their intervals, acceptance length, and failed starts.

    PYTHONPATH=src python benchmarks/tune_search.py [--seeds 20] [--noise 0.015]
"""

from __future__ import annotations

import argparse
import random
import statistics
import warnings
from collections.abc import Callable
from functools import cache

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.settings import Settings
from tokpit.domain.tuning import Choice, CurvePoint, Trial
from tokpit.engines.registry import engine as engine_of
from tokpit.insight.roofline import Roofline
from tokpit.sim import plan as sim_plan
from tokpit.sim import story
from tokpit.sim.args import parse
from tokpit.tune import suggest as suggesting
from tokpit.tune.experiment import Objective
from tokpit.tune.knowledge import Cap, Knowledge
from tokpit.tune.score import score
from tokpit.tune.search import Search
from tokpit.tune.space import Space, key_of, read_space, words_of

PROMPT, OUTPUT = 250, story.OUTPUT_TOKENS
LEVELS = (1, 16, 64)
VARY = {
    "mtp_steps": "0..5",
    "state_slots": [24, 48, 96, 144, 192, 256, 320],
    "max_running": [8, 16, 24, 32, 48, 64, 96],
}
BASE = Settings(
    model=story.MODEL_PATH, served_name=story.MODEL_NAME, port=30000, tp=1, mem_fraction=0.85, spec_method="mtp",
    spec_steps=3, spec_topk=1, spec_draft_tokens=4, mamba_strategy="extra_buffer", state_slots=48, hicache=True,
    hicache_gb=150.0, metrics=True,
)  # fmt: skip
ENGINE = engine_of("sglang")
OBJECTIVE = Objective()
FREE_GIB = sim_plan.total_gib()


def world(settings: Settings) -> tuple[sim_plan.Plan | None, str]:
    """The server that these settings make, or the code of its failure."""
    args = parse(["--model-path", story.MODEL_PATH, *ENGINE.to_flags(settings, story.VERSION)[2:]], "sglang")
    try:
        made = sim_plan.make_plan(args, FREE_GIB)
        sim_plan.check_graph_memory(made, FREE_GIB)
    except sim_plan.StartError as error:
        return None, "OOM_POOLS" if error.stage in {"pool", "capture", "load"} else "FLAG"
    return made, ""


def rate(made: sim_plan.Plan, concurrency: int) -> tuple[float, int]:
    """tok/s of a standing load, and how many run: a request decodes among the others and waits for each prefill."""
    running = max(1, min(concurrency, made.cap, made.kv_tokens // (PROMPT + OUTPUT)))
    decode = (OUTPUT - 1) / made.accept_len * made.step_s(running)
    prefill = running * (story.PREFILL_BASE_S + PROMPT / story.PREFILL_TPS)
    return running * OUTPUT / (decode + prefill), running


@cache
def truth(key: tuple[tuple[str, object], ...]) -> float:
    """The candidate's value without noise; 0 where it does not start."""
    from tokpit.tune.space import settings_of

    made, _ = world(settings_of(BASE, dict(key)))  # type: ignore[arg-type]  # the values are a Choice's
    return max(rate(made, c)[0] for c in LEVELS) if made is not None else 0.0


def measure(number: int, choice: Choice, settings: Settings, rng: random.Random, noise: float, role: str) -> Trial:
    """One start and its sweep."""
    made, code = world(settings)
    if made is None:
        return Trial(number=number, choice=choice, role=role, status="failed", code=code)
    points = []
    for level in LEVELS:
        tps, running = rate(made, level)
        seen = tps * rng.gauss(1.0, noise)
        points.append(
            CurvePoint(
                concurrency=level, tps=seen, half=2 * noise * seen, running=float(running),
                accept_len=made.accept_len * rng.gauss(1.0, noise / 2) if made.speculative else None,
            )
        )  # fmt: skip
    value = score(points, OBJECTIVE, 0.02).value
    return Trial(number=number, choice=choice, role=role, status="measured", points=tuple(points), value=value)


def cap_of(settings: Settings) -> Cap:
    """What tokpit knows of a cap before a start."""
    value, words = ENGINE.running_cap(settings, story.VERSION, ModelFacts(hybrid=True), HostFacts(), {})
    return Cap(value, words)


def tokpit(space: Space, seed: int, budget: int, noise: float, *, with_optuna: bool) -> tuple[list[Trial], Search]:
    rng = random.Random(seed)
    knowledge = Knowledge(
        space, BASE, levels=LEVELS, objective=OBJECTIVE, error_rate=0.02, cap_of=cap_of, shared_prefix=False,
        roofline=Roofline(weights_gb=54, gpus=1, bandwidth_gbps=1792),
    )  # fmt: skip
    # The first server is the one that runs: measuring it costs no start.
    first = measure(0, {"spec_steps": 3, "state_slots": 48, "max_running": None}, BASE, rng, noise, "first")
    search = Search(
        knowledge, noise=0.02, patience=10**6, suggest=suggesting.optuna(space, seed) if with_optuna else None
    )
    search.tell(first)
    while len(search.trials) <= budget and (choice := search.next()) is not None:
        search.tell(measure(len(search.trials), choice, knowledge.settings(choice), rng, noise, "search"))
    return search.trials, search


def at_random(space: Space, seed: int, budget: int, noise: float) -> list[Trial]:
    from tokpit.tune.space import settings_of

    rng = random.Random(seed)
    chosen = rng.sample(list(space.candidates()), budget)
    return [measure(i, choice, settings_of(BASE, choice), rng, noise, "search") for i, choice in enumerate(chosen)]


def plain_optuna(space: Space, seed: int, budget: int, noise: float) -> list[Trial]:
    import optuna

    from tokpit.tune.space import settings_of

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    rng = random.Random(seed)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    trials: list[Trial] = []
    asked: set[object] = set()
    while len(trials) < budget:
        trial = study.ask()
        choice = {a.name: a.values[trial.suggest_int(a.name, 0, len(a.values) - 1)] for a in space.axes}
        done = measure(len(trials), choice, settings_of(BASE, choice), rng, noise, "search")
        study.tell(trial, done.value if done.value is not None else 0.0)
        if key_of(choice) not in asked or len(asked) >= space.size:  # what was started before costs it nothing here
            trials.append(done)
            asked.add(key_of(choice))
    return trials


def found(trials: list[Trial]) -> float:
    """The true value of the candidate that looked best."""
    good = [t for t in trials if t.value is not None]
    if not good:
        return 0.0
    best = max(good, key=lambda t: t.value or 0.0)
    if best.role == "first":
        made, _ = world(BASE)
        assert made is not None
        return max(rate(made, c)[0] for c in LEVELS)
    return truth(key_of(best.choice))


def starts_to(trials: list[Trial], target: float) -> int | None:
    """After how many starts the best-looking candidate was within the target."""
    for count in range(1, len(trials) + 1):
        if found(trials[:count]) >= target:
            return count - sum(t.role == "first" for t in trials[:count])
    return None


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--noise", type=float, default=0.015, help="relative standard deviation of one measurement")
    parser.add_argument("--share", type=float, default=0.15, help="of the grid's starts")
    given = parser.parse_args()
    space = read_space(VARY)
    values = {key_of(c): truth(key_of(c)) for c in space.candidates()}
    best_key, best = max(values.items(), key=lambda item: item[1])
    budget = int(given.share * space.size)
    near = sum(v >= 0.97 * best for v in values.values())
    print(f"space: {space.size} settings, {sum(v == 0 for v in values.values())} do not start, "
          f"{near} within 3 % of the optimum of {best:.1f} tok/s ({words_of(dict(best_key))})")  # fmt: skip
    print(f"budget: {budget} starts ({given.share:.0%}), noise {given.noise:.1%}, {given.seeds} seeds")
    ways: dict[str, Callable[[int], list[Trial]]] = {
        "tokpit, with Optuna": lambda s: tokpit(space, s, budget, given.noise, with_optuna=True)[0],
        "tokpit, without Optuna": lambda s: tokpit(space, s, budget, given.noise, with_optuna=False)[0],
        "plain Optuna (TPE)": lambda s: plain_optuna(space, s, budget, given.noise),
        "random": lambda s: at_random(space, s, budget, given.noise),
    }
    print(f"{'':24}  {'median':>7}  {'worst':>7}  {'within 3 %':>10}  {'starts to 3 %, median':>22}  {'started':>8}")
    for name, way in ways.items():
        all_trials = [way(seed) for seed in range(given.seeds)]
        shares = [found(trials) / best for trials in all_trials]
        needed = [starts_to(trials, 0.97 * best) for trials in all_trials]
        reached = [n for n in needed if n is not None]
        middle = statistics.median_low([n if n is not None else 10**6 for n in needed])
        started = statistics.median(sum(t.role != "first" for t in trials) for trials in all_trials)
        print(f"{name:24}  {statistics.median(shares):7.1%}  {min(shares):7.1%}  {len(reached):6d} of {given.seeds}  "
              f"{middle if middle < 10**6 else 'not reached':>22}  {started:8.0f}")  # fmt: skip


if __name__ == "__main__":
    main()
