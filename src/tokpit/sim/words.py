"""What the simulated model says: words, one a token, the same for the same request."""

from __future__ import annotations

_TEXT = (
    "the scheduler keeps a batch of requests and each step reads all weights once so more requests share that "
    "cost until memory or slots run out then new ones wait in line while drafts are checked together with one "
    "pass which pays when enough of them hold this text is made by a simulation"
)
_WORDS = _TEXT.split()


def text(seed: int, start: int, stop: int) -> str:
    """Tokens `start` to `stop` of the answer with this seed; every word begins with a space, a token each."""
    count = len(_WORDS)
    return "".join(" " + _WORDS[(seed + i) % count] for i in range(start, stop))


def count_tokens(prompt: str) -> int:
    """A usable guess of the tokens in a text: four characters a token, at least one."""
    return max(1, (len(prompt) + 3) // 4)
