"""What doctor says of the facts of a host: one line a thing, what it means for a launch, how to mend it. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

from tokpit.domain.hostfacts import HostFacts
from tokpit.domain.text import decode_line, mask_secrets
from tokpit.engines.registry import engine, listed, names
from tokpit.ops.host.environments import holding
from tokpit.probes.checkup import Checkup
from tokpit.probes.environments import Found
from tokpit.probes.survival import Survival, risks

GIB = 2**30


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line. `status`: `ok`, `info`, `warn`, or `fail` (a launch would fail)."""

    name: str
    status: str
    says: str
    mend: str = ""


def shell(facts: Checkup, noise: bytes = b"") -> list[Check]:
    """Login shell, Python, and what a login has in its environment that commands over SSH lack.

    `noise`: what the shell's start-up files printed before a command.
    """
    checks = [_login_shell(facts, [decode_line(line) for line in noise.splitlines() if line.strip()])]
    if facts.python:
        old = tuple(int(part) for part in facts.python.split(".")[:2] if part.isdecimal()) < (3, 9)
        checks.append(
            Check(
                name="python",
                status="info" if old else "ok",
                says=f"python3 {facts.python} at {facts.python_path}",
                mend="sweeps from the host itself need 3.9 or newer; an engine's own environment will do"
                if old
                else "",
            )
        )
    else:
        checks.append(
            Check(
                name="python",
                status="info",
                says="no python3 on the PATH: processes are read by sh, more slowly",
                mend="engines bring their own; nothing to do unless ps is slow",
            )
        )
    lost = facts.lost
    if facts.login_env is None:
        checks.append(Check(name="environment", status="info", says="the login shell did not tell its environment"))
    elif lost:
        shown = "; ".join(_lost(facts, name, *pair) for name, pair in list(lost.items())[:8])
        checks.append(
            Check(
                name="environment",
                status="warn",
                says=mask_secrets(f"commands over SSH see another environment than your login shell: {shown}"),
                mend="give what the server needs explicitly: --env NAME=VALUE, and the engine by --env-dir",
            )
        )
    else:
        checks.append(Check(name="environment", status="ok", says="the same over SSH as in a login shell"))
    return checks


def _login_shell(facts: Checkup, noise: list[str]) -> Check:
    shell = facts.shell.rpartition("/")[2] or "unknown"
    says = f"login shell {shell}; tokpit runs everything under /bin/sh"
    if not noise:
        return Check(name="shell", status="ok", says=says)
    lines = f"{len(noise)} line{'s' if len(noise) > 1 else ''}"
    return Check(
        name="shell",
        status="warn",
        says=f"{says}; {lines} of login noise removed ({_value(noise[0].strip())})",
        mend="tokpit reads past it, scp and sftp fail on it: let the shell's start-up file print only on a terminal",
    )


def _lost(facts: Checkup, name: str, here: str | None, there: str | None) -> str:
    if name in {"PATH", "LD_LIBRARY_PATH"} and here and there:
        return f"{name} lacks {_value(':'.join(facts.missing_entries(name)))}"
    return f"{name} {_value(here)} here, {_value(there)} there"


def _value(value: str | None) -> str:
    if value is None:
        return "not set"
    return value if len(value) <= 60 else value[:57] + "…"


def gpus(facts: Checkup, room: HostFacts) -> list[Check]:
    """Driver, GPUs and how occupied they are."""
    if facts.gpus:
        free = room.gpu_free_mib
        busy = [
            index
            for index, mib in enumerate(free)
            if index < len(room.gpu_mem_mib) and mib < room.gpu_mem_mib[index] / 2
        ]
        says = f"driver {facts.driver}, {len(facts.gpus)} x {facts.gpus[0]}"
        if free:
            says += f", free {', '.join(f'{mib / 1024:.0f}' for mib in free)} GiB"
        return [
            Check(
                name="gpu",
                status="warn" if busy else "ok",
                says=says,
                mend=f"GPU {', '.join(map(str, busy))} is more than half occupied: see below by what" if busy else "",
            )
        ]
    if facts.gpu_trouble:
        return [
            Check(
                name="gpu",
                status="fail",
                says=f"the driver does not answer: {facts.gpu_trouble}",
                mend="nvidia-smi must work first: load the module or reboot after a driver update",
            )
        ]
    if room.platform == "rocm":
        return [Check(name="gpu", status="ok", says="AMD GPUs (ROCm)")]
    return [
        Check(
            name="gpu",
            status="warn",
            says="no GPU driver is on this host: an engine runs on the CPU, or not at all",
            mend="in a container: start it with --gpus all",
        )
    ]


def room(room: HostFacts, end: Survival, facts: Checkup) -> list[Check]:
    """Memory, disk, shared memory, limits."""
    checks = []
    if room.mem_available_bytes is not None and room.mem_total_bytes is not None:
        low = room.mem_available_bytes < 4 * GIB
        checks.append(
            Check(
                name="memory",
                status="warn" if low else "ok",
                says=f"{room.mem_available_bytes / GIB:,.0f} of {room.mem_total_bytes / GIB:,.0f} GiB available",
                mend="loading weights needs more: see what holds it with tokpit ps" if low else "",
            )
        )
    for risk in risks(end, "setsid"):
        if risk.code in {"DISK_FULL", "DISK_LOW", "SHM_SMALL", "CGROUP_MEMORY"}:
            name = {"SHM_SMALL": "/dev/shm", "CGROUP_MEMORY": "limit"}.get(risk.code, "disk")  # noqa: S108 - a label
            status = "fail" if risk.fatal else "info" if risk.code == "CGROUP_MEMORY" else "warn"
            checks.append(Check(name=name, status=status, says=risk.sentence, mend=risk.mend))
    named = {check.name for check in checks}
    if "disk" not in named and end.disk_free_bytes is not None:
        checks.append(Check(name="disk", status="ok", says=f"{end.disk_free_bytes / GIB:,.0f} GiB free for logs"))
    if "/dev/shm" not in named and end.shm_free_bytes is not None:  # noqa: S108 - a label
        free = f"{end.shm_free_bytes / GIB:,.1f} GiB free"
        checks.append(Check(name="/dev/shm", status="ok", says=free))  # noqa: S108 - a label
    if facts.unwritable:
        checks.append(
            Check(
                name="state",
                status="fail",
                says=f"{facts.unwritable} cannot be written: a launch could not be recorded",
                mend="set XDG_STATE_HOME for this login, or mend the owner of the folder",
            )
        )
    few = facts.open_files is not None and facts.open_files < 4096
    checks.append(
        Check(
            name="ulimit",
            status="warn" if few else "ok",
            says=f"open files {facts.open_files if facts.open_files is not None else 'unlimited'}, locked memory "
            + (f"{facts.locked_memory_kib:,} KiB" if facts.locked_memory_kib is not None else "unlimited"),
            mend="many connections need more: raise nofile in /etc/security/limits.conf" if few else "",
        )
    )
    return checks


def survival(facts: Survival) -> list[Check]:
    """By which launch methods a server outlives the connection."""
    ways = []
    reasons = []
    for method in ("setsid", "systemd", "tmux", "docker"):
        bad = next((r for r in risks(facts, method) if r.fatal and not r.code.startswith("DISK")), None)
        if bad is None:
            ways.append(method)
        elif method == "setsid" or bad.code == "CGROUP_KILL_RISK":
            reasons.append(f"{method}: {bad.sentence} ({bad.mend})")
    return [
        Check(
            name="survival",
            status="fail" if not ways else "warn" if "setsid" not in ways else "ok",
            says=f"a server outlives the connection when started by {', '.join(ways) or 'nothing that is here'}",
            mend="; ".join(reasons),
        )
    ]


def ports(room: HostFacts, ours: set[int]) -> list[Check]:
    """Whether the engines' usual ports are free; `ours`: ports of servers that were found."""
    usual = {engine(name).http.default_port: engine(name).title for name in names()}
    taken = {port: title for port, title in usual.items() if port in room.ports_in_use}
    strange = [port for port in taken if port not in ours]
    if not taken:
        says = f"the usual ones are free: {', '.join(map(str, usual))}"
    else:
        says = "in use: " + ", ".join(
            f"{port} ({'by something else' if port in strange else f'by a server, {title}'})"
            for port, title in taken.items()
        )
    return [
        Check(
            name="ports",
            status="info" if taken else "ok",
            says=says,
            mend="launch with another --port" if taken else "",
        )
    ]


def engines(found: Found) -> list[Check]:
    """Environments, binaries and images that hold an engine."""
    checks = []
    for name in names():
        for environment in holding(found, name):
            package = environment.package(name) or next(
                p for p in environment.packages if p.version == environment.engines[name]
            )
            torch = environment.package("torch")
            says = f"{engine(name).title} {package.version} in {environment.prefix} ({environment.kind}"
            says += f", Python {environment.python}" if environment.python else ""
            says += f", torch {torch.version})" if torch is not None else ")"
            if package.development:
                says += f", a development build{f' of {package.source}' if package.source else ''}"
            mend = "" if torch is not None or environment.kind == "system" else "it has no torch: it may not start"
            checks.append(Check(name="engine", status="warn" if mend else "ok", says=says, mend=mend))
    checks += [
        Check(name="engine", status="ok", says=f"{PurePosixPath(binary.path).name} at {binary.path}")
        for binary in found.binaries
    ]
    checks += [
        Check(name="engine", status="ok", says=f"image {image.name} ({image.runtime}, {image.size})")
        for image in found.images
    ]
    if not checks:
        checks.append(
            Check(
                name="engine",
                status="fail",
                says=f"no {listed()} was found ({found.others} other environments)",
                mend="install one in an environment of its own, or name the place with --env-dir",
            )
        )
    if found.cut:
        checks.append(Check(name="engine", status="info", says="the search was cut short: large or slow file systems"))
    return checks


def models(found: Found) -> list[Check]:
    """Models that lie on the host."""
    if not found.models:
        return [
            Check(
                name="models",
                status="info",
                says="no model was found in the usual folders and the HF cache",
                mend="a launch by hub name downloads it first; a path is used as it is",
            )
        ]
    checks = []
    for model in found.models:
        size = f"{model.size_bytes / 1e9:,.1f} GB" if model.size_bytes else "size not known"
        status, mend = "ok", ""
        if model.unfinished:
            status, mend = "warn", "its download is unfinished: run it again before the launch"
        checks.append(Check(name="model", status=status, says=f"{model.name}, {size}, {model.path}", mend=mend))
    return checks
