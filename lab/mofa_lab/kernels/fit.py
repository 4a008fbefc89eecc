"""Measured calls of one operator in one form in, a surface out: first the law, then the corrections
over it.

The table is a least-squares fit of logarithms in which small errors count by their square and large
ones by their size, so that half of the calls decide and not the worst. It is bent no more than the
calls ask for, and no size of `slower_with` makes a call faster: where one would, on a sample of
calls that covers the table, the fit is done again with that held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.kernels.tables import Calls
from mofa_model.kernels import OPERATORS, CallWork, Sheet, Surface, Timer
from mofa_model.kernels.surface import Floats, Law, Places
from mofa_model.presets.kernels import UNIT

ROUND: Final = 0.02
"""Octaves below which an error counts by its square."""
ROUNDS: Final = {"causal-attention": 0.05}
"""The same where libraries lack some shapes: those that only slow ones have count for more."""
SMOOTH: Final = 0.02
"""Weight of a bend of the table against a measured call."""
SMALL: Final = 0.02
"""Weight of a correction's size: knots without calls keep to the law."""
PASSES: Final = 6
"""Rounds of reweighting."""
LAWFUL: Final = 3000
"""Calls to which a law is fitted."""
SAMPLE: Final = 2000
"""Pairs of calls of each size on which growth is looked at in a round."""
HELD: Final = 40
"""Rounds at most."""
CLEAN: Final = 3
"""Rounds in a row without a call that shrinks, after which none is expected."""
RISE: Final = 0.004
"""Octaves that a time grows at least for an octave of a size, where growth has to be held."""
STEPS: Final = 4
"""Solutions in a round, each with the pairs held that fall short in the one before."""
STIFF: Final = 100.0
"""Weight of a pair that has to grow."""
BOUNDS: Final = {
    "start": (1e-7, 0.1), "step": (1e-8, 0.01), "matrix": (1e-4, 1.0), "memory": (1e-3, 3.0),
    "link": (1e-3, 1.0), "width": (1.0, 1e9),
    "edge": (1e-3, 1.0), "sharpness": (1.0, 6.0),
}  # fmt: skip
"""Range of each number of a law. Operands in the cache move faster than memory."""


def surface(calls: Calls, sheet: Sheet, source: str) -> Surface:
    """Fit a surface (law and table of corrections) to measured calls."""
    operator = OPERATORS[calls.operator]
    work = operator.work(**calls.given, **calls.sizes)
    lawful = law(work, calls.seconds, sheet, operator.halving_axes)
    left = np.log2(calls.seconds / lawful.seconds(work, sheet))
    axes = [np.broadcast_to(axis, calls.seconds.shape) for axis in work.axis_values]
    knots = tuple(
        _sought(axis, left, most) if place in operator.jump_axes else _knots(axis, most)
        for place, (axis, most) in enumerate(zip(axes, operator.knots, strict=True))
    )
    blank = Surface(
        law=lawful,
        knots=knots,
        corrections=np.zeros([len(axis) for axis in knots]),
        format=calls.format,
        fixed_sizes=calls.given,
        rows=len(calls.seconds),
        source=source,
    )
    corrections = _table(blank, work, calls, sheet)
    return replace(
        blank, corrections=np.rint(corrections * UNIT).reshape(blank.corrections.shape) / UNIT
    )


def law(work: CallWork, seconds: Floats, sheet: Sheet, halved: int) -> Law:
    """The law nearest to the calls, by robust least squares of logarithms."""
    from scipy.optimize import least_squares

    rows = np.linspace(0, len(seconds) - 1, min(len(seconds), LAWFUL)).astype(int)
    few, logs = _chosen(work, rows), np.log(seconds[rows])
    first = {"start": float(np.min(seconds)), "sharpness": 2.0}
    bounds = dict(BOUNDS)
    if np.any(np.greater(work.flops, 0.0)):
        first |= {"matrix": 0.7, "width": 4.0 * float(np.min(work.output_elements))}
        for axis, places in enumerate(work.axis_values[:halved]):
            middle = float(np.median(places))
            first[f"half {axis}"], bounds[f"half {axis}"] = 0.02 * middle, (1e-4 * middle, middle)
    asked = (
        ("memory", work.memory_bytes, 0.7), ("link", work.link_bytes, 0.7),
        ("edge", np.subtract(work.padding, 1.0), 0.1),
        ("step", work.steps, 1e-6),
    )  # fmt: skip
    first |= {name: begun for name, given, begun in asked if np.any(np.greater(given, 0.0))}
    low, high = (np.log([bounds[name][side] for name in first]) for side in (0, 1))

    def made(numbers: Floats) -> Law:
        values = dict(zip(first, (float(f"{value:.5g}") for value in np.exp(numbers)), strict=True))
        halves = tuple(value for name, value in values.items() if name.startswith("half"))
        return Law(
            **{name: value for name, value in values.items() if not name.startswith("half")},
            halves=halves,
        )

    def left(numbers: Floats) -> Floats:
        errors: Floats = np.log(made(numbers).seconds(few, sheet)) - logs
        return errors

    start = np.clip(np.log(list(first.values())), low + 1e-3, high - 1e-3)
    done = least_squares(
        left, start, bounds=(low, high), loss="soft_l1", f_scale=0.05, max_nfev=40, diff_step=1e-3
    )
    return made(done.x)


def _knots(places: Floats, most: int) -> tuple[float, ...]:
    """Knots along an axis: its values where they are few, else even steps of the logarithm."""
    values = np.unique([float(f"{place:.6g}") for place in np.unique(places)])
    if len(values) == 1:
        return (float(values[0]), 2.0 * float(values[0]))
    if len(values) <= most:
        return tuple(values.tolist())
    even = np.exp2(np.linspace(np.log2(values[0]), np.log2(values[-1]), most))
    return tuple(float(f"{place:.6g}") for place in even)


def _sought(places: Floats, left: Floats, most: int) -> tuple[float, ...]:
    """Knots along an axis, at values between which straight lines follow the law's errors best.

    The outer ones first, then each time the one that helps most.
    """
    values, group, calls = np.unique(places, return_inverse=True, return_counts=True)
    if len(values) <= most:
        return _knots(places, most)
    logs, middles = (
        np.log2(values),
        np.array([np.median(left[group == i]) for i in range(len(values))]),
    )

    def missed(chosen: Sequence[int]) -> float:
        knots = logs[sorted(chosen)]
        hats = np.stack([np.interp(logs, knots, hat) for hat in np.eye(len(knots))], axis=1)
        weight = np.sqrt(calls)
        heights = np.linalg.lstsq(hats * weight[:, None], middles * weight, rcond=None)[0]
        return float(np.sum(calls * np.abs(hats @ heights - middles)))

    chosen = [0, len(values) - 1]
    while len(chosen) < most:
        others = (i for i in range(len(values)) if i not in chosen)
        chosen.append(min(others, key=lambda i: missed([*chosen, i])))
    return tuple(float(f"{value:.6g}") for value in values[sorted(chosen)])


def _corners(surface: Surface, work: CallWork) -> tuple[list[Places], list[Floats]]:
    """Positions of the table's entries around each call, and their weights, which add up to 1."""
    places = surface.places(work)
    lowest = surface.lowest_corner(places)
    base = np.ravel_multi_index(lowest, surface.corrections.shape)
    weight: list[Floats] = [np.ones(())]
    for place, low in zip(places, lowest, strict=True):
        share = place - low
        weight = [old * part for old in weight for part in (1.0 - share, share)]
    return [base + offset for offset in surface.offsets], weight


def _table(blank: Surface, work: CallWork, calls: Calls, sheet: Sheet) -> Floats:
    """Corrections of a law at the knots, fitted to calls so that no time falls as a size grows."""
    index, weight = (np.stack(np.broadcast_arrays(*part)) for part in _corners(blank, work))
    target: Floats = np.log2(
        np.asarray(calls.seconds / blank.law.seconds(work, sheet), dtype=float)
    )
    size = blank.corrections.size
    bends = _bends(blank.corrections.shape)
    small = ROUNDS.get(calls.operator, ROUND)
    still = SMOOTH * bends.T @ bends + SMALL * np.eye(size)
    corrections: Floats = np.zeros(size)
    for _ in range(PASSES):
        left = target - np.sum(weight * corrections[index], axis=0)
        squares, sides = _normal(
            index, weight, target, small / np.maximum(np.abs(left), small), size
        )
        corrections = np.asarray(np.linalg.solve(squares + still, sides), dtype=float)
    squares += still
    drawn, clean = np.random.default_rng(0), 0
    rows, least = np.zeros((0, size)), np.zeros(0)
    for _ in range(HELD):
        more, wanted = _shrunk(calls, blank, sheet, corrections, drawn)
        clean = 0 if len(wanted) else clean + 1
        if clean == CLEAN:
            break
        rows, least = np.concatenate([rows, more]), np.concatenate([least, wanted])
        for _ in range(STEPS):
            short = rows @ corrections < least
            held = STIFF * rows[short]
            corrections = np.asarray(
                np.linalg.solve(squares + held.T @ rows[short], sides + held.T @ least[short]),
                dtype=float,
            )
    return corrections


def _shrunk(
    calls: Calls, blank: Surface, sheet: Sheet, corrections: Floats, drawn: np.random.Generator
) -> tuple[Floats, Floats]:
    """Calls of a fresh sample that the table prices less once a size grows, as rows and sides of
    equations: the row times the table must be at least the side.
    """
    operator = OPERATORS[calls.operator]
    rows: list[Floats] = [np.zeros((0, blank.corrections.size))]
    wanted: list[Floats] = [np.zeros(0)]
    for name in operator.slower_with:
        sizes = _covering(calls, drawn, SAMPLE)
        octaves = drawn.uniform(0.02, 0.6, SAMPLE)
        grown = sizes | {name: sizes[name] * np.exp2(octaves)}
        before, after = (operator.work(**calls.given, **given) for given in (sizes, grown))
        gain = np.log2(blank.law.seconds(after, sheet) / blank.law.seconds(before, sheet))
        ends = [_corners(blank, work) for work in (before, after)]
        first, last = (
            sum(part * corrections[place] for place, part in zip(*end, strict=True)) for end in ends
        )
        short = np.flatnonzero(last - first + gain < 0.0)
        change = _dense(ends[1], short, corrections.size) - _dense(ends[0], short, corrections.size)
        rows.append(change / octaves[short, None])
        wanted.append(RISE - gain[short] / octaves[short])
    return np.concatenate(rows), np.concatenate(wanted)


def _covering(calls: Calls, drawn: np.random.Generator, count: int) -> dict[str, Floats]:
    """Random sizes within the measured range: half near measured calls, half with each size on
    its own.
    """
    picked = drawn.integers(len(calls.seconds), size=count)
    sizes: dict[str, Floats] = {}
    for name, values in calls.sizes.items():
        if np.any(values < 1.0):
            sizes[name] = values[picked]
            continue
        near = values[picked] * np.exp2(drawn.uniform(-0.5, 0.5, count))
        anywhere = np.exp2(drawn.uniform(np.log2(values.min()), np.log2(values.max()), count))
        sizes[name] = (
            np.where(np.arange(count) % 2, near, anywhere)
            if name in OPERATORS[calls.operator].slower_with
            else values[picked]
        )
    if "kv_heads" in sizes:
        sizes["kv_heads"] = np.minimum(sizes["kv_heads"], sizes["heads"])
    return sizes


def _dense(corners: tuple[list[Places], list[Floats]], chosen: Places, size: int) -> Floats:
    """A matrix that takes the table to the corrections of the chosen calls."""
    rows = np.zeros((len(chosen), size))
    for place, part in zip(*corners, strict=True):
        np.add.at(rows, (np.arange(len(chosen)), place[chosen]), part[chosen])
    return rows


def _bends(shape: Sequence[int]) -> Floats:
    """A matrix that takes a table to its second differences along each axis."""
    grid = np.arange(int(np.prod(shape))).reshape(shape)
    rows: list[Floats] = []
    for axis, count in enumerate(shape):
        parts = (
            (1.0, -2.0, 1.0) if count > 2 else (0.3, -0.3)
        )  # two knots cannot bend: they are kept from parting
        places = [
            np.take(grid, range(i, count - len(parts) + 1 + i), axis).ravel()
            for i in range(len(parts))
        ]
        block = np.zeros((len(places[0]), grid.size))
        for part, place in zip(parts, places, strict=True):
            block[np.arange(len(place)), place] = part
        rows.append(block)
    return np.concatenate(rows)


def _normal(
    index: Places, weight: Floats, target: Floats, scale: Floats, size: int
) -> tuple[Floats, Floats]:
    """Matrix and right side of weighted normal equations, from sparse rows (places and shares)."""
    squares, sides = np.zeros(size * size), np.zeros(size)
    for places, shares in zip(index, weight, strict=True):
        sides += np.bincount(places, shares * target * scale, size)
        for others, parts in zip(index, weight, strict=True):
            squares += np.bincount(places * size + others, shares * parts * scale, size * size)
    return squares.reshape(size, size), sides


def _chosen(work: CallWork, rows: NDArray[np.intp]) -> CallWork:
    """The work of the calls in `rows`."""

    def part(value: Any) -> Any:
        return value if np.ndim(value) == 0 else value[rows]

    flat = {
        field.name: part(getattr(work, field.name))
        for field in fields(work)
        if field.name != "axis_values"
    }
    return CallWork(axis_values=tuple(part(axis) for axis in work.axis_values), **flat)


def shrinking(calls: Calls, timer: Timer) -> float:
    """The largest fall of a time where a size grew, over a fresh sample of calls, as a share
    of it.
    """
    drawn = np.random.default_rng(1)
    worst = 0.0
    for name in OPERATORS[calls.operator].slower_with:
        sizes = _covering(calls, drawn, SAMPLE)
        grown = sizes | {name: sizes[name] * np.exp2(drawn.uniform(0.01, 1.0, SAMPLE))}
        worst = max(worst, float(np.max(1.0 - timer.seconds(**grown) / timer.seconds(**sizes))))
    return worst
