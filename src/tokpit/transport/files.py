"""Write a file on the host so that a reader sees the old one or the whole new one."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tokpit.domain.text import sanitize
from tokpit.errors import RemoteFailed
from tokpit.transport.base import Completed

if TYPE_CHECKING:
    from tokpit.transport.commands import ScriptHost

MIN_BYTES_PER_S = 200_000
"""A link slower than this is taken for a dead one."""

# The temporary file is in the same folder, because rename is atomic only within a file system. Its size is checked
# before the rename: a link that breaks in the middle ends the input early, which `cat` takes for its end.
_SCRIPT = """\
target={path}
case $target in '~/'*) target=$HOME/${{target#'~/'}} ;; esac
dir=$(dirname -- "$target")
umask 077
mkdir -p -- "$dir" || exit 1
if [ -d "$target" ]; then echo "$target is a directory" >&2; exit 1; fi
part=$dir/.tokpit-{word}.part
trap 'rm -f -- "$part"' EXIT
# Telling of the failure must not be what prevents the clean-up when nobody listens any more.
trap '' PIPE
trap 'exit 1' HUP INT TERM
cat > "$part" || exit 1
size=$(wc -c < "$part")
if [ "$size" -ne {size} ]; then echo "only $size of {size} bytes arrived" >&2; exit 1; fi
chmod {mode:o} -- "$part" && mv -f -- "$part" "$target"
"""


async def write_file(host: ScriptHost, path: str, data: bytes, *, mode: int = 0o600) -> None:
    """Write `data` to `path`; parents are created, `~/` is the remote home.

    Raises RemoteFailed with the remote reason (read-only, disk full), LinkLost.
    """
    from secrets import token_hex

    script = _SCRIPT.format(path=shlex.quote(path), word=token_hex(8), size=len(data), mode=mode)
    # An empty input would be /dev/null, which is empty too.
    done = await host.run(script, stdin=data, timeout_s=30.0 + len(data) / MIN_BYTES_PER_S)
    if done.status != 0:
        raise RemoteFailed(
            f"{host.name}: {path} could not be written: {_reason(done)}",
            status=done.status,
            hint="Choose a folder that can be written and has room.",
        )


def _reason(done: Completed) -> str:
    """The first complaint, without the shell's own prefix."""
    lines = [line.strip() for line in done.err.splitlines() if line.strip()]
    return sanitize(lines[0]) if lines else f"the command ended with status {done.status}."
