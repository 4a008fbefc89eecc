"""Which size a job should have: of several questions the one with the best answer that surely fits.

A size is a question with its own number of devices, batch, method or kind of device. Each is
answered alone, and only layouts count that fit with a probability of SURE. Sizes are compared by
what a token costs, because batches differ. Of sizes that are as good, within ALIKE, the one with
the fewest devices is chosen: it is admitted sooner, and what it leaves is for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mofa_model.advice.answer import Advice, Status
from mofa_model.advice.compose import advise
from mofa_model.advice.request import Request
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.units import Ratio

SURE: Final = 0.99
"""Least chance of fitting of a size that is chosen. [1]"""
ALIKE: Final = 0.01
"""Part by which a size must be better than one with fewer devices. Ours. [1]"""


@dataclass(frozen=True, kw_only=True)
class Size:
    """A size, and the best layout that surely fits it."""

    request: Request
    """The question at this size."""
    advice: Advice
    """Its answer; without a strategy where no layout surely fits."""

    @property
    def fits(self) -> bool:
        """Whether some layout surely fits."""
        return self.advice.strategy is not None

    @property
    def seconds_per_token(self) -> float:
        """Time for a token of the run, failures included. [s]"""
        figures = self.advice.predicted
        if figures is None:
            return float("inf")
        training = self.request.problems[0].workload.training
        tokens = float(training.step_tokens)
        return float(figures.step_seconds.target / max(figures.ettr.target, 1e-12) / tokens)

    @property
    def device_seconds_per_token(self) -> float:
        """Time for a token, times the devices. [s]"""
        return float(self.seconds_per_token * self.advice.gpus)


OBJECTIVES: Final[Mapping[str, tuple[str, Callable[[Size], float]]]] = {
    "least-gpu-hours": ("cost", lambda size: size.device_seconds_per_token),
    "soonest": ("time", lambda size: size.seconds_per_token),
    "least-gpus": ("cost", lambda size: float(size.advice.gpus)),
}
"""What a size may be best at: the objective of its layout, and what is least."""


def of_size(request: Request, objective: str, sure: Ratio = SURE) -> Request:
    """The question for one size: its layout serves the same objective, and fits with
    chance `sure`.
    """
    layout_objective, _ = _objective(objective)
    return replace(
        request, objective=layout_objective, risk=1.0 - sure, least_fits=sure, current=None
    )


def size_of(request: Request, objective: str, sure: Ratio = SURE) -> Size:
    """One size with the best layout that surely fits it."""
    asked = of_size(request, objective, sure)
    return Size(request=asked, advice=advise(asked))


def sizes_of(options: Iterable[Request], objective: str, *, sure: Ratio = SURE) -> tuple[Size, ...]:
    """Every size with its answer, in the order of the questions."""
    return tuple(size_of(option, objective, sure) for option in options)


def best_size(sized: Sequence[Size], objective: str) -> Size | None:
    """The size that is best at an objective; None where no layout surely fits any of them.

    One whose layout no measured run supports counts only where all are such.
    """
    _, cost = _objective(objective)
    fitting = [size for size in sized if size.fits]
    recommended = [size for size in fitting if size.advice.status is Status.RECOMMENDED]
    sizes = recommended or fitting
    if not sizes:
        return None
    return sizes[first_of([cost(size) for size in sizes], [size.advice.gpus for size in sizes])]


def first_of(costs: Sequence[float], gpus: Sequence[int]) -> int:
    """Index of the choice: of the least costs, those within ALIKE, the one with fewest GPUs.

    >>> first_of([1.0, 0.995, 2.0], [8, 16, 4])
    0
    """
    return ranked(costs, gpus)[0]


def ranked(costs: Sequence[float], gpus: Sequence[int]) -> list[int]:
    """Indices of all, each the choice among those that are left.

    >>> ranked([1.0, 0.995, 2.0], [8, 16, 4])
    [0, 1, 2]
    """
    left, order = list(range(len(costs))), list[int]()
    while left:
        most = min(costs[at] for at in left) * (1.0 + ALIKE)
        order.append(
            min((at for at in left if costs[at] <= most), key=lambda at: (gpus[at], costs[at]))
        )
        left.remove(order[-1])
    return order


def _objective(name: str) -> tuple[str, Callable[[Size], float]]:
    if name not in OBJECTIVES:
        raise BadValue("size", name, f"one of {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]
