"""Everything that belongs to a server: its group, its session, its descendants wherever they moved, what they hold.

A process is named by its pid and its start time in clock ticks (proc(5), field 22): pids are used again, the pair is
not. What was recorded before a stop is what must be gone after it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tokpit.domain.text import sanitize
from tokpit.probes.sections import mark, sections

_SHM = "/dev/shm"  # noqa: S108 - named to be read, nothing is written there


class Member(msgspec.Struct, frozen=True):
    """One process of a server's family."""

    pid: int
    start_ticks: int
    ppid: int = 0
    pgid: int = 0
    sid: int = 0
    state: str = ""


class SharedFile(msgspec.Struct, frozen=True):
    """A file in /dev/shm that the family has mapped or open."""

    path: str
    size_bytes: int | None = None


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of a server at one moment. `cgroup`: lines of /proc/PID/cgroup of its main process."""

    members: tuple[Member, ...] = ()
    cgroup: str = ""

    @property
    def pids(self) -> tuple[int, ...]:
        """The members' pids."""
        return tuple(member.pid for member in self.members)

    def outside(self, pgid: int) -> tuple[Member, ...]:
        """Members that are not in that process group."""
        return tuple(member for member in self.members if member.pgid != pgid)


# One `cat` for all processes; the name in brackets may hold spaces and brackets, so the last `) ` ends it.
_READ = r"""cat /proc/[0-9]*/stat 2>/dev/null | awk -v root=%d '{
  line = $0; at = 0
  while ((i = index(substr(line, at + 1), ") ")) > 0) at += i
  if (!at) next
  split(substr(line, at + 2), f, " ")
  pid = substr(line, 1, index(line, " ") - 1)
  row = pid " " f[2] " " f[3] " " f[4] " " f[20] " " f[1]
"""
_ALL = _READ + "  print row }'"
_OWN = (
    _READ
    + r"""  rows[pid] = row; parent[pid] = f[2]
  if (pid == root || f[3] == root || f[4] == root) own[pid]
} END {
  do { more = 0; for (p in parent) if (!(p in own) && parent[p] in own) { own[p]; more = 1 } } while (more)
  for (p in own) print rows[p] }'"""
)


def family_script(pid: int, *, alone: bool = False) -> str:
    """POSIX sh that prints every process of the host in short, and the control groups of `pid`.

    `alone`: only its own group and session and the descendants of all these, for who asks again and again.
    """
    table = (_OWN if alone else _ALL) % pid
    return f"{mark('stat')}\n{table}\n{mark('cgroup')}\ncat /proc/{pid:d}/cgroup 2>/dev/null\n{mark('end')}\n"


def parse_processes(text: str) -> dict[int, Member]:
    """All processes by pid; lines of another shape are passed over."""
    found: dict[int, Member] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 6 and all(word.lstrip("-").isdecimal() for word in words[:5]):
            pid, ppid, pgid, sid, ticks = map(int, words[:5])
            found[pid] = Member(pid, ticks, ppid, pgid, sid, words[5])
    return found


def parse_family(output: str, pid: int, start_ticks: int, pgid: int) -> Family:
    """The family of a server: its descendants, and its group and session where it leads them.

    Empty where the process is gone or is another one. Zombies are gone.
    """
    parts = sections(output)
    table = {key: member for key, member in parse_processes(parts.get("stat", "")).items() if member.state not in "ZX"}
    main = table.get(pid)
    if main is None or main.start_ticks != start_ticks:
        return Family()
    roots = {pid}
    if pgid == pid:
        roots |= {member.pid for member in table.values() if member.pgid == pid}
    if main.sid == pid:
        roots |= {member.pid for member in table.values() if member.sid == pid}
    found = _with_descendants(table, roots)
    members = tuple(table[key] for key in sorted(found))
    return Family(members=members, cgroup=parts.get("cgroup", "").strip())


def tree_of(output: str, pids: Iterable[int]) -> Family:
    """These processes (as far as they live) and their descendants, from the output of `family_script`."""
    table = {k: m for k, m in parse_processes(sections(output).get("stat", "")).items() if m.state not in "ZX"}
    found = _with_descendants(table, {pid for pid in pids if pid in table})
    return Family(members=tuple(table[key] for key in sorted(found)))


def survivors_of(output: str, pid: int, start_ticks: int, pgid: int, seen: Mapping[int, int]) -> Family:
    """What outlived a process that is gone, from the output of `family_script`.

    `seen`: pid and start time of what was in its family before. Besides these: its group and session, where it led
    them, for their number is given to nobody else while a member lives; and the descendants of all.
    """
    table = {key: member for key, member in parse_processes(sections(output).get("stat", "")).items()
             if member.state not in "ZX"}  # fmt: skip
    roots = {key for key, ticks in seen.items() if key in table and table[key].start_ticks == ticks}
    if pgid == pid and pid not in table:
        roots |= {
            member.pid
            for member in table.values()
            if pid in (member.pgid, member.sid) and member.start_ticks >= start_ticks
        }
    found = _with_descendants(table, roots)
    return Family(members=tuple(table[key] for key in sorted(found)))


def _with_descendants(table: dict[int, Member], roots: set[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for member in table.values():
        children.setdefault(member.ppid, []).append(member.pid)
    found: set[int] = set()
    todo = list(roots)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, ())
    return found


def alive_script(members: Sequence[Member]) -> str:
    """POSIX sh that prints the pid of each of these very processes that still lives (zombies do not)."""
    pairs = " ".join(f"{member.pid:d}:{member.start_ticks:d}" for member in members)
    return (
        f"for pair in {pairs}; do\n"
        "  p=${pair%:*}\n"
        '  { read -r s <"/proc/$p/stat"; } 2>/dev/null || continue\n'
        "  set -- ${s##*) }\n"
        '  case $1 in Z|X) continue;; esac\n  [ "${20}" = "${pair#*:}" ] && echo "$p"\n'
        "done\nexit 0\n"
    )


def parse_alive(output: str, members: Sequence[Member]) -> tuple[Member, ...]:
    """Those of `members` that the output of `alive_script` names."""
    alive = {int(word) for word in output.split() if word.isdecimal()}
    return tuple(member for member in members if member.pid in alive)


def kill_script(members: Sequence[Member], sig: str) -> str:
    """POSIX sh that signals each of these very processes, verified in the same shell, and prints those it signalled.

    Never signals the processes that the script itself descends from.
    """
    pairs = " ".join(f"{member.pid:d}:{member.start_ticks:d}" for member in members if member.pid > 1)
    return (
        "own=' '\nup=$$\n"
        'while [ "$up" -gt 1 ] && { read -r s <"/proc/$up/stat"; } 2>/dev/null; do\n'
        '  own="$own$up "; set -- ${s##*) }; up=$2\ndone\n'
        f"for pair in {pairs}; do\n"
        "  p=${pair%:*}\n"
        '  case $own in *" $p "*) continue;; esac\n'
        '  { read -r s <"/proc/$p/stat"; } 2>/dev/null || continue\n'
        "  set -- ${s##*) }\n"
        f'  [ "${{20}}" = "${{pair#*:}}" ] && kill -{sig} "$p" && echo "$p"\n'
        "done\nexit 0\n"
    )


def shm_script(pids: Sequence[int]) -> str:
    """POSIX sh that prints the files in /dev/shm which these processes have mapped or open, with their sizes."""
    listed = " ".join(str(int(pid)) for pid in pids)
    return (
        f"for p in {listed}; do\n"
        f'  sed -n "s,^.* \\({_SHM}/.*\\)$,\\1,p" "/proc/$p/maps" 2>/dev/null\n'
        f'  ls -l "/proc/$p/fd" 2>/dev/null | sed -n "s,^.* -> \\({_SHM}/.*\\)$,\\1,p"\n'
        'done | sort -u | while IFS= read -r f; do [ -e "$f" ] && '
        'printf "%s %s\\n" "$(wc -c <"$f" | tr -d " ")" "$f"; done\nexit 0\n'
    )


def leftover_script(paths: Sequence[str]) -> str:
    """POSIX sh that prints which of these files still exist, with their sizes."""
    return (
        f"for f in {shlex.join(paths)}; do "
        '[ -e "$f" ] && printf "%s %s\\n" "$(wc -c <"$f" | tr -d " ")" "$f"; done\nexit 0\n'
    )


# Only what lies in the folder itself: people keep models in folders of their own below it.
_FREE = rf"""
[ -f "$since" ] || exit 0
held=$({{ grep -o '{_SHM}/.*' /dev/null /proc/[0-9]*/maps; ls -l /proc/[0-9]*/fd; }} 2>/dev/null | awk -v but="$but" '
  {{ split($0, part, "/"); file = "" }}
  /^\/proc\/[0-9]+\/fd:$/ {{ at = part[3]; next }}
  /^\/proc\/[0-9]+\/maps:/ {{ pid = part[3]; file = substr($0, index($0, ":") + 1) }}
  / -> \/dev\/shm\// {{ pid = at; file = substr($0, index($0, " -> ") + 4) }}
  file != "" && index(but, " " pid " ") == 0 {{ print file }}' | sort -u)
for f in "$@"; do
  case ${{f#{_SHM}/}} in */*) continue;; esac
  [ -n "$(find "$f" -type f -user "$(id -u)" -newer "$since" 2>/dev/null)" ] || continue
  printf '%s\n' "$held" | grep -Fqx -e "$f" && continue
  size=$(wc -c <"$f" | tr -d " ")
"""


def free_shm_script(paths: Sequence[str], since: str, *, but: Sequence[int] = (), remove: bool = False) -> str:
    """POSIX sh that prints which of these files in /dev/shm are the login's, newer than a file, and held by nobody.

    `since`: that file as a shell word; where it is not there, nothing is printed. `but`: processes that do not count.
    `remove`: removes what it prints.
    """
    pids = " ".join(str(int(pid)) for pid in but)
    return (
        f'since={since}\nbut=" {pids} "\nset -- {shlex.join(paths)}\n{_FREE}'
        f"""  {'rm -f -- "$f" && ' if remove else ""}printf '%s %s\\n' "$size" "$f"\ndone\nexit 0\n"""
    )


def titles_script(pids: Sequence[int]) -> str:
    """POSIX sh that prints a line a process: its pid and its command line, words apart by a space."""
    listed = " ".join(str(int(pid)) for pid in pids)
    return (
        f"for p in {listed}; do t=$(tr '\\000\\n' '  ' <\"/proc/$p/cmdline\" 2>/dev/null) && "
        'printf "%s %s\\n" "$p" "$t"; done\nexit 0\n'
    )


def parse_titles(output: str) -> dict[int, str]:
    """Command lines by pid, safe to show, secrets as they are."""
    found = {}
    for line in output.splitlines():
        pid, _, title = line.partition(" ")
        if pid.isdecimal():
            found[int(pid)] = sanitize(title).strip()
    return found


def parse_shm(output: str) -> tuple[SharedFile, ...]:
    """Files and sizes, as both scripts above print them; removed files are left out."""
    found = []
    for line in output.splitlines():
        match = re.fullmatch(r"(\d*) (/dev/shm/.+)", line)
        if match and not match[2].endswith(" (deleted)"):
            found.append(SharedFile(sanitize(match[2]), int(match[1]) if match[1] else None))
    return tuple(found)
