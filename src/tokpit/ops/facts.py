"""Facts about a host and a model that a person states, where no host is there to be asked: `gpu_count=2`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from tokpit.domain.hostfacts import HostFacts, ModelFacts
from tokpit.domain.settings import Settings
from tokpit.errors import ConfigError, UsageError
from tokpit.probes.model import from_config


class Stated(msgspec.Struct, frozen=True):
    """What was stated: of the host, of the model, and of what the server will hold (`state_slots`, `kv_tokens`)."""

    host: HostFacts = HostFacts()
    model: ModelFacts = ModelFacts()
    capacity: dict[str, int] = {}

    def settings(self, settings: Settings) -> Settings:
        """`settings` with the stated capacity where the command line gives none."""
        missing = {name: value for name, value in self.capacity.items() if getattr(settings, name) is None}
        return msgspec.structs.replace(settings, **missing) if missing else settings


def _whole(text: str) -> int:
    return int(text.replace("_", "").replace(",", ""))


def _gb(text: str) -> int:
    return round(float(text) * 1e9)


def _gib_to_mib(text: str) -> tuple[float, ...]:
    return tuple(float(part) * 1024 for part in text.split(","))


def _truth(text: str) -> bool:
    word = text.strip().lower()
    if word not in {"true", "yes", "1", "false", "no", "0"}:
        raise ValueError(text)
    return word in {"true", "yes", "1"}


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _ports(text: str) -> frozenset[int]:
    return frozenset(map(int, _words(text)))


def _paths(text: str) -> frozenset[str]:
    return frozenset(_words(text))


_HOST: dict[str, tuple[str, Callable[[str], object]]] = {
    "mem_available_gb": ("mem_available_bytes", _gb),
    "mem_total_gb": ("mem_total_bytes", _gb),
    "cgroup_gb": ("cgroup_limit_bytes", _gb),
    "shm_gb": ("shm_free_bytes", _gb),
    "disk_gb": ("disk_free_bytes", _gb),
    "gpu_count": ("gpu_count", _whole),
    "gpu_names": ("gpu_names", _words),
    "gpu_mem_gib": ("gpu_mem_mib", _gib_to_mib),
    "gpu_free_gib": ("gpu_free_mib", _gib_to_mib),
    "ports_in_use": ("ports_in_use", _ports),
    "missing_paths": ("missing_paths", _paths),
    "existing_paths": ("existing_paths", _paths),
    "platform": ("platform", str),
    "in_container": ("in_container", _truth),
}
_MODEL: dict[str, tuple[str, Callable[[str], object]]] = {
    "architecture": ("architecture", str),
    "hybrid": ("hybrid", _truth),
    "layers": ("layers", _whole),
    "attention_layers": ("attention_layers", _whole),
    "heads": ("attention_heads", _whole),
    "kv_heads": ("kv_heads", _whole),
    "head_dim": ("head_dim", _whole),
    "max_context": ("max_context", _whole),
    "weights_gb": ("weight_bytes", _gb),
    "mtp_layers": ("mtp_layers", _whole),
    "experts": ("experts", _whole),
}
_CAPACITY = ("state_slots", "kv_tokens")

KEYS = (*_HOST, *_MODEL, *_CAPACITY)
"""Names of the facts that can be stated. `_gb` is 1e9 bytes, `_gib` 2**30; lists are separated by commas."""


def stated(pairs: Iterable[str], model: ModelFacts | None = None) -> Stated:
    """Facts from `KEY=VALUE` texts, those of the model on top of `model`. Raises UsageError naming what is off."""
    host: dict[str, object] = {}
    of_model: dict[str, object] = {}
    capacity: dict[str, int] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or key not in KEYS:
            raise UsageError(f"{pair!r} is no fact of the form KEY=VALUE", hint=f"keys: {', '.join(KEYS)}")
        try:
            if key in _HOST:
                name, convert = _HOST[key]
                host[name] = convert(text)
            elif key in _MODEL:
                name, convert = _MODEL[key]
                of_model[name] = convert(text)
            else:
                capacity[key] = _whole(text)
        except (ValueError, OverflowError):
            raise UsageError(f"{text!r} is no value for the fact {key}") from None
    return Stated(
        HostFacts(**host),  # type: ignore[arg-type]  # each value was made by its field's own converter
        msgspec.structs.replace(model or ModelFacts(), **of_model),
        capacity,
    )


def model_of(path: str) -> ModelFacts:
    """What a config.json (or a folder that holds one) on this machine says. Raises ConfigError."""
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    try:
        page = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(page, dict):
        raise ConfigError(f"{file} holds no JSON object", hint="give the config.json of the model")
    return from_config(page)
