"""Failure events and node-days from CSV files, for `mofa rates`. Not a verb."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime

from mofa_model.errors import BadFile, BadValue
from mofa_model.files import from_csv, from_headed_csv, read_text
from mofa_model.reliability.observed import ObservedFailures
from mofa_model.spec.evidence import DatedEvidence, FailureEvidence
from mofa_model.units import DAY


def read(
    events: str, exposure: str | None, node_days: float | None, possible: float | None
) -> ObservedFailures:
    """What the files say was observed."""
    if (exposure is None) == (node_days is None):
        raise BadValue(
            "--exposure",
            exposure,
            "give node-days by node with --exposure, or in all with --node-days",
        )
    by_node, whole = ({}, possible) if exposure is None else _exposure(exposure, possible)
    failed: dict[str, list[float | None]] = {}
    nodes: dict[str, int] = {}
    done: dict[str, tuple[float, ...]] = {}
    still: dict[str, tuple[float, ...]] = {}
    for line, row in _rows(events, ("node", "class")):
        name, node = row["class"], row["node"]
        nodes[node] = nodes.get(node, 0) + 1
        if by_node and node not in by_node:
            raise BadFile(events, f"line {line}: node {node[:60]!r} has no node-days in {exposure}")
        failed.setdefault(name, []).append(
            _time(row["time"], events, line) if row.get("time") else None
        )
        if row.get("recovery_seconds"):
            lasted = _number(row["recovery_seconds"], events, line)
            kind = still if row.get("open", "").lower() in {"yes", "true", "1"} else done
            kind[name] = (*kind.get(name, ()), lasted)
    times = [at for moments in failed.values() for at in moments if at is not None]
    start, window = _window(times, by_node)
    exposed = sum(by_node.values()) if node_days is None else node_days
    classes = {
        name: FailureEvidence(failures=len(every), node_days=exposed)
        for name, every in failed.items()
    }
    dated = window > 0 and len(times) == sum(nodes.values())
    return ObservedFailures(
        classes=classes,
        past=_days(failed, exposed, start, window) if dated else (),
        possible=whole,
        by_node=nodes if by_node else {},
        node_days_by_node=by_node,
        times=tuple(min(time - start, window) for time in times) if window else (),
        window=window,
        recoveries=done,
        open_recoveries=still,
    )


def _exposure(path: str, possible: float | None) -> tuple[dict[str, float], float | None]:
    by_node: dict[str, float] = {}
    whole = 0.0
    for line, row in _rows(path, ("node", "node_days")):
        days = _number(row["node_days"], path, line)
        whole += (
            _number(row["possible_node_days"], path, line)
            if row.get("possible_node_days")
            else math.nan
        )
        if days > 0:
            by_node[row["node"]] = by_node.get(row["node"], 0.0) + days
    if not by_node:
        raise BadFile(path, "has no node with node-days above zero")
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
        told = {name: cell.strip() for name, cell in row.items()}
        for name in needed:
            if not told.get(name):
                raise BadFile(path, f"line {line}: {name} is empty")
        yield line, told


def _window(times: list[float], by_node: dict[str, float]) -> tuple[float, float]:
    """Start and length of the window that the trend is tested in: as long as the longest watched node. [s]"""
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
        for at in moments:
            counts[name][min(int(((at or start) - start) / DAY), count - 1)] += 1
    return tuple(
        DatedEvidence(
            date=datetime.fromtimestamp(start + day * DAY, UTC).date().isoformat(),
            days=1.0,
            classes={
                name: FailureEvidence(failures=many[day], node_days=exposed / count)
                for name, many in counts.items()
            },
        )
        for day in range(count)
    )


def _time(text: str, path: str, line: int) -> float:
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
