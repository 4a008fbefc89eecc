"""What a job was predicted to do and what it did, over time: our own series, as Prometheus keeps them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

from mofa_operator.keys import Key
from mofa_operator.observe.answers import QueryResult
from mofa_operator.observe.promql import duration, selector

SPAN: Final = 24 * 3600.0
"""How far back is looked. [s]"""
STEP: Final = 300.0
"""Time between two points. [s]"""

Points = tuple[tuple[float, float], ...]


class Asks(Protocol):
    """Whoever answers queries."""

    async def query(self, promql: str, at: float | None = None) -> QueryResult:
        """What a query answers at a moment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curves:
    """Tokens a second of one job; points are moments of the epoch and values."""

    predicted: Points = ()
    """Of the advised layout. [(s, 1/s)]"""
    observed: Points = ()
    """Of the whole job. [(s, 1/s)]"""


async def curves(prometheus: Asks, key: Key, now: float) -> Curves:
    """The last day of a job."""
    job = {
        "training_namespace": key.namespace,
        "training_job": key.name,
        "training_kind": key.kind.kind,
    }
    grid = f"[{duration(SPAN)}:{duration(STEP)}]"
    predicted, observed = await asyncio.gather(
        *(
            prometheus.query(f"(max({series})){grid}", now)
            for series in (
                selector("mofa_job_predicted_tokens_per_second", bound="target", **job),
                selector("mofa_job_observed_tokens_per_second", **job),
            )
        )
    )
    return Curves(predicted=_points(predicted), observed=_points(observed))


def _points(found: QueryResult) -> Points:
    return found.samples[0].points if found.samples else ()
