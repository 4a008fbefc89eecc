"""A step cut into passes: which kernels are the forward or backward pass of one micro-batch through
one chunk.

By annotations where there are some (`forward 3`, `Backward 2`, `mlp(B)`), else by directions:
launches turn from forward to backward where the schedule says so, and a run of several passes is
cut into equal ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import numpy as np

from mofa_lab.traces.account import steps_of
from mofa_lab.traces.collectives import Collective, collective_of
from mofa_lab.traces.events import Array, EventKind, Trace
from mofa_lab.traces.operators import CLASSES, COMMUNICATION, Class, classes_of
from mofa_lab.traces.places import places
from mofa_model.errors import BadFile
from mofa_model.schedules.schedule import Operation
from mofa_model.schedules.schedule import OperationKind as Work

_PASS: Final = re.compile(
    r"^(fwd|bwd|forward|backward)(_step|_pass|_microbatch)?\b[ _#:]*\d*", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Op:
    """One kernel of a pass. Times in seconds."""

    name: str
    """Kernel name."""
    kind: Class
    """Operator class."""
    start: float
    """When it started."""
    seconds: float
    """How long it took."""
    host: float
    """Host time from the launch before it to its own."""
    stream: int
    """Lane."""
    collective: Collective
    """What the kernel of a collective says of it; nothing where the kernel computes."""
    dims: Any
    """Input shapes of its operator; None = not recorded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """Kernels of one pass, in the order of their launches."""

    work: Operation
    """Which pass it is."""
    last: bool
    """True for the last micro-batch of its chunk, in which gradients are reduced."""
    ops: tuple[Op, ...]
    """Kernels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPasses:
    """One step of one rank."""

    stage: int
    """Pipeline stage."""
    seconds: float
    """How long it took, on the host's clock."""
    passes: tuple[Pass, ...]
    """In the order of the schedule."""
    before: tuple[Op, ...] = field(default=())
    """Kernels before the first pass."""
    after: tuple[Op, ...] = field(default=())
    """Kernels after the last one: gradients, optimizer, parameters."""


def step_of(trace: Trace, stage: int, order: Sequence[Operation]) -> StepPasses:
    """The last whole step of a rank of `stage`, whose schedule has this order."""
    name, low, high = steps_of(trace)[-1]
    device_rows = np.flatnonzero(trace.events.kind <= EventKind.COPY)
    kernels = trace.events.rows(device_rows)
    where = places(trace, kernels)
    inside = np.flatnonzero((where.called >= low) & (where.called < high))
    inside = inside[np.argsort(where.called[inside], kind="stable")]
    if not len(inside):
        raise BadFile(trace.path, f"has no kernel in its last step, {name}")
    ops = _ops(trace, device_rows[inside], where.called[inside])
    labels = _labels(trace, where, inside)
    runs = _by_mark(labels) if sum(label >= 0 for label in labels) else []
    matched = _matched(trace, ops, runs, where.backward[inside], order)
    mark = trace.of(EventKind.MARK)
    bounds = mark.end[(mark.start == low)]
    end = float(bounds.max()) if len(bounds) else float(kernels.end[inside].max())
    begin = low if np.isfinite(low) else float(where.called[inside].min())
    last = {k.virtual_stage: k.microbatch for k in order if k.kind is not Work.FORWARD}
    passes = tuple(
        Pass(
            work=work,
            last=work.kind is not Work.FORWARD and last[work.virtual_stage] == work.microbatch,
            ops=tuple(part),
        )
        for work, part in zip(order, matched[1], strict=True)
    )
    return StepPasses(
        stage=stage,
        seconds=end - begin,
        passes=passes,
        before=tuple(matched[0]),
        after=tuple(matched[2]),
    )


def _ops(trace: Trace, rows: Array, called: Array) -> list[Op]:
    """Kernels as records: class, time, launch, sizes, and what they say of a collective."""
    numbers = classes_of(trace)[rows]
    events = trace.events.rows(rows)
    host = np.diff(called, prepend=called[0])
    operators = trace.of(EventKind.OPERATOR)
    detail = dict(zip(operators.operator.tolist(), operators.detail.tolist(), strict=True))
    parsed: dict[int, Collective] = {}
    ops = []
    for i in range(len(rows)):
        kind = CLASSES[numbers[i]]
        own = int(events.detail[i])
        if own not in parsed:
            parsed[own] = collective_of(trace.details[own])
        dims = trace.details[detail.get(int(events.operator[i]), 0)].get("Input Dims")
        ops.append(
            Op(
                name=trace.names[events.name[i]],
                kind=kind,
                start=float(events.start[i]),
                seconds=float(events.duration[i]),
                host=float(host[i]),
                stream=int(events.lane[i]),
                collective=parsed[own]
                if kind in COMMUNICATION
                else parsed.setdefault(0, Collective()),
                dims=dims if kind in {Class.GEMM, Class.GROUPED, Class.ATTENTION} else None,
            )
        )
    return ops


def _labels(trace: Trace, where: Any, inside: Array) -> list[int]:
    """For each kernel the annotation of its pass, -1 outside."""
    marks = where.marks
    named = [bool(_PASS.match(trace.names[n])) for n in marks.name.tolist()]
    rows = np.flatnonzero(np.array(named, dtype=bool)) if named else np.empty(0, dtype=np.int64)
    starts = marks.start[rows]
    order = np.argsort(starts, kind="stable")
    rows, starts = rows[order], starts[order]
    labels = []
    for moment in where.called[inside].tolist():
        at = int(np.searchsorted(starts, moment, side="right")) - 1
        labels.append(int(rows[at]) if at >= 0 and marks.end[rows[at]] >= moment else -1)
    return labels


def _by_mark(labels: list[int]) -> list[tuple[int, int]]:
    """Runs of kernels under one annotation: first and one past the last."""
    runs, at = [], 0
    for label, members in groupby(labels):
        count = len(list(members))
        if label >= 0:
            runs.append((at, at + count))
        at += count
    return runs


def _matched(
    trace: Trace,
    ops: list[Op],
    runs: list[tuple[int, int]],
    backward: Array,
    order: Sequence[Operation],
) -> tuple[list[Op], list[list[Op]], list[Op]]:
    """Kernels before the passes, in each pass, and after them."""
    if not runs:
        runs = list(_by_direction(backward.tolist(), order))
    if len(runs) != len(order):
        raise BadFile(
            trace.path,
            f"has {len(runs)} forward and backward passes in its last step where the layout has "
            f"{len(order)}; give the layout and batch that were traced",
        )
    return ops[: runs[0][0]], [ops[a:b] for a, b in runs], ops[runs[-1][1] :]


def _by_direction(backward: list[bool], order: Sequence[Operation]) -> Iterator[tuple[int, int]]:
    """Runs without annotations: as many turns as the schedule has, each cut into equal passes."""
    wanted = [
        (back, len(list(g))) for back, g in groupby(o.kind is not Work.FORWARD for o in order)
    ]
    at, given = 0, []
    for back, members in groupby(backward):
        count = len(list(members))
        given.append((back, at, count))
        at += count
    for (back, passes), (there, start, count) in zip(wanted, given, strict=False):
        if back != there:
            return
        for n in range(passes):
            yield start + count * n // passes, start + count * (n + 1) // passes
