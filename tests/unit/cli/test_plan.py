from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from insight_tools import STORY
from tokpit.cli.context import Options
from tokpit.cli.main import tokpit
from tokpit.domain.run import Level, Run
from tokpit.errors import UsageError
from tokpit.ops.jobplan import read_count, read_hours
from tokpit.store.history import History

JOB = ("--requests", "902K", "--output-tokens", "2000")


def run(folder: Path, *words: object) -> Result:
    args = ["--history", str(folder / "h.db"), "plan", *map(str, words)]
    return CliRunner().invoke(tokpit, args, obj=Options(), standalone_mode=False)


def table(folder: Path) -> Path:
    rows = "\n".join(f"{c},{n},{n},0,{elapsed},{tps}" for c, n, elapsed, tps in STORY)
    path = folder / "s.csv"
    path.write_text(f"concurrency,requests,ok,err,elapsed_s,output_tps\n{rows}\n")
    return path


def store(folder: Path, *runs: Run) -> None:
    async def work() -> None:
        history = await History.open(folder / "h.db")
        for one in runs:
            await history.save_run(one)
        await history.close()

    asyncio.run(work())


def stored(run_id: str, started_at: float, **settings: object) -> Run:
    levels = tuple(
        Level(concurrency=c, requests=n, ok=n, err=0, elapsed_s=elapsed, output_tps=tps, avg_output=1024.0)
        for c, n, elapsed, tps in STORY
    )
    context = {"settings": settings, "facts": {"max_running_requests": 9}}
    return Run(id=run_id, kind="sweep", target="gpu1", model="m", started_at=started_at, levels=levels, context=context)


def test_the_answer_in_words(tmp_path: Path) -> None:
    out = run(tmp_path, *JOB, "--sweep", table(tmp_path), "--within", "7d", "--price", "2.5")
    assert out.exception is None, out.exception
    assert "49.1 days (48.5 days to 49.7 days) on 1 host at C=16" in out.stdout
    assert "8 hosts do it within 7 days" in out.stdout
    assert "(predicted)" in out.stdout


def test_stored_runs_by_id_and_the_newest_without_one(tmp_path: Path) -> None:
    store(tmp_path, stored("aaa-1", 1.0, tp=2), stored("bbb-2", 2.0, tp=4))
    found = json.loads(run(tmp_path, *JOB, "--json").stdout)
    assert found["source"].startswith("run bbb-2")
    assert found["gpus"] == 4
    both = json.loads(run(tmp_path, *JOB, "--run", "aaa", "--run", "bbb", "--json").stdout)
    assert both["gpus"] == 2
    flags = [lever for lever in both["levers"] if lever["name"] == "flags"]
    assert "tp 2 -> 4" in flags[0]["change"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--requests", "many", "--output-tokens", "5"), "no number of requests"),
        ((*JOB, "--within", "soon"), "is no time"),
        ((*JOB,), "no sweep is stored"),
        ((*JOB, "--sweep", "/nowhere.csv"), "nowhere"),
        ((*JOB, "--fact", "colour=red"), "colour"),
    ],
)
def test_bad_input_is_told(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    if "--fact" in words:
        words = (*words, "--sweep", str(table(tmp_path)))
    failed = run(tmp_path, *words).exception
    assert isinstance(failed, UsageError)
    assert says in str(failed)


def test_numbers_and_times_as_people_write_them() -> None:
    assert [read_count(text) for text in ("902000", "902,000", "902K", "1.5M")] == [
        902_000,
        902_000,
        902_000,
        1_500_000,
    ]
    assert [read_hours(text) for text in ("72h", "3d", "2w", "90min", "5")] == [72.0, 72.0, 336.0, 1.5, 5.0]
