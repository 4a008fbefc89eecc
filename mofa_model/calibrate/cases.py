"""One measured run as a case, and thousands of cases as a few sets of arrays.

A case does not hold its constants: its `CalibrationKey` names them.

Cases are of one *kind* if they differ only in numbers: they have the same categories (schedule,
sharding, gated or not, latent attention or not) and stacks with the same habits. `stacked` turns
descriptions of one kind into a single one with arrays in the place of numbers, so that the estimate
prices all of them in one pass. A number that is equal in all of them stays a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mofa_model import presets
from mofa_model.checks import field_names
from mofa_model.records import dataclass
from mofa_model.spec import Calibration, Cluster, Workload
from mofa_model.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class CalibrationKey:
    """The constants that price a case, named by their device, precision and stack."""

    device: str
    precision: str
    stack: str
    release: str = ""
    """Release of the stack's container, or the year."""
    defects: frozenset[str] = frozenset()
    """Known defects and variants of the stack that the run had."""
    placement: str = ""
    """Placement of layers, where the run states it; empty = that of the stack."""


@dataclass(frozen=True, kw_only=True)
class MeasuredFigure:
    """One measured figure."""

    quantity: str
    """step_time_s, memory_gib, memory_static_gib, layer_forward_s, layer_backward_s or
    activation_ratio."""
    value: float
    """In seconds, bytes or as a ratio, whatever unit the name of the quantity has."""
    basis: str = ""
    """The field that it was converted from, the rank of a memory, or the variant of a ratio."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run: what was trained, where, how, and what was measured."""

    id: str
    """Name of the case in its file."""
    kind: str
    """Kind of run: pretrain, sweep, layer, activation-memory-ratio."""
    source: str
    publisher: str
    gpu: str
    """Accelerator, in the words of the file."""
    group: str
    """Group of runs that compete with each other; empty without one."""
    workload: Workload
    cluster: Cluster
    """Machines, with default constants; `key` names the constants of the case."""
    strategy: Strategy
    key: CalibrationKey
    measured: tuple[MeasuredFigure, ...]
    """Measured figures, in SI units."""
    out_of_memory: bool = False
    """True where the run did not fit."""
    composed: bool = False
    """Whether the step time was composed from layer times, so that similar cases depend on each
    other.
    """


def shipped(key: CalibrationKey) -> Calibration:
    """The constants of a key, by the presets."""
    constants = presets.calibration(
        key.device, key.precision, key.stack, release=key.release or None, defects=key.defects
    )
    return replace(constants, placement=key.placement) if key.placement else constants


T = TypeVar("T")

Resolve = Callable[[CalibrationKey], Calibration]
"""Gives the constants of a key: presets, or a fit in progress."""

LABELS: Final = frozenset({"name", "stack"})
"""Fields that only name a thing: cases of one kind may differ in them."""

_SEVERAL: Final = "several"
"""Label of cases that differ in it."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Cases of one kind as arrays of one length."""

    indices: NDArray[np.intp]
    """Positions of its cases in the list that was batched."""
    keys: tuple[CalibrationKey, ...]
    """The key of each case's constants."""
    workload: Workload
    cluster: Cluster
    """Machines, with default constants until a fit sets them."""
    strategy: Strategy

    def __len__(self) -> int:
        return len(self.indices)

    def rows(self, values: Any) -> NDArray[np.floating[Any]]:
        """A result of the estimate, scalar or array, as one number for each case."""
        return np.broadcast_to(np.asarray(values, dtype=float), (len(self),))


def batches(cases: Sequence[Case], resolve: Resolve) -> list[Batch]:
    """All cases in batches of one kind, in order of first appearance, without their constants.

    `resolve` tells the habits of stacks (placement, overlap by default), which are categories too.
    """
    habits: dict[CalibrationKey, Hashable] = {}
    kinds: dict[Hashable, list[int]] = {}
    for index, case in enumerate(cases):
        if case.key not in habits:
            habits[case.key] = kind_of(resolve(case.key))
        parts = (kind_of(case.workload), kind_of(case.cluster), kind_of(case.strategy))
        kinds.setdefault((*parts, habits[case.key]), []).append(index)
    return [batch_of(cases, indices) for indices in kinds.values()]


def batch_of(cases: Sequence[Case], indices: Sequence[int]) -> Batch:
    """The batch of some cases of one kind."""
    chosen = [cases[index] for index in indices]
    return Batch(
        indices=np.array(indices, dtype=np.intp),
        keys=tuple(case.key for case in chosen),
        workload=stacked([case.workload for case in chosen]),
        cluster=stacked([case.cluster for case in chosen]),
        strategy=stacked([case.strategy for case in chosen]),
    )


def kind_of(described: Any) -> Hashable:
    """Types and categories of a description, without numbers and labels; equal for all cases of a
    batch.
    """
    if _is_number(described):
        return float
    if is_dataclass(described):
        kind: Any = type(described)
        names = field_names(kind)
        return (kind, *(kind_of(getattr(described, name)) for name in names if name not in LABELS))
    if isinstance(described, tuple):
        return tuple(map(kind_of, described))
    category: Hashable = described
    return category


def stacked(described: Sequence[T]) -> T:
    """One description in the place of many of one kind, with arrays for numbers that differ."""
    first: Any = described[0]
    if _is_number(first):
        equal = all(value == first for value in described)
        return cast("T", first if equal else np.array(described, dtype=float))
    if isinstance(first, tuple):
        return cast("T", tuple(stacked(column) for column in zip(*described, strict=True)))
    if not is_dataclass(first):
        return cast("T", first)
    fields: dict[str, Any] = {}
    for name in field_names(first.__class__):
        column = [getattr(item, name) for item in described]
        if all(value is column[0] for value in column):
            fields[name] = column[0]
        elif name in LABELS:
            fields[name] = column[0] if len(set(column)) == 1 else _SEVERAL
        else:
            fields[name] = stacked(column)
    return cast("T", first.__class__(**fields))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
