"""Forecasts of the next days of a job or a pool: failures, ETTR and the date on which it finishes,
each with P10, P50 and P90; and how often such bands held.

    account by day ─▶ failures ahead (`forecast.mixture`) ─▶ each at the cost of a past one ─▶ ETTR
                                                                       work that is left ─▶ finish

Costs of failures are drawn from those of past days, because the costs of one day have much in
common. Where few are known, they are blurred: so few leave the typical cost uncertain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.records import dataclass
from mofa_model.reliability.forecast import RateForecasts, mixture
from mofa_model.reliability.special import beta_below
from mofa_model.units import Range

QUANTILES: Final = (0.1, 0.5, 0.9)
"""Quantiles of every forecast. [1]"""
LEVEL: Final = 0.8
"""Level of the bands between the first and the last quantile. [1]"""
WEEK: Final = 7.0
"""Length of the forecast that is made every day. [d]"""
LEAST_DAYS: Final = 14
"""Days that must have passed before anything is forecast. [1]"""
_DRAWS: Final = 1000
"""Draws of a forecast. [1]"""
_MOST: Final = 400
"""Most failures of a draw whose costs are drawn one by one; of more, so many are drawn and scaled.
[1]"""
_BLUR: Final = 0.7
"""Spread of the logarithm of the typical cost where one cost is known; where n are, that over the
root of n. Ours. [1]
"""
_UNUSUAL: Final = 0.05
"""Chance below which a count of bands that held is no accident. [1]"""


@dataclass(frozen=True, kw_only=True)
class TrainedDay:
    """A day of a job or a pool, as its account has it."""

    held: float
    """Time in which jobs held nodes. [node d]"""
    kept: float
    """Part of that time whose training was kept. [node d]"""
    stops: float
    """Interruptions that began on this day. [1]"""


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """A forecast of the next days."""

    days_ahead: float
    """Length of the forecast. [d]"""
    stops: Range
    """Interruptions. [1]"""
    ettr: Range
    """Share of the time held that is kept. [1]"""


@dataclass(frozen=True, kw_only=True)
class ScoredBand:
    """A band of a forecast, and the value that came."""

    lower: float
    upper: float
    came: float

    @property
    def held(self) -> bool:
        """Whether the value that came is inside the band."""
        return self.lower <= self.came <= self.upper


@dataclass(frozen=True, kw_only=True)
class BandCount:
    """How often bands of 80 % held."""

    bands: int
    """Bands whose days are over. [1]"""
    inside: int
    """Bands of these that held. [1]"""

    @property
    def share(self) -> float | None:
        """Share of bands that held; None without any band. [1]"""
        return self.inside / self.bands if self.bands else None


def prospect(days_trained: Sequence[TrainedDay], ahead: float) -> Prospect | None:
    """Forecast of the next `ahead` days [d] from past days in order; None where these are few.
    Ours. []

    >>> steady = [TrainedDay(held=10.0, kept=9.9 if day % 3 else 9.0, stops=0.0 if day % 3 else 1.0)
    ...           for day in range(60)]
    >>> ettr = prospect(steady, 7.0).ettr
    >>> [round(value, 3) for value in (ettr.lower, ettr.target, ettr.upper)]
    [0.931, 0.964, 0.99]
    """
    if len(days_trained) < LEAST_DAYS or sum(day.held for day in days_trained) <= 0:
        return None
    return _Draws(days_trained).ahead(ahead)


MOST_DAYS: Final = 3650.0
"""Latest end of a run that is forecast: ten years. [d]"""


def finish_days(days_trained: Sequence[TrainedDay], left: float) -> Range | None:
    """Days until the training that is `left` is done and kept, with its band; None where past days
    are few. `left` is its time at an ETTR of 1 [d]. Ours. [d]

    >>> steady = [TrainedDay(held=10.0, kept=9.0, stops=1.0) for _ in range(60)]
    >>> days = finish_days(steady, 30.0)
    >>> 32.0 < days.lower < days.target < days.upper < 35.0
    True
    """
    if len(days_trained) < LEAST_DAYS or sum(day.held for day in days_trained) <= 0:
        return None
    draws = _Draws(days_trained)

    def days(ettr: float) -> float:
        return min(left / max(ettr, 1e-6), MOST_DAYS)

    first_guess = draws.ahead(max(left, 1.0)).ettr
    # Each end of the range has a forecast that is as long as the run would take.
    times = []
    for end in ("upper", "target", "lower"):
        length = days(getattr(first_guess, end))
        times.append(days(getattr(draws.ahead(max(length, 1.0)).ettr, end)))
    early, likely, late = times
    return Range.around(likely, early, late)


class _Draws:
    """The past of a forecast, ready to be drawn from."""

    def __init__(self, past: Sequence[TrainedDay]) -> None:
        # The seed is fixed, so the same past always has the same forecast.
        self._generator = np.random.default_rng(1)
        self._held = np.array([day.held for day in past])
        self._stops = np.array([day.stops for day in past])
        lost = np.maximum(self._held - np.array([day.kept for day in past]), 0.0)
        quiet = self._stops <= 0
        worked = self._held > 0
        self._quiet = lost[quiet & worked] / self._held[quiet & worked]
        base = float(self._quiet.mean()) if len(self._quiet) else 0.0
        interrupted = np.flatnonzero(~quiet & worked)
        lost_to_stops = np.maximum(lost[interrupted] - base * self._held[interrupted], 0.0)
        self._cost = lost_to_stops / np.maximum(self._stops[interrupted], 1e-9)
        self._weight = self._stops[interrupted]
        self._held_daily = float(self._held[-int(WEEK) :].mean())

    def ahead(self, days: float) -> Prospect:
        """The forecast of the next days, from draws of failures and losses."""
        time_held = max(self._held_daily * days, 1e-9)
        rates = mixture(np.ones(len(self._held)), self._held, self._stops, ahead=days)
        stops = self._counts(rates, time_held)
        lost = self._costs(stops) + self._quiet_loss(days) * time_held
        ettr = np.clip(1 - lost / time_held, 0.0, 1.0)
        return Prospect(days_ahead=days, stops=_range(stops), ettr=_range(ettr))

    def _quiet_loss(self, days: float) -> NDArray[Any]:
        """Share that each draw loses on days without an interruption, of which few lose anything.
        [1]
        """
        if not len(self._quiet):
            return np.zeros(_DRAWS)
        number = min(max(round(days), 1), _MOST)
        past_day = self._generator.integers(0, len(self._quiet), (_DRAWS, number))
        return np.asarray(self._quiet[past_day].mean(axis=1))

    def _counts(self, rates: RateForecasts, exposure: float) -> NDArray[Any]:
        """Interruptions of each draw: a forecast is drawn by its weight, then a rate, then a count.
        [1]
        """
        generator = self._generator
        forecast = generator.choice(len(rates.weight), _DRAWS, p=rates.weight)
        rate = generator.gamma(rates.shape[forecast]) / rates.scale[forecast]
        mean, spread = rate * exposure, rates.spread[forecast]
        excess = np.maximum(spread - 1, 1e-9)
        clustered = generator.poisson(generator.gamma(mean / excess) * excess)
        scattered = generator.poisson(mean)
        return np.asarray(np.where(spread > 1, clustered, scattered), dtype=float)

    def _costs(self, stops: NDArray[Any]) -> NDArray[Any]:
        """Node-time that each draw loses to its interruptions. [node d]"""
        if not len(self._cost):
            return np.zeros(len(stops))
        generator = self._generator
        drawn = np.minimum(stops, _MOST).astype(int)
        past_day = generator.choice(
            len(self._cost),
            (len(stops), max(int(drawn.max()), 1)),
            p=self._weight / self._weight.sum(),
        )
        is_drawn = np.arange(past_day.shape[1]) < drawn[:, None]
        blur = _BLUR / np.sqrt(max(float(self._weight.sum()), 1.0))
        blurred = np.exp(blur * generator.standard_normal(len(stops)))
        scale = np.where(drawn > 0, stops / np.maximum(drawn, 1), 0.0)
        return np.asarray((self._cost[past_day] * is_drawn).sum(axis=1) * scale * blurred)


def _range(values: NDArray[Any]) -> Range:
    low, middle, high = (float(value) for value in np.quantile(values, QUANTILES))
    return Range(lower=low, target=middle, upper=high)


def calibration(scored: Sequence[ScoredBand]) -> BandCount:
    """How often bands held. Ours. [1]"""
    return BandCount(bands=len(scored), inside=sum(band.held for band in scored))


def misses(of_bands: BandCount, apart: float = 1.0) -> str | None:
    """Sentence that bands of 80 % hold more or less often than chance allows; None where chance
    explains it. Ours. []

    Bands of neighbouring days share most of their week, so only every `apart`-th band counts.

    >>> misses(BandCount(bands=10, inside=3))
    'of 10 bands of 80 % 3 held: too narrow'
    >>> misses(BandCount(bands=10, inside=8)) is None
    True
    """
    bands, held = round(of_bands.bands / apart), round(of_bands.inside / apart)
    if not bands:
        return None
    chance_below = float(beta_below(bands - held, held + 1, 1 - LEVEL)) if held < bands else 1.0
    chance_above = float(beta_below(held, bands - held + 1, LEVEL)) if held else 1.0
    count_text = f"of {of_bands.bands} bands of 80 % {of_bands.inside} held"
    if chance_below < _UNUSUAL / 2:
        return f"{count_text}: too narrow"
    return f"{count_text}: too wide" if chance_above < _UNUSUAL / 2 else None
