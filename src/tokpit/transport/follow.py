"""Follow a file by byte offset: every byte once, across truncation, rotation and a broken link.

`tail -F` cannot be used for this: it tells of a truncation on stderr, unordered with the bytes on stdout, so the
position after it would be a guess; busybox lacks parts of it. The loop below keeps the file open and copies what is
new, so rotation is seen as another file behind the name, truncation as a size below the position. Only such changes
put a line into the stream, behind a word that no log can hold by chance.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from tokpit.errors import LinkLost
from tokpit.transport.script import new_marker

if TYPE_CHECKING:
    from tokpit.transport.commands import ScriptHost

RESTART_S = 1.0
LOST_PAUSE_S = 0.1

# Sizes and positions come from stat and /proc, copying is done by cat on the open descriptor. The pause grows from
# 0.2 to 1 s while nothing is written.
_SCRIPT = """\
path={path}
case $path in '~/'*) path=$HOME/${{path#'~/'}} ;; esac
word={word} want={want} at={at} once={once}
say() {{ printf '%s %s %s %s\\n' "$word" "$1" "$2" "$3"; }}
pos() {{ while read -r k v; do case $k in pos:) here=$v; return;; esac; done < /proc/$$/fdinfo/4; }}
nap() {{ sleep "$1" 2>/dev/null || sleep 1; }}
begin() {{
  exec 4<"$path" || return 1
  set -- $(stat -L -c '%d:%i %s' /proc/$$/fd/4)
  id=$1 size=$2 kind=at
  if [ -n "$want" ] && [ "$want" != "$id" ]; then at=0 kind=rotated; fi
  want=
  if [ "$at" -lt 0 ]; then at=$((size + at)); if [ "$at" -lt 0 ]; then at=0; fi; fi
  if [ "$at" -gt "$size" ]; then at=0 kind=truncated; fi
  if [ "$at" -gt 0 ]; then dd bs=1 skip="$at" count=0 <&4 2>/dev/null; fi
  pos
  if [ "$here" != "$at" ]; then seek || return 1; fi
  say "$kind" "$id" "$at"
}}
seek() {{
  exec 4<"$path" || return 1
  left=$at
  while [ "$left" -gt 0 ]; do
    n=1048576; if [ "$left" -lt "$n" ]; then n=$left; fi
    dd bs="$n" count=1 <&4 >/dev/null 2>&1 || return 1
    left=$((left - n))
  done
}}
waited=
until [ -f "$path" ] && begin; do
  if [ -z "$waited" ]; then say missing - 0; waited=1; at=0; want=; fi
  if [ -n "$once" ]; then exit 0; fi
  nap 0.5
done
idle=0
while :; do
  set -- $(stat -L -c '%d:%i %s' /proc/$$/fd/4 "$path" 2>/dev/null)
  pos
  if [ "$2" -gt "$here" ]; then
    cat <&4 || exit 1
    idle=0
    continue
  fi
  if [ "$2" -lt "$here" ]; then
    exec 4<"$path" && at=0 && say truncated "$1" 0
    continue
  fi
  if [ -n "$3" ] && [ "$3" != "$1" ]; then
    if exec 4<"$path"; then at=0; say rotated "$3" 0; continue; fi
  fi
  if [ -n "$once" ]; then exit 0; fi
  idle=$((idle + 1))
  if [ "$idle" -gt 50 ]; then nap 1; else nap 0.2; fi
done
"""


class Turn(msgspec.Struct, frozen=True):
    """The file behind the name changed, or the start of a pass: from here on bytes of `file_id` from `offset`."""

    kind: str
    """`at`, `rotated`, `truncated`, `missing`."""
    file_id: str
    offset: int


class Sorter:
    """Sorts the stream of the remote loop into bytes and turns, whatever way it is cut into chunks."""

    def __init__(self, word: str) -> None:
        self._word = word.encode() + b" "
        self._held = b""

    def feed(self, data: bytes) -> list[bytes | Turn]:
        """What `data` completes, in order."""
        found: list[bytes | Turn] = []
        buffer = self._held + data
        while True:
            at = buffer.find(self._word)
            if at < 0:
                keep = self._partial(buffer)
                if len(buffer) > keep:
                    found.append(buffer[: len(buffer) - keep])
                self._held = buffer[len(buffer) - keep :]
                return found
            if at:
                found.append(buffer[:at])
            end = buffer.find(b"\n", at)
            if end < 0:
                self._held = buffer[at:]
                return found
            kind, file_id, offset = buffer[at + len(self._word) : end].decode().split(" ")
            found.append(Turn(kind, file_id, int(offset)))
            buffer = buffer[end + 1 :]

    def _partial(self, buffer: bytes) -> int:
        """How many bytes at the end may be the beginning of the word."""
        for size in range(min(len(self._word) - 1, len(buffer)), 0, -1):
            if buffer.endswith(self._word[:size]):
                return size
        return 0


async def follow(host: ScriptHost, path: str, *, offset: int = 0) -> AsyncIterator[tuple[int, bytes]]:
    """Pairs of (position of the first byte, bytes), for ever; see Host.follow.

    A file that is not there yet is waited for. Raises HostError once the link will not come up by itself.
    """
    position = offset
    file_id = ""
    while True:
        word = new_marker()
        sorter = Sorter(word)
        await host.wait_up()
        try:
            # On a host with very many logs the places for streams run out: the rest is read in short passes.
            lasting = host.lasting_free()
            script = _SCRIPT.format(
                path=shlex.quote(path),
                word=word,
                want=shlex.quote(file_id),
                at=position,
                once="" if lasting else 1,
            )
            async with host.open_stream(script, lasting=lasting) as chunks:
                async for chunk in chunks:
                    for item in sorter.feed(chunk):
                        if isinstance(item, Turn):
                            if item.kind != "missing":
                                position, file_id = item.offset, item.file_id
                            continue
                        yield position, item
                        position += len(item)
        except LinkLost:
            # The link may still count as up for a moment; wait_up() raises if it is gone for good.
            await asyncio.sleep(LOST_PAUSE_S)
            continue
        # A short pass is over, or the helper on the host was ended by somebody: go on where it was.
        await asyncio.sleep(RESTART_S)
