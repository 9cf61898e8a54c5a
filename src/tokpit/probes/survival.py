"""What on a host may end a server that outlived its launch: logins that take processes along, limits, full disks.

Sources: logind.conf(5) (KillUserProcesses, KillExcludeUsers), loginctl(1) (Linger), systemd.kill(5), cgroups(7).
"""

from __future__ import annotations

import re

import msgspec

from tokpit.probes.cgroup import keeper_of
from tokpit.probes.sections import mark, sections

_GIB = 2**30
DISK_FULL_BYTES = 50 * 2**20
DISK_LOW_BYTES = 2 * _GIB
SHM_LOW_BYTES = _GIB


class Survival(msgspec.Struct, frozen=True, kw_only=True):
    """What was read. None: the host does not tell."""

    user: str = ""
    uid: int | None = None
    cgroup: str = ""
    """Lines of the connection's own /proc/self/cgroup."""
    linger: bool | None = None
    kill_user_processes: bool | None = None
    kill_excluded: tuple[str, ...] = ("root",)
    user_manager: bool | None = None
    """The user's own systemd runs."""
    tools: frozenset[str] = frozenset()
    """Which of `systemd-run`, `tmux`, `docker`, `setsid` are there."""
    systemd: bool | None = None
    disk_free_bytes: int | None = None
    """Where the log goes."""
    inodes_free: int | None = None
    shm_total_bytes: int | None = None
    shm_free_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """The smallest memory limit of the control groups that a child of this connection is in."""


class Risk(msgspec.Struct, frozen=True):
    """One thing that would end the server, or keep it from starting. `fatal`: it will."""

    code: str
    sentence: str
    mend: str = ""
    fatal: bool = False


_SCRIPT = r"""
%(who)s
id -un; id -u
%(cgroup)s
cat /proc/self/cgroup 2>/dev/null
%(linger)s
u=$(id -un)
loginctl show-user "$u" -p Linger 2>/dev/null || { [ -e "/var/lib/systemd/linger/$u" ] && echo Linger=yes; }
%(logind)s
cat /usr/lib/systemd/logind.conf.d/*.conf /etc/systemd/logind.conf /etc/systemd/logind.conf.d/*.conf \
  /run/systemd/logind.conf.d/*.conf 2>/dev/null | grep -E '^[[:space:]]*Kill(UserProcesses|ExcludeUsers)'
%(tools)s
for t in systemd-run tmux setsid; do command -v "$t" >/dev/null 2>&1 && echo "$t"; done
if command -v docker >/dev/null 2>&1; then
  limit=; command -v timeout >/dev/null 2>&1 && limit='timeout 5'
  $limit docker version --format x >/dev/null 2>&1 && echo docker
fi
[ -d /run/systemd/system ] && echo systemd
[ -S "${XDG_RUNTIME_DIR:-/run/user/$(id -u)}/systemd/private" ] && echo usermanager
%(disk)s
d=%(folder)s
case $d in '~/'*) d=$HOME/${d#'~/'} ;; esac
while [ ! -e "$d" ]; do case $d in */*) d=${d%%/*}; [ -n "$d" ] || d=/ ;; *) d=. ;; esac; done
df -kP -- "$d" 2>/dev/null | tail -n 1
df -iP -- "$d" 2>/dev/null | tail -n 1
%(shm)s
df -kP /dev/shm 2>/dev/null | tail -n 1
%(limit)s
g=$(sed -n 's/^0:://p' /proc/self/cgroup 2>/dev/null)
while :; do cat "/sys/fs/cgroup$g/memory.max" 2>/dev/null; case $g in ''|/) break;; esac; g=${g%%/*}; done
m=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup 2>/dev/null)
cat "/sys/fs/cgroup/memory$m/memory.limit_in_bytes" /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null
%(end)s
"""


def survival_script(log_folder: str) -> str:
    """POSIX sh that prints what `parse_survival` reads; `log_folder` need not exist yet."""
    import shlex

    names = ("who", "cgroup", "linger", "logind", "tools", "disk", "shm", "limit", "end")
    return _SCRIPT % {"folder": shlex.quote(log_folder), **{name: mark(name) for name in names}}


def parse_survival(output: str) -> Survival:
    """The facts; what the host does not tell is None."""
    parts = sections(output)
    who = parts.get("who", "").split()
    tools = frozenset(parts.get("tools", "").split())
    linger = re.search(r"^Linger=(\w+)", parts.get("linger", ""), re.MULTILINE)
    kill: bool | None = None
    excluded: tuple[str, ...] = ("root",)
    for name, value in re.findall(r"^\s*(Kill\w+)\s*=\s*(.*)$", parts.get("logind", ""), re.MULTILINE):
        if name == "KillUserProcesses":
            kill = value.strip().lower() in {"yes", "true", "1", "on"}
        elif name == "KillExcludeUsers":
            excluded = tuple(value.split())
    disk = [line.split() for line in parts.get("disk", "").splitlines() if len(line.split()) >= 4]
    shm = parts.get("shm", "").split()
    limits = [int(w) for w in parts.get("limit", "").split() if w.isdecimal() and int(w) < 1 << 60]
    return Survival(
        user=who[0] if who else "",
        uid=int(who[1]) if len(who) > 1 and who[1].isdecimal() else None,
        cgroup=parts.get("cgroup", "").strip(),
        linger=linger[1] == "yes" if linger else None,
        kill_user_processes=kill,
        kill_excluded=excluded,
        user_manager="usermanager" in tools if tools else None,
        tools=tools - {"systemd", "usermanager"},
        systemd="systemd" in tools if tools else None,
        disk_free_bytes=_kib(disk[0][3]) if disk else None,
        inodes_free=int(disk[1][3]) if len(disk) > 1 and disk[1][3].isdecimal() else None,
        shm_total_bytes=_kib(shm[1]) if len(shm) > 3 else None,
        shm_free_bytes=_kib(shm[3]) if len(shm) > 3 else None,
        memory_limit_bytes=min(limits, default=None),
    )


def _kib(word: str) -> int | None:
    return int(word) * 1024 if word.isdecimal() else None


def risks(facts: Survival, method: str, *, ranks: int = 1) -> tuple[Risk, ...]:
    """What would end a server that is started by `method`; `ranks`: processes that share memory on this host."""
    return (*_logout(facts, method), *_room(facts, method, ranks))


def _logout(facts: Survival, method: str) -> list[Risk]:
    found = []
    root = facts.uid == 0
    in_login = method in {"setsid", "tmux"}
    if in_login and facts.kill_user_processes and facts.user not in facts.kill_excluded:
        keeper = keeper_of(facts.cgroup)
        scope = f" ({keeper.name})" if keeper is not None and keeper.kind == "session" else ""
        found.append(
            Risk(
                "CGROUP_KILL_RISK",
                f"this host ends all processes of a login when it ends{scope} (KillUserProcesses=yes): the server "
                "would not outlive the connection",
                "start it with --method systemd" + (_linger(facts) if facts.linger is False else ""),
                fatal=True,
            )
        )
    if in_login and re.search(r"/sshd?@[^/]*\.service", facts.cgroup):
        found.append(
            Risk(
                "CGROUP_KILL_RISK",
                "every SSH connection is a systemd service of its own here (socket activation), and its end ends what "
                "was started in it",
                "start it with --method systemd, or set KillMode=process for sshd@.service",
                fatal=True,
            )
        )
    if method == "systemd" and facts.systemd is False:
        found.append(Risk("NO_SYSTEMD", "systemd does not run on this host", "start it with setsid", fatal=True))
    elif method == "systemd" and not root and facts.linger is False:
        found.append(
            Risk(
                "CGROUP_KILL_RISK",
                f"the service manager of {facts.user} ends with the last login (Linger=no), and the server with it",
                f"run once: loginctl enable-linger {facts.user}",
                fatal=True,
            )
        )
    tool = {"tmux": "tmux", "docker": "docker", "systemd": "systemd-run"}.get(method)
    if tool is not None and facts.tools and tool not in facts.tools:
        lacks = (
            "docker is not on this host, or does not answer this login" if tool == "docker" else f"{tool} is missing"
        )
        found.append(Risk("NO_TOOL", lacks, "choose another --method", fatal=True))
    return found


def _linger(facts: Survival) -> str:
    return f", after: loginctl enable-linger {facts.user}"


def _room(facts: Survival, method: str, ranks: int) -> list[Risk]:
    found = []
    free = facts.disk_free_bytes
    if free is not None and free < DISK_LOW_BYTES:
        found.append(
            Risk(
                "DISK_FULL" if free < DISK_FULL_BYTES else "DISK_LOW",
                f"{free / 2**20:,.0f} MiB are free where the log goes: a full disk ends the log, and often the server",
                "make room, or choose another --log",
                fatal=free < DISK_FULL_BYTES,
            )
        )
    if facts.inodes_free == 0:
        found.append(Risk("DISK_FULL", "no inode is free where the log goes", "remove small files", fatal=True))
    shm = facts.shm_free_bytes
    if method != "docker" and shm is not None and shm < SHM_LOW_BYTES:
        found.append(
            Risk(
                "SHM_SMALL",
                f"/dev/shm has {shm / 2**20:,.0f} MiB free: workers exchange data through it"  # noqa: S108 - a name in a sentence
                + (f", and {ranks} ranks do" if ranks > 1 else ""),
                "in a container: --shm-size or --ipc=host; elsewhere: mount -o remount,size=16G /dev/shm",
                fatal=False,
            )
        )
    limit = facts.memory_limit_bytes
    if method in {"setsid", "tmux"} and limit is not None:
        found.append(
            Risk(
                "CGROUP_MEMORY",
                f"what is started here shares a memory limit of {limit / _GIB:,.1f} GiB (control group), page cache of "
                "the weights and shared memory included; beyond it the kernel kills",
                "raise memory.max of the container or slice, or start it by another --method",
            )
        )
    return found
