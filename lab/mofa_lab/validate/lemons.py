"""Lemons of real fleets, judged by what came after: at every origin the past names nodes, and the
next four weeks count.

A fleet is a folder's `stepfun_faults.csv`, `lanl_outages.csv` with `lanl.json`, or
`titan_failures.csv` with `titan_exposure.csv` (cabinets in place of nodes). Past is the half-year
before the origin.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.files import from_headed_csv, read_text
from mofa_model.records import dataclass
from mofa_model.reliability.lemon_nodes import clustering, lemons, prior
from mofa_model.units import DAY, MINUTE

PAST: Final = 180.0
"""How far back lemons are looked for. [d]"""
AHEAD: Final = 28.0
"""How far each origin is judged, and how far apart origins are. [d]"""
_FORTNIGHT: Final = 14.0
"""Span by which clustering is judged. [d]"""
_LEAST_NODES: Final = 32
"""Smallest system that is judged. [1]"""


@dataclass(frozen=True, kw_only=True)
class LemonScore:
    """What the lemons of a fleet did after they were named."""

    fleet: str
    origins: int
    """Moments at which bad nodes were looked for. [1]"""
    advised: int
    """Nodes that were named, over all origins. [1]"""
    expected: float
    """Failures that were forecast for these nodes. [1]"""
    came: float
    """Failures that these nodes had. [1]"""
    usual: float
    """Failures of as many usual nodes in the same weeks. [1]"""


@dataclass(frozen=True, kw_only=True)
class _Fleet:
    name: str
    nodes: int
    begin: float
    end: float
    times: NDArray[Any]
    who: NDArray[Any]


def lemon_scores(folder: Path) -> list[LemonScore]:
    """Scores of the search for bad nodes, of every fleet of a folder."""
    by_fleet: defaultdict[str, list[tuple[int, float, float, float]]] = defaultdict(list)
    for fleet in _fleets(folder):
        origin = fleet.begin + 2 * AHEAD
        while origin + AHEAD <= fleet.end:
            by_fleet[fleet.name].append(_judged(fleet, origin))
            origin += AHEAD
    return [
        LemonScore(
            fleet=name,
            origins=len(rows),
            advised=sum(row[0] for row in rows),
            expected=sum(row[1] for row in rows),
            came=sum(row[2] for row in rows),
            usual=sum(row[3] for row in rows),
        )
        for name, rows in by_fleet.items()
    ]


def _judged(fleet: _Fleet, origin: float) -> tuple[int, float, float, float]:
    """Bad nodes that a fleet's past names at a moment: their number, and forecast and real
    failures after.
    """
    begin = max(fleet.begin, origin - PAST)
    spans = max(2, int((origin - begin) / _FORTNIGHT))
    seen = (fleet.times >= begin) & (fleet.times < origin)
    span_of_failure = ((fleet.times[seen] - begin) / (origin - begin) * spans).astype(int)
    counts = np.zeros((fleet.nodes, spans))
    np.add.at(counts, (fleet.who[seen], np.minimum(span_of_failure, spans - 1)), 1)
    spread = clustering(counts)
    failed = counts.sum(axis=1) / spread
    exposure = np.full(fleet.nodes, (origin - begin) / spread)
    chosen = lemons(failed, exposure)
    if not chosen:
        return 0, 0.0, 0.0, 0.0
    shape, scale = prior(failed, exposure)
    forecast = ((failed[chosen] + shape) / (exposure[chosen] + scale) * AHEAD).sum()
    after = (fleet.times >= origin) & (fleet.times < origin + AHEAD)
    came = np.bincount(fleet.who[after], minlength=fleet.nodes)
    usual = np.delete(came, chosen).mean() * len(chosen)
    return len(chosen), float(forecast), float(came[chosen].sum()), float(usual)


def _fleets(folder: Path) -> Iterator[_Fleet]:
    faults = [
        (row["node"], float(row["start_s"]) / DAY) for row in _rows(folder / "stepfun_faults.csv")
    ]
    about = json.loads(read_text(folder / "stepfun.json"))
    yield _fleet(
        "stepfun", faults, about["fleet"]["nodes_in_this_half"], 0.0, about["span_s"] / DAY
    )
    systems = json.loads(read_text(folder / "lanl.json"))["systems"]
    by_system: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    for row in _rows(folder / "lanl_outages.csv"):
        if row["cause"] != "facility":
            by_system[row["system"]].append((row["node"], float(row["start_min"]) * MINUTE / DAY))
    for name, system in systems.items():
        if system["nodes"] >= _LEAST_NODES:
            begin, end = (
                system[f"exposure_{end_name}_min"] * MINUTE / DAY for end_name in ("from", "to")
            )
            yield _fleet("lanl", by_system[name], system["nodes"], begin, end)
    cabinets = {
        row["cabinet"]: int(row["last_week"]) for row in _rows(folder / "titan_exposure.csv")
    }
    failures = [
        (row["cabinet"], 7.0 * int(row["week"]) + 3.5)
        for row in _rows(folder / "titan_failures.csv")
        for _ in range(int(row["dbe"]) + int(row["otb"]))
    ]
    weeks = max(cabinets.values()) + 1
    yield _fleet("titan", failures, len(cabinets), 0.0, 7.0 * weeks)


def _rows(file: Path) -> Iterator[dict[str, str]]:
    return (row for _, row in from_headed_csv(read_text(file), file))


def _fleet(
    name: str, failures: list[tuple[str, float]], nodes: int, begin: float, end: float
) -> _Fleet:
    numbers = {node: number for number, node in enumerate(sorted({node for node, _ in failures}))}
    return _Fleet(
        name=name,
        nodes=max(nodes, len(numbers)),
        begin=begin,
        end=end,
        times=np.array([time for _, time in failures]),
        who=np.array([numbers[node] for node, _ in failures], dtype=int),
    )
