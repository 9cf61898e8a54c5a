"""An engine whose answers are the modules of its folder; see docs/adding-an-engine.md for what each module holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.records import LogRecord, MetricsPage
from tokpit.domain.settings import Settings
from tokpit.domain.verdict import RuleAnswer, Verdict
from tokpit.engines.base import FlagIssue, FlagSchema, Grammar, HttpFacts, Milestone, Recognised, Traces, Unranked
from tokpit.engines.flagkit import check, process
from tokpit.engines.logkit.marks import weigh


class FolderEngine:
    """`tokpit.engines.base.Engine` over the modules beside the subclass; a part is imported when it is first asked."""

    name: str
    title: str
    http: HttpFacts
    packages: Sequence[str] = ()
    process_words: Sequence[str] = ()
    env_prefixes: Sequence[str] = ()
    drains: bool = False
    interpreted: bool = True

    @property
    def host_cache_reserve_bytes(self) -> int | None:
        """See Engine."""
        return None

    @property
    def state_slot_choices(self) -> Sequence[int]:
        """See Engine."""
        return ()

    @property
    def traces(self) -> Traces:
        """See Engine."""
        return cast(Traces, self._part("traces").TRACES)

    def _part(self, module: str) -> Any:
        return import_module(f"{type(self).__module__}.{module}")

    @property
    def milestones(self) -> Sequence[Milestone]:
        """The phases of a start, in order."""
        return cast(Sequence[Milestone], self._part("milestones").MILESTONES)

    def recognise(self, argv: Sequence[str]) -> Recognised | None:
        """See Engine."""
        return cast(Recognised | None, self._part("cmdline").recognise(argv))

    def recognise_worker(self, argv: Sequence[str]) -> str | None:
        """See Engine."""
        return cast(str | None, self._part("cmdline").recognise_worker(argv))

    def version_command(self, python: str) -> tuple[str, ...]:
        """See Engine."""
        return process.version_command(python, self.packages[0])

    def read_help(self, text: str) -> FlagSchema:
        """See Engine."""
        return () if self.interpreted else cast(FlagSchema, self._part("helptext").read_help(text))

    def default_program(self, prefix: str, version: str | None) -> tuple[str, ...]:
        """See Engine."""
        return cast(tuple[str, ...], self._part("cmdline").default_program(prefix, version))

    def command(self, program: Sequence[str], settings: Settings, version: str | None) -> tuple[str, ...]:
        """See Engine."""
        return cast(tuple[str, ...], self._part("cmdline").command(program, self.to_flags(settings, version)))

    def to_flags(self, settings: Settings, version: str | None) -> tuple[str, ...]:
        """See Engine."""
        return cast(tuple[str, ...], self._part("flags").to_flags(settings, version))

    def rank_flags(self, version: str | None, *, nodes: int, rank: str, head: str, port: int) -> tuple[str, ...]:
        """See Engine."""
        found = self._part("ranks").rank_flags(version, nodes=nodes, rank=rank, head=head, port=port)
        return cast(tuple[str, ...], found)

    def without_ranks(self, words: Sequence[str]) -> Unranked:
        """See Engine."""
        ranks = self._part("ranks")
        kept: list[str] = []
        taken: list[str] = []
        values, head = 0, ""
        for word in words:
            name, equals, value = word.partition("=")
            if values:
                values -= 1
                head = word if taken[-1] == ranks.HEAD else head
                taken.append(word)
            elif name in ranks.FLAGS:
                values = 0 if equals else ranks.FLAGS[name]
                head = value if name == ranks.HEAD and equals else head
                taken.append(word)
            else:
                kept.append(word)
        return Unranked(tuple(kept), tuple(taken), re.sub(r":\d+$", "", head))

    def from_flags(self, flags: Sequence[str], version: str | None) -> Settings:
        """See Engine."""
        return cast(Settings, self._part("flags").from_flags(flags, version))

    def check_flags(
        self, flags: Sequence[str], version: str | None, schema: FlagSchema | None = None
    ) -> Sequence[FlagIssue]:
        """See Engine."""
        return check.check(self._part("flags").MAP, flags, version, schema)

    def check_rules(
        self,
        settings: Settings,
        version: str | None,
        model: ModelFacts,
        host: HostFacts,
        env: Mapping[str, str],
    ) -> Sequence[RuleAnswer]:
        """See Engine."""
        from tokpit.engines.verdictkit.ask import Ask, run

        return run(self._part("rules").RULES, Ask(settings=settings, version=version, model=model, host=host, env=env))

    def running_cap(
        self,
        settings: Settings,
        version: str | None,
        model: ModelFacts,
        host: HostFacts,
        env: Mapping[str, str],
    ) -> tuple[int | None, str]:
        """See Engine. As configured; an engine with more to say (state slots, defaults) overrides it."""
        cap = settings.max_running
        return (cap, f"max running requests is set to {cap}") if cap is not None else (None, "")

    def log_weight(self, line: str) -> int:
        """See Engine."""
        return weigh(self._part("marks").MARKS, line)

    def grammar(self) -> Grammar:
        """See Engine."""
        return cast(Grammar, self._part("grammar").new())

    def metrics(self, text: str) -> MetricsPage:
        """See Engine."""
        return cast(MetricsPage, self._part("metrics").page(text))

    def loads(self, page: object) -> dict[str, float]:
        """See Engine."""
        return cast(dict[str, float], self._part("loads").samples(page)) if self.http.loads else {}

    def findings(self, records: Sequence[LogRecord], silent_s: float | None = None) -> Sequence[Verdict]:
        """See Engine."""
        from tokpit.engines.verdictkit.standing import standing

        return standing(self.milestones, records, silent_s)

    def verdict(
        self,
        records: Sequence[LogRecord],
        exit_code: int | None = None,
        signal: str | None = None,
        settings: Settings | None = None,
    ) -> Verdict | None:
        """See Engine."""
        from tokpit.engines.verdictkit.judge import judge

        return judge(self._part("failures").DIALECT, records, exit_code, signal, settings)
