"""The process table: one script that reads /proc once, and the reader of its output.

The script costs two reads a process (stat, cmdline); links, user, cgroup and sockets are read only for processes whose
command line holds one of the given words.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

import msgspec

from tokpit.domain.text import sanitize
from tokpit.probes.cgroup import keeper_of
from tokpit.probes.process_script import script
from tokpit.probes.sections import sections

__all__ = ["Listener", "Process", "ProcessTable", "container_id", "parse", "script"]


class Listener(msgspec.Struct, frozen=True):
    """A listening TCP socket; `pids` is empty where nobody's descriptors could be read."""

    address: str
    port: int
    inode: int
    pids: tuple[int, ...] = ()


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process. The fields after `comm` are read only for candidates; empty or None: not read or not readable."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    start_ticks: int
    rss_bytes: int
    state: str
    comm: str
    argv: tuple[str, ...] = ()
    """Safe text, newlines within an argument kept."""
    uid: int | None = None
    user: str = ""
    cwd: str = ""
    exe: str = ""
    stdin: str = ""
    """Link target of descriptor 0, e.g. `pipe:[123]`."""
    stdout: str = ""
    stderr: str = ""
    stdout_kind: str = ""
    """`file`, `foreign` (a file in another mount namespace), `deleted`, or empty for everything else."""
    stderr_kind: str = ""
    container: str | None = None
    """Short id; None outside containers, and for processes of the container that the script itself ran in."""
    runtime: str = ""
    """Whose container: `docker`, `podman`, `kubernetes`; empty where the control group does not say, or outside."""


class ProcessTable(msgspec.Struct, frozen=True, kw_only=True):
    """Candidates, their ancestors and descendants, and the listening sockets of a host. Times: UTC seconds."""

    processes: tuple[Process, ...]
    listeners: tuple[Listener, ...] = ()
    boot_time: float | None = None
    clock_ticks: int = 100
    boot_id: str = ""
    now: float | None = None
    total: int = 0

    def started_at(self, start_ticks: int) -> float | None:
        """UTC seconds of a start given in clock ticks after boot."""
        return None if self.boot_time is None else self.boot_time + start_ticks / self.clock_ticks

    def ports_in_use(self) -> frozenset[int]:
        """Ports that somebody listens on."""
        return frozenset(listener.port for listener in self.listeners)


def parse(output: str) -> ProcessTable:
    """The table from the script's output. Raises ValueError where the output is not one or was cut short."""
    text = sections(output).get("processes", "")
    base: dict[str, str] = {}
    rows: dict[int, list[str]] = {}
    dear: dict[int, dict[str, str]] = {}
    sockets: list[tuple[str, str, int]] = []
    owners: dict[int, list[int]] = {}
    ended = False
    lines = iter(text.split("\n"))
    for line in lines:
        word, _, rest = line.partition(" ")
        if line == "e":
            ended = True
        elif line == "e links":
            ended = _links(lines, dear, owners)
        elif word == "b":
            key, _, value = rest.partition(" ")
            base[key] = value
        elif word == "p" and len(parts := rest.split(" ", 7)) == 8 and parts[0].isdecimal():
            rows[int(parts[0])] = parts
        elif word in ("a", "g") and len(parts := rest.split(" ")) == 2:
            dear.setdefault(int(parts[0]), {})[word] = parts[1]
        elif word == "u" and len(parts := rest.split(" ", 2)) == 3:
            dear.setdefault(int(parts[0]), {}).update(uid=parts[1], user=parts[2])
        elif word in ("k", "t") and len(parts := rest.split(" ")) == 3:
            value = _text(parts[2]) if word == "k" else parts[2]
            dear.setdefault(int(parts[0]), {})[f"{word}{parts[1]}"] = value
        elif word == "l" and len(parts := rest.split(" ")) == 3:
            sockets.append((parts[0], parts[1], int(parts[2])))
        elif word == "o" and len(parts := rest.split(" ")) == 2:
            owners.setdefault(int(parts[0]), []).append(int(parts[1]))
    if not ended:
        raise ValueError("the process table came incomplete")
    page = int(base.get("page") or 4096)
    own = container_id(_text(base.get("cgroup", "")))
    return ProcessTable(
        processes=tuple(_process(parts, dear.get(pid, {}), page, own) for pid, parts in sorted(rows.items())),
        listeners=tuple(
            Listener(*_address(family, where), inode, tuple(sorted(set(owners.get(inode, ())))))
            for family, where, inode in sockets
        ),
        boot_time=float(base["btime"]) if base.get("btime") else None,
        clock_ticks=int(base.get("ticks") or 100),
        boot_id=sanitize(base.get("boot", "")),
        now=float(base["now"]) if base.get("now") else None,
        total=int(base.get("total") or len(rows)),
    )


def _links(lines: Iterator[str], dear: dict[int, dict[str, str]], owners: dict[int, list[int]]) -> bool:
    """Read `ls -l` of cwd, exe and the descriptor folders; True once the end mark came."""
    pid = 0
    for line in lines:
        if line == "e":
            return True
        if head := re.fullmatch(r"\S*/(\d+)/fd:", line):
            pid = int(head.group(1))
        elif link := re.match(r"l\S+ .*? (?:\S*/(\d+)/(cwd|exe)|(\d+)) -> (.*)", line):
            owner, key, descriptor, target = link.groups()
            if owner:
                dear.setdefault(int(owner), {})[f"k{key}"] = sanitize(target)
            elif pid and descriptor in ("0", "1", "2"):
                dear.setdefault(pid, {})[f"k{descriptor}"] = sanitize(target)
            if pid and not owner and (socket := re.fullmatch(r"socket:\[(\d+)\]", target)):
                owners.setdefault(int(socket.group(1)), []).append(pid)
    return False


def _process(parts: list[str], more: dict[str, str], page: int, own: str | None) -> Process:
    pid, ppid, pgid, sid, start, rss = (int(part) for part in parts[:6])
    cgroup = _text(more.get("g", ""))
    container = container_id(cgroup)
    keeper = keeper_of(cgroup) if container is not None and container != own else None
    return Process(
        pid=pid,
        ppid=ppid,
        pgid=pgid,
        sid=sid,
        start_ticks=start,
        rss_bytes=rss * page,
        state=parts[6],
        comm=sanitize(parts[7]),
        argv=_argv(more.get("a", "")),
        uid=int(more["uid"]) if more.get("uid", "").isdecimal() else None,
        user=sanitize(more.get("user", "")),
        cwd=more.get("kcwd", ""),
        exe=more.get("kexe", ""),
        stdin=more.get("k0", ""),
        stdout=more.get("k1", ""),
        stderr=more.get("k2", ""),
        stdout_kind=_kind(more, "1"),
        stderr_kind=_kind(more, "2"),
        container=None if container == own else container,
        runtime=keeper.kind if keeper is not None else "",
    )


def _kind(more: dict[str, str], descriptor: str) -> str:
    kind = more.get(f"t{descriptor}", "")
    # The shell version cannot count hard links; the kernel appends this to the name of a removed file.
    return "deleted" if kind in ("file", "foreign") and more.get(f"k{descriptor}", "").endswith(" (deleted)") else kind


def _bytes(field: str) -> bytes:
    try:
        return bytes.fromhex(field)
    except ValueError:
        return b""


def _safe(raw: bytes) -> str:
    return "\n".join(sanitize(part) for part in raw.decode("utf-8", "replace").split("\n"))


def _text(field: str) -> str:
    return _safe(_bytes(field))


def _argv(field: str) -> tuple[str, ...]:
    raw = _bytes(field)
    if not raw:
        return ()
    words = raw.removesuffix(b"\0").split(b"\0")
    # A process that rewrote its title leaves the rest of its old command line as NUL bytes.
    if not any(words[1:]):
        words = words[:1]
    return tuple(_safe(word) for word in words)


def _address(family: str, where: str) -> tuple[str, int]:
    """`0100007F:1F90` as ("127.0.0.1", 8080): each 32-bit group is in the host's byte order (little endian)."""
    raw, _, port = where.partition(":")
    packed = b"".join(bytes.fromhex(raw[i : i + 8])[::-1] for i in range(0, len(raw), 8))
    address = ipaddress.IPv6Address(packed) if family == "6" else ipaddress.IPv4Address(packed)
    return str(address), int(port, 16)


_CONTAINER = re.compile(r"(?:docker|libpod|crio|cri-containerd|containerd|lxc|kubepods|podman)\S*?[/:-]([0-9a-f]{64})")


def container_id(cgroup: str) -> str | None:
    """The short (12 digits) id of the container that a /proc/PID/cgroup text names, None outside containers."""
    found = _CONTAINER.search(cgroup)
    return found.group(1)[:12] if found else None
