"""Server commands in shell text: histories, scripts, units' command lines. Read, never run.

Not a shell: quoting, `;`, pipes, redirections, line continuations, assignments and simple `$NAME` are understood; what
is computed (`$(...)`, loops, functions) is left as it stands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from tokpit.domain.settings import Settings
from tokpit.engines import registry
from tokpit.engines.base import Engine

_ENDS = frozenset({";", "&", "&&", "||", "|", "|&", "(", ")", ";;"})
_REDIRECTIONS = frozenset({">", ">>", "<", "<<", "<<<", ">&", "&>", "&>>", "<&", ">|"})
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)=(.*)$", re.DOTALL)
_NAME = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::?-([^}]*))?\}|([A-Za-z_]\w*))")
_DESCRIPTOR = re.compile(r"(?<=\s)\d(?=>|<)")
_KEYWORDS = frozenset({"if", "then", "else", "do", "while", "time", "!", "{", "exec", "command", "nohup", "setsid"})
# Programs that stay as parents of what they start: the server's words follow theirs.
_PARENTS = frozenset(
    {
        "sudo",
        "timeout",
        "time",
        "uv",
        "uvx",
        "conda",
        "mamba",
        "micromamba",
        "tini",
        "srun",
        "tmux",
        "screen",
        "systemd-run",
    }
)
_READ = ("CUDA_", "HF_", "NCCL_", "TORCH_", "OMP_")
"""How variables begin that any engine reads."""
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ash"})
_DEEPEST = 4
_LONGEST = 200_000


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A server command: as words, understood, with the environment that the text sets for it."""

    engine: str
    argv: tuple[str, ...]
    settings: Settings
    env: dict[str, str] = {}
    image: str = ""
    """Container image, where it is started in one."""


def started_in(text: str, env: Mapping[str, str] | None = None) -> tuple[Started, ...]:
    """The server commands in a piece of shell text, in order. Any text in, nothing raised."""
    return tuple(_started(text[:_LONGEST], dict(env or {}), 0))


def _started(text: str, env: dict[str, str], depth: int) -> Iterator[Started]:
    if depth > _DEEPEST:
        return
    for words in _commands(text):
        own: dict[str, str] = {}
        while words and (words[0] in _KEYWORDS or words[0] == "export" or _ASSIGNMENT.match(words[0])):
            if (match := _ASSIGNMENT.match(words[0])) is not None:
                own[match[1]] = _fill(match[2], {**env, **own})
            words = words[1:]
        if not words:
            env.update(own)  # `A=b` and `export A=b` alone hold for what follows
            continue
        argv = tuple(_fill(word, {**env, **own}) for word in words)
        yield from _command(argv, {**env, **own}, depth)


def _command(argv: tuple[str, ...], env: dict[str, str], depth: int) -> Iterator[Started]:
    first = PurePosixPath(argv[0]).name
    if first in _SHELLS or first == "ssh":
        flags = [at for at, word in enumerate(argv[1:-1], 1) if re.fullmatch(r"-[a-z]*c", word)]
        if flags or first == "ssh":
            yield from _started(argv[flags[0] + 1] if flags else argv[-1], env, depth + 1)
        return
    if first in {"tmux", "screen"}:
        rest = [word for word in argv[1:] if " " in word]
        for word in rest:
            yield from _started(word, env, depth + 1)
        if rest:
            return
    if first in ("docker", "podman") and "run" in argv[:3]:
        found = in_container(argv, env)
        if found is not None:
            yield found
        return
    if first == "env":
        for word in argv[1:]:
            if (match := _ASSIGNMENT.match(word)) is not None:
                env[match[1]] = match[2]
    starts = range(len(argv)) if first in _PARENTS else range(1)
    for at in starts:
        recognised = registry.recognise(argv[at:])
        if recognised is not None:
            yield Started(engine=recognised.engine, argv=argv[at:], settings=recognised.settings, env=_own(env))
            return


def _own(env: Mapping[str, str]) -> dict[str, str]:
    """Variables that a server reads: capitals, without those that scripts use for their own words."""
    read = (*_READ, *registry.env_prefixes())
    return {name: value for name, value in env.items() if name.startswith(read)}


def in_container(argv: Sequence[str], env: Mapping[str, str]) -> Started | None:
    """The server that `docker run ... IMAGE words` starts, by the words or by what the image starts by itself."""
    for at, word in enumerate(argv[2:], 2):
        if word.startswith("-") or not any(_held_by(known, word) for known in registry.engines()):
            continue
        if "/" not in word and ":" not in word and argv[at - 1].startswith("--") and "=" not in argv[at - 1]:
            continue  # the value of an option such as --name
        if argv[at - 1] in ("-v", "--volume", "-e", "--env", "--mount", "--name", "-w"):
            continue
        given = {m[1]: m[2] for w in argv[:at] if (m := _ASSIGNMENT.match(w)) is not None}
        return of_image(word, tuple(argv[at + 1 :]), {**_own(env), **_own(given)})
    return None


def _held_by(engine: Engine, image: str) -> bool:
    """Whether the name of an image says that it holds the engine."""
    return any(word in image.lower() for word in engine.traces.images)


def of_image(image: str, words: tuple[str, ...], env: Mapping[str, str]) -> Started | None:
    """The server of an image and the words it is given; words that name no program are flags of its entry point."""
    recognised = registry.recognise(words) if words else None
    if recognised is None and words and PurePosixPath(words[0]).name in _SHELLS:
        inner = started_in(words[-1], env)
        if inner:
            return msgspec.structs.replace(inner[0], image=image)
    if recognised is None:
        entries = (known.traces.image_entry for known in registry.engines() if _held_by(known, image))
        entry = next(filter(None, entries), ())
        recognised = registry.recognise((*entry, *words)) if entry else None
        words = (*entry, *words)
    if recognised is None:
        return None
    return Started(engine=recognised.engine, argv=words, settings=recognised.settings, env=dict(env), image=image)


def _commands(text: str) -> Iterator[list[str]]:
    """Simple commands as words, redirections dropped. A line whose quotes do not match is read word by word."""
    text = re.sub(r"\\\r?\n[ \t]*", " ", text)
    for line in _lines(text):
        line = _DESCRIPTOR.sub("", line)
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        try:
            tokens = list(lexer)
        except ValueError:
            tokens = line.split()
        words: list[str] = []
        skip = False
        for token in tokens:
            if skip:
                skip = False
            elif token in _REDIRECTIONS:
                skip = True
            elif token in _ENDS:
                if words:
                    yield words
                words = []
            else:
                words.append(token)
        if words:
            yield words


def _lines(text: str) -> Iterator[str]:
    """Lines without comments; a line with an open quote is joined with the next ones."""
    held = ""
    for line in text.splitlines():
        if not held and line.lstrip().startswith("#"):
            continue
        held = f"{held}\n{line}" if held else line
        if held.count("'") % 2 and held.count('"') % 2 == 0 and len(held) < 20_000:
            continue
        if held.strip():
            yield held
        held = ""
    if held.strip():
        yield held


def _fill(word: str, env: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        return env.get(name, match[2] if match[2] is not None else match[0])

    return _NAME.sub(value, word) if "$" in word else word
