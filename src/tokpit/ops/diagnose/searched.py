"""What hosts are searched for, from what each engine leaves behind."""

from __future__ import annotations

from functools import cache

from tokpit.engines.registry import engines, env_prefixes
from tokpit.probes.searched import Searched


@cache
def searched() -> Searched:
    """The words, programs and packages of all registered engines."""
    known = engines()
    traces = [engine.traces for engine in known]
    return Searched(
        words=tuple(word for trace in traces for word in trace.words),
        launches=tuple(words for trace in traces for words in trace.launches),
        echoes=tuple(word for trace in traces for word in trace.echo_words),
        distributions=tuple((engine.name, engine.traces.distribution) for engine in known),
        metadata=tuple(pattern for trace in traces for pattern in trace.metadata),
        companions=tuple(dict.fromkeys(pattern for trace in traces for pattern in trace.companions)),
        binaries=tuple(name for trace in traces for name in trace.binaries),
        images=tuple(word for trace in traces for word in trace.images),
        model_folders=tuple(folder for trace in traces for folder in trace.model_folders),
        env_prefixes=env_prefixes(),
    )
