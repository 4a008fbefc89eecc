"""Sets of moments as sorted, disjoint intervals: arrays [n, 2] of starts and ends in seconds."""

from __future__ import annotations

import numpy as np

from mofa_lab.traces.events import Array
from mofa_model.units import Seconds


def union(start: Array, end: Array) -> Array:
    """Union of intervals, which may overlap and come in any order. [s]

    >>> union(np.array([0.0, 3.0, 1.0]), np.array([2.0, 4.0, 2.5])).tolist()
    [[0.0, 2.5], [3.0, 4.0]]
    """
    if len(start) == 0:
        return np.empty((0, 2))
    order = np.argsort(start, kind="stable")
    begin, reach = start[order], np.maximum.accumulate(end[order])
    fresh = np.concatenate([[True], begin[1:] > reach[:-1]])
    last = np.append(np.flatnonzero(fresh)[1:] - 1, len(begin) - 1)
    return np.stack([begin[fresh], reach[last]], axis=1)


def length(intervals: Array) -> float:
    """Total length of disjoint intervals. [s]

    >>> length(np.array([[0.0, 2.5], [3.0, 4.0]]))
    3.5
    """
    return float(np.sum(intervals[:, 1] - intervals[:, 0]))


def common(first: Array, other: Array) -> Array:
    """Intersection of two sets of intervals. [s]

    >>> common(np.array([[0.0, 2.0], [3.0, 5.0]]), np.array([[1.0, 4.0]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    if len(first) == 0 or len(other) == 0:
        return np.empty((0, 2))
    edges = np.concatenate([first[:, 0], other[:, 0], first[:, 1], other[:, 1]])
    change = np.concatenate([np.ones(len(first) + len(other)), -np.ones(len(first) + len(other))])
    order = np.lexsort((change, edges))
    depth = np.cumsum(change[order])
    at = edges[order]
    both = np.flatnonzero((depth[:-1] >= 2) & (at[1:] > at[:-1]))
    return np.stack([at[both], at[both + 1]], axis=1)


def without(first: Array, other: Array, low: Seconds, high: Seconds) -> Array:
    """Moments between `low` and `high` that lie in the first and not in the second. [s]

    >>> without(np.array([[0.0, 4.0]]), np.array([[1.0, 2.0]]), 0.0, 9.0).tolist()
    [[0.0, 1.0], [2.0, 4.0]]
    """
    return common(first, gaps(other, low, high))


def gaps(intervals: Array, low: Seconds, high: Seconds) -> Array:
    """Moments between `low` and `high` outside the intervals. [s]

    >>> gaps(np.array([[1.0, 2.0]]), 0.0, 3.0).tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    begin = np.append(low, intervals[:, 1])
    end = np.append(intervals[:, 0], high)
    edges = np.stack([np.maximum(begin, low), np.minimum(end, high)], axis=1)
    return edges[edges[:, 1] > edges[:, 0]]


def clipped(intervals: Array, low: Seconds, high: Seconds) -> Array:
    """The part between `low` and `high`. [s]

    >>> clipped(np.array([[0.0, 2.0]]), 1.0, 3.0).tolist()
    [[1.0, 2.0]]
    """
    return common(intervals, np.array([[low, high]]))
