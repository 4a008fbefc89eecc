"""Queries at one moment, and several things at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, Final, TypeVar

from mofa_operator.observe.answers import QueryResult
from mofa_operator.observe.prometheus import Prometheus

T = TypeVar("T")
_AT_ONCE: Final = 1000
"""Items after which others have their turn. [1]"""


class Asking:
    """Queries at one moment; their warnings come together."""

    def __init__(self, prometheus: Prometheus, at: float) -> None:
        """`at` is the moment, in seconds of the epoch. [s]"""
        self.prometheus = prometheus
        self._at = at
        self.warnings: list[str] = []

    async def __call__(self, query: str) -> QueryResult:
        """What a query answers."""
        answer = await self.prometheus.query(query, self._at)
        self.warnings.extend(answer.warnings)
        return answer


async def together(*asked: Coroutine[Any, Any, T]) -> list[T]:
    """All of them at once; where one fails the others are called off, and the first failure is the answer."""
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def in_turns(many: Iterable[T]) -> AsyncIterator[T]:
    """The same one after another; others have their turn now and then, for an answer may have very many series."""
    for number, one in enumerate(many):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        yield one
