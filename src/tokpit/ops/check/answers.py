"""A few prompts whose answers show whether a model makes sense, each as one chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tokpit.domain.text import sanitize
from tokpit.ops.check.judge import sense

if TYPE_CHECKING:
    import aiohttp

PROMPTS = (
    "In two sentences, what is the capital of France known for?",
    "List the first five prime numbers and say why 1 is not among them.",
    "Write one line of Python that reverses a string, and explain it.",
)
ANSWER_TOKENS = 48
ANSWER_S = 7.0
"""Real seconds for one answer."""


async def answer(
    web: aiohttp.ClientSession, base: str, model: str, prompt: str, *, headers: Mapping[str, str]
) -> tuple[str, str]:
    """The text of one answer, reasoning included, and what is wrong with it (empty: nothing)."""
    import aiohttp

    messages = [{"role": "user", "content": prompt}]
    body = {"model": model, "messages": messages, "max_tokens": ANSWER_TOKENS, "temperature": 0}
    try:
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        async with web.post(f"{base}/v1/chat/completions", json=body, headers=headers, timeout=timeout) as reply:
            if reply.status != 200:
                said = sanitize((await reply.text("utf-8", "replace"))[:120]).strip()
                return "", f"status {reply.status} {said}".strip()
            page = await reply.json(content_type=None)
    except TimeoutError:
        return "", f"not finished within {ANSWER_S:g} s"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return "", sanitize(f"{type(error).__name__} {error}").strip()
    try:
        message = page["choices"][0]["message"]
        parts = [message.get(key) for key in ("reasoning_content", "reasoning", "content")]
    except (KeyError, IndexError, TypeError, AttributeError):
        return "", "it is no chat completion"
    text = "".join(part for part in parts if isinstance(part, str))
    return sanitize(text), sense(text)
