"""Measured fine-tuning runs as evidence: rows of the shipped table, and how many of them their
bands hold.

Their errors are those of `mofa_lab.validate.tuning`: where adapters are trained, by constants that
saw neither the submitter nor one of its systems; where all weights are, by the shipped constants,
of which none of a step was fitted to such a run. The numbers of the variance are those of
pre-training: they hold their share of these runs too, with each submitter left out of the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from mofa_lab.fitting.folds import family
from mofa_lab.fitting.sizes import TUNED
from mofa_lab.fitting.spreads import BY, LeftGroup, group_of
from mofa_lab.validate.picks import unseen
from mofa_lab.validate.tuning import TuningRun, left_out, runs_of
from mofa_model.bands.coordinates import Coordinates, coordinates
from mofa_model.bands.table import in_words, measured_runs


@dataclass(frozen=True)
class Tuned:
    """A run with a step."""

    run: TuningRun
    place: Coordinates
    error: float
    """Logarithm of measured over predicted, by constants that did not see it. [1]"""

    @property
    def group(self) -> str:
        """Runs that are alike: one publisher, one family of models, one device."""
        given = self.run.row
        return f"{self.place.publisher}, {family(given['model'])}, {given['device_preset']}"

    @property
    def row(self) -> dict[str, str]:
        """The run as a row of the table of measured runs, without memory."""
        words = in_words(self.run.row["id"], self.place, step=self.error)
        return {**words, "memory": "", "group": self.group}


@cache
def tuned_runs(path: Path = TUNED) -> tuple[Tuned, ...]:
    """Every fine-tuning run with a step."""
    if not path.exists():
        return ()
    runs = [run for run in runs_of(path)[0] if "step" in run.row["use"]]
    errors = left_out(runs)
    return tuple(Tuned(run, place_of(run), _error(run, errors.get(run.row["id"]))) for run in runs)


def place_of(run: TuningRun) -> Coordinates:
    """The coordinates of a fine-tuning run among measured runs."""
    at = coordinates(run.case.workload, run.case.cluster, run.layout)
    return replace(at, publisher=run.publisher)


def _error(run: TuningRun, left_out_error: float | None) -> float:
    if left_out_error is not None:
        return -math.log1p(left_out_error)
    return math.log(run.row["step_seconds"] / float(run.priced().step_time))


def with_tuned(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Rows of the table with those of the fine-tuning runs, by name."""
    return sorted((*rows, *(run.row for run in tuned_runs())), key=lambda row: row["id"])


def groups_left_out(runs: Sequence[Tuned]) -> Iterator[LeftGroup]:
    """What each publisher ran of a method and a model on a device, seen by the shipped table
    without the publisher.
    """
    together: dict[tuple[str, ...], list[Tuned]] = {}
    for run in runs:
        key = (run.group, run.place.stack, run.place.format, run.place.method)
        together.setdefault(key, []).append(run)
    for group in together.values():
        seen = unseen(measured_runs(), group[0].group)
        yield group_of(BY, seen, [(run.place, run.error) for run in group])
