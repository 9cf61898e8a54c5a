"""Who keeps a process: what its control groups say. Formats: cgroups(7), systemd.unit(5), the container runtimes."""

from __future__ import annotations

import re

import msgspec

_CONTAINER = re.compile(
    r"(?:^|[/-])(?P<runtime>docker|libpod|cri-containerd|crio|kubepods)?[-/]?(?P<id>[0-9a-f]{64})(?:\.scope)?(?:/|$)"
)
_USER_MANAGER = re.compile(r"/user@(\d+)\.service(?:/|$)")
# Services in which a login, a terminal or a timer lives: stopping them would end far more than one server.
_HOUSES = re.compile(
    r"^(?:sshd?|ssh@.*|sshd@.*|cron|crond|atd|user@\d+|init|dbus.*|getty@.*|systemd-.*|docker|containerd|podman.*|"
    r"kubelet|k3s.*|slurmd|slurmstepd.*|lightdm|gdm.*|code-server.*|jupyter.*|supervisor.*|tmux.*|screen.*)\.service$"
)


class Keeper(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps a process. `kind`: `systemd`, `docker`, `podman`, `kubernetes`, `slurm`, `session`."""

    kind: str
    name: str
    """Unit, container id, pod, job or session scope."""
    user: bool = False
    """The unit is one of the user's own service manager."""


def keeper_of(cgroup: str) -> Keeper | None:
    """The keeper that /proc/PID/cgroup names, the most specific one; None where it names none.

    A unit found here is a candidate: that its main process is the server must be asked of systemd itself.
    """
    found: list[Keeper] = []
    for line in cgroup.splitlines():
        path = line.split(":", 2)[2] if line.count(":") >= 2 else ""
        keeper = _of_path(path)
        if keeper is not None and keeper not in found:
            found.append(keeper)
    order = ("kubernetes", "docker", "podman", "slurm", "systemd", "session")
    return min(found, key=lambda keeper: order.index(keeper.kind), default=None)


def _of_path(path: str) -> Keeper | None:
    if "kubepods" in path:
        pod = re.search(r"pod([0-9a-f][0-9a-f_-]{30,})", path)
        return Keeper(kind="kubernetes", name=pod[1].replace("_", "-") if pod else path.rsplit("/", 1)[-1])
    container = _CONTAINER.search(path)
    if container is not None:
        kind = "podman" if container["runtime"] == "libpod" else "docker"
        return Keeper(kind=kind, name=container["id"])
    job = re.search(r"/job_(\d+)(?:/|$)", path)
    if job is not None and "slurm" in path:
        return Keeper(kind="slurm", name=job[1])
    units = [part for part in path.split("/") if part.endswith((".service", ".scope"))]
    if not units:
        return None
    user = _USER_MANAGER.search(path) is not None
    unit = _plain(units[-1])
    if unit.startswith("session-"):
        return Keeper(kind="session", name=unit)
    if unit.endswith(".scope") or _HOUSES.match(unit):
        return None  # a scope has no main process: it ends with what is in it
    return Keeper(kind="systemd", name=unit, user=user and not re.match(r"user@\d+\.service$", unit))


def _plain(unit: str) -> str:
    r"""A unit name as systemctl takes it: control groups hide a leading underscore and the like behind `_`."""
    return unit[1:] if unit.startswith("_") else unit
