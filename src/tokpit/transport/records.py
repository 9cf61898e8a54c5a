"""What tokpit writes on a host besides launches: records of adopted servers, and lines of an audit that only grows."""

from __future__ import annotations

import shlex

import msgspec

from tokpit.domain.settings import LaunchState
from tokpit.errors import StopError
from tokpit.transport.base import Host
from tokpit.transport.detached import STATE_DIR

AUDIT_FILE = "${XDG_STATE_HOME:-$HOME/.local/state}/tokpit/audit.log"
_LONGEST_LINE = 4000

# The record is written only if the process is still the very one, in the same shell that looked.
_RECORD = """\
{{ read -r l <"/proc/{pid}/stat"; }} 2>/dev/null || exit 10
set -- ${{l##*) }}
[ "${{20}}" = {ticks} ] || exit 11
boot=
if [ -r /proc/sys/kernel/random/boot_id ]; then read -r boot < /proc/sys/kernel/random/boot_id; fi
umask 077
states="{states}"
mkdir -p -- "$states" || exit 3
file=$states/{pid}-{ticks}.json
printf '%s,"boot_id":"%s"}}\\n' {head} "$boot" > "$file.part" && mv -f -- "$file.part" "$file" || exit 5
cat "$file"
"""


async def record_state(host: Host, state: LaunchState) -> LaunchState:
    """Write a record for a process that runs already; gives it back with the host's boot id.

    Raises StopError where the process is gone or another one, RemoteFailed where the folder cannot be written.
    """
    page = {key: value for key, value in msgspec.to_builtins(state).items() if key != "boot_id"}
    script = _RECORD.format(
        pid=f"{state.pid:d}",
        ticks=f"{state.start_ticks:d}",
        states=STATE_DIR,
        head=shlex.quote(msgspec.json.encode(page).decode()[:-1]),
    )
    done = await host.run(script)
    if done.status in (10, 11):
        what = "is gone" if done.status == 10 else "is another process now"
        raise StopError(f"{host.name}: pid {state.pid} {what}; nothing was recorded")
    if done.status != 0:
        done = await host.run(script, check=True)
    return msgspec.json.decode(done.stdout, type=LaunchState)


async def append_audit(host: Host, line: str) -> None:
    """Add one line to the host's own audit. Raises RemoteFailed where it cannot be written."""
    text = " ".join(line.split())[:_LONGEST_LINE]
    await host.run(
        f'umask 077\nfile="{AUDIT_FILE}"\nmkdir -p -- "$(dirname -- "$file")" && '
        f"printf '%s\\n' {shlex.quote(text)} >> \"$file\"",
        check=True,
    )


async def read_audit(host: Host, limit: int = 100) -> tuple[str, ...]:
    """The newest lines of the host's own audit, oldest first. Raises HostError."""
    from tokpit.domain.text import decode_line

    done = await host.run(f'tail -n {limit:d} -- "{AUDIT_FILE}" 2>/dev/null || :')
    return tuple(decode_line(line) for line in done.stdout.splitlines())
