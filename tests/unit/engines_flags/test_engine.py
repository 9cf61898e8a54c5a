"""Every registered engine answers all that the console asks, under the agreed names."""

from __future__ import annotations

import inspect

import pytest

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.settings import Settings
from tokpit.engines import registry
from tokpit.engines.base import Engine
from tokpit.errors import UsageError


@pytest.mark.parametrize("name", registry.names())
def test_an_engine_has_the_methods_and_parameter_names_of_the_protocol(name: str) -> None:
    engine = registry.engine(name)
    assert isinstance(engine, Engine)
    for method, declared in inspect.getmembers(Engine, inspect.isfunction):
        if not method.startswith("_"):
            wanted = list(inspect.signature(declared).parameters)[1:]
            assert list(inspect.signature(getattr(engine, method)).parameters) == wanted, method


@pytest.mark.parametrize("name", registry.names())
def test_every_part_of_an_engine_is_reached_through_it(name: str) -> None:
    engine = registry.engine(name)
    assert engine.name == name
    assert engine.milestones
    assert engine.http.health == "/health"
    assert engine.check_rules(Settings(), None, ModelFacts(), HostFacts(), {}) is not None
    assert engine.metrics("") is not None
    assert engine.verdict([], 0) is None
    assert list(engine.grammar().feed("a line that nobody knows")) is not None


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        registry.engine("tgi")
    assert "sglang, vllm, llamacpp" in caught.value.hint
