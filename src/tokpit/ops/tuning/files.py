"""Experiments in TOML files:

target = "gpu1:30000"
[vary]
mtp_steps = "0..4"
max_running = [8, 16, 32]
"--schedule-policy" = ["lpm", "fcfs"]
[workload]                 # options of tokpit sweep
levels = "1,8,32"
max_tokens = 512
[objective]
kind = "throughput"        # single, goodput, pareto
slo = "ttft=2s,tpot=60ms"
[limits]
minutes = 90
restarts = 20
[search]
method = "auto"
repeats = 2
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokpit.config.tomlfile import convert, read_toml
from tokpit.errors import ConfigError
from tokpit.tune.experiment import Experiment, Limits, Objective, Search

_TABLES: dict[str, type[Any]] = {"objective": Objective, "limits": Limits, "search": Search}


def read_experiment(path: Path) -> Experiment:
    """The experiment of a file, not yet checked as a whole. Raises ConfigError."""
    if not path.exists():
        raise ConfigError(f"{path} does not exist")
    tables: dict[str, Any] = read_toml(path)
    parts: dict[str, Any] = {
        name: convert(tables.pop(name), kind, path=path, table=f"[{name}]")
        for name, kind in _TABLES.items()
        if name in tables
    }
    known = (*Experiment.__struct_fields__, *parts)
    return convert(tables, Experiment, path=path, table="the file", known=known, **parts)
