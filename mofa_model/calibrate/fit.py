"""Robust least squares with priors, over measured figures of cases.

    Evidence    measured figures, their weights, and the model's predictions with derivatives
    fit         damped Gauss-Newton on logarithms, re-weighted so that bad rows pull weakly

A derivative is a difference of two predictions, and all of them are rows of one array: each batch
of cases is repeated once for every constant that it depends on, with that constant moved, and
priced in a single pass.

Times and memory have no constant in common, so they are two fits. Each holds every row from the
start; a fold of the cross-validation only sets the weight of the rows that it leaves out to zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, fields, is_dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.calibrate.cases import Batch, Case, MeasuredFigure, batches, shipped
from mofa_model.calibrate.constants import Composition, Free, composition
from mofa_model.checks import array_axes
from mofa_model.estimate import estimate
from mofa_model.estimate.step import footprint
from mofa_model.estimate.terms import Footprint
from mofa_model.placement import stages_of
from mofa_model.presets import catalogue
from mofa_model.presets.constants import defaults
from mofa_model.records import dataclass
from mofa_model.spec import Calibration

Array = NDArray[np.floating[Any]]
Predict = Callable[[Batch], Array]
"""A positive quantity of every case of a batch."""

STEP = 1e-4
"""Relative move of a constant for its derivative."""


@dataclass(frozen=True)
class _Sheet:
    """A batch of cases with one prediction, and how their constants are made of entries."""

    batch: Batch
    rows: NDArray[np.intp]  # which rows of the evidence its cases are
    predict: Predict
    paths: tuple[str, ...]
    fixed: dict[str, Array]  # [n] by path
    weights: dict[str, Array]  # [n, entries] of zeros and ones by path
    relevant: NDArray[np.intp]  # entries that any row depends on
    touching: dict[str, NDArray[np.intp]]  # which of these any row of a path depends on
    repeated: dict[int, Batch] = field(default_factory=dict)  # by number of copies, made once

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


def _sheet(
    batch: Batch, rows: NDArray[np.intp], predict: Predict, entries: tuple[Free, ...]
) -> _Sheet:
    """Prepare a batch of runs for a fit: with each constant goes which entries it is a
    product of.
    """
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
    return _Sheet(batch, rows, predict, paths, fixed, weights, moved, touching)


def _priced(sheet: _Sheet, logs: Array, moved: NDArray[np.intp]) -> Batch:
    """Price the batch once as it is and once for each entry that is moved, all in one call."""
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


Change = Callable[[Batch], Batch]
"""What becomes of a batch before it is priced."""

COMPOSED: Final = 0.2
"""Weight of a composed step time: 720 of them hold 144 independent slopes."""


@dataclass(frozen=True)
class FitRow:
    """One figure that the model predicts; `figure` is None where the run ran out of memory."""

    case: Case
    figure: MeasuredFigure | None
    weight: float

    @property
    def measured(self) -> float:
        """Logarithm of what was measured; NaN where nothing was. [1]"""
        return float(np.log(self.figure.value)) if self.figure else float("nan")


class Evidence:
    """Measured figures, and the model's predictions as functions of entries' logarithms."""

    def __init__(
        self, rows: Sequence[FitRow], entries: tuple[Free, ...], change: Change | None = None
    ) -> None:
        self.entries = entries
        self.rows = tuple(rows)
        self.size = len(self.rows)
        self.measured = np.array([row.measured for row in self.rows])
        self.weights = np.array([row.weight for row in self.rows])
        self._sheets = list(_sheets(self.rows, entries, change))
        self._known: tuple[bytes, tuple[Array, Array]] | None = None

    @property
    def prior_logarithms(self) -> Array:
        """Logarithms of the priors; an entry of exactly zero stays at minus infinity. [1]"""
        return np.array(
            [np.log(entry.prior) if entry.prior > 0 else -np.inf for entry in self.entries]
        )

    def values(self, logs: Array) -> Array:
        """Logarithm of the prediction of every row. [1]"""
        out = np.full(self.size, np.nan)
        for sheet in self._sheets:
            unmoved = np.array([], dtype=int)
            out[sheet.rows] = np.log(sheet.predict(_priced(sheet, logs, unmoved)))
        return out

    def derivatives(self, logs: Array) -> tuple[Array, Array]:
        """Logarithms of predictions [rows] and their derivatives [rows, entries]."""
        asked = logs.tobytes()
        # The last answer is kept, because all folds of a cross-validation start there.
        if self._known is None or self._known[0] != asked:
            out, slope = np.full(self.size, np.nan), np.zeros((self.size, len(self.entries)))
            for sheet in self._sheets:
                n, moved = len(sheet.batch), sheet.relevant
                found = np.log(sheet.predict(_priced(sheet, logs, moved)))
                found = found.reshape(len(moved) + 1, n)
                out[sheet.rows] = found[0]
                slope[np.ix_(sheet.rows, moved)] = ((found[1:] - found[0]) / STEP).T
            self._known = (asked, (out, slope))
        return self._known[1]


def times(cases: Iterable[Case], free: tuple[Free, ...], change: Change | None = None) -> Evidence:
    """Step and layer times with their constants; `change` lets an effect be switched off."""
    rows = [
        FitRow(case, figure, COMPOSED if case.composed else 1.0)
        for case in cases
        for figure in case.measured
        if figure.quantity.endswith("_s")
    ]
    return Evidence(rows, tuple(e for e in free if not e.path.startswith("memory.")), change)


def _counted(figure: MeasuredFigure) -> bool:
    """Whether an allocator counted it: one model under dozens of flags weighs as one."""
    return figure.basis == "last stage"


def memories(cases: Iterable[Case], free: tuple[Free, ...]) -> Evidence:
    """The evidence on memory: measured figures, and runs of sweeps that only say whether
    they fitted.
    """
    rows: list[FitRow] = []
    cases = tuple(cases)
    toys = Counter(
        case.workload.model.name for case in cases for figure in case.measured if _counted(figure)
    )
    for case in cases:
        found = [figure for figure in case.measured if figure.quantity.endswith("_gib")]
        # However many counted figures one model has, together they weigh as two.
        once = 2.0 / max(2, toys[case.workload.model.name])
        rows += [FitRow(case, figure, once if _counted(figure) else 1.0) for figure in found]
        if case.group:
            rows.append(FitRow(case, None, 0.0))
    return Evidence(rows, tuple(e for e in free if e.path.startswith("memory.")))


def _memory(batch: Batch) -> Footprint:
    axes = max(batch.workload.axes, batch.cluster.axes, array_axes(batch.strategy))
    stages = stages_of(
        batch.workload.model, batch.strategy, batch.cluster.calibration.placement, axes
    )
    return footprint(batch.workload, batch.cluster, batch.strategy, stages)


PREDICTIONS: Final[dict[str, Predict]] = {
    "step_time_s": lambda b: b.rows(estimate(b.workload, b.cluster, b.strategy).step_time),
    "layer_forward_s": lambda b: b.rows(estimate(b.workload, b.cluster, b.strategy).layer_forward),
    "layer_backward_s": lambda b: b.rows(
        estimate(b.workload, b.cluster, b.strategy).layer_backward
    ),
    "peak": lambda b: b.rows(_memory(b).peak),
    "first stage": lambda b: b.rows(_memory(b).first_stage),
    "memory_static_gib": lambda b: b.rows(_memory(b).static_first_stage),
    "allocated_gib": lambda b: b.rows(_memory(b).allocated),
    "allocated_static_gib": lambda b: b.rows(_memory(b).static_allocated),
}
"""What predicts a row, by `predicted_by`."""


def predicted_by(row: FitRow) -> str:
    """The name in `PREDICTIONS` of the quantity that a row measured."""
    if row.figure is None:
        return "peak"
    return row.figure.basis if row.figure.quantity == "memory_gib" else row.figure.quantity


def _sheets(
    rows: Sequence[FitRow], entries: tuple[Free, ...], change: Change | None
) -> Iterable[_Sheet]:
    for name, predict in PREDICTIONS.items():
        where = np.array(
            [i for i, row in enumerate(rows) if predicted_by(row) == name], dtype=np.intp
        )
        if where.size:
            changed = predict if change is None else _changed(predict, change)
            for batch in batches([rows[i].case for i in where], shipped):
                yield _sheet(batch, where[batch.indices], changed, entries)


def _changed(predict: Predict, change: Change) -> Predict:
    return lambda batch: predict(change(batch))


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What a fit found."""

    logs: Array
    """Logarithm of every entry."""
    residuals: Array
    """log(predicted / measured) of every case; NaN where it has no measurement."""
    loss: float
    steps: int


def robust(residual: Array, scale: float) -> tuple[Array, Array]:
    """Pseudo-Huber loss and weight of residuals. Source: Hartley and Zisserman; quadratic below
    `scale`, then linear. [1]

    >>> loss, weight = robust(np.array([0.0, 0.1]), 0.05)
    >>> weight.round(3).tolist()
    [1.0, 0.447]
    """
    x = residual / scale
    root = np.sqrt(1.0 + x * x)
    return 2.0 * (root - 1.0), 1.0 / root


MOST_STEPS: Final = 60
"""Steps after which a fit ends at the latest. [1]"""


def fit(
    evidence: Evidence,
    measured_seconds: Array,
    *,
    weights: Array | None = None,
    scale: float = 0.05,
    start: Array | None = None,
    tolerance: float = 1e-6,
) -> Fitted:
    """Entries that explain `log(measured)` within their bounds; rows that are NaN are left out,
    fixed entries stay.

    It ends where a step gains less than `tolerance` of the loss.
    """
    entries = evidence.entries
    prior = evidence.prior_logarithms
    free = np.array([i for i, e in enumerate(entries) if e.spread > 0], dtype=int)
    precision = np.array([entries[i].spread for i in free]) ** -2.0
    with np.errstate(divide="ignore"):
        lowest, highest = (
            np.log([getattr(entries[i], name) for i in free]) for name in ("least", "most")
        )
    here = np.isfinite(measured_seconds)
    row_weight = np.ones(int(here.sum())) if weights is None else weights[here]
    logs = prior.copy() if start is None else start.copy()

    def loss_of(values: Array, x: Array) -> float:
        rho, _ = robust((values - measured_seconds)[here], scale)
        return float(
            np.sum(row_weight * rho) + np.sum(precision * np.square(x[free] - prior[free]))
        )

    damping, steps = 1e-2, 0
    values, slope = evidence.derivatives(logs)
    loss = loss_of(values, logs)
    while steps < MOST_STEPS and free.size:
        steps += 1
        residual = (values - measured_seconds)[here]
        w = robust(residual, scale)[1] * row_weight / scale**2
        j = slope[here][:, free]
        hessian = j.T @ (j * w[:, None]) + np.diag(precision)
        gradient = j.T @ (w * residual) + precision * (logs[free] - prior[free])
        # An entry at a bound that would go beyond it rests for a step.
        rests = ((logs[free] <= lowest) & (gradient > 0)) | (
            (logs[free] >= highest) & (gradient < 0)
        )
        hessian[rests, :] = hessian[:, rests] = 0.0
        hessian[rests, rests] = precision[rests]
        gradient[rests] = 0.0
        gained = 0.0
        for _ in range(8):
            move = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), -gradient)
            move = np.clip(move, -1.0, 1.0)
            trial = logs.copy()
            trial[free] = np.clip(trial[free] + move, lowest, highest)
            gained = loss - loss_of(evidence.values(trial), trial)
            if gained > 0:
                # Less damping after a step that gained what the linear model promised, more after a
                # poor one (Nielsen).
                promised = -(2.0 * gradient @ move + move @ hessian @ move)
                kept = gained / promised if promised > 0 else 0.0
                damping *= max(0.2, 1.0 - (2.0 * kept - 1.0) ** 3)
                logs = trial
                break
            damping *= 4.0  # it gained nothing: a shorter step
        if gained <= tolerance * loss:
            break
        values, slope = evidence.derivatives(logs)
        loss = loss_of(values, logs)
    final = evidence.values(logs)
    residuals = np.where(here, final - measured_seconds, np.nan)
    return Fitted(logs=logs, residuals=residuals, loss=loss_of(final, logs), steps=steps)
