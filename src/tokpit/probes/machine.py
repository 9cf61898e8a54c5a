"""What a measurement has to remember of the machine it ran on: GPU driver and kernel. Read without a tool of theirs."""

from __future__ import annotations

import re

SCRIPT = (
    "cat /sys/module/nvidia/version 2>/dev/null || head -n 1 /proc/driver/nvidia/version 2>/dev/null || "
    "sed 's/^/amdgpu /' /sys/module/amdgpu/version 2>/dev/null || echo; uname -r"
)
"""Two lines: the driver (empty without one), the kernel."""
_VERSION = re.compile(r"(amdgpu )?.*?(\d+\.\d+(?:\.\d+)*)")


def parse(text: str) -> dict[str, str]:
    """`driver` and `kernel`, as far as the host tells."""
    lines = [line.strip() for line in text.splitlines()]
    found = {}
    if len(lines) >= 2 and (match := _VERSION.match(lines[0])):
        found["driver"] = f"{match[1] or ''}{match[2]}"
    if lines and re.match(r"\d+\.\d", lines[-1]):
        found["kernel"] = lines[-1][:80]
    return found
