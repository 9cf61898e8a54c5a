"""SGLang: flags, log grammar, metrics, milestones, failures, HTTP facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.records import LogRecord, MetricsPage
from tokpit.domain.settings import Settings
from tokpit.domain.verdict import RuleAnswer, Verdict
from tokpit.engines.base import FlagIssue, FlagSchema, Grammar, Milestone, Recognised
from tokpit.engines.flagkit import check, process
from tokpit.engines.logkit.marks import weigh
from tokpit.engines.sglang import cmdline, http
from tokpit.engines.sglang import flags as translation


class SglangEngine:
    """SGLang, as tokpit.engines.base.Engine asks. Stateless."""

    name = "sglang"
    title = "SGLang"
    http = http.FACTS
    packages = ("sglang",)
    process_words = ("sglang",)
    env_prefixes = ("SGLANG_", "SGL_")

    @property
    def milestones(self) -> Sequence[Milestone]:
        """The phases of a start, in order."""
        from tokpit.engines.sglang import milestones

        return milestones.MILESTONES

    def recognise(self, argv: Sequence[str]) -> Recognised | None:
        """See Engine."""
        return cmdline.recognise(argv)

    def recognise_worker(self, argv: Sequence[str]) -> str | None:
        """See Engine."""
        return cmdline.recognise_worker(argv)

    def version_command(self, python: str) -> tuple[str, ...]:
        """See Engine."""
        return process.version_command(python, "sglang")

    def default_program(self, prefix: str, version: str | None) -> tuple[str, ...]:
        """See Engine."""
        return cmdline.default_program(prefix, version)

    def command(self, program: Sequence[str], settings: Settings, version: str | None) -> tuple[str, ...]:
        """See Engine."""
        return cmdline.command(program, translation.to_flags(settings, version))

    def to_flags(self, settings: Settings, version: str | None) -> tuple[str, ...]:
        """See Engine."""
        return translation.to_flags(settings, version)

    def from_flags(self, flags: Sequence[str], version: str | None) -> Settings:
        """See Engine."""
        return translation.from_flags(flags, version)

    def check_flags(
        self, flags: Sequence[str], version: str | None, schema: FlagSchema | None = None
    ) -> Sequence[FlagIssue]:
        """See Engine."""
        return check.check(translation.MAP, flags, version, schema)

    def check_rules(
        self,
        settings: Settings,
        version: str | None,
        model: ModelFacts,
        host: HostFacts,
        env: Mapping[str, str],
    ) -> Sequence[RuleAnswer]:
        """See Engine."""
        from tokpit.engines.sglang import rules

        return rules.check(settings, version, model, host, env)

    def log_weight(self, line: str) -> int:
        """See Engine."""
        from tokpit.engines.sglang import marks

        return weigh(marks.MARKS, line)

    def grammar(self) -> Grammar:
        """See Engine."""
        from tokpit.engines.sglang import grammar

        return grammar.new()

    def metrics(self, text: str) -> MetricsPage:
        """See Engine."""
        from tokpit.engines.sglang import metrics

        return metrics.page(text)

    def findings(self, records: Sequence[LogRecord], silent_s: float | None = None) -> Sequence[Verdict]:
        """See Engine."""
        from tokpit.engines.sglang import findings, milestones
        from tokpit.engines.verdictkit.standing import standing

        return [*standing(milestones.MILESTONES, records, silent_s), *findings.host_cache(records)]

    def verdict(
        self,
        records: Sequence[LogRecord],
        exit_code: int | None = None,
        signal: str | None = None,
        settings: Settings | None = None,
    ) -> Verdict | None:
        """See Engine."""
        from tokpit.engines.sglang import failures

        return failures.verdict(records, exit_code, signal, settings=settings)


ENGINE = SglangEngine()
