"""What a launch needs to know of the host first: environment and version, memory, GPUs, ports, the model."""

from __future__ import annotations

import posixpath
import re
import shlex

import msgspec

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec
from tokpit.engines import registry
from tokpit.engines.base import Engine
from tokpit.errors import LaunchError
from tokpit.probes.model import model_script, parse_model
from tokpit.probes.preflight import parse_preflight, preflight_script
from tokpit.transport.base import Host, quote

_VERSION = re.compile(r"^(?:version:?\s+)?v?(b?\d[\w.+!-]*)", re.MULTILINE)


async def complete(host: Host, engine: Engine, spec: LaunchSpec) -> LaunchSpec:
    """`spec` with its program and installed version filled in.

    A program of one word is an environment folder or an executable. Without one, the inventory's choice for this host
    is taken, then what the login's PATH finds. Raises LaunchError where the engine is not found there.
    """
    words = spec.program
    if not words and (chosen := host.spec.programs.get(engine.name)) is not None:
        words = tuple(shlex.split(chosen))
    if not words:
        words = (await _prefix_on_path(host, engine),)
    if len(words) == 1 and await _is_folder(host, words[0]):
        words = engine.default_program(words[0].rstrip("/"), spec.version)
    version = spec.version or await installed_version(host, engine, words)
    if version is None:
        raise LaunchError(
            f"{engine.title} was not found on {host.name} as {quote(words)}",
            hint="name its environment with --env-dir FOLDER, or the whole command with --program",
        )
    return msgspec.structs.replace(spec, program=words, version=version)


async def installed_version(host: Host, engine: Engine, program: tuple[str, ...]) -> str | None:
    """The engine's version in the environment of `program`; None where it is not installed there."""
    first = program[0]
    if not posixpath.basename(first).startswith("python"):
        beside = posixpath.join(posixpath.dirname(first), "python")
        if posixpath.dirname(first) and (await host.run(f"test -x {quote([beside])}")).status == 0:
            first = beside
    answer = await host.run(quote(engine.version_command(first)), timeout_s=60)
    said = _VERSION.findall(answer.out) or _VERSION.findall(answer.err)
    return str(said[-1]) if answer.status == 0 and said else None


async def _prefix_on_path(host: Host, engine: Engine) -> str:
    """The environment folder of the engine's executable on the login's PATH. Raises LaunchError."""
    name = posixpath.basename(engine.default_program("/prefix", None)[0])
    answer = await host.run(
        f"p=$(command -v {quote([name])} || command -v {quote([name + '3'])}) && "
        'd=$(dirname "$(dirname "$p")") && printf "%s\\n" "$d"'
    )
    prefix = answer.out.strip()
    if answer.status != 0 or not prefix:
        raise LaunchError(
            f"{engine.title} is not on the PATH of {host.name}",
            hint="name its environment with --env-dir FOLDER, or set [hosts.NAME.programs] in the inventory",
        )
    return prefix


async def _is_folder(host: Host, path: str) -> bool:
    return (await host.run(f"test -d {quote([path])}")).status == 0


async def host_facts(host: Host, spec: LaunchSpec, *, replacing: ServerInfo | None = None) -> HostFacts:
    """Memory, GPUs and ports now. The port and the memory of a server that is to be replaced count as free."""
    model = spec.settings.model or ""
    answer = await host.run(preflight_script(), timeout_s=20)
    facts = parse_preflight(answer.out)
    ports = facts.ports_in_use - ({replacing.port} if replacing is not None and replacing.port else set())
    missing = frozenset({model}) if model.startswith(("/", "./", "../", "~")) and await _missing(host, model) else None
    available = facts.mem_available_bytes
    if replacing is not None and available is not None:
        available += await _resident(host, replacing.pid)
    return msgspec.structs.replace(
        facts, ports_in_use=frozenset(ports), missing_paths=missing or frozenset(), mem_available_bytes=available
    )


async def _resident(host: Host, pid: int) -> int:
    """Bytes of host memory that a process and its descendants hold, shared pages once; 0: cannot be read."""
    answer = await host.run(_RESIDENT.format(pid=int(pid)), timeout_s=20)
    return sum(int(word) for word in answer.out.split() if word.isdigit()) * 1024


# Proportional set sizes (kB) of a process tree, level by level; other users' processes cannot be read and count 0.
_RESIDENT = (
    'level={pid}; while [ -n "$level" ]; do next=; for p in $level; do '
    "sed -n 's/^Pss: *\\([0-9]*\\) kB/\\1/p' /proc/$p/smaps_rollup 2>/dev/null; "
    'next="$next $(cat /proc/$p/task/*/children 2>/dev/null)"; done; level=$(echo $next); done'
)


async def _missing(host: Host, path: str) -> bool:
    return (await host.run(f"test -e {quote([path])}")).status == 1


async def model_facts(host: Host, spec: LaunchSpec) -> ModelFacts:
    """What config.json and the weight files say; empty facts where they are not on the host."""
    if not spec.settings.model:
        return ModelFacts()
    answer = await host.run(model_script(spec.settings.model), timeout_s=20)
    return parse_model(answer.out)[0]


_LOG_PATH = """\
stem=${XDG_STATE_HOME:-${HOME:-/tmp}/.local/state}/tokpit/logs/%s-$(date -u +%%Y%%m%%d-%%H%%M%%S)
path=$stem.log n=1
while [ -e "$path" ]; do n=$((n + 1)); path=$stem-$n.log; done
printf '%%s\n' "$path"
"""


async def default_log_path(host: Host, spec: LaunchSpec) -> str:
    """A fresh log file under the user's state folder on the host, named by engine, port and time.

    A start and the next may fall in one second: no name is given twice. Raises RemoteFailed.
    """
    stem = f"{spec.engine}-{spec.settings.port or 0}"
    answer = await host.run(_LOG_PATH % quote([stem]), check=True)
    return answer.out.strip()


async def file_size(host: Host, path: str) -> int:
    """Bytes of a file on the host; 0 where it does not exist."""
    answer = await host.run(f"wc -c <{quote([path])} 2>/dev/null || echo 0")
    digits = answer.out.strip().split()
    return int(digits[0]) if digits and digits[0].isdigit() else 0


_CARRIED = (
    *("CUDA_", "HF_", "NCCL_", "TORCH", "OMP_", "PYTHONPATH", "LD_LIBRARY_PATH"),
    *(prefix for engine in registry.engines() for prefix in engine.env_prefixes),
)
_CARRIED_WORDS = frozenset({"PATH", "VIRTUAL_ENV", "TRANSFORMERS_OFFLINE", "TOKENIZERS_PARALLELISM", "MAX_JOBS"})


async def process_env(host: Host, pid: int | None) -> dict[str, str]:
    """The environment a process was started with, as far as it matters to an engine; empty where it cannot be read.

    `pid` None: what every command has that is run there.
    """
    answer = await host.run(f"cat /proc/{'self' if pid is None else int(pid)}/environ 2>/dev/null")
    return carried(answer.out)


def carried(text: str) -> dict[str, str]:
    """What matters to an engine of an environment as /proc has it."""
    env: dict[str, str] = {}
    for pair in text.split("\0"):
        name, equals, value = pair.partition("=")
        if equals and (name.startswith(_CARRIED) or name in _CARRIED_WORDS):
            env[name] = value
    return env
