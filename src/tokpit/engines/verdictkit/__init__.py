"""From log lines to one verdict: lines, error blocks, signatures, judgement, and what all engines share."""

from __future__ import annotations
