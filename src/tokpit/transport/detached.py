"""Servers that outlive the connection: start in a session of their own, write down who they are, signal them safely.

A process is known by its id *and* its start time in clock ticks since boot (field 22 of /proc/PID/stat, proc(5)): ids
are used again, the pair is not. All checks are made in the same remote shell as the kill that relies on them.
"""

from __future__ import annotations

import re
import shlex
import signal as signals
from collections.abc import Mapping, Sequence

import msgspec

from tokpit.domain.settings import LaunchState
from tokpit.domain.text import decode_line
from tokpit.errors import EndedAtOnce, LaunchError, RemoteFailed, StopError, UsageError
from tokpit.store.masking import masked
from tokpit.transport.base import Host
from tokpit.transport.methods import Container, start_lines

STATE_DIR = "${XDG_STATE_HOME:-$HOME/.local/state}/tokpit/launches"

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_START = """\
log={log}
case $log in '~/'*) log=$HOME/${{log#'~/'}} ;; esac
states={states}
cwd={cwd}
case $cwd in '~/'*) cwd=$HOME/${{cwd#'~/'}} ;; '~') cwd=$HOME ;; esac
mkdir -p -- "$(dirname -- "$log")" || exit 3
(umask 077; mkdir -p -- "$states") || exit 3
: >> "$log" || exit 3
if [ -n "$cwd" ]; then cd -- "$cwd" || exit 3; fi
case $log in /*) ;; *) log=$PWD/$log ;; esac
TOKPIT_WHO=$states/.who-$$
export TOKPIT_WHO
{start}n=0
while [ ! -s "$TOKPIT_WHO" ]; do
  n=$((n + 1))
  if [ "$n" -gt 100 ]; then echo "the process did not start" >&2; tail -n 1 "$log" >&2
    rm -f -- "${{run:-$TOKPIT_WHO}}"; exit 4; fi
  sleep 0.1 2>/dev/null || sleep 1
done
read -r pid pgid ticks < "$TOKPIT_WHO"
{after}boot=
if [ -r /proc/sys/kernel/random/boot_id ]; then read -r boot < /proc/sys/kernel/random/boot_id; fi
umask 077
file=$states/$pid-$ticks.json
{{
  printf '%s' {head}
  printf ',"pid":%s,"pgid":%s,"start_ticks":%s,"boot_id":"%s","started_at":%s}}\\n' \\
    "$pid" "$pgid" "$ticks" "$boot" "$(date +%s)"
}} > "$file.part" || {{ rm -f -- "$TOKPIT_WHO"; exit 5; }}
touch -r "$TOKPIT_WHO" "$file.part" 2>/dev/null  # older than all that the server makes
rm -f -- "$TOKPIT_WHO"
mv -f -- "$file.part" "$file" || exit 5
cat "$file"
"""

# Exit status 10: gone; 11: another process; 12: a group that must not be signalled; 13: rebooted since.
_STAT = """\
facts() { l=$(cat "/proc/$1/stat" 2>/dev/null) || return 1; set -- ${l##*) }; st=$1 pp=$2 pg=$3 tk=${20}; }
# The same without a process per look; a name with a line break in it is passed over.
glance() { { read -r l < "/proc/$1/stat"; } 2>/dev/null || return 1; set -- ${l##*) }; st=$1 pg=$3 tk=${20}; }
"""
_VERIFY = """\
pid={pid} pgid={pgid} ticks={ticks} boot={boot}
if [ "$pgid" -le 1 ] || [ "$pid" -le 1 ]; then exit 12; fi
if [ -n "$boot" ] && [ -r /proc/sys/kernel/random/boot_id ]; then
  read -r now < /proc/sys/kernel/random/boot_id
  if [ "$now" != "$boot" ]; then exit 13; fi
fi
up=$$
while [ "$up" -gt 1 ] && facts "$up"; do
  if [ "$pg" = "$pgid" ]; then exit 12; fi
  up=$pp
done
"""
_KILL = (
    _VERIFY
    + """\
leader=
if facts "$pid"; then
  if [ "$tk" != "$ticks" ] || [ "$pg" != "$pgid" ]; then exit 11; fi
  case $st in Z|X) ;; *) leader=1 ;; esac
fi
if [ -z "$leader" ]; then
  if [ {orphans} = 0 ] || ! kill -0 "-$pgid" 2>/dev/null; then exit 10; fi
  alive=
  for dir in /proc/[0-9]*; do
    glance "${{dir#/proc/}}" || continue
    if [ "$pg" != "$pgid" ]; then continue; fi
    if [ "$tk" -lt "$ticks" ]; then exit 11; fi
    case $st in Z|X) ;; *) alive=1 ;; esac
  done
  if [ -z "$alive" ]; then exit 10; fi
fi
kill -{sig} "-$pgid"
"""
)


async def start_detached(
    host: Host,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    log_path: str,
    state_dir: str | None = None,
    engine: str = "",
    port: int = 0,
    by: str = "",
    method: str = "setsid",
    handle: str = "",
    container: Container | None = None,
    more: Mapping[str, object] | None = None,
) -> LaunchState:
    """Start `argv` on the host so that it survives the connection, and record it there.

    `method` is one of `methods.METHODS`; `handle` names the unit, tmux session or container. stdout and stderr are
    appended to `log_path` (parents created, `~/` is the remote home). Values of `env` are on no command line and in no
    file (by systemd and tmux: in one that the started shell removes before anything else). That it lives on is checked
    over a second channel after the first is closed. Raises LaunchError if the process did not start, EndedAtOnce if it
    was gone at once, RemoteFailed if folders cannot be written, UsageError for a name in `env` that is no environment
    variable.
    """
    if not argv:
        raise UsageError("There is no command to start.")
    env = env or {}
    for name in env:
        if not _ENV_NAME.match(name):
            raise UsageError(f"{name!r} is no name of an environment variable.")
    known = {
        "version": 1,
        "engine": engine,
        "argv": masked(list(argv)),  # a copy on disk must not hold its keys
        "log_path": log_path,
        "port": port,
        "method": method,
        "handle": handle,
        "by": by,
        "env_names": sorted(env),
        **(more or {}),
    }
    start, after = start_lines(argv, env, method, handle, container)
    script = _START.format(
        log=shlex.quote(log_path),
        states=_folder(state_dir),
        cwd=shlex.quote(cwd or ""),
        start=start,
        after=after,
        head=shlex.quote(msgspec.json.encode(known).decode()[:-1]),
    )
    done = await host.run(script, timeout_s=60.0)
    if done.status != 0:
        lines = [line for line in done.err.splitlines() if line.strip()]
        said = decode_line(lines[0].encode()) if lines else f"status {done.status}"
        if done.status == 3:
            raise RemoteFailed(f"{host.name}: the start was not prepared: {said}", status=3)
        raise LaunchError(f"{host.name}: {argv[0]} was not started: {said}", hint=f"See {log_path}.")
    state = msgspec.structs.replace(msgspec.json.decode(done.stdout, type=LaunchState), argv=tuple(argv))
    if not await process_alive(host, state.pid, state.start_ticks):
        tail = await host.run(f"tail -n 1 -- {_home(log_path)}")
        said = decode_line(tail.stdout.strip()) or "it wrote nothing"
        await remove_state(host, state, state_dir=state_dir)
        raise EndedAtOnce(
            f"{host.name}: {argv[0]} ended at once: {said}",
            pid=state.pid, pgid=state.pgid, start_ticks=state.start_ticks, hint=f"See {log_path}.",
        )  # fmt: skip
    return state


async def process_alive(host: Host, pid: int, start_ticks: int) -> bool:
    """Whether this very process (id and start time) exists and is no zombie."""
    script = _STAT + f'facts {pid:d} || exit 10\n[ "$tk" = {start_ticks:d} ] || exit 10\n'
    script += "case $st in Z|X) exit 10;; esac\n"
    done = await host.run(script)
    if done.status not in (0, 10):
        raise RemoteFailed(f"{host.name}: process {pid} could not be looked up: {done.err.strip()}", status=done.status)
    return done.status == 0


async def signal_group(
    host: Host, state: LaunchState | tuple[int, int, int], sig: int | str, *, orphans: bool = False
) -> bool:
    """Send a signal to the process group of a recorded process (pid, pgid, start_ticks); False: it is gone.

    The process is verified in the shell that signals. With `orphans`, workers left behind by an ended leader are
    signalled too, if none of them is older than the leader was. Raises StopError if the process is another one, or if
    the group is this connection's own or the system's.
    """
    if isinstance(state, LaunchState):
        pid, pgid, ticks, boot = state.pid, state.pgid, state.start_ticks, state.boot_id
    else:
        (pid, pgid, ticks), boot = state, ""
    name = _signal_name(sig)
    script = _STAT + _KILL.format(
        pid=f"{pid:d}", pgid=f"{pgid:d}", ticks=f"{ticks:d}", boot=shlex.quote(boot), sig=name, orphans=int(orphans)
    )
    done = await host.run(script)
    if done.status == 0:
        return True
    if done.status in (10, 13):
        return False
    if done.status == 11:
        raise StopError(
            f"{host.name}: process {pid} is not the recorded one; nothing was signalled.",
            hint="It ended, and its number is used by another process.",
        )
    if done.status == 12:
        raise StopError(f"{host.name}: process group {pgid} belongs to the system or to this connection.")
    raise StopError(f"{host.name}: SIG{name} was not delivered: {decode_line(done.stderr.strip())}")


async def read_states(host: Host, *, state_dir: str | None = None) -> list[LaunchState]:
    """The launches recorded on the host, oldest first; files that are not readable as such are left out."""
    script = (
        f"states={_folder(state_dir)}\n"
        'for file in "$states"/*.json; do\n  [ -f "$file" ] || continue\n  cat "$file"; echo\ndone\n'
    )
    done = await host.run(script)
    found = []
    for line in done.stdout.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=LaunchState))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return sorted(found, key=lambda state: (state.started_at, state.pid))


async def remove_state(host: Host, state: LaunchState, *, state_dir: str | None = None) -> None:
    """Forget a recorded launch; the process is not touched. Raises RemoteFailed."""
    script = f'states={_folder(state_dir)}\nrm -f -- "$states/{state.pid:d}-{state.start_ticks:d}.json"'
    await host.run(script, check=True)


def state_word(pid: int, start_ticks: int) -> str:
    """The path of a launch's record as a shell word."""
    return f'"{STATE_DIR}/{pid:d}-{start_ticks:d}.json"'


def _folder(state_dir: str | None) -> str:
    return f'"{STATE_DIR}"' if state_dir is None else _home(state_dir)


def _home(path: str) -> str:
    """A path as a shell word; `~/` is the remote home."""
    return '"$HOME"/' + shlex.quote(path[2:]) if path.startswith("~/") else shlex.quote(path)


def _signal_name(sig: int | str) -> str:
    try:
        if isinstance(sig, str):
            return signals.Signals["SIG" + sig.upper().removeprefix("SIG")].name[3:]
        return signals.Signals(sig).name[3:]
    except (KeyError, ValueError):
        raise UsageError(f"{sig!r} is no signal.") from None
