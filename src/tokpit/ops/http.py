"""Small questions to a server's HTTP port."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tokpit.domain.server import ServerInfo
from tokpit.engines.base import HttpFacts

if TYPE_CHECKING:
    import aiohttp


class Token(msgspec.Struct, frozen=True):
    """One generated token: how long it took on the host's clock, and the model that answered."""

    seconds: float
    model: str
    text: str


Headers = Mapping[str, str]


def own_key(server: ServerInfo | None) -> dict[str, str]:
    """The headers that a server wants of everybody: its API key, where its own command line shows one."""
    from tokpit.collect.metrics import api_key

    key = api_key(server.argv) if server is not None else None
    return {"Authorization": f"Bearer {key}"} if key else {}


async def healthy(web: aiohttp.ClientSession, url: str, *, headers: Headers | None = None) -> bool:
    """Whether the path answers 200 within 25 s; an engine's health check may itself generate a token."""
    import aiohttp

    try:
        async with web.get(url, headers=headers, timeout=aiohttp.ClientTimeout(total=25)) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


async def get_json(
    web: aiohttp.ClientSession, url: str, *, timeout_s: float = 10.0, headers: Headers | None = None
) -> Any | None:
    """The JSON at `url`; None where it does not answer with JSON."""
    import aiohttp

    try:
        async with web.get(url, headers=headers, timeout=aiohttp.ClientTimeout(total=timeout_s)) as answer:
            return await answer.json(content_type=None) if answer.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return None


async def model_name(
    web: aiohttp.ClientSession, base: str, facts: HttpFacts, *, headers: Headers | None = None
) -> str | None:
    """The first model the server lists."""
    page = await get_json(web, base + facts.models, headers=headers)
    try:
        name = page["data"][0]["id"] if page is not None else None
    except (KeyError, IndexError, TypeError):
        return None
    return name if isinstance(name, str) else None


async def first_token(
    web: aiohttp.ClientSession,
    base: str,
    facts: HttpFacts,
    *,
    clock_factor: float = 1.0,
    timeout_s: float = 120.0,
    headers: Headers | None = None,
) -> Token | None:
    """Ask for one token of text and check that it came; None where the server cannot do it yet."""
    import aiohttp

    model = await model_name(web, base, facts, headers=headers)
    if model is None:
        return None
    body = {"model": model, "prompt": "The capital of France is", "max_tokens": 1, "temperature": 0}
    started = time.monotonic()
    try:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with web.post(base + "/v1/completions", json=body, headers=headers, timeout=timeout) as answer:
            if answer.status != 200:
                return None
            page = await answer.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return None
    try:
        generated = int(page["usage"]["completion_tokens"])
        text = str(page["choices"][0].get("text") or "")
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return Token((time.monotonic() - started) * clock_factor, model, text) if generated >= 1 else None
