"""Where the time of each step goes, told from the trace as it is: no replay, no model.

Every moment of a step on a device is one of four: some kernel computes; nothing computes but a
collective runs (exposed); nothing runs because the host has not launched yet (host-bound); nothing
runs though work was launched (waiting). Moments in which a collective runs beside compute are
counted beside these, as hidden.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from mofa_lab.traces import intervals
from mofa_lab.traces.collectives import Message, messages
from mofa_lab.traces.events import Array, EventKind, Trace
from mofa_lab.traces.operators import CLASSES, COMMUNICATION, Class, classes_of, communicates
from mofa_lab.traces.places import places

_STEP: Final = re.compile(
    r"ProfilerStep#?\s*(\d+)|(?:iteration|train_step|step)[ _#:]*(\d+)$", re.IGNORECASE
)
_SHORT: Final = 20e-6
"""Launches take this long to reach an idle device; a gap that ends sooner after its launch is the
host's. [s]
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepAccount:
    """One step on one rank. Times in seconds."""

    name: str
    """As annotated, or `whole trace`."""
    start: float
    """Begin of its first kernel."""
    end: float
    """End of its last kernel."""
    compute: float
    """Some kernel computes."""
    hidden: float
    """A collective runs beside compute; part of `compute`."""
    exposed: float
    """A collective runs and nothing computes."""
    host: float
    """Nothing runs: the host had not launched the next kernel."""
    waiting: float
    """Nothing runs although the next kernel was launched."""

    @property
    def span(self) -> float:
        """From start to end. [s]"""
        return self.end - self.start


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """One stream in one step. Times in seconds."""

    step: str
    """Name of the step."""
    stream: str
    """Its number."""
    kernels: int
    """Kernels and copies."""
    span: float
    """From its first start to its last end."""
    compute: float
    """Its kernels that compute."""
    exposed: float
    """Its collectives while no stream computes."""
    hidden: float
    """Its collectives beside compute."""
    idle: float
    """Nothing on this stream between its first start and its last end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Talk:
    """Collectives of one class under one annotation. Times in seconds."""

    kind: Class
    """Class."""
    place: str
    """Annotation around the launch; empty = none."""
    backward: bool
    """In the backward pass."""
    count: int
    """Kernels."""
    time: float
    """From their starts to their ends."""
    exposed: float
    """Part beside which nothing computes."""

    @property
    def hidden(self) -> float:
        """Part beside compute. [s]"""
        return self.time - self.exposed


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """One rank."""

    trace: Trace
    """What was read."""
    steps: tuple[StepAccount, ...]
    """Steps found."""
    streams: tuple[Stream, ...]
    """Streams of each step."""
    by_class: tuple[tuple[Class, int, float, float], ...]
    """Class, kernels, their time, and its part beside which nothing computes. [s]"""
    talks: tuple[Talk, ...]
    """Collectives by annotation and direction."""
    messages: tuple[Message, ...]
    """Collectives that say their size, grouped."""


def account(trace: Trace) -> Account:
    """The report on one rank's trace; in a trace of the CPU alone, operators take the place
    of kernels.
    """
    work = _Work(trace)
    steps, streams = [], []
    for name, low, high in steps_of(trace):
        inside = (work.start >= low) & (work.start < high)
        if not np.any(inside):
            continue
        steps.append(work.step(name, inside))
        streams += work.streams(name, inside)
    return Account(
        trace=trace,
        steps=tuple(steps),
        streams=tuple(streams),
        by_class=work.by_class(),
        talks=() if trace.host_only else work.by_place(trace),
        messages=messages(trace),
    )


def steps_of(trace: Trace) -> list[tuple[str, float, float]]:
    """Annotated steps with the time from each to the next; the whole trace where none is
    annotated. [s]
    """
    marks = trace.of(EventKind.MARK)
    named = {
        float(start): (trace.names[name], float(end))
        for name, start, end in zip(marks.name, marks.start, marks.end, strict=True)
        if _STEP.match(trace.names[name])
    }
    if not named:
        return [("whole trace", -np.inf, np.inf)]
    starts = sorted(named)
    ends = [*starts[1:], np.inf]
    return [(named[start][0], start, end) for start, end in zip(starts, ends, strict=True)]


class _Work:
    """What ran, with its class and the moment it was launched."""

    def __init__(self, trace: Trace) -> None:
        self.names = trace.lanes
        numbers = classes_of(trace)
        if trace.host_only:
            from mofa_lab.traces.host import leaves

            rows, numbers = leaves(trace)
            events = rows
        else:
            mask = trace.events.kind <= EventKind.COPY
            events, numbers = trace.events.rows(mask), numbers[mask]
        self.events = events
        self.numbers: Array = numbers
        self.start: Array = events.start
        self.end: Array = events.end
        self.lane: Array = events.lane
        self.talks = communicates(numbers)
        self.launch = _launched(trace, events.correlation)

    def step(self, name: str, inside: Array) -> StepAccount:
        start, end, talks = self.start[inside], self.end[inside], self.talks[inside]
        low, high = float(start.min()), float(end.max())
        compute = intervals.union(start[~talks], end[~talks])
        talk = intervals.union(start[talks], end[talks])
        busy = intervals.union(start, end)
        idle = intervals.gaps(busy, low, high)
        late = self._late(idle, inside)
        hidden = intervals.length(intervals.common(compute, talk))
        return StepAccount(
            name=name,
            start=low,
            end=high,
            compute=intervals.length(compute),
            hidden=hidden,
            exposed=intervals.length(talk) - hidden,
            host=late,
            waiting=intervals.length(idle) - late,
        )

    def _late(self, idle: Array, inside: Array) -> float:
        """Idle time of the device before the host launched the kernel that ended it. [s]"""
        if len(idle) == 0:
            return 0.0
        order = np.argsort(self.start[inside], kind="stable")
        start, launch = self.start[inside][order], self.launch[inside][order]
        after = np.minimum(np.searchsorted(start, idle[:, 1] - 1e-9), len(start) - 1)
        is_launched = np.isfinite(launch[after])
        until = np.where(is_launched, np.minimum(launch[after] + _SHORT, idle[:, 1]), idle[:, 0])
        return float(np.sum(np.maximum(until - idle[:, 0], 0.0)))

    def streams(self, step: str, inside: Array) -> list[Stream]:
        computing = intervals.union(
            self.start[inside & ~self.talks], self.end[inside & ~self.talks]
        )
        rows = []
        for lane in np.unique(self.lane[inside]):
            on_lane = inside & (self.lane == lane)
            start, end, talks = self.start[on_lane], self.end[on_lane], self.talks[on_lane]
            talk = intervals.union(start[talks], end[talks])
            hidden = intervals.length(intervals.common(talk, computing))
            span = float(end.max() - start.min())
            rows.append(
                Stream(
                    step=step,
                    stream=self.names[lane].name,
                    kernels=int(on_lane.sum()),
                    span=span,
                    compute=intervals.length(intervals.union(start[~talks], end[~talks])),
                    exposed=intervals.length(talk) - hidden,
                    hidden=hidden,
                    idle=span - intervals.length(intervals.union(start, end)),
                )
            )
        return rows

    def by_class(self) -> tuple[tuple[Class, int, float, float], ...]:
        computing = intervals.union(self.start[~self.talks], self.end[~self.talks])
        rows = []
        for number, kind in enumerate(CLASSES):
            of_class = self.numbers == number
            if not np.any(of_class):
                continue
            time = float(np.sum(self.end[of_class] - self.start[of_class]))
            alone = time
            if kind in COMMUNICATION:
                talking = intervals.union(self.start[of_class], self.end[of_class])
                alone = intervals.length(talking) - intervals.length(
                    intervals.common(talking, computing)
                )
            rows.append((kind, int(of_class.sum()), time, alone))
        return tuple(sorted(rows, key=lambda row: -row[2]))

    def by_place(self, trace: Trace) -> tuple[Talk, ...]:
        """Collectives by annotation and direction, most time first."""
        computing = intervals.union(self.start[~self.talks], self.end[~self.talks])
        talking = np.flatnonzero(self.talks)
        where = places(trace, self.events.rows(talking))
        named = [trace.names[n] for n in where.marks.name.tolist()]
        rows: dict[tuple[int, str, bool], list[int]] = {}
        for i, mark, backward in zip(
            talking.tolist(), where.mark.tolist(), where.backward.tolist(), strict=True
        ):
            name = re.sub(r"[\s#:_]*\d+", "", named[mark]) if mark >= 0 else ""
            rows.setdefault((int(self.numbers[i]), name, bool(backward)), []).append(i)
        talks = []
        for (number, place, backward), members in rows.items():
            busy = intervals.union(self.start[members], self.end[members])
            time = intervals.length(busy)
            talks.append(
                Talk(
                    kind=CLASSES[number],
                    place=place,
                    backward=backward,
                    count=len(members),
                    time=time,
                    exposed=time - intervals.length(intervals.common(busy, computing)),
                )
            )
        return tuple(sorted(talks, key=lambda talk: -talk.time))


def _launched(trace: Trace, correlation: Array) -> Array:
    """When the host began to launch each kernel; inf = not known. [s]"""
    calls = trace.of(EventKind.CALL)
    order = np.argsort(calls.correlation, kind="stable")
    correlations = calls.correlation[order]
    place = np.minimum(np.searchsorted(correlations, correlation), max(len(correlations) - 1, 0))
    if len(correlations) == 0:
        return np.full(len(correlation), np.inf)
    hit = (correlations[place] == correlation) & (correlation > 0)
    return np.where(hit, calls.start[order][place], np.inf)
