"""Lines grouped to error blocks: an exception with the frames above it and the lines that belong to its message.

Only what has the form of an error opens a block: an exception line, a line of level error, a runtime's own fatal
line. Words like "error" inside a prompt, a model name, a warning or a retry open none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from tokpit.engines.verdictkit.lines import Line

MAX_LINES = 60

_WORD = r"(?:[A-Za-z_]\w*\.)*"
EXCEPTION = re.compile(
    rf"^(?P<type>{_WORD}(?:[A-Z]\w*)?(?:Error|Exception|Exit|Interrupt|NotFound|Timeout|Failure|Full|Conflict)"
    rf"|(?:\w+\.)+\w*error|{_WORD}NVMLError_\w+|{_WORD}RequirementNotMet)(?P<colon>: |:$|$)"
)
_FATAL = re.compile(
    r"""(?x)^(?:
      [\w./-]{1,80}(?:\ serve|\ run)?:\ error:\ | error:\ | fatal:\ | FATAL\b | fatal\ error:
    | (?:nvcc|ptxas)\ (?:fatal|error)\b | Fatal\ Python\ error: | Killed$ | Segmentation\ fault | Aborted\b | Bus\ error
    | Illegal\ instruction | terminate\ called\b | Out\ of\ memory:\ Kill | Memory\ cgroup\ out\ of\ memory: | oom-kill:
    | \S*/?(?:ba|z|da)?sh:\ (?:line\ )?\d*:?\ ?\S*:\ (?:(?:command\ )?not\ found|No\ such\ file|Permission\ denied)
    | env:\ | ninja:\ build\ stopped
    | \S*python[\d.]*:\ (?:No\ module\ named|can't\ open\ file|Error\ while\ finding\ module) | nohup:\ failed
    | \S*\.(?:cu|cpp|cuh|h|c):\d+:\ (?:CUDA\ error|GGML_ASSERT|fatal\ error)
    | CUDA\ error\b | HIP\ error\b | GGML_ASSERT
    | Failed\ to\ initialize\ NVML | NVIDIA-SMI\ has\ failed | NVRM:\ | docker:\ Error | nvidia-container-cli:
    | LLVM\ ERROR: | libgomp: | OpenBLAS\ blas_thread_init: | exec\b.*:\ no\ such\ file
    | !{5,}.*\b(?:Segfault|SIG\w+) | \*{3}\ SIG\w+ | Traceback\ \(most\ recent
    | \s{0,4}Value\ error,\ | \S*llama-server:\ | Rank\ \d+\ scheduler\b | Subprocess\ \S+\ \(pid | Worker\ proc\b
    )"""
)
_NCCL_WARN = re.compile(r"\bNCCL WARN\b")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):?\s*$")
_FRAME = re.compile(r'^\s+File "')
_CHAIN_SAME = re.compile(r"^The above exception was the direct cause")
_CHAIN_OTHER = re.compile(r"^During handling of the above exception")


class Block(msgspec.Struct, frozen=True):
    """One error: `lines` of its message (the first decides), `frames` above it, and how it is linked to the one before.

    `link` is `cause` where the block before it is its direct cause, `during` where it arose while handling that one.
    """

    lines: tuple[Line, ...]
    frames: tuple[Line, ...] = ()
    type: str = ""
    link: str = ""

    @property
    def head(self) -> Line:
        """The line that decides."""
        return self.lines[0]

    @property
    def message(self) -> str:
        """All lines of the message, joined by newlines."""
        return "\n".join(line.text for line in self.lines)

    @property
    def tight(self) -> str:
        """The message with its lines joined by nothing: mends words that a terminal or wrapper has cut in two."""
        return "".join(line.text for line in self.lines)

    @property
    def context(self) -> str:
        """The frames of the traceback, joined by newlines."""
        return "\n".join(line.text for line in self.frames)


def _opens(line: Line) -> tuple[bool, str]:
    if line.level in {"warning", "info", "debug"} and not line.text.startswith("CUDA error"):
        return (bool(_NCCL_WARN.search(line.text)), "")
    match = EXCEPTION.match(line.text)
    if match and not match["type"].endswith("Warning"):
        return True, match["type"]
    if _FATAL.match(line.text) or _NCCL_WARN.search(line.text):
        return True, ""
    nested = re.match(r"^(?:Scheduler|\w+) hit an exception: (?!Traceback)(.*)", line.text)
    if nested:
        return True, ""
    return line.level == "error" and not line.text.startswith((" ", "Traceback", "^")), ""


class _Builder:
    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.frames: dict[str, list[Line]] = {}
        self.latest = ""
        self.open: list[Line] | None = None
        self.open_frames: tuple[Line, ...] = ()
        self.open_type = ""
        self.link: dict[str, str] = {}
        self.open_link = ""

    def close(self) -> None:
        if self.open:
            self.blocks.append(Block(tuple(self.open), self.open_frames, self.open_type, self.open_link))
        self.open = None

    def start(self, line: Line, kind: str) -> None:
        self.close()
        held = self.frames.pop(line.proc, None)
        if held is None and not line.proc:
            held = self.frames.pop(self.latest, None)
        self.open, self.open_frames, self.open_type = [line], tuple(held or ()), kind
        self.open_link = self.link.pop(line.proc, "")

    def feed(self, line: Line) -> None:
        if line.quotes or line.busy:
            self.close()
            return
        prefixed = bool(line.proc or line.level) or line.headed
        if _TRACEBACK.search(line.text):
            if self.open and self.open[0].proc == line.proc and line.level == "error" and not self.open_type:
                self.frames.setdefault(line.proc, []).extend(self.open)  # "Engine failed to start." above its traceback
            self.close()
            self.frames[line.proc] = [line]
            self.latest = line.proc
            return
        key = line.proc if line.proc in self.frames else (self.latest if not prefixed else line.proc)
        if _FRAME.match(line.text):
            self.close()
            self.frames.setdefault(key, []).append(line)
            self.latest = key
            return
        if _CHAIN_SAME.match(line.text) or _CHAIN_OTHER.match(line.text):
            self.close()
            self.link[line.proc] = "cause" if _CHAIN_SAME.match(line.text) else "during"
            return
        if key in self.frames and (line.text.startswith((" ", "\t")) or not line.text):
            if len(self.frames[key]) < 400:
                self.frames[key].append(line)
            return
        opens, kind = _opens(line)
        if opens and self._continues(line, kind):
            opens = False
        if opens:
            self.start(line, kind)
        elif self.open is not None:
            same = not prefixed or (line.proc == self.open[0].proc and line.level == "error")
            if same and len(self.open) < MAX_LINES:
                self.open.append(line)
            elif prefixed:
                self.close()

    def _continues(self, line: Line, kind: str) -> bool:
        """A line of level error with no form of its own goes on with the message that the same process began."""
        if self.open is None or kind or line.level != "error" or _FATAL.match(line.text):
            return False
        head = self.open[0]
        return bool(self.open_type) and head.proc == line.proc and head.level == "error" and len(self.open) < MAX_LINES


def blocks(lines: Sequence[Line]) -> list[Block]:
    """All error blocks, in the order in which their first lines came."""
    builder = _Builder()
    for line in lines:
        builder.feed(line)
    builder.close()
    return builder.blocks
