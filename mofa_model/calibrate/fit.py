"""Robust least squares with priors, over measured figures of cases.

    Evidence    measured figures, their weights, and the model's predictions with derivatives
    fit         damped Gauss-Newton on logarithms; weights are reduced for rows that are far off

A derivative is a difference of two predictions. A batch of cases is repeated once for every entry
that it depends on, with that entry moved, and all its copies are priced in a single pass.

Times and memory have no constant in common, so they are two fits. Each has all rows; a fold of the
cross-validation only sets the weight of the rows that it leaves out to zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, fields, is_dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.calibrate.cases import Batch, Case, MeasuredFigure, batches, shipped
from mofa_model.calibrate.constants import Composition, FreeConstant, composition
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
"""Relative move of a constant for its derivative. [1]"""


@dataclass(frozen=True)
class _Sheet:
    """A batch of cases with one prediction, and their constants as products of entries."""

    batch: Batch
    rows: NDArray[np.intp]  # of the evidence
    predict: Predict
    paths: tuple[str, ...]
    fixed: dict[str, Array]  # [n] by path
    weights: dict[str, Array]  # [n, entries] of zeros and ones by path
    relevant: NDArray[np.intp]  # free entries that any row depends on
    touching: dict[str, NDArray[np.intp]]  # positions in `relevant` of those of each path
    repeated: dict[int, Batch] = field(default_factory=dict)  # cache, by number of copies

    def copied(self, copies: int) -> Batch:
        """The batch, repeated as many times as `copies` says."""
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
    batch: Batch, rows: NDArray[np.intp], predict: Predict, entries: tuple[FreeConstant, ...]
) -> _Sheet:
    """Prepare a batch of cases for a fit."""
    compositions = {key: composition(key, entries) for key in dict.fromkeys(batch.keys)}
    paths = tuple(sorted({path for parts in compositions.values() for path in parts}))
    size, default_constants = len(batch), defaults()
    fixed: dict[str, Array] = {}
    weights: dict[str, Array] = {}
    relevant: set[int] = set()
    for path in paths:
        weights[path] = np.zeros((size, len(entries)))
        fixed[path] = np.empty(size)
        for row, key in enumerate(batch.keys):
            composed = compositions[key].get(path, Composition(default_constants[path], ()))
            fixed[path][row] = composed.fixed
            weights[path][row, list(composed.entries)] = 1.0
            relevant.update(i for i in composed.entries if entries[i].spread > 0)
    free = np.array(sorted(relevant), dtype=np.intp)
    touching = {
        path: np.flatnonzero(weight[:, free].any(axis=0)) for path, weight in weights.items()
    }
    return _Sheet(batch, rows, predict, paths, fixed, weights, free, touching)


def _with_constants(sheet: _Sheet, logs: Array, moved: NDArray[np.intp]) -> Batch:
    """The batch with its constants set, once as it is and once for each entry that is moved."""
    copies = len(moved) + 1
    changes: dict[str, dict[str, Any]] = {}
    finite = np.isfinite(logs)
    finite_logs = np.where(finite, logs, 0.0)
    for path in sheet.paths:
        weight = sheet.weights[path]
        base = sheet.fixed[path] * np.exp(weight @ finite_logs)
        if not finite.all():
            # An entry of exactly zero, whose logarithm is minus infinity.
            base = np.where((weight[:, ~finite] > 0).any(axis=1), 0.0, base)
        column = np.tile(base, (copies, 1))
        if len(moved):
            touching = sheet.touching[path]
            column[1 + touching] *= np.exp(STEP * weight[:, moved[touching]].T)
        column = column.ravel()
        group, name = path.split(".")
        changes.setdefault(group, {})[name] = column if np.ptp(column) else float(column[0])
    key = sheet.batch.keys[0]  # the stacks of a batch have the same habits
    stack = catalogue.stack(key.stack)
    unfitted = Calibration(
        stack=stack.name,
        placement=key.placement or stack.placement,
        tensor_overlap=stack.tensor_overlap,
        kernels=shipped(key).kernels,
    )
    groups: dict[str, Any] = {
        group: replace(getattr(unfitted, group), **fields) for group, fields in changes.items()
    }
    batch = sheet.copied(copies)
    return replace(batch, cluster=replace(batch.cluster, calibration=replace(unfitted, **groups)))


def tiled(described: Any, copies: int) -> Any:
    """A description with every array repeated so many times."""
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
"""Changes a batch before it is priced."""

COMPOSED: Final = 0.2
"""Weight of a composed step time: 720 of them hold only 144 independent slopes. [1]"""


@dataclass(frozen=True)
class FitRow:
    """A measured figure of a case; `figure` is None where only the fit in memory is known."""

    case: Case
    figure: MeasuredFigure | None
    weight: float

    @property
    def measured(self) -> float:
        """Logarithm of the figure; NaN without one. [1]"""
        return float(np.log(self.figure.value)) if self.figure else float("nan")


class Evidence:
    """Measured figures, and the model's predictions as functions of entries' logarithms."""

    def __init__(
        self,
        rows: Sequence[FitRow],
        entries: tuple[FreeConstant, ...],
        change: Change | None = None,
    ) -> None:
        self.entries = entries
        self.rows = tuple(rows)
        self.size = len(self.rows)
        self.measured = np.array([row.measured for row in self.rows])
        self.weights = np.array([row.weight for row in self.rows])
        self._sheets = list(_sheets(self.rows, entries, change))
        self._last: tuple[bytes, tuple[Array, Array]] | None = None

    @property
    def prior_logarithms(self) -> Array:
        """Logarithms of the priors; an entry of exactly zero stays at minus infinity. [1]"""
        return np.array(
            [np.log(entry.prior) if entry.prior > 0 else -np.inf for entry in self.entries]
        )

    def values(self, logs: Array) -> Array:
        """Logarithms of the predictions of all rows. [1]"""
        predicted = np.full(self.size, np.nan)
        for sheet in self._sheets:
            unmoved = np.array([], dtype=int)
            predicted[sheet.rows] = np.log(sheet.predict(_with_constants(sheet, logs, unmoved)))
        return predicted

    def derivatives(self, logs: Array) -> tuple[Array, Array]:
        """Logarithms of predictions [rows] and their derivatives [rows, entries]."""
        start = logs.tobytes()
        # The last answer is kept, because all folds of a cross-validation start there.
        if self._last is None or self._last[0] != start:
            predicted, slope = np.full(self.size, np.nan), np.zeros((self.size, len(self.entries)))
            for sheet in self._sheets:
                n, moved = len(sheet.batch), sheet.relevant
                priced = np.log(sheet.predict(_with_constants(sheet, logs, moved)))
                priced = priced.reshape(len(moved) + 1, n)
                predicted[sheet.rows] = priced[0]
                slope[np.ix_(sheet.rows, moved)] = ((priced[1:] - priced[0]) / STEP).T
            self._last = (start, (predicted, slope))
        return self._last[1]


def times(
    cases: Iterable[Case], free: tuple[FreeConstant, ...], change: Change | None = None
) -> Evidence:
    """The evidence on step and layer times; `change` may switch an effect off."""
    rows = [
        FitRow(case, figure, COMPOSED if case.composed else 1.0)
        for case in cases
        for figure in case.measured
        if figure.quantity.endswith("_s")
    ]
    entries = tuple(entry for entry in free if not entry.path.startswith("memory."))
    return Evidence(rows, entries, change)


def _counted(figure: MeasuredFigure) -> bool:
    """Whether an allocator counted a memory, as for one model under dozens of flags."""
    return figure.basis == "last stage"


def memories(cases: Iterable[Case], free: tuple[FreeConstant, ...]) -> Evidence:
    """The evidence on memory: measured figures, and runs of sweeps that only say whether they
    fitted.
    """
    rows: list[FitRow] = []
    cases = tuple(cases)
    counted_figures = Counter(
        case.workload.model.name for case in cases for figure in case.measured if _counted(figure)
    )
    for case in cases:
        figures = [figure for figure in case.measured if figure.quantity.endswith("_gib")]
        # All counted figures of one model together weigh as two.
        weight = 2.0 / max(2, counted_figures[case.workload.model.name])
        rows += [FitRow(case, figure, weight if _counted(figure) else 1.0) for figure in figures]
        if case.group:
            rows.append(FitRow(case, None, 0.0))
    return Evidence(rows, tuple(entry for entry in free if entry.path.startswith("memory.")))


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
"""Predictions of rows, by the names of `predicted_by`."""


def predicted_by(row: FitRow) -> str:
    """The name in `PREDICTIONS` of a row's quantity."""
    if row.figure is None:
        return "peak"
    return row.figure.basis if row.figure.quantity == "memory_gib" else row.figure.quantity


def _sheets(
    rows: Sequence[FitRow], entries: tuple[FreeConstant, ...], change: Change | None
) -> Iterable[_Sheet]:
    for name, predict in PREDICTIONS.items():
        matching = np.array(
            [index for index, row in enumerate(rows) if predicted_by(row) == name], dtype=np.intp
        )
        if matching.size:
            changed = predict if change is None else _changed(predict, change)
            for batch in batches([rows[index].case for index in matching], shipped):
                yield _sheet(batch, matching[batch.indices], changed, entries)


def _changed(predict: Predict, change: Change) -> Predict:
    return lambda batch: predict(change(batch))


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """The result of a fit."""

    logs: Array
    """Logarithms of all entries."""
    residuals: Array
    """log(predicted / measured) of all rows; NaN for those without a measurement."""
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
"""Most steps of a fit. [1]"""


def fit(
    evidence: Evidence,
    measured_seconds: Array,
    *,
    weights: Array | None = None,
    scale: float = 0.05,
    start: Array | None = None,
    tolerance: float = 1e-6,
) -> FitResult:
    """Entries within their bounds that explain `log(measured)` best. Rows that are NaN are left
    out, and fixed entries stay.

    The fit ends at a step that gains less than `tolerance` of the loss.
    """
    entries = evidence.entries
    prior = evidence.prior_logarithms
    free = np.array([index for index, entry in enumerate(entries) if entry.spread > 0], dtype=int)
    precision = np.array([entries[index].spread for index in free]) ** -2.0
    with np.errstate(divide="ignore"):
        lowest, highest = (
            np.log([getattr(entries[index], name) for index in free]) for name in ("least", "most")
        )
    has_measurement = np.isfinite(measured_seconds)
    row_weight = (
        np.ones(int(has_measurement.sum())) if weights is None else weights[has_measurement]
    )
    logs = prior.copy() if start is None else start.copy()

    def loss_of(values: Array, x: Array) -> float:
        row_loss, _ = robust((values - measured_seconds)[has_measurement], scale)
        return float(
            np.sum(row_weight * row_loss) + np.sum(precision * np.square(x[free] - prior[free]))
        )

    damping, steps = 1e-2, 0
    values, slope = evidence.derivatives(logs)
    loss = loss_of(values, logs)
    while steps < MOST_STEPS and free.size:
        steps += 1
        residual = (values - measured_seconds)[has_measurement]
        pull = robust(residual, scale)[1] * row_weight / scale**2
        jacobian = slope[has_measurement][:, free]
        hessian = jacobian.T @ (jacobian * pull[:, None]) + np.diag(precision)
        gradient = jacobian.T @ (pull * residual) + precision * (logs[free] - prior[free])
        # An entry at a bound that would go beyond it stays there for this step.
        rests = ((logs[free] <= lowest) & (gradient > 0)) | (
            (logs[free] >= highest) & (gradient < 0)
        )
        hessian[rests, :] = hessian[:, rests] = 0.0
        hessian[rests, rests] = precision[rests]
        gradient[rests] = 0.0
        gain = 0.0
        for _ in range(8):
            move = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), -gradient)
            move = np.clip(move, -1.0, 1.0)
            trial = logs.copy()
            trial[free] = np.clip(trial[free] + move, lowest, highest)
            gain = loss - loss_of(evidence.values(trial), trial)
            if gain > 0:
                # Less damping after a step that gained what the linear model promised, more after
                # one that gained less (Nielsen).
                promised = -(2.0 * gradient @ move + move @ hessian @ move)
                gain_share = gain / promised if promised > 0 else 0.0
                damping *= max(0.2, 1.0 - (2.0 * gain_share - 1.0) ** 3)
                logs = trial
                break
            damping *= 4.0  # nothing was gained, so the next step is shorter
        if gain <= tolerance * loss:
            break
        values, slope = evidence.derivatives(logs)
        loss = loss_of(values, logs)
    final = evidence.values(logs)
    residuals = np.where(has_measurement, final - measured_seconds, np.nan)
    return FitResult(logs=logs, residuals=residuals, loss=loss_of(final, logs), steps=steps)
