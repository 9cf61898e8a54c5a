"""Batch jobs over a login host: the script of one, its submission and its end. Only short commands run there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from tokpit.domain.job import BatchRequest
from tokpit.domain.text import decode_line
from tokpit.errors import LaunchError, StopError, UsageError
from tokpit.probes.slurm import Listed, directives, one_script, parse
from tokpit.transport.base import Host, quote

_SUBMIT = """\
command -v sbatch >/dev/null 2>&1 || {{ echo "sbatch is not on this host" >&2; exit 4; }}
mkdir -p -- {folder} || exit 3
{exports}
cd -- {cwd} || exit 3
sbatch --parsable <<'TOKPIT_END'
{script}
TOKPIT_END
"""
_HEAD = """\
TOKPIT_HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
TOKPIT_HEAD=$(scontrol -o show node "$TOKPIT_HEAD" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')
export TOKPIT_HEAD
"""
_OPTION = re.compile(r"--[a-z][a-z-]*(?:=[^\n]*)?")


def batch_script(
    request: BatchRequest, argv: Sequence[str], *, name: str, log_path: str, ranks: Sequence[Sequence[str]] = ()
) -> str:
    """The script of a job that becomes the server; its output goes to `log_path` on a shared file system.

    `ranks`: where nodes serve together, what the first one and what every other one adds to `argv`; the words may hold
    $SLURM_NODEID and $TOKPIT_HEAD, the first node's address. Raises UsageError for an option that is none.
    """
    for word in request.args:
        if _OPTION.fullmatch(word) is None:
            raise UsageError(f"{word!r} is no option of sbatch", hint="write it as --name=value")
    head = directives(
        (
            ("job-name", name),
            ("partition", request.partition),
            ("nodes", str(request.nodes)),
            ("ntasks-per-node", "1"),
            ("gpus-per-node", request.gpus),
            ("time", request.time_limit),
            ("account", request.account),
            ("output", log_path),
            ("open-mode", "append"),
        )
    )
    # A server that comes back on another node, unseen, is a surprise; --sbatch-arg=--requeue asks for it.
    head += "#SBATCH --no-requeue\n"
    extra = "".join(f"#SBATCH {word}\n" for word in request.args)
    command = quote(argv)
    if request.nodes == 1:
        return f"#!/bin/sh\n{head}{extra}exec {command}\n"
    first, others = (" ".join([command, *words]) for words in ranks)
    each = f'if [ "$SLURM_NODEID" = 0 ]; then\n  exec {first}\nelse\n  exec {others}\nfi'
    run = f"exec srun --kill-on-bad-exit=1 --label --unbuffered sh -c {shlex.quote(each)}"
    return f"#!/bin/sh\n{head}{extra}{_HEAD}{run}\n"


async def submit(host: Host, script: str, *, env: Mapping[str, str], cwd: str | None, log_path: str) -> str:
    """Submit a script and give the job's id. Values of `env` go with the submission, into no file.

    Raises LaunchError with what the queue said.
    """
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in env.items())
    text = _SUBMIT.format(
        folder=shlex.quote(log_path.rpartition("/")[0] or "."),
        exports=exports,
        cwd=shlex.quote(cwd) if cwd else '"$HOME"',
        script=script.rstrip("\n"),
    )
    done = await host.run(text, timeout_s=60.0)
    job_id = done.out.strip().splitlines()[-1].partition(";")[0] if done.out.strip() else ""
    if done.status != 0 or not job_id.isdecimal():
        lines = [line for line in done.err.splitlines() if line.strip()]
        said = decode_line(lines[-1].encode()) if lines else f"status {done.status}"
        raise LaunchError(f"{host.name}: the job was not taken: {said.removeprefix('sbatch: error: ')}")
    return job_id


async def look(host: Host, job_id: str) -> Listed | None:
    """What the queue says of a job now; None where it knows nothing of it any more. Raises HostError."""
    answer = await host.run(one_script(job_id), timeout_s=30.0)
    try:
        found = parse(answer.out)
    except ValueError:
        return None
    return found[0] if found else None


async def cancel(host: Host, job_id: str) -> None:
    """End a job. Raises StopError with what the queue said."""
    done = await host.run(quote(("scancel", job_id)), timeout_s=30.0)
    if done.status != 0:
        lines = done.err.strip().splitlines() or [f"status {done.status}"]
        raise StopError(f"{host.name}: scancel {job_id} failed: {decode_line(lines[-1].encode())}")
