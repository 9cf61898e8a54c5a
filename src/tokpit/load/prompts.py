"""Request bodies, built before the clock runs."""

from __future__ import annotations

import hashlib
import json
import random
import secrets
from collections.abc import Iterable
from typing import Any

from .plan import Plan

BUILTIN = (
    "Design a Python class for an in-memory cache whose entries expire. Show the code, explain how it behaves with "
    "several threads, and finish with a few unit tests.",
    "A browser opens https://example.org for the first time. Describe what happens on the network from name resolution "
    "to the first rendered byte, and what each round trip costs.",
    "Build a React component for a searchable table with sorting and pages. Explain which state lives where, and how "
    "you keep typing smooth with ten thousand rows.",
    "Compare merge sort, quicksort and heapsort: derive their running times, memory and stability, and say which one "
    "you would pick for nearly sorted input and why.",
    "Write a bash script that rotates log files by size, keeps seven compressed generations and survives being run "
    "twice at once. Comment the parts that are easy to get wrong.",
    "Explain B-trees to somebody who knows binary search trees: insertion, splitting and deletion, with a worked "
    "example, and why databases prefer them on disk.",
    "How does a generational garbage collector decide what to keep? Walk through allocation, promotion, write "
    "barriers and pauses, and compare it with reference counting.",
    "Take a web application with a database from a laptop to production with Docker: images, networks, volumes, "
    "health checks and a rolling update, each with its configuration.",
)
"""Eight long-answer tasks on different subjects, so that a level has a mix and no prompt repeats another."""

FOLLOW_UPS = (
    "Which part of that would you change first under heavy load, and how?",
    "Give one more worked example, with numbers.",
    "What are the three most common mistakes here, and how does one notice them?",
    "Now explain the same to a newcomer in plain words.",
)

_WORDS = (  # a hundred lines otherwise; each word is one token in the usual vocabularies
    "time way year day thing man world life hand part child eye woman place work week case point company "
    "number group problem fact good new first last long great little own other old right big high different "
    "small large next early young important few public bad same able be have do say get make go know take see "
    "come think look want give use find tell ask seem feel try leave call water book room story result morning "
    "research moment air force education"
).split()


PREBUILD_BYTES = 64 * 1024 * 1024


class PromptSource:
    """Bodies for the requests of one sweep: `seed` fixes what is asked, a fresh nonce keeps caches out of it."""

    def __init__(self, plan: Plan, model: str, nonce: str | None = None) -> None:
        self.plan = plan
        self.model = model
        self.nonce = secrets.token_hex(4) if nonce is None else nonce
        self._fixed = self._fixed_fields()
        self._conversations = any(row.get("turns") for row in plan.prompt_rows)

    @property
    def turns(self) -> int:
        """Requests of one conversation, at most."""
        return self.plan.turns

    def opening(self, level: int, index: int) -> list[dict[str, Any]]:
        """The messages of conversation `index` of level `level`, up to its first user message."""
        plan = self.plan
        mark = self._mark(level, index)
        if plan.prompts == "rows":
            row = plan.prompt_rows[index % len(plan.prompt_rows)]
            if isinstance(row.get("messages"), list) and row["messages"]:
                messages = [dict(message) for message in row["messages"]]
                first = messages[0]
                if isinstance(first.get("content"), str):
                    first["content"] = self._marked(first["content"], mark)
                return messages
            text = str(row["turns"][0]) if row.get("turns") else str(row["prompt"])
        elif plan.prompts == "random":
            text = self._random_text(level, index)
        else:
            text = BUILTIN[index % len(BUILTIN)]
        return [{"role": "user", "content": self._marked(text, mark)}]

    def follow_up(self, index: int, turn: int) -> str | None:
        """The user message of a later turn; None: the conversation is over."""
        if self.plan.prompts == "rows":
            turns = self.plan.prompt_rows[index % len(self.plan.prompt_rows)].get("turns")
            if isinstance(turns, list) and turns:
                return str(turns[turn]) if turn < len(turns) else None
            if self._conversations:
                return None  # a single question among conversations stays one
        return FOLLOW_UPS[(index + turn) % len(FOLLOW_UPS)]

    def body(self, level: int, index: int, messages: list[dict[str, Any]]) -> bytes:
        """The JSON body that sends `messages`."""
        data = dict(self._fixed)
        if self.plan.api == "chat":
            data["messages"] = messages
        elif self.plan.prompts == "random" and len(messages) == 1:
            data["prompt"] = self._random_ids(level, index)
        elif len(messages) == 1:
            data["prompt"] = messages[0]["content"]
        else:
            data["prompt"] = "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def _fixed_fields(self) -> dict[str, Any]:
        plan = self.plan
        options: dict[str, Any] = {"include_usage": True}
        if plan.continuous_usage:
            options["continuous_usage_stats"] = True
        data: dict[str, Any] = {"model": self.model, "stream": True, "stream_options": options}
        data["max_tokens"] = plan.max_tokens
        if plan.temperature is not None:
            data["temperature"] = plan.temperature
        if plan.top_p is not None:
            data["top_p"] = plan.top_p
        if plan.ignore_eos:
            data["ignore_eos"] = True
        data.update(plan.extra_body)
        return data

    def _mark(self, level: int, index: int) -> str:
        return f"[{self.nonce}-{level}-{index}]" if self.plan.unique_prefix else ""

    def _marked(self, text: str, mark: str) -> str:
        share = self.plan.prefix_share
        if not mark or share >= 1:
            return text
        words = text.split(" ")
        kept = int(len(words) * share)
        return " ".join([*words[:kept], mark, *words[kept:]])

    def _random(self, level: int, index: int, purpose: str) -> tuple[random.Random, random.Random, int]:
        """Generators for the shared and the own part, and how long the shared part is."""
        plan = self.plan
        own = f"{plan.seed}-{self.nonce if plan.unique_prefix else ''}-{level}-{index}-{purpose}"
        shared = int(plan.input_tokens * plan.prefix_share)
        return random.Random(f"{plan.seed}-{purpose}"), random.Random(own), shared  # noqa: S311 # not for secrets

    def _random_text(self, level: int, index: int) -> str:
        common, own, shared = self._random(level, index, "words")
        words = common.choices(_WORDS, k=shared) + own.choices(_WORDS, k=self.plan.input_tokens - shared)
        return " ".join(words)

    def _random_ids(self, level: int, index: int) -> list[int]:
        # Ids of this range exist in every vocabulary in use and are ordinary text, no control tokens.
        common, own, shared = self._random(level, index, "ids")
        return [common.randrange(1000, 20000) for _ in range(shared)] + [
            own.randrange(1000, 20000) for _ in range(self.plan.input_tokens - shared)
        ]


class Bodies:
    """The first requests of one level, built before it begins, as far as 64 MiB reach; the others on demand."""

    def __init__(self, source: PromptSource, level: int) -> None:
        self._source = source
        self._level = level
        self._ready: dict[int, bytes] = {}
        self.hashes: set[int] = set()
        """64 bits of every different body, the same in every process."""
        self.built = 0

    @property
    def unique_share(self) -> float | None:
        """Different bodies / all of them; None before the first."""
        return len(self.hashes) / self.built if self.built else None

    def prebuild(self, indices: Iterable[int]) -> None:
        """Builds those of `indices`."""
        size = 0
        for index in indices:
            self._ready[index] = self._build(index)
            size += len(self._ready[index])
            if size > PREBUILD_BYTES:
                break

    def take(self, index: int) -> bytes:
        """The body of conversation `index`, once."""
        return self._ready.pop(index, b"") or self._build(index)

    def _build(self, index: int) -> bytes:
        body = self._source.body(self._level, index, self._source.opening(self._level, index))
        self.hashes.add(int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), "little"))
        self.built += 1
        return body
