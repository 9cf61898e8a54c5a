"""How a POSIX script travels: one bootstrap line for any login shell, the script over stdin, markers around the noise.

sshd gives the command to the login shell (`bash -c`, `fish -c`, `tcsh -c` ...), whose rc files may print anything and
whose quoting differs. So the command is one fixed line that all of them read alike, and the script follows on stdin as
one line, which also keeps it out of process lists. The shell prints an unguessable marker on stdout and stderr before
the script starts; everything before the marker is rc noise.
"""

from __future__ import annotations

import secrets
import shlex

READ_AND_RUN = """IFS= read -r tokpit_s; eval "$(printf %b "$tokpit_s")\""""
BOOTSTRAP = f"exec /bin/sh -c '{READ_AND_RUN}'"

NOISE_LIMIT = 1 << 16

# The watchman sits in the script's own process group. It wakes when the channel is gone, asks the whole group to end
# and makes sure a second later. It is what keeps helpers from outliving the link: closing a channel kills nothing, and
# signals sent over SSH are ignored when logged in as root.
_END_GROUP = "( sleep 1; kill -KILL 0 ) & kill -TERM 0"
_WATCH_STDIN = f"( trap '' TERM HUP INT; IFS= read -r tokpit_w <&3; {_END_GROUP} ) </dev/null >/dev/null 2>&1 &"
# Where the script reads stdin itself, the end of the connection shows as the end of our parent process. The script may
# set an EXIT trap of its own, so its end is looked for as well.
_WATCH_PARENT = (
    "( trap '' TERM HUP INT; while kill -0 $PPID && kill -0 $$; do sleep 2; done; "
    f"{_END_GROUP} ) </dev/null >/dev/null 2>&1 &"
)


def new_marker() -> str:
    """A word that nobody who writes to the channel can know beforehand."""
    return "tokpit-" + secrets.token_hex(12)


def wrap(script: str, marker: str, *, reads_stdin: bool = False) -> bytes:
    """The bytes to send first on stdin so that `script` runs framed by `marker` and guarded by the watchman.

    Without `reads_stdin` the script's stdin is /dev/null, and ending the channel's stdin ends the script's process
    group. Raises ValueError for a script with a NUL byte.
    """
    if "\0" in script:
        raise ValueError("a shell script cannot hold a NUL byte")
    if reads_stdin:
        guard = _WATCH_PARENT + "\ntokpit_g=$!\n"
    else:
        guard = "exec 3<&0 </dev/null\n" + _WATCH_STDIN + "\ntokpit_g=$!\nexec 3<&-\n"
    body = (
        guard
        + "trap '{ kill -KILL $tokpit_g; wait $tokpit_g; } 2>/dev/null' EXIT\n"
        + f"printf '%s %s\\n' {marker} $$\n"
        + f"printf '%s\\n' {marker} >&2\n"
        + f"eval {shlex.quote(script)}\n"
    )
    return body.replace("\\", "\\\\").replace("\n", "\\n").encode("utf-8", "surrogateescape") + b"\n"


class Unframer:
    """Drops everything up to and including the marker line, then passes bytes through.

    `pid` is the number on the marker line: the script's process and process group. `noise` is what came before,
    at most NOISE_LIMIT bytes of it.
    """

    def __init__(self, marker: str) -> None:
        self.marker = marker
        self._marker = marker.encode()
        self._held = b""
        self.found = False
        self.pid: int | None = None

    @property
    def noise(self) -> bytes:
        """What came before the marker; everything that came if there was none."""
        return self._held

    def feed(self, data: bytes) -> bytes:
        """The part of `data` that belongs to the script."""
        if self.found:
            return data
        self._held += data
        at = self._held.find(self._marker)
        if at < 0:
            # Enough is kept to find a marker that is split over two chunks.
            self._held = self._held[-NOISE_LIMIT:]
            return b""
        end = self._held.find(b"\n", at)
        if end < 0:
            return b""
        self.found = True
        word = self._held[at + len(self._marker) : end].strip()
        self.pid = int(word) if word.isdigit() else None
        rest, self._held = self._held[end + 1 :], self._held[:at]
        return rest
