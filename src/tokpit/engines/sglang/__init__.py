"""SGLang: flags, log grammar, metrics, milestones, failures, HTTP facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tokpit.domain.records import LogRecord
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


ENGINE = SglangEngine()
