"""Robust least squares with priors: damped Gauss-Newton on logarithms, re-weighted so that bad rows pull weakly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mofa_model.calibrate.free import Free

Array = NDArray[np.floating[Any]]
Progress = Callable[[int, float], None]


class Fittable(Protocol):
    """A `Problem`, or several of them side by side."""

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
    prior_weight: float = 1.0,
    start: Array | None = None,
    most: int = 40,
) -> Fitted:
    """Entries that explain `log(measured)`; rows that are NaN are left out, fixed entries stay."""
    entries = problem.entries
    prior = np.array([np.log(e.prior) if e.prior > 0 else -np.inf for e in entries])
    free = np.array([i for i, e in enumerate(entries) if e.spread > 0], dtype=int)
    spread = np.array([entries[i].spread for i in free])
    here = np.isfinite(measured)
    row_weight = np.ones(len(measured)) if weights is None else weights
    logs = prior.copy() if start is None else start.copy()

    def loss_of(values: Array, x: Array) -> float:
        rho, _ = robust((values - measured)[here], scale)
        return float(np.sum(row_weight[here] * rho) + prior_weight * np.sum(((x[free] - prior[free]) / spread) ** 2))

    damping, steps = 1e-2, 0
    values, slope = problem.derivatives(logs)
    loss = loss_of(values, logs)
    while steps < most:
        steps += 1
        _, weight = robust((values - measured)[here], scale)
        w = weight * row_weight[here] / scale**2
        j = slope[here][:, free]
        hessian = j.T @ (j * w[:, None]) + np.diag(prior_weight / spread**2)
        gradient = j.T @ (w * (values - measured)[here]) + prior_weight * (logs[free] - prior[free]) / spread**2
        gained = 0.0
        for _ in range(8):
            move = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), -gradient)
            trial = logs.copy()
            trial[free] += np.clip(move, -1.0, 1.0)
            trial_loss = loss_of(problem.values(trial), trial)
            if trial_loss < loss:
                gained = loss - trial_loss
                logs, damping = trial, damping / 4.0
                break
            damping *= 4.0
        if gained <= 1e-5 * loss:
            break
        values, slope = problem.derivatives(logs)
        loss = loss_of(values, logs)
    final = problem.values(logs)
    return Fitted(logs=logs, residuals=np.where(here, final - measured, np.nan), loss=loss, steps=steps)
