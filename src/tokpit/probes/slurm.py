"""Slurm's queue: scripts that ask it, and what they print, read. Pure.

Sources: squeue(1), scontrol(1), sacct(1). Text in a format of our own is used, not `--json`, whose layout changed with
every data parser version and which, up to 22.05, lists the jobs of everybody whatever was asked.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

import msgspec

from tokpit.domain.job import BatchJob, BatchRequest

_FORMAT = "%i|%T|%P|%u|%N|%B|%L|%l|%S|%V|%r|%j"
_MOST_JOBS = 40
_MARK = "@tokpit:"
_LIST = f"squeue -h -o {shlex.quote(_FORMAT)}"
# Epoch seconds whatever the zone; the variable is read by every command of Slurm.
_BEGIN = """\
export SLURM_TIME_FORMAT=%s
command -v squeue >/dev/null 2>&1 || exit 0
"""
_DETAILS = """\
for id in $ids; do
  printf '%s\\n' "@tokpit:job $id"
  scontrol -o show job "$id" 2>/dev/null
  printf '%s\\n' "@tokpit:script $id"
  scontrol write batch_script "$id" - 2>/dev/null
  printf '\\n'
done
printf '%s\\n' "@tokpit:nodes"
for node in $nodes; do scontrol -o show node "$node" 2>/dev/null; done
printf '%s\\n' "@tokpit:end"
"""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its batch script (empty: not to be had) and whether its first node is the host that was asked.

    `cwd`: the folder that the script begins in.
    """

    job: BatchJob
    script: str = ""
    here: bool = False
    cwd: str = ""


def mine_script() -> str:
    """A script that tells the jobs of the login's user, with scripts and node addresses; nothing without a Slurm."""
    return (
        _BEGIN
        + f"""list=$({_LIST} -u "$(id -un)") || exit 1
list=$(printf '%s\\n' "$list" | head -n {_MOST_JOBS})
printf '%s\\n' "{_MARK}here $(uname -n)" "{_MARK}list" "$list"
ids=$(printf '%s\\n' "$list" | cut -d '|' -f 1)
nodes=$(printf '%s\\n' "$list" | cut -d '|' -f 6 | grep -v '^n/a$' | sort -u)
"""
        + _DETAILS
    )


def one_script(job_id: str) -> str:
    """A script that tells one job, also shortly after its end, with its node's address."""
    word = shlex.quote(job_id)
    return (
        _BEGIN
        + f"""list=$({_LIST} -t all -j {word} 2>/dev/null | head -n 1)
printf '%s\\n' "{_MARK}here $(uname -n)" "{_MARK}list" "$list"
ids={word}
nodes=$(printf '%s\\n' "$list" | cut -d '|' -f 6 | grep -v '^n/a$')
if [ -z "$list" ]; then
  printf '%s' "{_MARK}past {job_id}|"
  sacct -n -P -X -j {word} -o State,ExitCode 2>/dev/null | head -n 1 || :
  printf '\\n'
fi
"""
        + _DETAILS
    )


def parse(text: str) -> tuple[Listed, ...]:
    """The jobs of `mine_script` or `one_script`. Raises ValueError where the answer is cut."""
    if not text.strip():
        return ()
    if f"{_MARK}end" not in text:
        raise ValueError("the answer of the queue is cut")
    parts = _parts(text)
    addresses: dict[str, tuple[str, str]] = {}
    for line in parts.get("nodes", "").splitlines():
        facts = _facts(line)
        if "NodeName" in facts:
            addresses[facts["NodeName"]] = (facts.get("NodeAddr", ""), facts.get("NodeHostName", ""))
    here = parts.get("here", "").partition(".")[0]
    found = []
    for line in parts.get("list", "").splitlines():
        job = _job(line)
        if job is None:
            continue
        address, name = addresses.get(job.nodes[0], ("", "")) if job.nodes else ("", "")
        facts = _facts(parts.get(f"job {job.id}", ""))
        job = msgspec.structs.replace(
            job, address=address or (job.nodes[0] if job.nodes else ""), log_path=_path(facts.get("StdOut", ""))
        )
        script = parts.get(f"script {job.id}", "")
        on_it = bool(name) and name.partition(".")[0] == here
        found.append(Listed(job=job, script=script, here=on_it, cwd=_path(facts.get("WorkDir", ""))))
    for key in parts:
        match = re.fullmatch(r"past (\d+)\|([A-Z_]*).*", key)
        if match is not None:
            found.append(Listed(job=BatchJob(id=match[1], state=match[2] or "GONE")))
    return tuple(found)


def _parts(text: str) -> dict[str, str]:
    parts: dict[str, list[str]] = {}
    name = ""
    for line in text.split("\n"):
        if line.startswith(_MARK):
            name, rest = line.removeprefix(_MARK), ""
            if name.startswith("here "):
                name, rest = "here", name.removeprefix("here ")
            parts[name] = [rest] if rest else []
        else:
            parts.setdefault(name, []).append(line)
    return {key: "\n".join(lines) for key, lines in parts.items()}


def _facts(line: str) -> dict[str, str]:
    """`Key=value` words of scontrol's one-line form; a value may hold blanks, a key does not."""
    found = re.findall(r"(?:^|\s)([A-Za-z][\w/:.]*)=(.*?)(?=\s[A-Za-z][\w/:.]*=|\s*$)", line.strip())
    return {key: value.strip() for key, value in found}


def _path(text: str) -> str:
    return text if text.startswith("/") else ""


def _job(line: str) -> BatchJob | None:
    words = line.split("|", 11)
    if len(words) < 12 or not words[0].strip():
        return None
    job_id, state, partition, user, nodes, first, left, limit, start, submitted, reason, name = map(str.strip, words)
    names = expand(nodes)
    if first not in ("", "n/a"):
        names = (first, *(node for node in names if node != first))
    return BatchJob(
        id=job_id,
        name=name,
        state=state,
        reason="" if reason in ("None", "none") else reason,
        partition=partition,
        user=user,
        nodes=names,
        submitted_at=_number(submitted),
        start_at=_number(start),
        time_left_s=seconds(left),
        limit_s=seconds(limit),
    )


def _number(text: str) -> float | None:
    return float(text) if text.isdecimal() else None


def seconds(text: str) -> float | None:
    """`D-HH:MM:SS`, `HH:MM:SS` or `MM:SS` in seconds; None for `UNLIMITED` and what is no time."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, secs = (int(word or 0) for word in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + secs)


def expand(text: str) -> tuple[str, ...]:
    """`n[1-3,7],m1` as names; leading zeros are kept. What is no node list is one name."""
    if text in ("", "(null)", "None assigned"):
        return ()
    names: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?[^,\[]*", text):
        match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", part)
        if match is None:
            names.append(part)
            continue
        for span in match[2].split(","):
            low, dash, high = span.partition("-")
            if not dash:
                names.append(f"{match[1]}{low}{match[3]}")
            elif low.isdecimal() and high.isdecimal() and int(high) - int(low) < 100_000:
                names += [f"{match[1]}{n:0{len(low)}d}{match[3]}" for n in range(int(low), int(high) + 1)]
    return tuple(names)


_DEAD = re.compile(r"srun: error: (\S+): task (\d+): (.+)")


def dead_rank(lines: Iterable[str]) -> str:
    """Which task of a step ended first, by what srun printed; empty where it printed nothing of the kind."""
    for line in lines:
        match = _DEAD.search(line)
        if match is not None:
            return f"rank {match[2]} on {match[1]} ended first ({match[3].strip()})"
    return ""


# Own words of a step are known by its number; of all others the oldest is the batch script, or what it became.
_ENVIRONMENT = """\
best= found=
for file in $(grep -lzx "SLURM_JOB_ID=$SLURM_JOB_ID" /proc/[0-9]*/environ 2>/dev/null); do
  grep -qzx "SLURM_STEP_ID=$SLURM_STEP_ID" "$file" 2>/dev/null && continue
  { read -r line <"${file%environ}stat"; } 2>/dev/null || continue
  set -- ${line##*) }
  if [ -z "$best" ] || [ "${20}" -lt "$best" ]; then best=${20} found=$file; fi
done
[ -n "$found" ] || { echo "no process of the job can be read there" >&2; exit 4; }
cat "$found"
"""
STEP_WAIT_S = 15
"""How long the queue may take to give a job a further step."""


NODE_MARK = "@tokpit:node"
"""Printed before anything else by what came to run on a node."""


def by_step(job: BatchJob, script: str, limit_s: float) -> str:
    """A command for the login host: NODE_MARK, then `script`, on the first node of a job, by a step of it."""
    return _limited(limit_s) + on_node(job.id, job.nodes[0], f"echo {NODE_MARK}\n{script}")


def by_ssh(job: BatchJob, script: str, limit_s: float) -> str:
    """The same by SSH from the login host, with what keys and host keys it has; nobody is asked for anything."""
    command = shlex.join(("sh", "-c", f"echo {NODE_MARK}\n{script}"))
    words = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "--", job.nodes[0], command)
    return f"{_limited(limit_s)}{shlex.join(words)} </dev/null"


def _limited(limit_s: float) -> str:
    """A prefix: status 124 where it did not end within its time."""
    return f"$(command -v timeout >/dev/null 2>&1 && echo timeout {limit_s:.0f}) "


def on_node(job_id: str, node: str, script: str) -> str:
    """A command for the login host: `script` on a node of a running job, in a step that takes nothing from the job.

    Source: srun(1), `--overlap` since 20.11: a step shares all that the job has, its GPUs among it.
    """
    words = (
        *("srun", f"--jobid={job_id}", "--overlap", f"--immediate={STEP_WAIT_S}", "--quiet", "--mpi=none"),
        *("--nodes=1", "--ntasks=1", f"--nodelist={node}", "--chdir=/", "sh", "-c", script),
    )
    return f"{shlex.join(words)} </dev/null"


def environment_script(job_id: str, node: str) -> str:
    """A command for the login host that prints the environment of a job's first process, as /proc has it."""
    return on_node(job_id, node, _ENVIRONMENT)


_OWN = frozenset({"job-name", "ntasks-per-node", "output", "open-mode", "no-requeue"})


def request_of(script: str) -> BatchRequest:
    """What a script asks the queue for, in its `#SBATCH` lines; those that every script of ours has are left out."""
    found: dict[str, str] = {}
    args = []
    for line in script.splitlines():
        match = re.fullmatch(r"#SBATCH --([a-z][a-z-]*)(?:=(.*))?", line.strip())
        if match is None:
            continue
        name, value = match[1], match[2] or ""
        if name in {"partition", "nodes", "gpus-per-node", "time", "account"} and name not in found:
            found[name] = value
        elif name not in _OWN or name in found:
            args.append(line.strip().removeprefix("#SBATCH "))
        else:
            found[name] = value
    nodes = found.get("nodes", "1")
    return BatchRequest(
        partition=found.get("partition", ""),
        nodes=int(nodes) if nodes.isdecimal() else 1,
        gpus=found.get("gpus-per-node", ""),
        time_limit=found.get("time", ""),
        account=found.get("account", ""),
        args=tuple(args),
    )


def directives(words: Sequence[tuple[str, str]]) -> str:
    """`#SBATCH --name=value` lines; an empty value leaves a line out."""
    return "".join(f"#SBATCH --{name}={value}\n" for name, value in words if value)
