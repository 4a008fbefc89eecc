"""Predicted and observed over the last day, as lines and as numbers."""

from __future__ import annotations

from typing import Any, Protocol
from xml.etree import ElementTree as ET

from mofa_model.page.figures import LineDrawing, lines
from mofa_model.page.markup import el, table
from mofa_model.units import HOUR

_ROWS = 24
"""Rows of the table. [1]"""


class JobHistory(Protocol):
    """Points of one job: moments of the epoch, and tokens a second."""

    @property
    def predicted(self) -> tuple[tuple[float, float], ...]:
        """Of the advised layout. [(s, 1/s)]"""

    @property
    def observed(self) -> tuple[tuple[float, float], ...]:
        """Of the whole job. [(s, 1/s)]"""


def sections(found: JobHistory | str | None) -> list[ET.Element]:
    """The history of a job, or why there is none."""
    if found is None:
        return []
    heading = el("h2", "The last day")
    if isinstance(found, str):
        return [heading, el("p", found)]
    if not (found.predicted or found.observed):
        return [heading, el("p", "Prometheus holds nothing of this job yet.")]
    now = max(moment for points in (found.predicted, found.observed) for moment, _ in points)

    def before(points: tuple[tuple[float, float], ...]) -> list[tuple[Any, float]]:
        return [(round((moment - now) / HOUR, 2), value) for moment, value in points]

    told = {"predicted": before(found.predicted), "observed": before(found.observed)}
    drawn = LineDrawing(
        lines={name: points for name, points in told.items() if points},
        across="hours from now",
        up="tokens a second",
    )
    by_hour = {name: dict(points) for name, points in told.items()}
    places = sorted({at for points in by_hour.values() for at in points})
    rows = [
        (
            f"{at:g}",
            *(f"{by_hour[name][at]:,.0f}" if at in by_hour[name] else "-" for name in by_hour),
        )
        for at in places[:: max(1, len(places) // _ROWS)]
    ]
    numbers = table(("hours from now", *by_hour), rows, numbers=(0, 1, 2))
    return [
        heading,
        lines("Tokens a second, predicted and observed", drawn),
        el("details", el("summary", "The lines as a table"), numbers),
    ]
