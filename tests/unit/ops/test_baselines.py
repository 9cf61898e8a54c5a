from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from run_tools import sweep_of
from tokpit.cli.context import Options
from tokpit.cli.main import tokpit
from tokpit.domain.run import Run
from tokpit.errors import UsageError
from tokpit.ops.check.judge import speed_item
from tokpit.ops.records import baseline
from tokpit.store.history import History

_TABLE = "concurrency,requests,ok,err,elapsed_s,output_tps\n1,8,8,0,100,{0}\n8,16,16,0,50,{1}\n"


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[History]:
    made = await History.open(tmp_path / "h.sqlite")
    yield made
    await made.close()


def cli(*words: object) -> Result:
    return CliRunner().invoke(tokpit, list(map(str, words)), obj=Options(), standalone_mode=False)


async def keep(history: History, *factors: float) -> list[Run]:
    return [
        await baseline.save(history, sweep_of(f"r{n}-000", factor, seed=n, started_at=1_795_000_000.0 + n))
        for n, factor in enumerate(factors)
    ]


async def test_runs_join_and_a_regression_is_kept_apart(history: History) -> None:
    first, second, bad = await keep(history, 1.0, 1.01, 0.7)
    assert "begins a baseline" in first.context["baseline"]
    assert "No change" in second.context["baseline"]
    assert "Regression" in bad.context["baseline"]
    found = await baseline.listed(history)
    assert [[run.id for run in one.runs] for one in found] == [["r1-000", "r0-000"]]
    assert (await history.run("r2")).context["baseline"] == bad.context["baseline"]


async def test_a_run_is_compared_with_others_of_its_family_never_with_itself(history: History) -> None:
    runs = await keep(history, 1.0, 1.01, 0.99)
    known = await baseline.baseline_for(history, runs[2])
    assert known is not None
    assert [run.id for run in known.runs] == ["r1-000", "r0-000"]
    other = sweep_of("x", settings={"tp": 8})
    assert await baseline.baseline_for(history, other) is None


async def test_by_hand_a_run_joins_and_leaves(history: History) -> None:
    *_, bad = await keep(history, 1.0, 0.7)
    await baseline.add(history, bad.id)
    assert [run.id for run in (await baseline.listed(history))[0].runs] == ["r1-000", "r0-000"]
    await baseline.drop(history, "r0")
    assert [run.id for run in (await baseline.listed(history))[0].runs] == ["r1-000"]
    with pytest.raises(UsageError, match="in no baseline"):
        await baseline.drop(history, "r0")


async def test_a_server_finds_the_baseline_of_its_settings_and_a_check_its_band(history: History) -> None:
    await keep(history, 1.0, 1.01, 0.99)
    found = await baseline.of_server(history, "m27", "gpu1", "sglang", {"tp": 1, "spec_steps": 3, "port": 9})
    assert len(found) == 1
    assert await baseline.of_server(history, "m27", "gpu1", "sglang", {"tp": 4}) == ()
    band = found[0].band(("C", 1.0), "tpot_p50_s")
    assert band is not None
    judge = {"min_tps": None, "baseline": found[0].newest, "others": None, "band": band}
    assert speed_item(58.0, **judge).ok is True
    slow = speed_item(53.0, **judge)
    assert slow.ok is False, "12% below a baseline that scatters by 2%"
    assert "3 runs of its baseline made" in slow.sentence
    assert speed_item(53.0, **{**judge, "band": None}).ok is True


# --- the command


def test_compare_says_regression_by_its_exit_status(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(_TABLE.format(60, 350))
    (tmp_path / "b.csv").write_text(_TABLE.format(59, 280))
    (tmp_path / "c.csv").write_text(_TABLE.format(60.5, 352))
    assert cli("compare", tmp_path / "a.csv", tmp_path / "c.csv").return_value == 0
    found = cli("compare", tmp_path / "a.csv", tmp_path / "b.csv")
    assert found.return_value == 1
    assert "Regression: throughput" in found.stdout
    assert cli("compare", tmp_path / "a.csv", tmp_path / "c.csv", tmp_path / "b.csv").return_value == 1
    (tmp_path / "d.csv").write_text(_TABLE.splitlines()[0] + "\n64,8,8,0,10,900\n")
    assert cli("compare", tmp_path / "a.csv", tmp_path / "d.csv").return_value == 2


def test_compare_as_json_has_verdict_interval_band_and_changes(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(_TABLE.format(60, 350))
    (tmp_path / "b.csv").write_text(_TABLE.format(59, 280))
    found = json.loads(cli("compare", tmp_path / "a.csv", tmp_path / "b.csv", "--json").stdout)["comparisons"][0]
    assert found["comparison"]["verdict"] == "regression"
    pair = found["comparison"]["pairs"][1]
    assert (pair["level"], pair["verdict"], pair["ratio"]) == ("C=8", "worse", pytest.approx(0.8))
    assert found["changes"] == []


def test_a_run_without_a_baseline_and_a_name_that_is_nothing_are_told(tmp_path: Path) -> None:
    where = ("--history", tmp_path / "h.sqlite")
    (tmp_path / "a.csv").write_text(_TABLE.format(60, 350))
    kept = json.loads(cli(*where, "import", tmp_path / "a.csv", "--json").stdout)[0]["id"]
    alone = cli(*where, "compare", kept)
    assert isinstance(alone.exception, UsageError)
    assert "no baseline" in alone.exception.message
    none = cli(*where, "compare", "zzzz")
    assert isinstance(none.exception, UsageError)


def test_a_run_alone_is_compared_with_its_baseline(tmp_path: Path) -> None:
    where = ("--history", tmp_path / "h.sqlite")
    kept = []
    for name, rate in (("a", 350), ("b", 352), ("c", 348), ("d", 250)):
        (tmp_path / f"{name}.csv").write_text(_TABLE.format(60, rate))
        kept += json.loads(cli(*where, "import", tmp_path / f"{name}.csv", "--model", "m", "--json").stdout)
    found = cli(*where, "compare", kept[-1]["id"])
    assert found.return_value == 1
    assert "(3 runs)" in found.stdout
    shown = cli(*where, "baseline").stdout
    assert "throughput at C=8: 350 tok/s" in shown
    assert kept[-1]["id"] not in shown
