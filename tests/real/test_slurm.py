"""A real Slurm on loopback behind a real sshd as its login host; the engine in the jobs is a stand-in for vLLM."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from real_line import free_port
from real_slurm import SLURM_MISSING, Slurm

from lifecycle_tools import make_engine, nothing_left
from load_server import ScriptServer, answer
from sshd import Sshd
from tokpit.collect.jobs import server_of
from tokpit.config.inventory import Inventory
from tokpit.domain.job import BatchRequest
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec, Settings
from tokpit.errors import LaunchError, StartFailed, TargetError, UsageError
from tokpit.ops.lifecycle import batch
from tokpit.ops.lifecycle.launch import Launched
from tokpit.ops.lifecycle.slurm import Life, how_it_ended
from tokpit.ops.session import Session
from tokpit.probes.slurm import Listed, environment_script
from tokpit.tune.experiment import Experiment

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(SLURM_MISSING), reason=SLURM_MISSING)]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm")
    with nothing_left(str(folder)), Slurm.start(folder) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def login(slurm: Slurm) -> Iterator[Sshd]:
    folder = slurm.folder / "login"
    words = {"HOME": str(folder / "home"), "FAKE_MARK": str(slurm.folder), **slurm.env}
    options = {"SetEnv": " ".join(f"{name}={value}" for name, value in words.items())}
    with Sshd.start(folder, **options) as server:
        yield server


@pytest.fixture(scope="module")
def engine(slurm: Slurm) -> Path:
    return make_engine(slurm.folder / "env")


@pytest.fixture(scope="module")
def engine_two(slurm: Slurm) -> Path:
    """A version that serves from several nodes."""
    return make_engine(slurm.folder / "env2", version="0.32.0")


@pytest.fixture(scope="module", autouse=True)
def one_minute(slurm: Slurm) -> str:
    """A job of the shortest time limit that there is, begun with the first test and looked at by the last."""
    return slurm.command(
        "sbatch", "--parsable", "--time=1", "--no-requeue", "--output=/dev/null", "--wrap", "vllm serve tiny; sleep 300"
    ).strip()


@pytest.fixture
async def session(login: Sshd, tmp_path: Path) -> AsyncIterator[Session]:
    inventory = Inventory(hosts={"login": login.spec("login", programs={"sglang": sys.executable})})
    async with Session(inventory, history_path=tmp_path / "history.sqlite", assume_yes=True) as made:
        made.add_host("login")
        yield made


def spec(engine: Path, port: int, log: Path, **changes: Any) -> LaunchSpec:
    asked = {"partition": "short", "time_limit": "00:10:00", **changes.pop("batch", {})}
    fields: dict[str, Any] = {
        "host": "login",
        "engine": "vllm",
        "program": (str(engine),),
        "settings": Settings(model="tiny", port=port),
        "log_path": str(log),
        "method": "slurm",
        "batch": BatchRequest(**asked),
    }
    return LaunchSpec(**{**fields, **changes})


async def launch(session: Session, wanted: LaunchSpec) -> Launched:
    done = await session.execute("server.launch", spec=wanted, timeout_s=60.0)
    assert isinstance(done, Launched)
    return done


def notes(session: Session) -> str:
    return " ".join(str(one.result.get("note", "")) for one in session.store.operations.values())


def steps(session: Session) -> list[str]:
    return [step.kind for one in session.store.operations.values() for step in one.steps]


async def until(true: Any) -> None:
    while not true():
        await asyncio.sleep(0.05)


async def end_of(life: Life) -> str:
    while not (told := await life.over()):
        await asyncio.sleep(0.2)
    return told


def server(host: str, listed: Listed | None) -> ServerInfo:
    assert listed is not None
    info = server_of(host, listed)
    assert info is not None
    return info


async def test_a_server_from_the_queue_to_ready_and_to_its_end(
    session: Session, slurm: Slurm, engine: Path, tmp_path: Path
) -> None:
    port, log = free_port(), tmp_path / "logs" / "server.log"
    shown: list[tuple[str, ...]] = []

    async def agree(request: Any) -> bool:
        shown.append(request.lines)
        return True

    session.assume_yes, session.confirm = False, agree
    done = await launch(session, spec(engine, port, log))
    job = done.server.job
    assert job is not None
    assert {"submitted", "node", "healthy", "token"} <= set(steps(session))
    # What was shown is what runs.
    script = slurm.command("scontrol", "write", "batch_script", job.id, "-")
    assert "\n".join(shown[0][1:-1]) == script.strip()
    assert "#SBATCH --time=00:10:00" in script
    assert "--host 0.0.0.0" in script
    assert slurm.command("squeue", "-h", "-j", job.id, "-o", "%T %N").split() == ["RUNNING", *job.nodes]
    # Any other tokpit finds it by the queue alone, as one server, and says what the time limit leaves.
    found = await session.find("login")
    mine = [info for info in found if info.port == port]
    assert [(info.id, info.model) for info in mine] == [(done.server.id, "tiny")]
    assert mine[0].job is not None
    assert mine[0].job.time_left_s is not None
    assert 0 < mine[0].job.time_left_s <= 600
    assert mine[0].log_path == str(log)
    # Its GPUs are those of its node: the login host has none.
    session.watch_host("login")
    await until(lambda: session.store.host("login").gpus and session.store.gpus_of(done.server))
    record = session.store.gpus_of(done.server)
    assert record is not None
    assert [(gpu.uuid, gpu.util) for gpu in record.gpus] == [(f"GPU-{job.nodes[0]}", 0.97)], record.problems
    assert session.store.host("login").gpus.gpus == ()
    assert session.store.host("login").gpus.problems[0].code == "NO_NVIDIA"
    # Its log is read, and its port reached through the login host.
    state = session.store.servers[done.server.id]
    await until(lambda: any("API server version" in record.text for record in state.log.records))
    run = await session.execute("sweep.start", target=f"login:{port}", levels="1", requests=2, max_tokens=1, warmup=0)
    assert run.context["from"] == "here"
    assert run.levels[0].requests == 2
    with pytest.raises(UsageError, match=f"job {job.id}"):
        await session.execute("tune.start", experiment=Experiment(target=f"login:{port}", vary={"max_running": (4, 8)}))
    stopped = await session.execute("server.stop", target=f"login:{port}")
    assert shown[-1] == (f"scancel {job.id}",)
    assert stopped.signal == "scancel"
    assert slurm.command("squeue", "-h", "-j", job.id).strip() == ""
    with pytest.raises(TargetError):
        await session.execute("server.stop", target=f"login:{port}")


async def test_a_job_that_waits_says_why(session: Session, slurm: Slurm, engine: Path, tmp_path: Path) -> None:
    wanted = spec(engine, free_port(), tmp_path / "w.log", batch={"partition": "broken"})
    work = asyncio.ensure_future(launch(session, wanted))
    await until(lambda: "nodes that it needs are down; it starts when they come back" in notes(session))
    found = [info for info in await session.find("login") if info.job is not None and info.job.waiting]
    assert len(found) == 1
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    assert found[0].job is not None
    assert slurm.command("squeue", "-h", "-j", found[0].job.id, "-o", "%T").strip() == "PENDING"  # left in its place
    await session.execute("server.stop", server_id=f"login:{found[0].port}")
    assert slurm.command("squeue", "-h", "-j", found[0].job.id).strip() == ""


async def test_a_job_that_is_cancelled_while_it_waits_is_told(
    session: Session, slurm: Slurm, engine: Path, tmp_path: Path
) -> None:
    wanted = spec(engine, free_port(), tmp_path / "c.log", batch={"partition": "broken"})
    work = asyncio.ensure_future(launch(session, wanted))
    await until(lambda: "PENDING" in notes(session))
    slurm.command("scancel", "--partition=broken")
    with pytest.raises(LaunchError, match=r"ended before it was ready: it was cancelled \(CANCELLED\)"):
        await work


async def test_what_the_queue_does_not_take_is_its_own_word(session: Session, engine: Path, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"(?i)invalid partition"):
        await launch(session, spec(engine, free_port(), tmp_path / "x.log", batch={"partition": "nosuch"}))


async def test_a_server_that_fails_in_its_job_gets_its_verdict(session: Session, engine: Path, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "f.log"
    said = f"OSError: [Errno 98] Address already in use (127.0.0.1, {port})"
    with pytest.raises(StartFailed) as failed:
        await launch(session, spec(engine, port, log, env={"FAKE_FAILS": said}))
    assert "its command failed (FAILED)" in str(failed.value)
    assert failed.value.code == "PORT_IN_USE"


async def test_a_node_that_goes_down_is_told(session: Session, slurm: Slurm, engine: Path, tmp_path: Path) -> None:
    done = await launch(session, spec(engine, free_port(), tmp_path / "t.log"))
    job = done.server.job
    assert job is not None
    life = Life(session, session.host("login"), done.server)
    assert await life.over() == ""
    slurm.command("scontrol", "update", f"NodeName={job.nodes[0]}", "State=DOWN", "Reason=test")
    assert await end_of(life) == f"job {job.id} is over: a node failed (NODE_FAIL)"


async def test_the_load_comes_from_nodes_of_a_partition(session: Session, slurm: Slurm) -> None:
    async with ScriptServer(lambda body, index: answer(4, gap_s=0.01)) as server:
        run = await session.execute(
            "sweep.start", target=server.url, source="slurm:login/short:2", levels="5", requests=20, max_tokens=4,
            model="m", warmup=1,
        )  # fmt: skip
        assert server.peak == 5
    level = run.levels[0]
    assert (level.ok, level.result["output_tokens"], level.result["processes"]) == (20, 80, 2)
    assert "short 1, short 2" in run.context["from"]
    while "tokpit-load" in slurm.command("squeue", "-h", "-o", "%j"):
        await asyncio.sleep(0.1)


async def test_two_nodes_serve_together_and_end_together(
    session: Session, slurm: Slurm, engine_two: Path, tmp_path: Path
) -> None:
    port, log = free_port(), tmp_path / "two.log"
    done = await launch(session, spec(engine_two, port, log, batch={"nodes": 2}))
    job = done.server.job
    assert job is not None
    assert len(job.nodes) == 2
    text = log.read_text()
    assert "0: INFO" in text
    assert "1: INFO" in text
    assert "rank 1 waits for work" in text
    found = next(info for info in await session.find("login") if info.job is not None and info.job.id == job.id)
    assert (found.port, found.model) == (port, "tiny")
    await session.execute("server.stop", target=f"login:{port}")
    assert slurm.command("squeue", "-h", "-j", job.id).strip() == ""


@pytest.mark.timeout(240)  # seven times through the queue
async def test_a_job_is_relaunched_with_a_change_and_comes_back_where_that_fails(
    session: Session, slurm: Slurm, engine_two: Path, tmp_path: Path
) -> None:
    port, log = free_port(), tmp_path / "logs" / "first.log"
    asked = {"nodes": 2, "args": ("--comment=mine",)}
    first = (await launch(session, spec(engine_two, port, log, batch=asked, env={"HF_HOME": "/models/hf"}))).server
    shown: list[tuple[str, ...]] = []

    async def agree(request: Any) -> bool:
        shown.append((*request.lines, *request.warnings))
        return True

    session.assume_yes, session.confirm = False, agree
    assert first.job is not None
    done = await session.execute("server.relaunch", target=f"login:{port}", changes={"max_running": 7}, timeout_s=60.0)
    job = done.server.job
    assert job is not None
    assert shown[0][:2] == ("# max_running: not given -> 7", f"scancel {first.job.id}")
    assert any("given back to the queue first" in line for line in shown[0])
    assert slurm.command("squeue", "-h", "-j", f"{first.job.id},{job.id}", "-o", "%i %D %k").split() == [
        job.id,
        "2",
        "mine",
    ]
    assert (done.server.port, done.server.settings.max_running) == (port, 7)
    assert Path(done.state.log_path).parent == log.parent
    assert "rank 1 waits for work" in Path(done.state.log_path).read_text()
    answer = await session.host("login").run(environment_script(job.id, job.nodes[0]))
    assert "HF_HOME=/models/hf" in answer.out.split("\0"), "what the first launch gave is in the job, and in no script"
    with pytest.raises(StartFailed, match="the earlier server was started again and was ready"):
        await session.execute(
            "server.relaunch", target=f"login:{port}", changes={"max_running": 9}, timeout_s=60.0, rollback=True,
            env={"FAKE_FAILS": "OSError: [Errno 98] Address already in use"},
        )  # fmt: skip
    (back,) = [info for info in await session.find("login") if info.port == port]
    assert back.job is not None
    assert back.settings.max_running == 7
    assert back.job.id not in (first.job.id, job.id)
    entries = [entry for entry in await (await session.history()).audit(20) if entry.command == "server.relaunch"]
    assert sorted(entry.outcome for entry in entries) == ["done", "failed"]
    await session.execute("server.stop", target=f"login/{back.job.id}")
    assert slurm.command("squeue", "-h", "-j", back.job.id).strip() == ""


async def test_a_job_of_somebody_elses_script_is_not_written_anew(session: Session, slurm: Slurm) -> None:
    words = ("--parsable", "--hold", "--output=/dev/null", "--wrap", "module load x; vllm serve tiny")
    job = slurm.command("sbatch", *words).strip()
    with pytest.raises(LaunchError, match=f"batch script of job {job} is not as tokpit writes it"):
        await session.execute("server.relaunch", target=f"login/{job}", changes={"tp": 2})
    slurm.command("scancel", job)


async def test_a_rank_that_fails_in_its_job_is_named(session: Session, engine_two: Path, tmp_path: Path) -> None:
    said = "OSError: [Errno 98] Address already in use"
    env = {"FAKE_FAILS": said, "FAKE_FAILS_RANK": "1"}
    wanted = spec(engine_two, free_port(), tmp_path / "bad.log", batch={"nodes": 2}, env=env)
    with pytest.raises(StartFailed) as failed:
        await launch(session, wanted)
    assert "rank 1 on n" in str(failed.value)
    assert failed.value.code == "PORT_IN_USE"


async def test_secrets_of_the_environment_are_in_no_script(
    session: Session, slurm: Slurm, engine: Path, tmp_path: Path
) -> None:
    port = free_port()
    done = await launch(session, spec(engine, port, tmp_path / "s.log", env={"HF_TOKEN": "hf_verysecret"}))
    assert done.server.job is not None
    assert "verysecret" not in slurm.command("scontrol", "write", "batch_script", done.server.job.id, "-")
    assert "verysecret" not in slurm.command("scontrol", "show", "job", done.server.job.id)
    with contextlib.suppress(TargetError):
        await session.execute("server.stop", target=f"login:{port}")


@pytest.mark.timeout(240)  # the shortest limit is a minute, and the queue looks at it now and then
async def test_a_time_limit_that_is_hit_is_told(session: Session, one_minute: str) -> None:
    listed = await batch.look(session.host("login"), one_minute)
    assert listed is not None
    ran = msgspec.structs.replace(listed.job, state="RUNNING")  # it may be over by now
    info = server("login", msgspec.structs.replace(listed, job=ran))
    life = Life(session, session.host("login"), info)
    said = f"job {one_minute} is over: its time limit was reached (TIMEOUT)"
    assert await end_of(life) == said
    assert await how_it_ended(session.host("login"), one_minute) == said
