"""Flags of vLLM that became others: what the tables cannot say by themselves."""

from __future__ import annotations

from tokpit.engines.flagkit.renames import Renames

RENAMES = Renames(
    chains=(
        ("--cuda-graph-sizes", "--cudagraph-capture-sizes"),
        ("--override-pooler-config", "--pooler-config"),
    ),
    advice={
        "--enable-reasoning": "--reasoning-parser",
        "--rope-scaling": "--hf-overrides",
        "--rope-theta": "--hf-overrides",
        "--task": "--runner",
        "--guided-decoding-backend": "--structured-outputs-config",
        "--guided-decoding-disable-fallback": "--structured-outputs-config",
        "--guided-decoding-disable-any-whitespace": "--structured-outputs-config",
        "--guided-decoding-disable-additional-properties": "--structured-outputs-config",
        "--eplb-window-size": "--eplb-config",
        "--eplb-step-interval": "--eplb-config",
        "--eplb-log-balancedness": "--eplb-config",
        "--num-redundant-experts": "--eplb-config",
        "--disable-log-requests": "--enable-log-requests",
    },
)
