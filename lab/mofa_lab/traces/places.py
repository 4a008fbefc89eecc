"""What each kernel belongs to: the annotation around its launch, and forward or backward."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

import numpy as np

from mofa_lab.traces.events import Array, EventKind, Events, Trace

_BACKWARD: Final = re.compile(r"\((B|W)\)$|backward|\bbwd\b|autograd::engine", re.IGNORECASE)
_FORWARD: Final = re.compile(r"\(F\)$|forward|\bfwd\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Places:
    """One entry for each kernel."""

    called: Array
    """Start of its launch; its own start where that is not known. [s]"""
    mark: Array
    """Row of the innermost annotation around the launch, in `marks`; -1 = none."""
    backward: Array
    """True in the backward pass."""
    marks: Events
    """Annotations, by thread and start."""


def places(trace: Trace, kernels: Events) -> Places:
    """For each kernel its annotation, and whether it is of the backward pass: both are told by the
    host call that launched it.
    """
    calls = trace.of(EventKind.CALL)
    order = np.argsort(calls.correlation, kind="stable")
    correlations = calls.correlation[order]
    called, lane = kernels.start.copy(), np.full(len(kernels), -1)
    if len(correlations):
        at = np.minimum(np.searchsorted(correlations, kernels.correlation), len(correlations) - 1)
        hit = (correlations[at] == kernels.correlation) & (kernels.correlation > 0)
        called = np.where(hit, calls.start[order][at], called)
        lane = np.where(hit, calls.lane[order][at], lane)
    marks = trace.of(EventKind.MARK)
    marks = marks.rows(np.lexsort((-marks.duration, marks.start, marks.lane)))
    mark = _around(marks, called, lane)
    names = [trace.names[n] for n in marks.name.tolist()]
    direction = np.array(
        [bool(_BACKWARD.search(n)) - bool(_FORWARD.search(n)) for n in names] + [0]
    )
    by_mark = direction[mark]
    operators = trace.of(EventKind.OPERATOR)
    operators = operators.rows(np.lexsort((-operators.duration, operators.start, operators.lane)))
    engine = np.array(["autograd::engine" in name for name in trace.names] + [False])
    behind = operators.correlation < 0
    inside = operators.rows(engine[operators.name])
    threads = set(inside.lane.tolist()) - set(
        marks.lane.tolist()
    )  # autograd's own: nobody annotates there
    around = _around(operators, called, lane)
    by_operator = np.append(behind, False)[around] | (_around(inside, called, lane) >= 0)
    by_operator |= np.isin(lane, list(threads))
    backward = np.where(by_mark == 0, by_operator, by_mark > 0)
    return Places(called=called, mark=mark, backward=backward, marks=marks)


def _around(marks: Events, moments: Array, lanes: Array) -> Array:
    """Row of the innermost interval of the same thread around each moment; -1 = none."""
    marks_around = np.full(len(moments), -1)
    for lane in np.unique(marks.lane).tolist():
        rows = np.flatnonzero(marks.lane == lane)
        starts, ends = marks.start[rows].tolist(), marks.end[rows].tolist()
        above: list[int] = []
        holder = []
        for i, start in enumerate(starts):
            while above and ends[above[-1]] <= start:
                above.pop()
            holder.append(above[-1] if above else -1)
            above.append(i)
        for kernel in np.flatnonzero(lanes == lane).tolist():
            i = bisect_right(starts, moments[kernel]) - 1
            while i >= 0 and ends[i] < moments[kernel]:
                i = holder[i]
            marks_around[kernel] = rows[i] if i >= 0 else -1
    return marks_around
