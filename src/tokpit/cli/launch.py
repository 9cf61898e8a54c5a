"""`tokpit launch`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tokpit.cli.context import Options
from tokpit.cli.output import to_json
from tokpit.cli.progress import show_operations
from tokpit.cli.settings_options import given_settings, setting_options
from tokpit.errors import UsageError

if TYPE_CHECKING:
    from tokpit.domain.job import BatchRequest
    from tokpit.domain.settings import LaunchSpec
    from tokpit.ops.lifecycle.launch import Launched, Plan
    from tokpit.ops.session import Session


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("host")
@click.argument("engine", required=False)
@click.option("--profile", help="Start from this launch profile; what is given besides changes it.")
@click.option("--earlier", metavar="KEY", help="Start from an earlier server of this host, named as `history` does.")
@setting_options
@click.option("--program", help="Command that starts the engine, e.g. '/opt/venv/bin/python -m MODULE'.")
@click.option("--env-dir", help="Environment folder (venv, conda) on the host that holds the engine.")
@click.option("-e", "--env", "env", multiple=True, metavar="NAME=VALUE", help="Environment variable; repeatable.")
@click.option("--head", default="", metavar="ADDRESS",
              help="Address of the first host as the others reach it.  [default: as in the inventory]")  # fmt: skip
@click.option("--log", "log_path", help="Log file on the host.")
@click.option("--cwd", help="Working folder on the host.")
@click.option(
    "--method",
    type=click.Choice(["setsid", "systemd", "tmux", "docker", "slurm"]),
    default=None,
    help="How it is detached from this connection (default: setsid); slurm: as a batch job, HOST being a login host.",
)
@click.option("--partition", default="", help="Partition for --method slurm.  [default: the cluster's]")
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True,
              help="Nodes that serve together, for --method slurm.")  # fmt: skip
@click.option("--gpus-per-node", "gpus", default="", metavar="[TYPE:]N", help="GPUs of each node.")
@click.option("--time", "time_limit", default="", metavar="[D-]HH:MM:SS", help="Time limit of the job.")
@click.option("--account", default="", help="Account that the job is charged to.")
@click.option("--sbatch-arg", "batch_args", multiple=True, metavar="--NAME=VALUE",
              help="One more option of sbatch; repeatable.")  # fmt: skip
@click.option("--image", help="Image for --method docker; it is not pulled.")
@click.option("--docker-arg", "docker_args", multiple=True, help="One more word for docker run; repeatable.")
@click.option(
    "--timeout", "timeout_s", type=float, default=1800.0, show_default=True, help="Seconds to wait for ready."
)
@click.option("--force", is_flag=True, help="Start although the checks refuse.")
@click.option("--dry-run", is_flag=True, help="Check, show the command line, start nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, and clear away what a failed start leaves.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.argument("flags", nargs=-1)
@click.pass_obj
def launch(options: Options, /, **values: Any) -> None:
    """Start ENGINE on HOST detached in its own session, wait until it has generated a token, print the milestones.

    HOST,HOST,... starts one server over several hosts, a rank on each in the order given: ready when all are, ended
    all together where one fails, and by tokpit stop.

    Where a start fails, what it left (processes, files in /dev/shm) is listed and, after one question, cleared away.

    FLAGS after `--` are passed to the engine as they are. With --profile or --earlier, ENGINE is known.

    \b
    tokpit launch login1 vllm --model M --method slurm --partition gpu --gpus-per-node 8 --time 04:00:00
    tokpit launch gpu2 --profile qwen-mtp --tp 2
    """
    options.run(lambda session: _launch(session, values), yes=values["yes"])


async def _launch(session: Session, values: dict[str, Any]) -> None:
    from tokpit.domain.text import mask_secrets
    from tokpit.ops.lifecycle.launch import assess, refused

    spec = await _spec(session, values)
    if values["dry_run"]:
        if spec.ranks:
            from tokpit.ops.lifecycle import nodes

            ranks = await nodes.plan(session, spec, force=values["force"])
            if values["as_json"]:
                to_json([{"host": rank.host, **_document(rank.plan)} for rank in ranks])
                return
            for rank in ranks:
                click.echo(mask_secrets(f"{rank.host}: {rank.plan.command}"))
            for rank in ranks:
                _tell(rank.plan, f"{rank.host}: ")
            return
        made = await assess(session, spec)
        script = await _script(session, made) if spec.method == "slurm" else ()
        show_plan(made, as_json=values["as_json"], script=script)
        if made.errors and not values["force"]:
            raise refused(made)
        return
    async with show_operations(session):
        done = await session.execute("server.launch", spec=spec, force=values["force"], timeout_s=values["timeout_s"])
    show_launched(session, done, as_json=values["as_json"])


async def _spec(session: Session, values: dict[str, Any]) -> LaunchSpec:
    """What the options ask for, over a profile or an earlier server. Raises UsageError, ConfigError, HostError."""
    from tokpit.domain.settings import LaunchSpec, Settings
    from tokpit.ops.host.deployments import earlier_spec
    from tokpit.ops.lifecycle.profiles import overridden, profile_spec

    names = [name.strip() for name in values["host"].split(",")]
    if not all(names):
        raise UsageError(f"{values['host']!r} is no list of hosts", hint="such as gpu1,gpu2")
    host = session.add_host(names[0]).name
    engine, flags = values["engine"], values["flags"]
    if engine is not None and engine.startswith("-"):  # the first flag after `--`, where no engine is named
        engine, flags = None, (engine, *flags)
    if values["profile"] is not None and values["earlier"] is not None:
        raise UsageError("--profile and --earlier exclude each other")
    if values["profile"] is not None:
        base = profile_spec(values["profile"], host, engine)
    elif values["earlier"] is not None:
        base = await earlier_spec(session, host, values["earlier"])
        if engine is not None and engine != base.engine:
            raise UsageError(f"the earlier server is one of {base.engine}, not {engine}")
    elif engine is not None:
        base = LaunchSpec(host=host, engine=engine, program=(), settings=Settings())
    else:
        raise UsageError(
            "a launch needs an engine", hint="tokpit launch HOST ENGINE ..., --profile NAME or --earlier KEY"
        )
    spec = overridden(base, given_settings(values), flags, parse_env(values["env"]))
    given = {
        "program": tuple(shlex.split(values["program"] or values["env_dir"] or "")),
        "container_args": values["docker_args"],
        "ranks": tuple(session.add_host(name).name for name in names[1:]),
        **{name: values[name] for name in ("cwd", "log_path", "method", "image", "head")},
    }
    spec = msgspec.structs.replace(spec, **{name: value for name, value in given.items() if value})
    return msgspec.structs.replace(spec, batch=_batch(values, spec.method))


async def _script(session: Session, made: Plan) -> tuple[str, ...]:
    """What would be submitted."""
    from tokpit.ops.host.environment import default_log_path
    from tokpit.ops.lifecycle.slurm import shown_lines

    path = made.spec.log_path or await default_log_path(session.host(made.spec.host), made.spec)
    return shown_lines(msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, log_path=path)))


def show_plan(made: Plan, *, as_json: bool, script: tuple[str, ...] = ()) -> None:
    """Print what would be started, what it is expected to take, and what the checks say."""
    from tokpit.domain.text import mask_secrets

    if as_json:
        to_json({**_document(made), **({"script": "\n".join(script[1:-1])} if script else {})})
        return
    env = " ".join(f"{name}={shlex.quote(value)}" for name, value in made.spec.env.items())
    for line in script or (f"{env} {made.command}".strip(),):
        click.echo(mask_secrets(line))
    _tell(made)


def _document(made: Plan) -> dict[str, Any]:
    return {
        "command": made.command,
        "port": made.port,
        "engine": made.spec.engine,
        "version": made.spec.version,
        "errors": made.errors,
        "warnings": made.warnings,
        "expected": made.expected,
    }


def _tell(made: Plan, before: str = "") -> None:
    for kind, sentences in (("warning", made.warnings), ("expected", made.expected)):
        for sentence in sentences:
            click.echo(f"{kind}: {before}{sentence}", err=True)


def _batch(values: dict[str, Any], method: str) -> BatchRequest:
    """What is asked of the queue. Raises UsageError for such options without --method slurm."""
    from tokpit.domain.job import BatchRequest

    made = BatchRequest(
        partition=values["partition"],
        nodes=values["nodes"],
        gpus=values["gpus"],
        time_limit=values["time_limit"],
        account=values["account"],
        args=values["batch_args"],
    )
    if method != "slurm" and made != BatchRequest():
        raise UsageError(
            "--partition, --nodes, --gpus-per-node, --time, --account and --sbatch-arg need --method slurm"
        )
    return made


def show_launched(session: Session, done: Launched, *, as_json: bool) -> None:
    """Print what was started."""
    operation = next(o for o in reversed(session.store.operations.values()) if o.kind == "launch")
    if as_json:
        to_json(
            {
                "host": done.server.host,
                "engine": done.server.engine,
                "port": done.server.port,
                "pid": done.state.pid,
                "start_ticks": done.state.start_ticks,
                "job": done.server.job,
                "log_path": done.state.log_path,
                "command": done.command,
                "ready_s": round(done.ready_s, 1),
                "first_token_s": round(done.first_token_s, 3),
                "milestones": [
                    {"kind": s.kind, "label": s.label, "elapsed_s": round(s.elapsed_s, 1)} for s in operation.steps
                ],
                "warnings": done.warnings,
            }
        )
    else:
        job = done.server.job
        where = f"pid {done.state.pid}" if job is None else f"job {job.id} on {', '.join(job.nodes)}"
        took = f"after {done.ready_s:.0f} s, first token in {done.first_token_s:.2f} s"
        click.echo(f"READY  {done.server.label}  {where}  {took}")
        click.echo(f"       log {done.state.log_path}")


def parse_env(pairs: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE` pairs. Raises UsageError for a pair without `=` or with a name that is none."""
    env = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"not an environment setting: {pair!r}", hint="write NAME=VALUE")
        env[name] = value
    return env
