"""Servers that something else keeps: a systemd unit or a container. They are stopped and started through their keeper,
because it would start a killed server again, or leave its own record of it wrong."""

from __future__ import annotations

import re

import msgspec

from tokpit.domain.text import decode_line
from tokpit.errors import LaunchError, RemoteFailed, StopError, TokpitError
from tokpit.probes.cgroup import Keeper, keeper_of
from tokpit.transport.base import Host, quote

# Programs between a unit's main process and the server that only wait for it.
_WRAPPERS = frozenset(
    {
        *("sh", "bash", "dash", "zsh", "ash", "busybox", "env", "nohup", "nice", "numactl", "taskset", "time"),
        *("sudo", "su", "runuser", "setpriv", "uv", "uvx", "conda", "mamba", "micromamba", "tini", "dumb-init"),
    }
)
_RUNTIME = "export XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"


class Manager(msgspec.Struct, frozen=True, kw_only=True):
    """A keeper that was asked and agrees. `sudo`: its command needs root and the login is not root."""

    kind: str
    name: str
    user: bool = False
    sudo: bool = False
    restart: str = ""
    """systemd's Restart=, docker's restart policy; empty or `no`: it stays down."""

    def command(self, verb: str, *, wait_s: float = 90.0) -> tuple[str, ...]:
        """argv that stops or starts it: `verb` is `stop` or `start`."""
        if self.kind == "systemd":
            argv = ("systemctl", *(("--user",) if self.user else ()), verb, self.name)
        else:
            argv = (self.kind, verb, *(("-t", f"{wait_s:.0f}") if verb == "stop" else ()), self.name[:12])
        return ("sudo", "-n", *argv) if self.sudo else argv

    @property
    def label(self) -> str:
        """How sentences name it."""
        return f"unit {self.name}" if self.kind == "systemd" else f"{self.kind} container {self.name[:12]}"


async def manager_of(host: Host, pid: int, cgroup: str, *, in_container: bool) -> Manager | None:
    """Who keeps the process `pid`; None: nobody, or the login session.

    `in_container`: it runs in a container that this connection is outside of. Raises StopError for keepers that
    tokpit cannot ask (Kubernetes, Slurm), RemoteFailed.
    """
    keeper = keeper_of(cgroup)
    if keeper is None or keeper.kind == "session":
        return None
    if keeper.kind == "systemd":
        return await _unit(host, pid, keeper)
    if keeper.kind == "slurm":
        raise StopError(
            f"{host.name}: pid {pid} belongs to Slurm job {keeper.name}", hint=f"end it with: scancel {keeper.name}"
        )
    if not in_container:
        return None
    if keeper.kind == "kubernetes":
        raise StopError(
            f"{host.name}: pid {pid} runs in a Kubernetes pod ({keeper.name}), which would start it again",
            hint="scale its deployment down with kubectl",
        )
    return await _container(host, keeper)


async def _unit(host: Host, pid: int, keeper: Keeper) -> Manager | None:
    words = ("systemctl", *(("--user",) if keeper.user else ()), "show", "-p", "Id,MainPID,Restart", keeper.name)
    script = (
        f"{_RUNTIME}\nid -u\n{quote(words)} 2>/dev/null\n"
        f"p={pid:d}\n"
        'while [ "$p" -gt 1 ]; do { read -r s <"/proc/$p/stat"; } 2>/dev/null || break\n'
        '  c=${s#*\\(}; echo "up $p ${c%\\)*}"; set -- ${s##*) }; p=$2; done\nexit 0\n'
    )
    answer = await host.run(script)
    return parse_unit(answer.out, pid, keeper)


def parse_unit(text: str, pid: int, keeper: Keeper) -> Manager | None:
    """The unit as a manager, if its main process is the server or a wrapper around it; None otherwise."""
    lines = text.splitlines()
    facts = dict(line.split("=", 1) for line in lines if re.match(r"(Id|MainPID|Restart)=", line))
    main = int(facts["MainPID"]) if facts.get("MainPID", "").isdecimal() else 0
    for match in (re.fullmatch(r"up (\d+) (.*)", line) for line in lines):
        if match is None:
            continue
        if int(match[1]) == main:
            root = lines[0].strip() == "0"
            return Manager(
                kind="systemd",
                name=facts.get("Id") or keeper.name,
                user=keeper.user,
                sudo=not (root or keeper.user),
                restart=facts.get("Restart", ""),
            )
        if int(match[1]) != pid and match[2] not in _WRAPPERS:
            return None
    return None


async def _container(host: Host, keeper: Keeper) -> Manager:
    words = (keeper.kind, "inspect", "-f", "{{.HostConfig.RestartPolicy.Name}}", keeper.name)
    answer = await host.run(quote(words))
    if answer.status == 0:
        return Manager(kind=keeper.kind, name=keeper.name, restart=answer.out.strip())
    again = await host.run(quote(("sudo", "-n", *words)))
    if again.status == 0:
        return Manager(kind=keeper.kind, name=keeper.name, sudo=True, restart=again.out.strip())
    said = decode_line(answer.stderr.strip().split(b"\n")[0]) or f"status {answer.status}"
    if "No such" in said:
        raise StopError(
            f"{host.name}: the process belongs to container {keeper.name[:12]}, which {keeper.kind} does not know "
            "(any more)",
            hint="it was left behind by a removed container: end it as HOST/PID from tokpit ps, if it is an orphan",
        )
    raise StopError(
        f"{host.name}: the server runs in container {keeper.name[:12]}, and {keeper.kind} does not answer: {said}",
        hint="join the docker group, or stop it where it was started",
    )


async def ask(host: Host, manager: Manager, verb: str, *, wait_s: float) -> None:
    """Stop or start through the keeper, never by password. Raises StopError or LaunchError with what it said."""
    words = manager.command(verb, wait_s=wait_s)
    kind: type[TokpitError] = StopError if verb == "stop" else LaunchError
    try:
        answer = await host.run(f"{_RUNTIME}\n{quote(words)}", timeout_s=wait_s + 60.0)
    except RemoteFailed as error:
        raise kind(f"{host.name}: {quote(words)} did not end: {error.message}") from error
    if answer.status != 0:
        said = decode_line(answer.stderr.strip().split(b"\n")[-1]) or f"status {answer.status}"
        if "password is required" in said or "terminal is required" in said:
            raise kind(
                f"{host.name}: {manager.label} can be {'stopped' if verb == 'stop' else 'started'} by root only, and "
                "sudo asks for a password here",
                hint=f"allow this one command in sudoers (NOPASSWD): {quote(words[2:])}",
            )
        raise kind(f"{host.name}: {quote(words)} failed: {said}")
