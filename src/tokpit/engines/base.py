"""What every engine must answer. One folder an engine; see docs/adding-an-engine.md.

Everything here is pure: text and records in, text and records out. No module of this room does I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.records import LogRecord, MetricsPage
from tokpit.domain.settings import Settings
from tokpit.domain.verdict import RuleAnswer, Verdict


class Recognised(msgspec.Struct, frozen=True, kw_only=True):
    """A process that is an engine's main process: its settings and how it was started."""

    engine: str
    settings: Settings
    program: tuple[str, ...]
    """The leading words that start the engine, before its flags."""
    python: str | None = None
    """Interpreter, if it is a Python engine: asked for the installed version."""
    headless: bool = False
    """One of several nodes that serve together, without an HTTP port of its own."""


class Unranked(NamedTuple):
    """A command line taken apart: what is the same on every node, what is a rank's own, the first node's address."""

    words: tuple[str, ...]
    ranked: tuple[str, ...]
    head: str


class HttpFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of the engine's HTTP server and what they are good for."""

    health: str = "/health"
    models: str = "/v1/models"
    metrics: str = "/metrics"
    info: str | None = None
    version: str | None = None
    loads: str | None = None
    flush: str | None = None
    """Path that empties the prefix cache, if there is one (POST)."""
    default_port: int = 8000
    health_variable: str = ""
    """Environment variable by which a health check may wait longer."""
    extra_body: Mapping[str, object] = {}
    """Fields of a completion request that fix its output length: `ignore_eos` and the like."""
    headers: Mapping[str, str] = {}
    """What every request of a load says besides, because of how its HTTP server is."""


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine leaves on a host and in texts, by which its installations and its earlier starts are found.

    Patterns that run on the host are POSIX extended regular expressions without quotes; the others are Python's.
    """

    words: tuple[str, ...]
    """On the host, in any case: one of these is in every unit, history line and container of the engine."""
    launches: tuple[str, ...] = ()
    """On the host: command lines that start it, as they stand in scripts."""
    distribution: str = ""
    """Normalised names of the Python distributions that are the engine."""
    metadata: tuple[str, ...] = ()
    """On the host: how the folders of these distributions begin, as shell patterns before `.dist-info`."""
    companions: tuple[str, ...] = ()
    """Shell patterns of further distributions that say what an installation is able to do."""
    binaries: tuple[str, ...] = ()
    """File names of its programs, where it is built rather than installed."""
    model_folders: tuple[str, ...] = ()
    """Where it keeps models that it fetched; `$HOME` is understood."""
    images: tuple[str, ...] = ()
    """Words in the names of container images that hold it, in small letters."""
    image_program: tuple[str, ...] = ()
    """What starts it in the images that its makers publish."""
    image_entry: tuple[str, ...] = ()
    """The program that those images start by themselves, so that words after the image are its flags."""
    echoes: tuple[tuple[str, bool], ...] = ()
    """What stands right before the settings that it prints at its start; whether these are all settings, with the
    values that it chose, or only those that were given."""
    echo_words: tuple[str, ...] = ()
    """On the host: what is in lines that print settings or the version."""
    version_line: str = ""
    """A log line with its version as the only group."""
    metrics: tuple[str, ...] = ()
    """How the names on its metrics page begin."""


class Milestone(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of the start. `usual_s` is how long it usually takes at most; silence beyond it is `stuck_hint`."""

    kind: str
    label: str
    phase: str
    usual_s: float = 60.0
    stuck_hint: str = ""
    joins: bool = False
    """Processes of several GPUs or nodes wait for each other here."""


class FlagIssue(msgspec.Struct, frozen=True, kw_only=True):
    """A flag that this version does not take, with the nearest or succeeding name."""

    flag: str
    code: str
    """`unknown`, `renamed`, `removed`, `ambiguous`, `bad-value`, `deprecated`."""
    severity: str
    sentence: str
    successor: str | None = None


class FlagSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a flag schema, in argparse's words: option strings, destination, type name, default, choices."""

    flags: tuple[str, ...]
    dest: str = ""
    type: str | None = None
    default: object = None
    choices: tuple[object, ...] | None = None
    nargs: str | int | None = None
    hidden: bool = False


FlagSchema = Sequence[FlagSpec]


class Grammar(Protocol):
    """A log reader with the state of one log. Any text in; records out; nothing dropped, nothing raised."""

    def feed(self, line: str) -> Sequence[LogRecord]:
        """The records completed by this (sanitised) line; a record of several lines comes when it ends."""
        ...

    def flush(self) -> Sequence[LogRecord]:
        """What is still held back, once the stream is idle or has ended."""
        ...

    def sample(self, record: LogRecord) -> dict[str, float]:
        """Metric values (tags of domain.metrics) that this record stands for, gated: empty where it would mislead."""
        ...

    def samples(self, records: Sequence[LogRecord]) -> dict[str, float]:
        """The same of records that came together: of each metric the newest value."""
        ...


@runtime_checkable
class Engine(Protocol):
    """One engine. Implementations are stateless singletons, registered in tokpit.engines.registry."""

    name: str
    title: str
    http: HttpFacts
    milestones: Sequence[Milestone]
    packages: Sequence[str]
    """Python packages that hold it; empty for a program of its own."""
    process_words: Sequence[str]
    """What the command line of its server or of a worker contains, in any case: one of these."""
    env_prefixes: Sequence[str]
    """How the environment variables that change its ways begin."""
    drains: bool
    """TERM to its main process alone lets open requests end; to its workers as well it cuts them off."""
    interpreted: bool
    """A Python interpreter runs it; else its executable is asked for the version."""

    @property
    def traces(self) -> Traces:
        """What it leaves on a host and in texts."""
        ...

    @property
    def state_slot_choices(self) -> Sequence[int]:
        """Recurrent-state slots that it may reserve for a request, by setting; empty where it reserves none."""
        ...

    @property
    def host_cache_reserve_bytes(self) -> int | None:
        """Host memory that its host cache leaves free; None where it has no such cache."""
        ...

    def recognise(self, argv: Sequence[str]) -> Recognised | None:
        """Whether this command line is the engine's main process; None for its workers and for everything else."""
        ...

    def recognise_worker(self, argv: Sequence[str]) -> str | None:
        """The role of a worker process of this engine by its title (`scheduler`, `engine-core`, ...), else None."""
        ...

    def version_command(self, python: str) -> tuple[str, ...]:
        """argv that prints the installed version of this engine and nothing else, in under a second (no import)."""
        ...

    def read_help(self, text: str) -> FlagSchema:
        """The flags that its executable's `--help` prints; empty for an engine that an interpreter runs."""
        ...

    def default_program(self, prefix: str, version: str | None) -> tuple[str, ...]:
        """The words that start this engine from an environment folder (`PREFIX/bin/python -m ...`)."""
        ...

    def to_flags(self, settings: Settings, version: str | None) -> tuple[str, ...]:
        """Settings as flags of this version. Raises UsageError for a setting that it cannot take."""
        ...

    def command(self, program: Sequence[str], settings: Settings, version: str | None) -> tuple[str, ...]:
        """The whole command line: `program` and `to_flags`, the model placed as this program wants it."""
        ...

    def rank_flags(self, version: str | None, *, nodes: int, rank: str, head: str, port: int) -> tuple[str, ...]:
        """What one of several nodes that serve together adds to the command line.

        `rank` counts from 0, `head` is the address of the first node as the others reach it; both may be a shell's
        `$NAME`. `port` is free there, for their rendezvous. Raises UsageError where the engine, or this version, does
        not serve from several nodes.
        """
        ...

    def without_ranks(self, words: Sequence[str]) -> Unranked:
        """A command line, or a part of one, without what `rank_flags` adds."""
        ...

    def from_flags(self, flags: Sequence[str], version: str | None) -> Settings:
        """Flags back to canonical settings; what has no canonical name goes to `raw` unchanged. Never raises."""
        ...

    def check_flags(
        self, flags: Sequence[str], version: str | None, schema: FlagSchema | None = None
    ) -> Sequence[FlagIssue]:
        """Flags that this version does not take; `schema` is the one read on the host, else the built-in table."""
        ...

    def check_rules(
        self,
        settings: Settings,
        version: str | None,
        model: ModelFacts,
        host: HostFacts,
        env: Mapping[str, str],
    ) -> Sequence[RuleAnswer]:
        """What rules between flags, and of flags against model and host, say before a start."""
        ...

    def running_cap(
        self,
        settings: Settings,
        version: str | None,
        model: ModelFacts,
        host: HostFacts,
        env: Mapping[str, str],
    ) -> tuple[int | None, str]:
        """Most requests that will run at once as far as flags tell, with the arithmetic; None: they do not."""
        ...

    def log_weight(self, line: str) -> int:
        """How surely only this engine prints such a line (see `logkit.marks`); 0: it says nothing."""
        ...

    def grammar(self) -> Grammar:
        """A fresh reader for one log."""
        ...

    def metrics(self, text: str) -> MetricsPage:
        """One Prometheus page in canonical tags. Raises ValueError where the text is no such page."""
        ...

    def loads(self, page: object) -> dict[str, float]:
        """Values in the JSON of `http.loads`, in tags of domain.metrics; empty where it has no such page."""
        ...

    def findings(self, records: Sequence[LogRecord], silent_s: float | None = None) -> Sequence[Verdict]:
        """What a log says of a start or server that has not failed, none of it fatal: stuck, slow, over-committed.

        `silent_s`: seconds since its last line was written, where that is known.
        """
        ...

    def verdict(
        self,
        records: Sequence[LogRecord],
        exit_code: int | None = None,
        signal: str | None = None,
        settings: Settings | None = None,
    ) -> Verdict | None:
        """Why this start or run failed, from its log records and exit; None where nothing says that it failed.

        `settings`: what it was started with, where that is known; some figures are only in the flags.
        """
        ...
