"""Forecasts of weeks and of finish dates on made lives of pools, from rolling origins: how often
bands of 80 % held.

Every origin knows the days before it, from four weeks on; the week after it, and the date on which
thirty days' worth of training is kept, are what comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from mofa_lab.validate.pool_lives import LifeSettings, live
from mofa_model.records import dataclass
from mofa_model.reliability.prospects import (
    WEEK,
    BandCount,
    ScoredBand,
    TrainedDay,
    calibration,
    finish_days,
    prospect,
)
from mofa_model.units import DAY

FIRST: Final = 28
"""Days before the first origin. [d]"""
WORK: Final = 30.0
"""Training whose end is forecast, at an ETTR of one. [d]"""
POOLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "usual": {},
    "seldom": {"crash_rate": 0.003, "stall_rate": 0.002, "hang_rate": 0.001, "node_rate": 0.003},
    "lemons": {"lemon_nodes": 2},
    "in place": {"in_place": True, "interval": 600.0},
    "often": {"crash_rate": 0.1},
    "small": {"sizes": (2,), "nodes": 3},
}
"""Pools whose lives are forecast, by name."""


@dataclass(frozen=True, kw_only=True)
class RollingScore:
    """How forecasts of a pool's jobs did."""

    pool: str
    weeks: BandCount
    """Of ETTR in the week after."""
    stops: BandCount
    """Of interruptions in it."""
    finishes: BandCount
    """Of finish dates."""


def rolling_scores(seeds: Sequence[int], days: float = 280.0) -> Iterator[RollingScore]:
    """Every pool, over lives with these seeds."""
    for name, kind in POOLS.items():
        weeks, stops, finishes = list[ScoredBand](), list[ScoredBand](), list[ScoredBand]()
        for seed in seeds:
            settings = LifeSettings(seed=seed, days=days, **kind)
            document = live(settings).document
            for number, size in enumerate(settings.sizes):
                past = trained_days(document, f"ml/job-{number}", size, settings.interval)
                for origin in range(FIRST, len(past) - int(WEEK), int(WEEK)):
                    week = past[origin : origin + int(WEEK)]
                    coming = prospect(past[:origin], WEEK)
                    if coming is None:
                        continue
                    ettr = sum(day.kept for day in week) / sum(day.held for day in week)
                    came = sum(day.stops for day in week)
                    weeks.append(
                        ScoredBand(lower=coming.ettr.lower, upper=coming.ettr.upper, came=ettr)
                    )
                    stops.append(
                        ScoredBand(lower=coming.stops.lower, upper=coming.stops.upper, came=came)
                    )
                finishes += _finishes(past, size)
        yield RollingScore(
            pool=name,
            weeks=calibration(weeks),
            stops=calibration(stops),
            finishes=calibration(finishes),
        )


def _finishes(past: Sequence[TrainedDay], size: int) -> Iterator[ScoredBand]:
    for origin in range(FIRST, len(past) - int(WORK), 2 * int(WEEK)):
        kept = np.cumsum([day.kept / size for day in past[origin:]])
        at = int(np.searchsorted(kept, WORK))
        band = finish_days(past[:origin], WORK)
        if at >= len(kept) or band is None:
            continue
        before = kept[at - 1] if at else 0.0
        came = at + float((WORK - before) / (kept[at] - before))
        yield ScoredBand(lower=band.lower, upper=band.upper, came=came)


def trained_days(
    document: Mapping[str, Any], job: str, size: int, interval: float
) -> list[TrainedDay]:
    """The days of a job, from the incidents of its life."""
    count = int(document["end"] / DAY)
    lost, stops, up = np.zeros(count), np.zeros(count), 0.0
    for incident in document["incidents"]:
        if incident.get("job") != job:
            continue
        start, end = incident["start"], incident["end"]
        stops[min(int(start / DAY), count - 1)] += 1
        at = start - (start - up) % interval
        while at < end and at // DAY < count:
            until = min(end, (at // DAY + 1) * DAY)
            lost[int(at // DAY)] += (until - at) / DAY * size
            at = until
        up = end
    return [
        TrainedDay(held=float(size), kept=max(0.0, size - float(gone)), stops=float(number))
        for gone, number in zip(lost, stops, strict=True)
    ]
