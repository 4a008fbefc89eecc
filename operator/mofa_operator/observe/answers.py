"""The bytes of an answer of Prometheus as typed samples; whatever is odd about them is said, never swallowed.

NaN or infinite value   left out, and a warning says how many
the same series twice   no answer: whichever is taken, it may be the wrong one
more series than asked  no answer
warnings, isPartial     handed on as warnings
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

_SHOWN: Final = 300


class NotAnAnswer(Exception):
    """What came is no answer; the message says why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of an answer."""

    labels: Mapping[str, str]
    """Its labels."""
    points: tuple[tuple[float, float], ...]
    """Moments in seconds of the epoch, and values; one point but for subqueries. [(s, …)]"""

    @property
    def value(self) -> float:
        """The last value."""
        return self.points[-1][1]

    def label(self, name: str) -> str:
        """A label's value; empty where it has none, as in Prometheus."""
        return self.labels.get(name, "")


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryResult:
    """What a query answered."""

    samples: tuple[Sample, ...]
    """Series with finite values."""
    warnings: tuple[str, ...] = ()
    """What is doubtful about it, in sentences."""

    def by(self, *labels: str) -> dict[tuple[str, ...], float]:
        """Values by some labels; use it on aggregations, where these are all the labels."""
        return {
            tuple(sample.label(name) for name in labels): sample.value for sample in self.samples
        }

    def number(self) -> float | None:
        """The only value; None where there is no series."""
        return self.samples[0].value if self.samples else None


def parsed(raw: bytes, query: str, most_series: int) -> QueryResult:
    """An answer from its bytes."""
    body = _json(raw)
    if (
        not isinstance(body, dict)
        or body.get("status") != "success"
        or not isinstance(body.get("data"), dict)
    ):
        raise NotAnAnswer("answers something that is not Prometheus' JSON")
    data = body["data"]
    kind, result = data.get("resultType"), data.get("result")
    if kind == "scalar":
        kind, result = "vector", [{"metric": {}, "value": result}]
    if kind not in {"vector", "matrix"} or not isinstance(result, list):
        raise NotAnAnswer(f"answers with {str(kind)[:40]!r} where a vector was due")
    if len(result) > most_series:
        raise NotAnAnswer(f"answers with more than {most_series} series to {query[:80]}")
    try:
        read = [_series(item, kind) for item in result]
    except (TypeError, ValueError, KeyError, AttributeError):
        raise NotAnAnswer("answers with a series that cannot be read") from None
    samples = tuple(sample for sample, _ in read if sample.points)
    if len({frozenset(sample.labels.items()) for sample in samples}) < len(samples):
        raise NotAnAnswer("answers with the same series twice")
    return QueryResult(samples=samples, warnings=_warnings(body, sum(odd for _, odd in read)))


def refusal(status: int, raw: bytes) -> str:
    """Why a server said no: its own words where it has some."""
    try:
        body = _json(raw)
    except NotAnAnswer:
        body = None
    said = body.get("error") if isinstance(body, dict) else None
    words = {
        401: "does not know us (401)",
        403: "does not let us in (403)",
        404: "has no query API there (404)",
    }
    told = words.get(status, f"refuses with status {status}")
    return f"{told}: {said[:_SHOWN]}" if isinstance(said, str) and said else told


def _json(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise NotAnAnswer("answers something that is not JSON") from None


def _series(item: dict[str, Any], kind: str) -> tuple[Sample, int]:
    """One series, and how many of its values are no numbers."""
    labels = item["metric"]
    if not all(isinstance(value, str) for value in labels.values()):
        raise TypeError
    given = [item["value"]] if kind == "vector" else item["values"]
    points = [(float(moment), float(value)) for moment, value in given]
    finite = tuple(point for point in points if math.isfinite(point[0]) and math.isfinite(point[1]))
    return Sample(labels, finite), len(points) - len(finite)


def _warnings(body: dict[str, Any], odd: int) -> tuple[str, ...]:
    said = body.get("warnings")
    found = (
        [" ".join(str(text).split())[:_SHOWN] for text in said[:8]]
        if isinstance(said, list)
        else []
    )
    if body.get("isPartial") is True:
        found.append("the answer is partial")
    if odd:
        found.append(f"{odd} values are not finite numbers and were left out")
    return tuple(found)
