"""A graph of a layout that never ran: templates of a traced one, rescaled and put in the order of
the new schedule.

One rank of each stage stands for all, since tensor- and data-parallel ranks do the same. Operators
are rescaled by the ratio of what the analytical model says of both layouts, collectives likewise;
what the traced layout did not have is put in at the model's own price.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

from mofa_lab.traces.drawing import Drawing, Stage
from mofa_lab.traces.graph import Graph
from mofa_lab.traces.operators import Class
from mofa_lab.traces.prices import (
    Layout,
    Prices,
    data_inside,
    data_time,
    hop_inside,
    hop_time,
    prices,
)
from mofa_lab.traces.templates import Piece, StepTemplates, Template
from mofa_model.schedules import INTERLEAVED, ONE_F_ONE_B
from mofa_model.schedules.schedule import Operation, Order
from mofa_model.schedules.schedule import OperationKind as Work


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewrite:
    """A traced layout and the one that is asked for."""

    learned: StepTemplates
    """Templates of the traced one."""
    old: Layout
    """The traced layout."""
    new: Layout
    """The layout that is asked for."""

    def graph(self) -> Graph:
        """Graph of one step of the new layout."""
        return _Writer(self).graph()


def order_for(layout: Layout) -> Order:
    """The schedule of a layout."""
    s = layout.strategy
    schedule = INTERLEAVED if int(s.vpp) > 1 and s.schedule == ONE_F_ONE_B else s.schedule
    return schedule.order(int(s.pp), layout.micro_batches, int(s.vpp))


class _Writer:
    def __init__(self, rewrite: Rewrite) -> None:
        self._learned, self._new = rewrite.learned, rewrite.new
        self._old_prices, self._new_prices = prices(rewrite.old), prices(rewrite.new)
        self._data, self._hop = _data_factor(rewrite), _hop_factor(rewrite)
        self._layer = {work: self._rescaled(work) for work in (Work.FORWARD, Work.BACKWARD)}
        self._update = max(self._learned.update, default=0.0) * _ratio(
            self._new_prices.update, self._old_prices.update
        )
        self._drawing = Drawing(int(rewrite.new.strategy.pp))
        self._overlap = self._learned.overlapped or float(rewrite.old.strategy.dp) <= 1

    def graph(self) -> Graph:
        """Every stage's passes, then its share of the update."""
        order = order_for(self._new)
        home = {
            (o.virtual_stage, o.microbatch): d
            for d, steps in enumerate(order)
            for s in steps
            for o in s
        }
        for device, steps in enumerate(order):
            operations = [o for step in steps for o in step]
            backward = [o for o in operations if o.kind in {Work.BACKWARD, Work.WEIGHT_GRADIENT}]
            last = {o.virtual_stage: o for o in backward}
            stage = self._drawing.stage(device)
            for operation in operations:
                self._pass(
                    stage,
                    device,
                    operation,
                    home,
                    last=last.get(operation.virtual_stage) is operation,
                )
            self._finish(stage, device)
        return self._drawing.graph()

    def _pass(
        self,
        stage: Stage,
        device: int,
        o: Operation,
        home: dict[tuple[int, int], int],
        *,
        last: bool,
    ) -> None:
        """Add one pass of a micro-batch to a stage: what it receives, computes and sends."""
        forward, depth = o.kind is Work.FORWARD, self._new.depth
        come, go = (
            (o.virtual_stage - 1, o.virtual_stage + 1)
            if forward
            else (o.virtual_stage + 1, o.virtual_stage - 1)
        )
        share = 0.5 if o.kind in {Work.INPUT_GRADIENT, Work.WEIGHT_GRADIENT} else 1.0
        sends = o.kind is not Work.WEIGHT_GRADIENT
        if sends and 0 <= come < depth and home[come, o.microbatch] != device:
            stage.meet(
                self._key(forward, come, o.virtual_stage, o.microbatch),
                self._hop_seconds(),
                self._launch,
                receive=True,
            )
        outer_first = o.virtual_stage == (0 if forward else depth - 1)
        outer_last = o.virtual_stage == (depth - 1 if forward else 0)
        work = Work.FORWARD if forward else Work.BACKWARD
        before, after = (
            (self._learned.first, self._learned.last)
            if forward
            else (self._learned.last, self._learned.first)
        )
        if outer_first:
            self._outer(stage, before[work], share)
        for _ in range(self._new.chunk):
            stage.play(self._layer[work], share)
            if last and float(self._new.strategy.dp) > 1 and self._overlap:
                stage.side(
                    "data", self._new_prices.reduce * self._data, self._launch, Class.REDUCE_SCATTER
                )
        if outer_last:
            self._outer(stage, after[work], share)
            if last and not forward and float(self._new.strategy.dp) > 1:
                stage.side(
                    "data",
                    self._new_prices.reduce_outer * self._data,
                    self._launch,
                    Class.REDUCE_SCATTER,
                )
        if sends and 0 <= go < depth and home[go, o.microbatch] != device:
            stage.meet(
                self._key(forward, o.virtual_stage, go, o.microbatch),
                self._hop_seconds(),
                self._launch,
                receive=False,
            )

    @property
    def _launch(self) -> float:
        return self._learned.launch

    def _key(
        self, forward: bool, source: int, target: int, microbatch: int
    ) -> tuple[bool, int, int, int]:
        """What both ends of one transfer between stages are found by."""
        return forward, source, target, microbatch

    def _hop_seconds(self) -> float:
        return self._new_prices.hop * self._hop

    def _outer(self, stage: Stage, template: Template, share: float) -> None:
        """Embedding or head, rescaled."""
        heads = any(piece.kind is Class.GEMM for piece in template)
        moved = (
            _ratio(
                self._new_prices.head[Class.ELEMENTWISE], self._old_prices.head[Class.ELEMENTWISE]
            )
            if heads
            else _ratio(self._new_prices.embedding, self._old_prices.embedding)
        )
        product = _ratio(self._new_prices.head[Class.GEMM], self._old_prices.head[Class.GEMM])
        scaled = (
            replace(p, seconds=p.seconds * (product if p.kind is Class.GEMM else moved))
            for p in template
        )
        stage.play(tuple(p for p in scaled if not p.axis), share)

    def _finish(self, stage: Stage, device: int) -> None:
        """Add the end of a step: exposed gradients, the update, and the gather of parameters."""
        parallel, layers = (
            float(self._new.strategy.dp) > 1,
            self._new.chunk * int(self._new.strategy.vpp),
        )
        if parallel and not self._overlap:
            for _ in range(layers):
                stage.side(
                    "data", self._new_prices.reduce * self._data, self._launch, Class.REDUCE_SCATTER
                )
        if parallel and device == int(self._new.strategy.pp) - 1:
            stage.side(
                "data",
                self._new_prices.reduce_outer * self._data,
                self._launch,
                Class.REDUCE_SCATTER,
            )
        stage.join("data")
        stage.compute("optimizer", Class.OPTIMIZER, self._update, self._launch)
        if parallel:
            stage.side("data", self._new_prices.gather * self._data, self._launch, Class.ALL_GATHER)
            stage.join("data")

    def _rescaled(self, work: Work) -> Template:
        """The layer's template at the new layout's prices, with the collectives that it
        has there.
        """
        pieces = []
        template = self._learned.layer[work]
        for p in template:
            if p.axis:
                before, other = (
                    (self._new_prices.tensor, self._old_prices.tensor)
                    if p.axis == "tensor"
                    else (self._new_prices.expert, self._old_prices.expert)
                )
                if before > 0:
                    pieces.append(replace(p, seconds=p.seconds * _ratio(before, other)))
                else:
                    pieces.append(replace(p, seconds=0.0, axis="gone"))
                continue
            ratio = _layer_ratio(self._new_prices, self._old_prices, work, p.kind)
            pieces.append(replace(p, seconds=p.seconds * ratio))
        made = _without_gone(pieces)
        had = {p.axis for p in template}
        if self._new_prices.expert > 0 and "expert" not in had:
            made = _with_experts(made, self._new_prices.expert, self._launch)
        if self._new_prices.tensor > 0 and "tensor" not in had:
            made = _with_tensor(
                made,
                self._new_prices.tensor,
                self._launch,
                work,
                self._new_prices.tensor_count // 2,
            )
        return tuple(made)


def _layer_ratio(now: Prices, was: Prices, work: Work, kind: Class) -> float:
    priced_kind = kind if (work, kind) in now.layer else Class.ELEMENTWISE
    return _ratio(now.layer[work, priced_kind], was.layer[work, priced_kind])


def _ratio(now: float, was: float) -> float:
    return now / was if was > 0 else 1.0


def _without_gone(pieces: list[Piece]) -> list[Piece]:
    """Pieces without collectives that the new layout does not have; the joins of the others are
    counted anew.
    """
    kept = [i for i, p in enumerate(pieces) if p.axis != "gone"]
    place = {i: n for n, i in enumerate(kept)}
    pieces_left = []
    for i in kept:
        p = pieces[i]
        target = next((place[j] for j in range(i + p.join, len(pieces)) if j in place), len(kept))
        pieces_left.append(replace(p, join=target - place[i]) if p.axis else p)
    return pieces_left


def _with_experts(pieces: list[Piece], seconds: float, host: float) -> list[Piece]:
    """Dispatch before the first product of the experts, combine after the last one."""
    at = [i for i, p in enumerate(pieces) if p.kind is Class.GROUPED]
    return (
        _inserted(pieces, [(at[0], 1), (at[-1] + 1, 1)], "expert", Class.ALL_TO_ALL, seconds, host)
        if at
        else pieces
    )


def _with_tensor(
    pieces: list[Piece], seconds: float, host: float, work: Work, halves: int
) -> list[Piece]:
    """A gather before each half layer's products and a scatter after; backward, the last product
    runs beside the scatter.
    """
    at = [i for i, p in enumerate(pieces) if p.kind is Class.GEMM]
    each = 2 if work is Work.FORWARD else 4
    at = at[: each * halves] if work is Work.FORWARD else at[-each * halves :]
    groups = [at[i : i + each] for i in range(0, len(at), each)]
    places = []
    for group in groups:
        places.append((group[0], 1))
        places.append((group[-1] + 1, 1) if work is Work.FORWARD else (group[-1], 2))
    return _inserted(pieces, places, "tensor", Class.ALL_GATHER, seconds, host)


def _inserted(
    pieces: list[Piece],
    places: list[tuple[int, int]],
    axis: str,
    kind: Class,
    seconds: float,
    host: float,
) -> list[Piece]:
    """Pieces with new collectives put in at some places; `places` gives for each the piece that
    waits for it.
    """
    new = dict(places)
    extended: list[Piece] = []
    for i in range(len(pieces) + 1):
        if i in new:
            extended.append(
                Piece(
                    name=kind.value, kind=kind, axis=axis, seconds=seconds, scatter=0.0, host=host,
                    join=new[i],
                    size=0.0, dims=None,
                )
            )  # fmt: skip
        if i < len(pieces):
            extended.append(pieces[i])
    return extended


def _data_factor(rewrite: Rewrite) -> float:
    """Measured over modelled time of the traced data-parallel collectives; 1 where the new ones
    take other links.
    """
    ops = [op for op in rewrite.learned.data if op.collective.size > 0]
    if not ops or data_inside(rewrite.old) != data_inside(rewrite.new):
        return 1.0
    return median([op.seconds / data_time(rewrite.old, op.collective.size) for op in ops])


def _hop_factor(rewrite: Rewrite) -> float:
    """Measured over modelled time of the fastest traced transfer between stages, which waited
    least; 1 where none was traced, or the new layout takes other links.
    """
    ops = [op for op in rewrite.learned.hops if op.collective.size > 0]
    if not ops or hop_inside(rewrite.old) != hop_inside(rewrite.new):
        return 1.0
    return min(op.seconds / hop_time(rewrite.old, op.collective.size) for op in ops)
