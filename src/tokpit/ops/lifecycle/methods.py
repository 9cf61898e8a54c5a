"""Launch methods as a use case: what the host allows, the line that is shown, and what a container needs besides."""

from __future__ import annotations

import posixpath
import re
import secrets
import time

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.domain.settings import LaunchSpec
from tokpit.domain.text import sanitize
from tokpit.engines.registry import engine as engine_of
from tokpit.errors import LaunchError, UsageError
from tokpit.probes.survival import Risk, parse_survival, risks, survival_script
from tokpit.transport.base import Host, quote
from tokpit.transport.detached import read_states
from tokpit.transport.methods import METHODS, Container, docker_argv, handle_name, systemd_argv

_SHORT_S = 20.0


async def survival_risks(host: Host, spec: LaunchSpec) -> tuple[Risk, ...]:
    """What would end the server after its start. Raises UsageError for an unknown method, HostError."""
    if spec.method not in METHODS:
        raise UsageError(f"unknown launch method {spec.method!r}", hint=f"known: {', '.join(METHODS)}")
    if spec.method == "docker" and not spec.image:
        raise UsageError("a launch in a container needs an image", hint="name it with --image")
    if spec.method == "slurm":
        return ()  # a job outlives every login, and its node is not known yet
    folder = posixpath.dirname(spec.log_path) if spec.log_path else "~/.local/state/tokpit"
    answer = await host.run(survival_script(folder or "."), timeout_s=_SHORT_S)
    return risks(parse_survival(answer.out), spec.method, ranks=(spec.settings.tp or 1) * (spec.settings.pp or 1))


async def method_of(host: Host, info: ServerInfo) -> str:
    """The method by which tokpit started a server; setsid for everything else. Raises HostError."""
    for state in await read_states(host):
        if (state.pid, state.start_ticks) == (info.pid, info.start_ticks) and state.method in METHODS:
            return state.method
    return "setsid"


def sentence(risk: Risk) -> str:
    """A risk as a warning of one line."""
    return f"{risk.sentence} ({risk.mend})" if risk.mend else risk.sentence


def handle(spec: LaunchSpec, port: int, now: float) -> str:
    """The name of a unit, session or container; empty where none is needed, or where the queue gives a number."""
    if spec.method in ("setsid", "slurm"):
        return ""
    stamp = time.strftime("%m%d-%H%M%S", time.gmtime(now))  # a start and its rollback may fall in one second
    return handle_name(spec.engine, port, f"{stamp}-{secrets.token_hex(2)}")


def container(spec: LaunchSpec, *, platform: str = "cuda") -> Container | None:
    """What the container of a launch is made of: image, GPUs, and the folders that the command line names."""
    if spec.method != "docker":
        return None
    paths = [spec.settings.model, spec.settings.draft_model, spec.env.get("HF_HOME"), spec.env.get("HF_HUB_CACHE")]
    mounts = dict.fromkeys(path for path in paths if path and path.startswith("/"))
    return Container(
        image=spec.image,
        gpus={"cuda": "all", "rocm": "rocm"}.get(platform, "none"),
        mounts=tuple(mounts),
        args=spec.container_args,
    )


async def shown_line(host: Host, spec: LaunchSpec, argv: tuple[str, ...], log_path: str, name: str) -> str:
    """The command line as it is shown before it runs, values of the environment left out. Raises HostError."""
    command = quote(argv)
    if spec.method == "systemd":
        root = (await host.run("id -u")).out.strip() == "0"
        words = systemd_argv(name, user=not root, run="")
        return f"{quote(words[: words.index('--') + 1])} {command} </dev/null >>{log_path} 2>&1"
    if spec.method == "tmux":
        return f"tmux new-session -d -s {name} {command} </dev/null >>{log_path} 2>&1"
    if spec.method == "docker":
        box = container(spec)
        assert box is not None
        return quote(docker_argv(name, box, sorted(spec.env), argv, log_folder=posixpath.dirname(log_path)))
    return f"setsid {command} </dev/null >>{log_path} 2>&1"


async def complete_in_image(host: Host, spec: LaunchSpec) -> LaunchSpec:
    """`spec` with its program and, where the image's tag is a version, the version; the image is never pulled.

    Raises LaunchError where the image is not on the host.
    """
    answer = await host.run(quote(("docker", "image", "inspect", "-f", "{{.Id}}", spec.image)), timeout_s=_SHORT_S)
    if answer.status != 0:
        said = answer.err.strip().splitlines()
        why = sanitize(said[-1])[:200] if said else f"status {answer.status}"
        raise LaunchError(
            f"{host.name}: the image {spec.image} cannot be used: {why}", hint=f"get it first: docker pull {spec.image}"
        )
    found = re.search(r":v?(\d+\.\d+[\w.+]*)", spec.image)
    program = spec.program or engine_of(spec.engine).traces.image_program
    return msgspec.structs.replace(spec, program=program, version=spec.version or (found[1] if found else None))
