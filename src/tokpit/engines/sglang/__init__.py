"""SGLang: flags, log grammar, metrics, milestones, failures, HTTP facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.records import LogRecord
from tokpit.domain.settings import Settings
from tokpit.domain.verdict import Verdict
from tokpit.engines.folder import FolderEngine
from tokpit.engines.sglang import http


class SglangEngine(FolderEngine):
    """SGLang, as tokpit.engines.base.Engine asks. Stateless."""

    name = "sglang"
    title = "SGLang"
    http = http.FACTS
    packages = ("sglang",)
    process_words = ("sglang",)
    env_prefixes = ("SGLANG_", "SGL_")
    drains = True

    @property
    def host_cache_reserve_bytes(self) -> int:
        """See Engine."""
        return cast(int, self._part("capacity").HICACHE_RESERVE_BYTES)

    @property
    def state_slot_choices(self) -> Sequence[int]:
        """See Engine."""
        return cast(Sequence[int], self._part("capacity").slot_choices())

    def findings(self, records: Sequence[LogRecord], silent_s: float | None = None) -> Sequence[Verdict]:
        """See Engine."""
        from tokpit.engines.sglang.findings import host_cache

        return [*super().findings(records, silent_s), *host_cache(records)]

    def running_cap(
        self,
        settings: Settings,
        version: str | None,
        model: ModelFacts,
        host: HostFacts,
        env: Mapping[str, str],
    ) -> tuple[int | None, str]:
        """See Engine."""
        from tokpit.engines.sglang.rules.state import cap_of
        from tokpit.engines.verdictkit.ask import Ask

        return cap_of(Ask(settings=settings, version=version, model=model, host=host, env=env))


ENGINE = SglangEngine()
