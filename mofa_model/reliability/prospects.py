"""What the next days will bring a job or a pool: failures, ETTR and the date on which it finishes,
each with P10, P50 and P90; and how often such bands held.

    account by day ─▶ failures ahead (`forecast.mixture`) ─▶ each costs what one of the past cost ─▶
    ETTR
                                                                  └▶ work that is left ─▶ finish

The costs of failures are drawn from those of the past, day by day, because those of one day have
much in common. Where few are known, they are blurred by as much as so few leave open.
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
"""What is said of everything. [1]"""
LEVEL: Final = 0.8
"""Level of the bands between the first and the last of them. [1]"""
WEEK: Final = 7.0
"""How far the forecast of every day looks. [d]"""
LEAST_DAYS: Final = 14
"""Days before which nothing is forecast. [1]"""
_DRAWS: Final = 1000
"""Draws of a forecast. [1]"""
_MOST: Final = 400
"""Failures of a draw that are drawn one by one; more are this many, each as much dearer. [1]"""
_BLUR: Final = 0.7
"""Spread of the logarithm of a cost of which one is known; of n that over the root of n.
Ours. [1]
"""
_UNUSUAL: Final = 0.05
"""Chance below which the bands that held are no accident. [1]"""


@dataclass(frozen=True, kw_only=True)
class TrainedDay:
    """A day of a job or a pool, as its account has it."""

    held: float
    """Time that was not idle. [node d]"""
    kept: float
    """What of it trained and was kept. [node d]"""
    stops: float
    """Interruptions that began. [1]"""


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """What is expected of the next days."""

    days_ahead: float
    """How far it looks. [d]"""
    stops: Range
    """Interruptions. [1]"""
    ettr: Range
    """Share of the time held that is kept. [1]"""


@dataclass(frozen=True, kw_only=True)
class ScoredBand:
    """A band, and what came."""

    lower: float
    upper: float
    came: float

    @property
    def held(self) -> bool:
        """Whether it held."""
        return self.lower <= self.came <= self.upper


@dataclass(frozen=True, kw_only=True)
class BandCount:
    """How often bands of 80 % held."""

    bands: int
    """How many are over. [1]"""
    inside: int
    """How many of them held. [1]"""

    @property
    def share(self) -> float | None:
        """Share that held; None where none is over. [1]"""
        return self.inside / self.bands if self.bands else None


def prospect(days_trained: Sequence[TrainedDay], ahead: float) -> Prospect | None:
    """Forecast of the next `ahead` days [d] from days in their order; None where they are few.
    Ours. []

    >>> steady = [TrainedDay(held=10.0, kept=9.9 if day % 3 else 9.0, stops=0.0 if day % 3 else 1.0)
    ...           for day in range(60)]
    >>> coming = prospect(steady, 7.0)
    >>> [round(value, 3) for value in (coming.ettr.lower, coming.ettr.target, coming.ettr.upper)]
    [0.931, 0.964, 0.99]
    """
    if len(days_trained) < LEAST_DAYS or sum(day.held for day in days_trained) <= 0:
        return None
    drawn = _Draws(days_trained)
    return drawn.ahead(ahead)


MOST_DAYS: Final = 3650.0
"""Days after which a run is said to end at the latest: ten years. [d]"""


def finish_days(days_trained: Sequence[TrainedDay], left: float) -> Range | None:
    """Days until so much training is kept, at ETTR 1 [d], with its band; None where days are few.
    Ours. [d]

    >>> steady = [TrainedDay(held=10.0, kept=9.0, stops=1.0) for _ in range(60)]
    >>> found = finish_days(steady, 30.0)
    >>> 32.0 < found.lower < found.target < found.upper < 35.0
    True
    """
    if len(days_trained) < LEAST_DAYS or sum(day.held for day in days_trained) <= 0:
        return None
    drawn = _Draws(days_trained)
    first = drawn.ahead(max(left, 1.0)).ettr
    times = []
    for name in ("upper", "target", "lower"):  # a low ETTR finishes late
        about = min(left / max(getattr(first, name), 1e-6), MOST_DAYS)
        ettr = getattr(drawn.ahead(max(about, 1.0)).ettr, name)
        times.append(min(left / max(ettr, 1e-6), MOST_DAYS))
    return Range.around(times[1], times[0], times[2])


class _Draws:
    """The past of a forecast, ready to be drawn from."""

    def __init__(self, past: Sequence[TrainedDay]) -> None:
        # One past has one forecast, whoever asks and how often.
        self._generator = np.random.default_rng(1)
        self._held = np.array([day.held for day in past])
        self._stops = np.array([day.stops for day in past])
        lost = np.maximum(self._held - np.array([day.kept for day in past]), 0.0)
        quiet = self._stops <= 0
        worked = self._held > 0
        self._quiet = lost[quiet & worked] / self._held[quiet & worked]
        base = float(self._quiet.mean()) if len(self._quiet) else 0.0
        struck = np.flatnonzero(~quiet & worked)
        extra = np.maximum(lost[struck] - base * self._held[struck], 0.0)
        self._cost = extra / np.maximum(self._stops[struck], 1e-9)
        self._weight = self._stops[struck]
        self._now = float(self._held[-int(WEEK) :].mean())

    def ahead(self, days: float) -> Prospect:
        """The forecast of some days ahead, from draws of failures and losses."""
        held = max(self._now * days, 1e-9)
        rates = mixture(np.ones(len(self._held)), self._held, self._stops, ahead=days)
        stops = self._counts(rates, held)
        lost = self._costs(stops) + self._quiet_loss(days) * held
        ettr = np.clip(1 - lost / held, 0.0, 1.0)
        return Prospect(days_ahead=days, stops=_range(stops), ettr=_range(ettr))

    def _quiet_loss(self, days: float) -> NDArray[Any]:
        """Share that each draw loses on days on which nothing stops: few lose anything. [1]"""
        if not len(self._quiet):
            return np.zeros(_DRAWS)
        number = min(max(round(days), 1), _MOST)
        index = self._generator.integers(0, len(self._quiet), (_DRAWS, number))
        return np.asarray(self._quiet[index].mean(axis=1))

    def _counts(self, rates: RateForecasts, held: float) -> NDArray[Any]:
        """Interruptions of each draw: of a forecast by its weight, a rate, and a count. [1]"""
        draw = self._generator
        which = draw.choice(len(rates.weight), _DRAWS, p=rates.weight)
        rate = draw.gamma(rates.shape[which]) / rates.scale[which]
        mean, spread = rate * held, rates.spread[which]
        over = np.maximum(spread - 1, 1e-9)
        wide, plain = draw.poisson(draw.gamma(mean / over) * over), draw.poisson(mean)
        return np.asarray(np.where(spread > 1, wide, plain), dtype=float)

    def _costs(self, stops: NDArray[Any]) -> NDArray[Any]:
        """Node-time that each draw loses to its interruptions. [node d]"""
        if not len(self._cost):
            return np.zeros(len(stops))
        draw = self._generator
        drawn = np.minimum(stops, _MOST).astype(int)
        index = draw.choice(
            len(self._cost),
            (len(stops), max(int(drawn.max()), 1)),
            p=self._weight / self._weight.sum(),
        )
        counted = np.arange(index.shape[1]) < drawn[:, None]
        blur = _BLUR / np.sqrt(max(float(self._weight.sum()), 1.0))
        whole = np.exp(blur * draw.standard_normal(len(stops)))
        scale = np.where(drawn > 0, stops / np.maximum(drawn, 1), 0.0)
        return np.asarray((self._cost[index] * counted).sum(axis=1) * scale * whole)


def _range(values: NDArray[Any]) -> Range:
    low, middle, high = (float(value) for value in np.quantile(values, QUANTILES))
    return Range(lower=low, target=middle, upper=high)


def calibration(scored: Sequence[ScoredBand]) -> BandCount:
    """How often bands held. Ours. [1]"""
    return BandCount(bands=len(scored), inside=sum(one.held for one in scored))


def misses(of_bands: BandCount, apart: float = 1.0) -> str | None:
    """In words, that bands of 80 % hold more or less often than chance allows; None where they do
    not. Ours. []

    Bands of neighbouring days share most of their week: every `apart`-th counts.

    >>> misses(BandCount(bands=10, inside=3))
    'of 10 bands of 80 % 3 held: too narrow'
    >>> misses(BandCount(bands=10, inside=8)) is None
    True
    """
    bands, held = round(of_bands.bands / apart), round(of_bands.inside / apart)
    if not bands:
        return None
    few = float(beta_below(bands - held, held + 1, 1 - LEVEL)) if held < bands else 1.0
    many = float(beta_below(held, bands - held + 1, LEVEL)) if held else 1.0
    told = f"of {of_bands.bands} bands of 80 % {of_bands.inside} held"
    if few < _UNUSUAL / 2:
        return f"{told}: too narrow"
    return f"{told}: too wide" if many < _UNUSUAL / 2 else None
