"""What a screen shows, as text for files: log rows, figures over time, findings. Pure; secrets are masked."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from tokpit.domain.finding import Finding
from tokpit.domain.text import mask_secrets, sanitize


def log_text(lines: Iterable[str]) -> str:
    """Rows of a log."""
    return "".join(mask_secrets(sanitize(line)) + "\n" for line in lines)


def figures_csv(series: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    """Figures as `t,metric,value`: UTC seconds on the host's clock, tag, value in the metric's unit."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("t", "metric", "value"))
    rows = sorted((t, tag, value) for tag, (ts, values) in series.items() for t, value in zip(ts, values, strict=True))
    writer.writerows((f"{t:.3f}", tag, repr(value)) for t, tag, value in rows)
    return out.getvalue()


def finding_text(finding: Finding, label: str) -> str:
    """A finding as plain lines, for a ticket or a message."""
    lines = [f"{label}: {finding.claim}", f"[{finding.code}, {finding.severity}, {finding.confidence}]"]
    if finding.arithmetic:
        lines.append(finding.arithmetic)
    lines += [f"  {line}" for line in finding.evidence]
    if finding.next_action:
        lines.append(f"next: {finding.next_action}")
    return mask_secrets("\n".join(lines))
