"""Forecasts of failures on real fleets: whether their bands hold, from rolling origins.

At every origin the forecast knows what came before, from four weeks on and once something has
failed, and says the next days with the exposure that they had. Origins are as far apart as the
forecast looks, so no failure is forecast twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.errors import BadFile
from mofa_model.files import from_headed_csv, from_toml, read_text
from mofa_model.reliability.forecast import log_chance, mixture, outlook

AHEAD: Final = (7, 14, 28)
"""How far the forecasts look. [d]"""
FIRST: Final = 28
"""Days before the first forecast. [d]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetScore:
    """How forecasts of one fleet did."""

    fleet: str
    """Name of the fleet."""
    days: int
    """Days ahead that the forecasts look. [d]"""
    forecasts: int
    """Number of forecasts. [1]"""
    covered: float
    """Share of the bands of 90 % that held. [1]"""
    width: float
    """Mean width of the bands, in failures. [1]"""
    plain_width: float | None
    """The narrower mean of the plain laws that `plain.csv` has of it; None without that
    file. [1]
    """
    log_score: float
    """Mean logarithm of the chance that was given to what came. [1]"""
    plain_log_score: float | None
    """The better score of the plain laws. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _System:
    span: int
    exposure: NDArray[Any]
    failures: NDArray[Any]


def fleet_scores(folder: str) -> list[FleetScore]:
    """Scores of every fleet of a folder with `fleets.toml` and `failures.csv`."""
    fleets, plain = _fleets(Path(folder)), _plain(Path(folder) / "plain.csv")
    return [
        _score(name, systems, ahead, plain.get((name, ahead), ()))
        for name, systems in fleets.items()
        for ahead in AHEAD
    ]


def daily_counts(folder: str) -> dict[str, list[NDArray[Any]]]:
    """Failures a day of each system, by fleet; fleets that are counted by week are left out."""
    return {
        fleet: [system.failures for system in systems if system.span == 1]
        for fleet, systems in _fleets(Path(folder)).items()
    }


def _fleets(folder: Path) -> dict[str, list[_System]]:
    try:
        return _read(folder)
    except (KeyError, TypeError, ValueError) as error:
        right = "fleets.toml and failures.csv must agree in fleets, systems and days"
        raise BadFile(folder, f"{right}: {type(error).__name__} {error}") from error


def _read(folder: Path) -> dict[str, list[_System]]:
    about: dict[str, Any] = from_toml(read_text(folder / "fleets.toml"), folder / "fleets.toml")
    counts: dict[tuple[str, str], dict[int, int]] = {}
    for _, row in _rows(folder / "failures.csv"):
        counts.setdefault((row["fleet"], row["system"]), {})[int(row["day"])] = int(row["failures"])
    return {
        fleet: [
            _system(fields["span_days"], system["days"], system["nodes"], counts[fleet, name])
            for name, system in fields["systems"].items()
        ]
        for fleet, fields in about.items()
    }


def _rows(file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    return from_headed_csv(read_text(file), file)


def _plain(file: Path) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Mean width and log score of simple laws, forecast from the same days, by fleet and length."""
    by_fleet: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _, row in _rows(file) if file.exists() else ():
        figures = float(row["width"]), float(row["log_score"])
        by_fleet.setdefault((row["fleet"], int(row["days"])), []).append(figures)
    return by_fleet


def _system(span: int, days: int, nodes: Any, counts: dict[int, int]) -> _System:
    spans = days // span
    return _System(
        span=span,
        exposure=span * np.broadcast_to(np.asarray(nodes, dtype=float), spans),
        failures=np.array([counts.get(at * span, 0) for at in range(spans)], dtype=float),
    )


def _score(
    fleet: str, systems: list[_System], ahead: int, plain: Sequence[tuple[float, float]]
) -> FleetScore:
    figures = np.array([row for system in systems for row in _forecasts(system, ahead)])
    covered, width, log = figures.mean(axis=0)
    return FleetScore(
        fleet=fleet,
        days=ahead,
        forecasts=len(figures),
        covered=float(covered),
        width=float(width),
        plain_width=min((width for width, _ in plain), default=None),
        log_score=float(log),
        plain_log_score=max((score for _, score in plain), default=None),
    )


def _forecasts(system: _System, ahead: int) -> Iterator[tuple[float, float, float]]:
    """For each forecast: whether its band held, its width, and its log score."""
    step = ahead // system.span
    for origin in range(FIRST // system.span, len(system.failures) - step + 1, step):
        if not system.failures[:origin].any():
            continue
        mixed = mixture(
            np.full(origin, float(system.span)),
            system.exposure[:origin],
            system.failures[:origin],
            ahead=ahead,
        )
        exposure = float(system.exposure[origin : origin + step].sum())
        came = int(system.failures[origin : origin + step].sum())
        band = outlook(mixed, ahead, exposure)
        chance = (
            np.exp(log_chance(came, exposure, mixed.shape, mixed.scale, mixed.spread))
            @ mixed.weight
        )
        yield (
            float(band.lower <= came <= band.upper),
            float(band.upper - band.lower),
            float(np.log(chance)),
        )
