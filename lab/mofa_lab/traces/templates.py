"""What one layer, the embedding and the head do in each pass: kernels with their mean times, found
by repetition.

A chunk of n layers launches the same kernels n times. Where the repetition begins and ends,
embedding and head stand; what belongs to the pipeline and to data parallelism is taken out first,
because it depends on the place in the schedule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, Final

from mofa_lab.traces.operators import COMMUNICATION, Class
from mofa_lab.traces.passes import Op, Pass, StepPasses
from mofa_model.errors import InputError
from mofa_model.schedules.schedule import OperationKind as Work

PAUSE: Final = 20.0
"""A host that takes this many times its median waited for something. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """One kernel of a template. Times in seconds."""

    name: str
    """Kernel name."""
    kind: Class
    """Operator class."""
    axis: str
    """Parallel axis of a collective: tensor or expert; empty = it computes."""
    seconds: float
    """Mean time; of a collective the median."""
    scatter: float
    """Standard deviation over mean."""
    host: float
    """Host time to launch it."""
    join: int
    """How many pieces later compute waits for this collective."""
    size: float
    """Bytes of a collective; 0 = not said. [B]"""
    dims: Any
    """Input shapes."""


Template = tuple[Piece, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTemplates:
    """Templates of a run and what happens once a step."""

    layer: dict[Work, Template]
    """One layer, forward and backward."""
    first: dict[Work, Template]
    """Beside the layers on the first virtual stage: the embedding."""
    last: dict[Work, Template]
    """Beside them on the last one: head and loss."""
    hops: tuple[Op, ...]
    """Transfers between stages."""
    data: tuple[Op, ...]
    """Gradient and parameter collectives."""
    overlapped: bool
    """True where gradients are reduced within the backward pass."""
    update: tuple[float, ...]
    """Optimizer kernels of each rank, together. [s]"""
    launch: float
    """Median host time of a launch. [s]"""


def learned(
    steps: Sequence[StepPasses], layers: int, depth: int, *, tensor: int, stride: int
) -> StepTemplates:
    """Templates from steps of several ranks; `layers` of a chunk, `depth` virtual stages, `tensor`
    ranks next to each other.
    """
    usual = median([op.host for step in steps for p in step.passes for op in p.ops] or [0.0])
    early = {
        op.stream
        for step in steps
        for p in step.passes
        if not p.last
        for op in p.ops
        if op.kind in COMMUNICATION
    }

    def axis(op: Op) -> str:
        return _axis(op, tensor, stride, early)

    bare = [
        (p, [op for op in p.ops if axis(op) not in {"pipeline", "data"}])
        for s in steps
        for p in s.passes
    ]
    sequences = {
        work: _sequence([(p, ops) for p, ops in bare if p.work.kind is work], layers)
        for work in _WORKS
    }
    gathered: dict[tuple[str, Work], list[list[list[Op]]]] = {}
    for p, ops in bare:
        work = Work.FORWARD if p.work.kind is Work.FORWARD else Work.BACKWARD
        before, parts, after = _split(ops, sequences[work], layers)
        gathered.setdefault(("layer", work), []).extend([part] for part in parts)
        for where, outer in (("first", 0), ("last", depth - 1)):
            if p.work.virtual_stage == outer:
                early_side = (where == "first") == (work is Work.FORWARD)
                side = before if early_side else after
                gathered.setdefault((where, work), []).append([side])
    made = {
        key: _template([part for group in parts for part in group], axis, usual)
        for key, parts in gathered.items()
    }
    every = [
        op
        for step in steps
        for op in (*step.before, *(o for p in step.passes for o in p.ops), *step.after)
    ]
    within = any(axis(op) == "data" for step in steps for p in step.passes for op in p.ops)
    return StepTemplates(
        layer={work: made["layer", work] for work in _WORKS},
        first={work: made.get(("first", work), ()) for work in _WORKS},
        last={work: made.get(("last", work), ()) for work in _WORKS},
        hops=tuple(op for op in every if axis(op) == "pipeline"),
        data=tuple(op for op in every if axis(op) == "data"),
        overlapped=within,
        update=tuple(
            sum(op.seconds for op in s.after if op.kind not in COMMUNICATION) for s in steps
        ),
        launch=usual,
    )


_WORKS: Final = (Work.FORWARD, Work.BACKWARD)


def _axis(op: Op, tensor: int, stride: int, early: set[int]) -> str:
    """The parallel axis of a collective: by its group where it says it, else by its class
    and stream.
    """
    if op.kind not in COMMUNICATION:
        return ""
    if op.kind is Class.POINT:
        return "pipeline"
    if op.kind is Class.ALL_TO_ALL:
        return "expert"
    if op.collective.ranks or op.collective.members:
        ranks = op.collective.ranks
        near = not ranks or len(ranks) < 2 or ranks[1] - ranks[0] < stride
        return "tensor" if tensor > 1 and op.collective.members == tensor and near else "data"
    return "tensor" if tensor > 1 and op.stream in early else "data"


def _sequence(given: Sequence[tuple[Pass, list[Op]]], layers: int) -> tuple[str, ...]:
    """Kernel names of one layer: the longest repetition that any pass shows; of chunks of one layer
    the shortest pass.
    """
    shortest = min((ops for _, ops in given), key=len, default=[])
    if not shortest:
        raise InputError(
            "trace: has passes without any kernel; it cannot be told what a layer does"
        )
    names = [op.name for op in shortest]
    if layers == 1:
        return tuple(names)
    for period in range(len(names) // layers, 0, -1):
        for begin in range(len(names) - layers * period + 1):
            end = begin + layers * period
            if names[begin : end - period] == names[begin + period : end]:
                return tuple(names[begin : begin + period])
    raise InputError(
        f"trace: its passes do not repeat {layers} times; give the layers of the model that was "
        "traced"
    )


def _split(
    ops: list[Op], sequence: tuple[str, ...], layers: int
) -> tuple[list[Op], list[list[Op]], list[Op]]:
    """Kernels before the layers, of each layer, and after them."""
    names, period = [op.name for op in ops], len(sequence)
    wanted = list(sequence) * layers
    for begin in range(len(names) - len(wanted) + 1):
        if names[begin : begin + len(wanted)] == wanted:
            end = begin + len(wanted)
            return ops[:begin], [ops[i : i + period] for i in range(begin, end, period)], ops[end:]
    raise InputError(
        "trace: its stages do not launch the same kernels for each layer; models of one kind of "
        "layer only"
    )


def _template(parts: list[list[Op]], axis: Any, usual: float) -> Template:
    """A template: mean times over all repetitions of one sequence of kernels; other lengths are
    left out.
    """
    common = Counter(tuple(op.name for op in part) for part in parts).most_common(1)
    if not common or not common[0][0]:
        return ()
    alike = [part for part in parts if tuple(op.name for op in part) == common[0][0]]
    pieces = []
    for place, first in enumerate(alike[0]):
        same = [part[place] for part in alike]
        times = [op.seconds for op in same]
        hosts = [op.host for op in same if op.host < PAUSE * usual] or [usual]
        mean = fmean(times)
        kind = axis(first)
        piece = Piece(
            name=first.name,
            kind=first.kind,
            axis=kind,
            seconds=median(times) if kind else mean,
            scatter=(fmean((t - mean) * (t - mean) for t in times)) ** 0.5 / mean
            if mean > 0
            else 0.0,
            host=fmean(hosts),
            join=0,
            size=first.collective.size,
            dims=first.dims,
        )
        pieces.append(replace(piece, join=_join(alike, place)) if kind else piece)
    return tuple(pieces)


def _join(alike: list[list[Op]], place: int) -> int:
    """How many pieces after a collective the first kernel stands that waited for it."""
    places: Counter[int] = Counter()
    for part in alike:
        end = part[place].start + part[place].seconds
        later = (
            i - place
            for i in range(place + 1, len(part))
            if part[i].kind not in COMMUNICATION and part[i].start >= end - 1e-6
        )
        places[next(later, len(part) - place)] += 1
    return places.most_common(1)[0][0]
