"""Robust least squares with priors: damped Gauss-Newton on logarithms, re-weighted so that bad rows pull weakly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mofa_model.calibrate.free import Free

Array = NDArray[np.floating[Any]]


class Fittable(Protocol):
    """A `FitProblem`, or several of them side by side."""

    entries: tuple[Free, ...]

    def values(self, logs: Array) -> Array:
        """Logarithm of the prediction of every row. [1]"""

    def derivatives(self, logs: Array) -> tuple[Array, Array]:
        """Logarithms [rows] and their derivatives [rows, entries]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
    """What a fit found."""

    logs: Array
    """Logarithm of every entry."""
    residuals: Array
    """log(predicted / measured) of every case; NaN where it has no measurement."""
    loss: float
    """Robust loss with priors."""
    steps: int
    """Iterations taken."""


def robust(residual: Array, scale: float) -> tuple[Array, Array]:
    """Pseudo-Huber loss and weight of residuals. Source: Hartley and Zisserman; quadratic below `scale`, then linear. [1]

    >>> loss, weight = robust(np.array([0.0, 0.1]), 0.05)
    >>> weight.round(3).tolist()
    [1.0, 0.447]
    """
    x = residual / scale
    root = np.sqrt(1.0 + x * x)
    return 2.0 * (root - 1.0), 1.0 / root


def fit(
    problem: Fittable,
    measured: Array,
    *,
    weights: Array | None = None,
    scale: float = 0.05,
    start: Array | None = None,
    most: int = 60,
    tolerance: float = 1e-6,
) -> Fitted:
    """Entries that explain `log(measured)` within their bounds; rows that are NaN are left out, fixed entries stay.

    It ends where a step gains less than `tolerance` of the loss.
    """
    entries = problem.entries
    prior = np.array([np.log(e.prior) if e.prior > 0 else -np.inf for e in entries])
    free = np.array([i for i, e in enumerate(entries) if e.spread > 0], dtype=int)
    precision = np.array([entries[i].spread for i in free]) ** -2.0
    with np.errstate(divide="ignore"):
        lowest, highest = (
            np.log([getattr(entries[i], name) for i in free]) for name in ("least", "most")
        )
    here = np.isfinite(measured)
    row_weight = np.ones(int(here.sum())) if weights is None else weights[here]
    logs = prior.copy() if start is None else start.copy()

    def loss_of(values: Array, x: Array) -> float:
        rho, _ = robust((values - measured)[here], scale)
        return float(
            np.sum(row_weight * rho) + np.sum(precision * np.square(x[free] - prior[free]))
        )

    damping, steps = 1e-2, 0
    values, slope = problem.derivatives(logs)
    loss = loss_of(values, logs)
    while steps < most and free.size:
        steps += 1
        residual = (values - measured)[here]
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
            gained = loss - loss_of(problem.values(trial), trial)
            if gained > 0:
                # A step that gains what the linear model promised asks for less damping, a poor one for more (Nielsen).
                promised = -(2.0 * gradient @ move + move @ hessian @ move)
                kept = gained / promised if promised > 0 else 0.0
                damping *= max(0.2, 1.0 - (2.0 * kept - 1.0) ** 3)
                logs = trial
                break
            damping *= 4.0
        if gained <= tolerance * loss:
            break
        values, slope = problem.derivatives(logs)
        loss = loss_of(values, logs)
    final = problem.values(logs)
    residuals = np.where(here, final - measured, np.nan)
    return Fitted(logs=logs, residuals=residuals, loss=loss_of(final, logs), steps=steps)
