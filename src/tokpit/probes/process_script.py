"""The script that reads /proc: python3 where the host has one, plain sh with awk and od elsewhere.

Formats: proc(5); /proc/net/tcp: kernel documentation networking/proc_net_tcp. Another root than /proc can be given in
the environment variable TOKPIT_PROC.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokpit.probes.sections import mark

# Lines, fields separated by one space, byte strings in hexadecimal ("-": unreadable, ".": empty):
#   b key value                      boot time, clock ticks, page size, boot id, UTC now, the script's own cgroup
#   p pid ppid pgid sid start rss_pages state comm
#   u pid uid user | a pid cmdline | k pid cwd|exe|0|1|2 target | t pid 1|2 kind | g pid cgroup
#   l family address:port inode      listening sockets | o inode pid: who holds one
_PYTHON = r"""
import os, stat, sys, time
MARK = "tokpit-proc"
R = os.environ.get("TOKPIT_PROC") or "/proc"
W = [w.encode() for w in sys.argv[1:]]
out = []
def rd(p):
    try:
        with open(p, "rb") as f:
            return f.read()
    except OSError:
        return None
def ln(p):
    try:
        return os.fsencode(os.readlink(p))
    except OSError:
        return None
def hx(b):
    return "-" if b is None else b.hex() or "."
def put(*a):
    out.append(" ".join(map(str, a)).encode())
for line in (rd(R + "/stat") or b"").splitlines():
    if line.startswith(b"btime"):
        put("b", "btime", line.split()[1].decode())
put("b", "ticks", os.sysconf("SC_CLK_TCK"))
put("b", "page", os.sysconf("SC_PAGE_SIZE"))
put("b", "now", repr(time.time()))
put("b", "cgroup", hx(rd(R + "/self/cgroup")))
put("b", "boot", (rd(R + "/sys/kernel/random/boot_id") or b"").decode().strip())
row, cmd, kids, dear, total = {}, {}, {}, [], 0
for name in os.listdir(R):
    if not name.isdigit():
        continue
    raw = rd(R + "/" + name + "/stat")
    if raw is None:
        continue
    total += 1
    i, j = raw.find(b"("), raw.rfind(b")")
    f = raw[j + 2:].split()
    if len(f) < 22:
        continue
    pid, ppid, comm = int(name), int(f[1]), raw[i + 1:j]
    row[pid] = (ppid, f[2], f[3], f[19], f[21], f[0], comm)
    kids.setdefault(ppid, []).append(pid)
    if int(f[6]) & 0x200000:  # PF_KTHREAD: a thread of the kernel
        continue
    line = rd(R + "/" + name + "/cmdline")
    if not line or MARK.encode() in line:
        continue
    low = line.lower()
    if any(w in low for w in W) or comm == b"tee":
        cmd[pid] = line
        dear.append(pid)
put("b", "total", total)
show, todo = set(), list(dear)
while todo:
    pid = todo.pop()
    if pid not in show and pid in row:
        show.add(pid)
        todo += kids.get(pid, [])
for pid in list(show):
    up = row[pid][0]
    while up in row and up not in show:
        show.add(up)
        up = row[up][0]
for pid in sorted(show):
    ppid, pgid, sid, start, rss, state, comm = row[pid]
    out.append(b"p %d %d %s %s %s %s %s %s" % (pid, ppid, pgid, sid, start, rss, state, comm.replace(b"\n", b"?")))
users = {}
def user(uid):
    if uid not in users:
        try:
            import pwd
            users[uid] = pwd.getpwuid(uid).pw_name
        except (ImportError, KeyError):
            users[uid] = str(uid)
    return users[uid]
for pid in dear:
    d = R + "/" + str(pid)
    put("a", pid, hx(cmd[pid]))
    for line in (rd(d + "/status") or b"").splitlines():
        if line.startswith(b"Uid:"):
            uid = int(line.split()[1])
            put("u", pid, uid, user(uid))
    for key, path in (("cwd", "/cwd"), ("exe", "/exe"), ("0", "/fd/0"), ("1", "/fd/1"), ("2", "/fd/2")):
        target = ln(d + path)
        put("k", pid, key, hx(target))
        if key in "12" and target is not None and target.startswith(b"/"):
            try:
                st = os.stat(d + path)
            except OSError:
                continue
            if not stat.S_ISREG(st.st_mode):
                continue
            kind = "deleted" if st.st_nlink == 0 else "foreign"
            try:
                there = os.stat(target)
                if (there.st_dev, there.st_ino) == (st.st_dev, st.st_ino):
                    kind = "file"
            except OSError:
                pass
            put("t", pid, key, kind)
    put("g", pid, hx(rd(d + "/cgroup")))
inodes = set()
for fam in ("4", "6"):
    for line in (rd(R + "/net/tcp" + ("6" if fam == "6" else "")) or b"").splitlines()[1:]:
        f = line.split()
        if len(f) > 9 and f[3] == b"0A":
            put("l", fam, f[1].decode(), f[9].decode())
            inodes.add(b"socket:[" + f[9] + b"]")
held = set()
for pid in sorted(show) if inodes else ():
    try:
        fds = os.listdir(R + "/" + str(pid) + "/fd")
    except OSError:
        continue
    for fd in fds:
        target = ln(R + "/" + str(pid) + "/fd/" + fd)
        if target in inodes and (target, pid) not in held:
            held.add((target, pid))
            put("o", target[8:-1].decode(), pid)
out.append(b"e")
sys.stdout.buffer.write(b"\n".join(out) + b"\n")
"""

_SHELL = r"""
R=${TOKPIT_PROC:-/proc}
while read -r k v _; do [ "$k" = btime ] && echo "b btime $v"; done <"$R/stat"
echo "b ticks $(getconf CLK_TCK 2>/dev/null || echo 100)"
echo "b page $(getconf PAGESIZE 2>/dev/null || echo 4096)"
echo "b now $(date +%s)"
read -r boot 2>/dev/null <"$R/sys/kernel/random/boot_id" && echo "b boot $boot"
cat "$R"/[0-9]*/stat 2>/dev/null | awk '{
  n++; line = $0; from = 1
  while ((i = index(substr(line, from), ") ")) > 0) { from += i + 1; close_at = from - 2 }
  open_at = index(line, "("); comm = substr(line, open_at + 1, close_at - open_at - 1)
  split(substr(line, close_at + 2), f, " ")
  print "p", substr(line, 1, open_at - 2), f[2], f[3], f[4], f[20], f[22], f[1], comm; close_at = 0
} END { print "b total", n }'
hex() { od -An -v -tx1 2>/dev/null | tr -d ' \n'; }
echo "b cgroup $({ hex <"$R/self/cgroup"; } 2>/dev/null)"
links=
# head names each file before its bytes: one process reads all command lines, and none is started for each of them.
for p in $(head -c 4096 "$R"/[0-9]*/cmdline 2>/dev/null | tr '\000' ' ' | awk '
  function tell() { if (hit && !own) print pid; hit = 0; own = 0 }
  /^==> .*\/cmdline <==$/ { tell(); n = split($2, part, "/"); pid = part[n - 1]; first = 1; next }
  { low = tolower($0)
    if (low ~ /@WORDS@/ || (first && $0 ~ /^([^ ]*\/)?tee /)) hit = 1
    if (index($0, "tokpit-proc")) own = 1
    first = 0 }
  END { tell() }'); do
  d=$R/$p
  echo "a $p $({ hex <"$d/cmdline"; } 2>/dev/null)"
  uid=
  { while read -r k v _; do case $k in Uid:) uid=$v; break ;; esac; done <"$d/status"; } 2>/dev/null
  user=$(awk -F: -v u="$uid" '$3 == u { print $1; exit }' /etc/passwd 2>/dev/null)
  [ -n "$uid" ] && echo "u $p $uid ${user:-$(id -nu "$uid" 2>/dev/null || echo "$uid")}"
  for n in 1 2; do
    [ -f "$d/fd/$n" ] || continue
    [ "$d/fd/$n" -ef "$(readlink "$d/fd/$n")" ] && echo "t $p $n file" || echo "t $p $n foreign"
  done 2>/dev/null
  echo "g $p $({ hex <"$d/cgroup"; } 2>/dev/null)"
  links="$links $d/cwd $d/exe $d/fd"
done
for f in 4 6; do
  n="$R/net/tcp"; [ $f = 6 ] && n="$R/net/tcp6"
  [ -r "$n" ] && awk -v f=$f 'NR > 1 && $4 == "0A" { print "l", f, $2, $10 }' "$n"
done
[ -n "$links" ] && { echo "e links"; LC_ALL=C ls -ln $links 2>/dev/null; }
echo e
"""


def script(words: Sequence[str]) -> str:
    """The script; `words` (lower case letters and digits) are looked for in command lines, in any case."""
    shell = _SHELL.replace("@WORDS@", "|".join(words))
    return (
        f"code='{_PYTHON}'\n{mark('processes')}\n"
        f'if python3 -I -S -c "$code" {" ".join(words)} 2>/dev/null; then :; else\n{mark("processes")}\n{shell}fi\n'
    )
