"""The host's side of a trace: calls that follow each other on threads, and operators of a trace of
the CPU alone.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from mofa_lab.traces.events import Array, EventKind, Events, Trace
from mofa_lab.traces.operators import classes, communicates

LAUNCH: Final = re.compile(r"Launch|Memcpy|Memset|Graph", re.IGNORECASE)
"""Calls that put work on a stream."""
WAIT: Final = re.compile(r"(Device|Stream|Event|Ctx)Synchronize|hip\w*Synchronize", re.IGNORECASE)
"""Calls that return when work on the device is done."""
WHOLE: Final = re.compile(r"(Device|Ctx)Synchronize", re.IGNORECASE)
"""Those of them that wait for every stream."""


def matching(trace: Trace, pattern: re.Pattern[str]) -> Array:
    """True for the names in which a pattern is found."""
    return np.array([bool(pattern.search(name)) for name in trace.names] + [False])


def outermost(events: Events) -> tuple[Events, Array]:
    """Outermost calls of each thread in order, and for every call the position of the outermost one
    around it.
    """
    order = np.lexsort((-events.duration, events.start, events.lane))
    lane, start, end = events.lane[order], events.start[order], events.end[order]
    keep = np.ones(len(order), dtype=bool)
    holder = np.zeros(len(order), dtype=np.int64)
    reach, thread, place = -np.inf, -1, -1
    for i, (of_thread, begin, finish) in enumerate(
        zip(lane.tolist(), start.tolist(), end.tolist(), strict=True)
    ):
        if of_thread != thread:
            thread, reach = of_thread, -np.inf
        if begin < reach and finish <= reach + 1e-6:
            keep[i] = False
        else:
            place += 1
            reach = max(reach, finish)
        holder[i] = place
    of_given = np.empty(len(order), dtype=np.int64)
    of_given[order] = holder
    return events.rows(order[keep]), of_given


def leaves(trace: Trace) -> tuple[Events, Array]:
    """Operators that hold no other one, by thread and start, with their classes; a collective is
    one with what it holds.
    """
    operators = trace.of(EventKind.OPERATOR, EventKind.MARK)
    numbers = classes(trace.names)[operators.name] if len(operators) else np.empty(0, dtype=np.int8)
    talks = communicates(numbers)
    real = (operators.kind == EventKind.OPERATOR) | talks
    operators, numbers, talks = operators.rows(real), numbers[real], talks[real]
    order = np.lexsort((-operators.duration, operators.start, operators.lane))
    events, numbers, talks = operators.rows(order), numbers[order], talks[order]
    keep = np.zeros(len(order), dtype=bool)
    stack: list[tuple[float, int, bool, bool]] = []  # end, row, communicates, holds another
    thread = -1

    def close(until: float) -> None:
        while stack and stack[-1][0] <= until + 1e-9:
            _, row, talking, holds = stack.pop()
            keep[row] = talking or not holds

    for row, (of_thread, start, end, talking) in enumerate(
        zip(
            events.lane.tolist(),
            events.start.tolist(),
            events.end.tolist(),
            talks.tolist(),
            strict=True,
        )
    ):
        if of_thread != thread:
            close(np.inf)
            thread = of_thread
        close(start)
        if any(held[2] for held in stack):
            continue  # a part of a collective
        if stack:
            stack[-1] = (*stack[-1][:3], True)
        stack.append((end, row, talking, False))
    close(np.inf)
    return events.rows(keep), numbers[keep]
