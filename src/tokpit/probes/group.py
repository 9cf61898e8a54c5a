"""One look at a process group and a port: is the process still itself, and whose is the listener?"""

from __future__ import annotations

import msgspec


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """`start_ticks`: field 22 of /proc/PID/stat, None if the process is gone or a zombie; `members`: pids."""

    start_ticks: int | None
    members: tuple[int, ...]
    listening: bool
    listener_pid: int | None
    parents: dict[int, int] = {}
    """Parent of each member."""

    @property
    def owns_port(self) -> bool:
        """Whether the listener of the port is a member of the group."""
        return self.listener_pid is not None and self.listener_pid in self.members

    def only_tree_of(self, pid: int) -> bool:
        """Whether every member is `pid` or descends from it, so that a signal to the group ends nothing else."""
        for member in self.members:
            seen: set[int] = set()
            while member != pid:
                if member in seen or member not in self.parents:
                    return False
                seen.add(member)
                member = self.parents[member]
        return True


_SCRIPT = r"""
pid=%(pid)d pgid=%(pgid)d port=%(port)d
if read -r s 2>/dev/null <"/proc/$pid/stat"; then
  set -- ${s##*) }; [ "$1" = Z ] || { shift 19; echo "ticks $1"; }
fi
members= pairs=
for d in /proc/[0-9]*; do
  read -r s 2>/dev/null <"$d/stat" || continue
  set -- ${s##*) }
  if [ "$3" = "$pgid" ] && [ "$1" != Z ]; then members="$members ${d#/proc/}"; pairs="$pairs ${d#/proc/}:$2"; fi
done
echo "members$pairs"
hex=$(printf '%%04X' "$port")
inodes=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | while read -r _ l _ st _ _ _ _ _ inode _; do
  [ "$st" = 0A ] && [ "${l##*:}" = "$hex" ] && echo "$inode"; done)
[ -z "$inodes" ] || echo listening
for inode in $inodes; do
  for p in $members; do
    if ls -l "/proc/$p/fd" 2>/dev/null | grep -q "socket:\[$inode\]"; then echo "listener $p"; break 2; fi
  done
  for d in /proc/[0-9]*; do
    if ls -l "$d/fd" 2>/dev/null | grep -q "socket:\[$inode\]"; then echo "listener ${d#/proc/}"; break 2; fi
  done
done
"""


def group_script(pid: int, pgid: int, port: int) -> str:
    """POSIX sh that prints what `parse_group` reads; `port` 0 asks for no listener."""
    return _SCRIPT % {"pid": pid, "pgid": pgid, "port": port}


def parse_group(text: str) -> GroupState:
    """The answer of `group_script`; lines that are not its own are ignored."""
    ticks: int | None = None
    parents: dict[int, int] = {}
    listening = False
    listener: int | None = None
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "ticks" and rest.isdigit():
            ticks = int(rest)
        elif word == "members":
            for pair in rest.split():
                member, _, parent = pair.partition(":")
                if member.isdigit() and parent.isdigit():
                    parents[int(member)] = int(parent)
        elif word == "listening":
            listening = True
        elif word == "listener" and rest.isdigit():
            listener = int(rest)
    return GroupState(
        start_ticks=ticks, members=tuple(parents), listening=listening, listener_pid=listener, parents=parents
    )
