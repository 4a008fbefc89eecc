"""Cross-validation: fits that leave out a group of runs, a system, a publisher, a stack, a device
class, a model or large runs.

A group is what a publisher ran of one family of models on one GPU, whatever the container: releases
of one software would teach each other. Of a sweep it is one shape of model. A system is what a
publisher ran of a stack on a class of devices. A fold never sees what it is judged on. Beside the
rows that bear its name it leaves out their twins: the sweep of a publisher whose tables repeat it,
and every run of a shape that a sweep ran. A stack of which nothing is left falls back to its
priors, which are what an unseen stack would be given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model import presets
from mofa_model.blocks import Experts, FeedForward
from mofa_model.calibrate.fit import Evidence, FitResult, FitRow, fit

Array = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]

LARGE: Final = 128
"""A run of more GPUs is judged by a fit that saw no such run, where scale is left out."""

_SIZE: Final = re.compile(r"[-_](\d+x)?\d+(\.\d+)?[bmt]\b.*")
_MINOR: Final = re.compile(r"(?<=\d)\.\d+$")

CLOSE: Final = 1e-4
"""Gain of the last step of a fold's fit, as a share of the loss: a fold starts close to where it
ends. [1]
"""


def _shape(row: FitRow) -> str:
    model = row.case.workload.model
    widths = [block.width for block in model.blocks if isinstance(block, FeedForward | Experts)]
    return f"{model.layers} x {model.hidden}, ffn {widths}, vocabulary {model.embedding.vocabulary}"


def _group(row: FitRow) -> str:
    what = _shape(row) if row.case.group else family(row.case.workload.model.name)
    return f"{row.case.publisher}, {what}, {row.case.gpu}"


def _family(row: FitRow) -> str:
    return presets.device_class(row.case.key.device).split("-")[0]


def family(model: str) -> str:
    """A model's name without its size and what follows, and without the minor version: these share
    their blocks.

    >>> family("llama3.1-405b"), family("qwen3-235b-a22b"), family("deepseek-v2")
    ('llama3', 'qwen3', 'deepseek-v2')
    """
    return _MINOR.sub("", _SIZE.sub("", model.lower()))


KEYS: Final[dict[str, Callable[[FitRow], str]]] = {
    "publisher": lambda row: row.case.publisher,
    "group": _group,
    "system": lambda row: f"{row.case.publisher}, {row.case.key.stack}, {_family(row)}",
    "stack": lambda row: row.case.key.stack,
    "device": _family,
    "model": _shape,
    "scale": lambda row: f"more than {LARGE} GPUs" if row.case.cluster.gpus > LARGE else "",
}
"""What can be left out, and its name for a row; rows named "" are never judged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fold:
    """One fit without some rows."""

    name: str
    """What is left out."""
    judged: Mask
    """Rows that bear its name."""
    unseen: Mask
    """Rows that the fit does not see: these and their twins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutOfFold:
    """What fits without a row say of it."""

    by: str
    """One of `KEYS`."""
    values: Array
    """Logarithm of the prediction of every row by the fold that judges it; NaN where none does."""
    folds: tuple[Fold, ...]
    """The folds."""
    logs: Array
    """Entries of every fold's fit [folds, entries]."""


def folds(
    rows: tuple[FitRow, ...], by: str, *, judged: Callable[[FitRow], bool] = lambda _: True
) -> Iterator[Fold]:
    """One fold for each name of the rows that are to be judged, in order of first appearance."""
    names = np.array([KEYS[by](row) for row in rows])
    wanted = np.array([judged(row) for row in rows])
    for name in dict.fromkeys(names[wanted & (names != "")].tolist()):
        in_fold = names == name
        yield Fold(name=name, judged=in_fold & wanted, unseen=in_fold | _twins(rows, in_fold, by))


def _twins(rows: tuple[FitRow, ...], left_out: Mask, by: str) -> Mask:
    """Rows that must be left out with a group, because they repeat its runs under another name."""
    if by != "group":
        return np.zeros(len(rows), dtype=bool)
    held = [row for row, left in zip(rows, left_out, strict=True) if left]
    publishers = {row.case.publisher for row in held if not row.case.group}
    shapes = {_shape(row) for row in held if row.case.group}
    return np.array(
        [
            (bool(r.case.group) and r.case.publisher in publishers) or _shape(r) in shapes
            for r in rows
        ]
    )


def cross_validate(
    evidence: Evidence,
    whole: FitResult,
    by: str,
    *,
    judged: Callable[[FitRow], bool] = lambda _: True,
    progress: Callable[[str], None] = lambda _: None,
) -> OutOfFold:
    """Fits without each name in turn, every one started at the fit to all rows."""
    values, logs, used = np.full(evidence.size, np.nan), [], []
    for fold in folds(evidence.rows, by, judged=judged):
        weights = np.where(fold.unseen, 0.0, evidence.weights)
        fitted = fit(
            evidence, evidence.measured, weights=weights, start=whole.logs, tolerance=CLOSE
        )
        values[fold.judged] = evidence.values(fitted.logs)[fold.judged]
        logs.append(fitted.logs)
        used.append(fold)
        progress(fold.name)
    return OutOfFold(by=by, values=values, folds=tuple(used), logs=np.array(logs))
