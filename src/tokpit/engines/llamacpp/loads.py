"""Values from llama-server's `/slots`, for servers that run without metrics."""

from __future__ import annotations


def samples(page: object) -> dict[str, float]:
    """Requests that run and slots that there are, in tags of domain.metrics; empty for anything but a list of slots."""
    slots = [slot for slot in page if isinstance(slot, dict)] if isinstance(page, list) else []
    states = [slot["is_processing"] for slot in slots if isinstance(slot.get("is_processing"), bool)]
    if not states:
        return {}
    return {"running_reqs": float(sum(states)), "max_running_reqs": float(len(states))}
