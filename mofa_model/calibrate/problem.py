"""Cases and free constants, made ready for a fit: predictions and derivatives of all rows at once.

A derivative is a difference of two predictions. All of them are rows of one array: each batch of cases is repeated once
for every constant that it depends on, with that constant moved, and priced in a single pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mofa_model.calibrate.batches import Batch
from mofa_model.calibrate.cases import shipped
from mofa_model.calibrate.free import Composition, Free, composition
from mofa_model.presets import catalogue
from mofa_model.presets.constants import defaults
from mofa_model.spec import Calibration

Array = NDArray[np.floating[Any]]
Predict = Callable[[Batch], Array]
"""A positive quantity of every case of a batch."""

STEP = 1e-4
"""Relative move of a constant for its derivative."""


@dataclass(frozen=True, slots=True)
class _Sheet:
    """A batch with the make-up of its rows' constants."""

    batch: Batch
    paths: tuple[str, ...]
    fixed: dict[str, Array]  # [n] by path
    weights: dict[str, Array]  # [n, entries] of zeros and ones by path
    relevant: NDArray[np.intp]  # entries that any row depends on
    touching: dict[str, NDArray[np.intp]]  # which of these any row of a path depends on
    repeated: dict[int, Batch] = field(
        default_factory=dict
    )  # the batch with every array so often, made once

    def copied(self, copies: int) -> Batch:
        """The batch, repeated."""
        if copies not in self.repeated:
            batch = self.batch
            self.repeated[copies] = replace(
                batch,
                indices=np.arange(copies * len(batch)),
                workload=tiled(batch.workload, copies),
                strategy=tiled(batch.strategy, copies),
                cluster=tiled(batch.cluster, copies),
            )
        return self.repeated[copies]


class FitProblem:
    """Predictions of cases as a function of the logarithms of entries."""

    def __init__(
        self, batches: Sequence[Batch], entries: tuple[Free, ...], predict: Predict
    ) -> None:
        self.entries = entries
        self.predict = predict
        self.size = 1 + max(int(b.indices.max()) for b in batches)
        self._sheets = [_sheet(batch, entries) for batch in batches]

    def values(self, logs: Array) -> Array:
        """Logarithm of the prediction of every case, in the order of the cases. [1]"""
        out = np.full(self.size, np.nan)
        for sheet in self._sheets:
            out[sheet.batch.indices] = np.log(
                self.predict(_priced(sheet, logs, np.array([], dtype=int)))
            )
        return out

    def derivatives(self, logs: Array) -> tuple[Array, Array]:
        """Logarithms [cases] and their derivatives [cases, entries]."""
        out = np.full(self.size, np.nan)
        slope = np.zeros((self.size, len(self.entries)))
        for sheet in self._sheets:
            n, moved = len(sheet.batch), sheet.relevant
            result = np.log(self.predict(_priced(sheet, logs, moved))).reshape(len(moved) + 1, n)
            out[sheet.batch.indices] = result[0]
            slope[np.ix_(sheet.batch.indices, moved)] = ((result[1:] - result[0]) / STEP).T
        return out, slope


def _sheet(batch: Batch, entries: tuple[Free, ...]) -> _Sheet:
    made = {key: composition(key, entries) for key in dict.fromkeys(batch.keys)}
    paths = tuple(sorted({path for parts in made.values() for path in parts}))
    n, known = len(batch), defaults()
    fixed: dict[str, Array] = {}
    weights: dict[str, Array] = {}
    relevant: set[int] = set()
    for path in paths:
        weights[path] = np.zeros((n, len(entries)))
        fixed[path] = np.empty(n)
        for row, key in enumerate(batch.keys):
            part = made[key].get(path, Composition(known[path], ()))
            fixed[path][row] = part.fixed
            weights[path][row, list(part.entries)] = 1.0
            relevant.update(i for i in part.entries if entries[i].spread > 0)
    moved = np.array(sorted(relevant), dtype=np.intp)
    touching = {path: np.flatnonzero(w[:, moved].any(axis=0)) for path, w in weights.items()}
    return _Sheet(batch, paths, fixed, weights, moved, touching)


def _priced(sheet: _Sheet, logs: Array, moved: NDArray[np.intp]) -> Batch:
    """The batch, once as it is and once for every moved entry, with constants attached."""
    copies = len(moved) + 1
    changes: dict[str, dict[str, Any]] = {}
    finite = np.isfinite(logs)
    known = np.where(finite, logs, 0.0)
    for path in sheet.paths:
        w = sheet.weights[path]
        base = sheet.fixed[path] * np.exp(w @ known)
        if not finite.all():
            base = np.where((w[:, ~finite] > 0).any(axis=1), 0.0, base)  # an entry of exactly zero
        column = np.tile(base, (copies, 1))
        if len(moved):
            touching = sheet.touching[path]
            column[1 + touching] *= np.exp(STEP * w[:, moved[touching]].T)
        column = column.ravel()
        group, name = path.split(".")
        changes.setdefault(group, {})[name] = column if np.ptp(column) else float(column[0])
    stack = catalogue.stack(
        sheet.batch.keys[0].stack
    )  # rows of a batch share the habits of their stacks
    bare = Calibration(
        stack=stack.name,
        placement=sheet.batch.keys[0].placement or stack.placement,
        tensor_overlap=stack.tensor_overlap,
        kernels=shipped(sheet.batch.keys[0]).kernels,
    )
    groups: dict[str, Any] = {g: replace(getattr(bare, g), **v) for g, v in changes.items()}
    batch = sheet.copied(copies)
    return replace(batch, cluster=replace(batch.cluster, calibration=replace(bare, **groups)))


def tiled(described: Any, copies: int) -> Any:
    """A description with every array repeated."""
    if isinstance(described, np.ndarray):
        return np.tile(described, copies)
    if isinstance(described, tuple):
        items = tuple(tiled(item, copies) for item in described)
        return (
            described
            if all(new is old for new, old in zip(items, described, strict=True))
            else items
        )
    if not is_dataclass(described) or isinstance(described, type):
        return described
    changed = {}
    for item in fields(described):
        old = getattr(described, item.name)
        new = tiled(old, copies)
        if new is not old:
            changed[item.name] = new
    return replace(described, **changed) if changed else described
