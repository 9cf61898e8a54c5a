"""Rules between SGLang's flags, and of flags against model and host. One rule, one function, one line in a registry."""

from __future__ import annotations

from tokpit.engines.sglang.rules import host_cache, limits, speculation, state
from tokpit.engines.verdictkit.ask import Rule
from tokpit.engines.verdictkit.host_rules import SHARED

RULES: tuple[Rule, ...] = (*SHARED, *speculation.RULES, *state.RULES, *host_cache.RULES, *limits.RULES)
