"""Flags of llama-server that became others: what the tables cannot say by themselves."""

from __future__ import annotations

from tokpit.engines.flagkit.renames import Renames

RENAMES = Renames(
    chains=(
        ("--draft", "--spec-draft-n-max"),
        ("--draft-n", "--spec-draft-n-max"),
        ("--draft-max", "--spec-draft-n-max"),
        ("--draft-min", "--spec-draft-n-min"),
        ("--draft-n-min", "--spec-draft-n-min"),
        ("--spec-ngram-size-n", "--spec-ngram-simple-size-n"),
        ("--spec-ngram-size-m", "--spec-ngram-simple-size-m"),
        ("--spec-ngram-min-hits", "--spec-ngram-simple-min-hits"),
    ),
    advice=dict.fromkeys(
        ("--mmap", "--no-mmap", "--mlock", "--direct-io", "--no-direct-io", "-dio", "-ndio"), "--load-mode"
    ),
    stubs=True,
)
