"""Progress bars as tqdm prints them, with `\\r` or run together on one line."""

from __future__ import annotations

import re

from tokpit.domain.records import Value
from tokpit.engines.logkit.values import fraction, real, whole

_BAR = re.compile(
    r"(?P<what>[A-Za-z][^%|\r\n\]]{0,200}?):\s{1,6}(?P<progress>\d{1,3})%\s?(?:Completed )?\|[^|]{0,200}?\|?\s?"
    r"(?P<done>\d{1,9})/(?P<total>\d{1,9}) \[(?P<elapsed>[\d:]{1,12})<(?P<remaining>[\d:?]{1,12})"
)
_BATCH = re.compile(r"bs=(\d+)")
_AVAILABLE = re.compile(r"avail_mem=([\d.]+) ?GB")
_MODE = re.compile(r"^Capturing [^(]*\(([^)]*)\)$")


def bar(text: str) -> tuple[str, dict[str, Value]] | None:
    """What is being done and how far it is, from the last bar in `text`; None if it holds none.

    Returns the label and fields `progress` (fraction), `done`, `total`, `elapsed`, `remaining` (texts), and where
    the label carries them `batch_size`, `avail_mem_gb`, `capture_mode`.
    """
    if "%" not in text or "<" not in text:
        return None
    found = list(_BAR.finditer(text[-2000:]))
    if not found:
        return None
    last = found[-1]
    label = last["what"].strip()
    fields: dict[str, Value] = {
        "progress": fraction(last["progress"]),
        "done": whole(last["done"]),
        "total": whole(last["total"]),
        "elapsed": last["elapsed"],
        "remaining": last["remaining"],
    }
    batch, available, mode = _BATCH.search(label), _AVAILABLE.search(label), _MODE.match(label)
    if batch:
        fields["batch_size"] = whole(batch[1])
    if available:
        fields["avail_mem_gb"] = real(available[1])
    if mode and not available:
        fields["capture_mode"] = mode[1]
    return label, fields
