"""Rules between SGLang's flags, and of flags against model and host. One rule, one function, one line in a registry."""

from __future__ import annotations

from collections.abc import Mapping

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.settings import Settings
from tokpit.domain.verdict import RuleAnswer
from tokpit.engines.sglang.rules import host_cache, limits, speculation, state
from tokpit.engines.verdictkit.ask import Ask, Rule, run
from tokpit.engines.verdictkit.host_rules import SHARED

RULES: tuple[Rule, ...] = (*SHARED, *speculation.RULES, *state.RULES, *host_cache.RULES, *limits.RULES)


def check(
    settings: Settings,
    version: str | None = None,
    model: ModelFacts | None = None,
    host: HostFacts | None = None,
    env: Mapping[str, str] | None = None,
) -> list[RuleAnswer]:
    """What the rules say before a start, errors first."""
    return run(
        RULES,
        Ask(
            settings=settings,
            version=version,
            model=model or ModelFacts(),
            host=host or HostFacts(),
            env=env or {},
        ),
    )
