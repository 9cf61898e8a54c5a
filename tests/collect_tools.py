from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tokpit.domain.records import Record

T = TypeVar("T")


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def __call__(self, record: Record) -> None:
        self.records.append(record)

    def of(self, kind: type[T]) -> list[T]:
        """The records of one kind."""
        return [record for record in self.records if isinstance(record, kind)]


async def until(reached: Callable[[], object]) -> None:
    """Return once `reached()` is true."""
    async with asyncio.timeout(40):
        while not reached():
            await asyncio.sleep(0.02)
