"""Bands from residuals of runs that a fit did not see, sorted by what it knew of them; the text of bands.toml."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.fitting.campaign import Calibrated
from mofa_lab.fitting.folds import KEYS
from mofa_lab.fitting.sets import set_of
from mofa_model.bands import SHARE
from mofa_model.calibrate.evidence import FitRow, predicted_by
from mofa_model.calibrate.written import significant

Array = NDArray[np.floating[Any]]

QUANTITIES: Final = {"step": ("step_time_s",), "memory": ("peak", "first stage")}
"""What predicts the rows of a band, by the band's name in bands.toml."""

BORROWED: Final = 10.0
"""A stack with few runs borrows this many from all calibrated stacks together. [1]"""

FEWEST: Final = 5
"""Judged runs that a stack needs for a band of its own."""

LEAST: Final = 0.78
"""Share of left-out runs that the bands hold in the set where they hold fewest, after they were widened. [1]"""

HEADER: Final = """\
# 80 % bands of the estimate, as factors on it, from residuals of runs that the fit did not see.
#   [QUANTITY.stack.NAME]   a calibrated stack, on a class of devices with runs; runs = judged runs, largest = most GPUs
#   [QUANTITY.new-stack]    a stack without any run;  [QUANTITY.new-device]  a class of devices without any run
#   [QUANTITY.scale]        share by which a band widens for every doubling beyond `largest`
# Written by `mofa fit`; read by bands.py.
"""


@dataclass(frozen=True, slots=True)
class Residual:
    """What a fit that did not see a run says of it."""

    row: FitRow
    fold: str
    value: float  # log(measured / predicted)
    known: bool  # the stack has other runs in the fit
    beyond: float = 0.0  # doublings beyond the largest run of its stack


@dataclass(frozen=True, slots=True)
class Widths:
    """Bands of one quantity."""

    stacks: dict[str, tuple[float, float, int, float]]  # low, high, judged runs, largest
    new_stack: tuple[float, float, int]
    new_device: tuple[float, float, int]
    devices: tuple[str, ...]
    per_doubling: float

    def of(self, stack: str, *, known: bool) -> tuple[float, float]:
        """Logarithms of the two factors for a run whose stack the fit did or did not know."""
        if known and stack in self.stacks:
            return self.stacks[stack][0], self.stacks[stack][1]
        return self.new_stack[0], self.new_stack[1]


def residuals(part: Calibrated, names: Iterable[str], by: str) -> list[Residual]:
    """Residuals of the rows that `names` predict, by the folds of one cross-validation."""
    wanted = frozenset(names)
    validated = part.validated[by]
    rows = part.evidence.rows
    stacks = np.array([row.case.key.stack for row in rows])
    gpus = np.array([float(row.case.cluster.gpus) for row in rows])
    found = []
    for fold in validated.folds:
        seen = np.isfinite(part.evidence.measured) & ~fold.unseen
        largest = {name: float(gpus[seen & (stacks == name)].max()) for name in set(stacks[seen])}
        for index in np.flatnonzero(fold.judged & np.isfinite(part.evidence.measured)):
            row = rows[index]
            if predicted_by(row) not in wanted:
                continue
            most = largest.get(stacks[index], 0.0)
            found.append(
                Residual(
                    row=row,
                    fold=fold.name,
                    value=float(part.evidence.measured[index] - validated.values[index]),
                    known=bool(most),
                    beyond=float(np.log2(gpus[index] / most)) if most else 0.0,
                )
            )
    return found


def unseen_by_one(part: Calibrated, names: Iterable[str]) -> list[Residual]:
    """The residuals that bands are made of and judged by: published runs without their group, sweeps without a model."""
    wanted = tuple(names)
    return residuals(part, wanted, "group") + residuals(part, wanted, "model")


def _unstretched(part: Calibrated, wanted: tuple[str, ...], *, without: str = "") -> Widths:
    """Quantiles of residuals; `without` leaves a fold's residuals out, so that it can be judged by the others'."""
    known = [r for r in unseen_by_one(part, wanted) if r.known and r.fold != without]
    new = [r for r in residuals(part, wanted, "stack") if not r.known and r.fold != without]
    elsewhere = [r for r in residuals(part, wanted, "device") if r.fold != without]
    pool = _even(known, "set")
    stacks: dict[str, tuple[float, float, int, float]] = {}
    for name in sorted({row.case.key.stack for row in part.evidence.rows}):
        own = np.array([float(r.row.case.key.stack == name) for r in known])
        here = [
            row for row in part.evidence.rows if row.case.key.stack == name and predicted_by(row) in wanted
        ]
        measured = [row for row in here if row.figure]
        if not measured:
            continue
        low, high = _interval(known, own + BORROWED * pool)
        largest = max(float(row.case.cluster.gpus) for row in measured)
        stacks[name] = (low, high, int(own.sum()), largest)
    low, high = _interval(new, _even(new, "stack"))
    wide, wider = _interval(elsewhere, _even(elsewhere, "device"))
    made = Widths(
        stacks=stacks,
        new_stack=(low, high, len(new)),
        new_device=(min(wide, low), max(wider, high), len(elsewhere)),
        devices=tuple(sorted({KEYS["device"](row) for row in part.evidence.rows})),
        per_doubling=0.0,
    )
    far = [r for r in residuals(part, wanted, "scale") if r.known and r.beyond > 0 and r.fold != without]
    return Widths(made.stacks, made.new_stack, made.new_device, made.devices, _per_doubling(far, made))


def _even(found: Sequence[Residual], what: str) -> Array:
    """Weights that add up to one and give every set, stack or device the same say."""
    names = [set_of(r.row.case) if what == "set" else KEYS[what](r.row) for r in found]
    counts = {name: names.count(name) for name in set(names)}
    weights: Array = np.array([1.0 / (counts[name] * len(counts)) for name in names])
    return weights


def _interval(found: Sequence[Residual], weights: Array) -> tuple[float, float]:
    """Logarithms of the factors that leave a tenth of the residuals on either side; 1 is always inside."""
    if not found:
        return 0.0, 0.0
    values = np.array([r.value for r in found])
    tail = (1.0 - SHARE) / 2.0
    low, high = (_quantile(values, weights, q) for q in (tail, 1.0 - tail))
    return min(low, 0.0), max(high, 0.0)


def _quantile(values: Array, weights: Array, share: float) -> float:
    """Weighted quantile, interpolated between the middles of the weights."""
    order = np.argsort(values, kind="stable")
    above = np.cumsum(weights[order]) - 0.5 * weights[order]
    return float(np.interp(share * weights.sum(), above, values[order]))


def _per_doubling(far: Sequence[Residual], made: Widths) -> float:
    """Least widening for each doubling that lets the bands hold their share of the runs beyond the largest."""
    if not far:
        return 0.0
    for step in range(41):
        share = step / 20.0
        held = [_holds(r, made, 1.0 + share * r.beyond) for r in far]
        if np.mean(held) >= SHARE:
            return share
    return 2.0


def _holds(residual: Residual, made: Widths, wider: float = 1.0) -> bool:
    low, high = made.of(residual.row.case.key.stack, known=residual.known)
    return low * wider <= residual.value <= high * wider


def coverage(part: Calibrated, names: Iterable[str]) -> dict[str, tuple[int, float]]:
    """Judged runs of each set, and the share that bands made without their own fold hold."""
    judged = _judged(part, tuple(names))
    return _shares(judged, _stretch(judged))


def _judged(part: Calibrated, names: tuple[str, ...]) -> list[tuple[Residual, float, float]]:
    """Residuals with the band that was made without their own fold."""
    made: dict[str, Widths] = {}
    found = []
    for residual in unseen_by_one(part, names):
        if residual.fold not in made:
            made[residual.fold] = _unstretched(part, names, without=residual.fold)
        low, high = made[residual.fold].of(residual.row.case.key.stack, known=residual.known)
        found.append((residual, low, high))
    return found


def _shares(judged: list[tuple[Residual, float, float]], stretch: float) -> dict[str, tuple[int, float]]:
    held: dict[str, list[bool]] = {}
    for residual, low, high in judged:
        held.setdefault(set_of(residual.row.case), []).append(
            low * stretch <= residual.value <= high * stretch
        )
    return {name: (len(inside), float(np.mean(inside))) for name, inside in sorted(held.items())}


def _stretch(judged: list[tuple[Residual, float, float]]) -> float:
    """Least factor on all bands that lets each set hold its share.

    Quantiles of few folds are too narrow: what differs between folds is seen only as often as there are folds.
    """
    for step in range(21):
        factor = 1.0 + step / 20.0
        if all(share >= LEAST for _, share in _shares(judged, factor).values()):
            return factor
    return 2.0


def widths(part: Calibrated, names: Iterable[str]) -> Widths:
    """Bands of one quantity."""
    wanted = tuple(names)
    found, factor = _unstretched(part, wanted), _stretch(_judged(part, wanted))
    return Widths(
        {
            name: (low * factor, high * factor, runs, largest)
            for name, (low, high, runs, largest) in found.stacks.items()
        },
        (found.new_stack[0] * factor, found.new_stack[1] * factor, found.new_stack[2]),
        (found.new_device[0] * factor, found.new_device[1] * factor, found.new_device[2]),
        found.devices,
        found.per_doubling,
    )


def all_widths(time: Calibrated, memory: Calibrated) -> dict[str, Widths]:
    """Bands of both quantities."""
    return {name: widths(part, QUANTITIES[name]) for name, part in (("step", time), ("memory", memory))}


def as_toml(found: dict[str, Widths]) -> str:
    """The text of bands.toml."""
    lines = [HEADER.rstrip()]
    for quantity, made in found.items():
        lines += ["", f"[{quantity}]", f"devices = [{', '.join(_text(name) for name in made.devices)}]"]
        lines += [f"scale = {{ per_doubling = {made.per_doubling!r} }}"]
        lines += [f"new-stack = {_inline(*made.new_stack)}", f"new-device = {_inline(*made.new_device)}"]
        lines += ["", f"[{quantity}.stack]"]
        for name, (low, high, runs, largest) in made.stacks.items():
            lines.append(f"{name} = {_inline(low, high, runs, largest)}")
    return "\n".join(lines) + "\n"


def _inline(low: float, high: float, runs: int, largest: float | None = None) -> str:
    factors = f"low = {significant(float(np.exp(low)), 3)!r}, high = {significant(float(np.exp(high)), 3)!r}"
    most = "" if largest is None else f", largest = {largest:.0f}"
    return f"{{ {factors}, runs = {runs}{most} }}"


def _text(name: str) -> str:
    return f'"{name}"'
