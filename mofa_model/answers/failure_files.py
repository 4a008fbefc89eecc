"""Observed failures from two CSV files: failures by node and class, and node-days by node."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from mofa_model.errors import BadFile, BadValue
from mofa_model.files import from_csv, from_headed_csv, read_text
from mofa_model.reliability.observed import ObservedFailures
from mofa_model.spec.evidence import DatedEvidence, FailureEvidence
from mofa_model.units import DAY

_MOST_DAYS: Final = 36_525.0
"""Most node-days of one node that are believed: a hundred years. [d]"""
_LAST: Final = 253_402_300_799.0
"""The end of the year 9999, in seconds of the epoch. [s]"""


def read_failures(
    events: str, exposure: str | None, node_days: float | None, possible: float | None
) -> ObservedFailures:
    """Failures of a file of events; node-days of the file `exposure`, or the total `node_days`."""
    if (exposure is None) == (node_days is None):
        raise BadValue(
            "--exposure",
            exposure,
            "give node-days by node with --exposure, or in all with --node-days",
        )
    node_days_by_node, possible_days = (
        ({}, possible) if exposure is None else _exposure(exposure, possible)
    )
    times_by_class: dict[str, list[float | None]] = {}
    failures_by_node: dict[str, int] = {}
    recoveries: dict[str, tuple[float, ...]] = {}
    open_recoveries: dict[str, tuple[float, ...]] = {}
    for line, row in _rows(events, ("node", "class")):
        name, node = row["class"], row["node"]
        failures_by_node[node] = failures_by_node.get(node, 0) + 1
        if node_days_by_node and node not in node_days_by_node:
            raise BadFile(events, f"line {line}: node {node[:60]!r} has no node-days in {exposure}")
        times_by_class.setdefault(name, []).append(
            _moment(row["time"], events, line) if row.get("time") else None
        )
        if row.get("recovery_seconds"):
            seconds = _number(row["recovery_seconds"], events, line)
            is_open = row.get("open", "").lower() in {"yes", "true", "1"}
            by_class = open_recoveries if is_open else recoveries
            by_class[name] = (*by_class.get(name, ()), seconds)
    times = [
        moment for moments in times_by_class.values() for moment in moments if moment is not None
    ]
    start, window = _window(times, node_days_by_node)
    if start + window > _LAST:
        raise BadFile(
            events, f"the node-days of {exposure} end after the year 9999; give real times"
        )
    exposed_days = sum(node_days_by_node.values()) if node_days is None else node_days
    classes = {
        name: FailureEvidence(failures=len(moments), node_days=exposed_days)
        for name, moments in times_by_class.items()
    }
    dated = window > 0 and len(times) == sum(failures_by_node.values())
    return ObservedFailures(
        classes=classes,
        past=_days(times_by_class, exposed_days, start, window) if dated else (),
        possible=possible_days,
        by_node=failures_by_node if node_days_by_node else {},
        node_days_by_node=node_days_by_node,
        times=tuple(min(time - start, window) for time in times) if window else (),
        window=window,
        recoveries=recoveries,
        open_recoveries=open_recoveries,
    )


def _exposure(path: str, possible: float | None) -> tuple[dict[str, float], float | None]:
    by_node: dict[str, float] = {}
    whole = 0.0
    for line, row in _rows(path, ("node", "node_days")):
        days = _number(row["node_days"], path, line)
        if days > _MOST_DAYS:
            raise BadFile(
                path, f"line {line}: node_days {days:g} are more than a hundred years of one node"
            )
        whole += (
            _number(row["possible_node_days"], path, line)
            if row.get("possible_node_days")
            else math.nan
        )
        if days > 0:
            by_node[row["node"]] = by_node.get(row["node"], 0.0) + days
    if not by_node:
        raise BadFile(path, "has no node with node-days above zero; give at least one")
    return by_node, whole if possible is None and math.isfinite(whole) else possible


def _rows(path: str, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    text = read_text(path)
    _, names = next(from_csv(text, path), (1, list[str]()))
    missing = [name for name in needed if name not in names]
    if missing:
        raise BadFile(
            path, f"has no column {', '.join(missing)}; its first line must name the columns"
        )
    for line, row in from_headed_csv(text, path):
        cells = {name: cell.strip() for name, cell in row.items()}
        for name in needed:
            if not cells.get(name):
                raise BadFile(path, f"line {line}: {name} is empty")
        yield line, cells


def _window(times: list[float], by_node: dict[str, float]) -> tuple[float, float]:
    """Start and length of the trend's window, which is as long as the longest watched node. [s]"""
    if len(times) < 2 or not by_node:
        return 0.0, 0.0
    longest = max(by_node.values()) * DAY
    start = min(times) if max(times) - min(times) > longest or min(times) > longest else 0.0
    return start, max(longest, max(times) - start)


def _days(
    failed: dict[str, list[float | None]], exposed: float, start: float, window: float
) -> tuple[DatedEvidence, ...]:
    """Failures by day since the start of the window, over which the exposure is spread evenly."""
    count = math.ceil(window / DAY)
    counts = {name: [0] * count for name in failed}
    for name, moments in failed.items():
        for moment in moments:
            counts[name][min(int(((moment or start) - start) / DAY), count - 1)] += 1
    return tuple(
        DatedEvidence(
            date=datetime.fromtimestamp(start + day * DAY, UTC).date().isoformat(),
            days=1.0,
            classes={
                name: FailureEvidence(failures=by_day[day], node_days=exposed / count)
                for name, by_day in counts.items()
            },
        )
        for day in range(count)
    )


def _moment(text: str, path: str, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadFile(
            path, f"line {line}: {text[:60]!r} is no time; write seconds or ISO 8601"
        ) from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _number(text: str, path: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise BadFile(path, f"line {line}: {text[:60]!r} is not a number that is zero or more")
    return value
