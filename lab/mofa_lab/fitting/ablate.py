"""What each effect is worth: the errors without it, as the constants stand and after the others
were fitted anew.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.fitting.campaign import Calibrated, CampaignResult
from mofa_lab.fitting.figures import SUBJECTS, errors, regret
from mofa_lab.fitting.folds import CLOSE
from mofa_lab.validate.score import spread
from mofa_model.calibrate.cases import Batch
from mofa_model.calibrate.constants import FreeConstant
from mofa_model.calibrate.fit import Change, fit, times

Array = NDArray[np.floating[Any]]

NONE: Final = "nothing"
"""The row of the table that takes nothing away."""


@dataclass(frozen=True, slots=True)
class Ablated:
    """Errors without an effect: median and mean by subject, and mean regret by sweep."""

    effect: str
    refitted: bool
    errors: Mapping[str, tuple[float, float]]
    regrets: Mapping[str, float]


def effects() -> dict[str, dict[str, Any]]:
    """The effects of effects.toml, by name."""
    text = resources.files("mofa_lab.fitting").joinpath("effects.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def ablate(
    result: CampaignResult, progress: Callable[[str], None] = lambda _: None
) -> Iterator[Ablated]:
    """Errors of the fit without each effect in turn: first with all else as it is, then fitted
    anew; the first row is with all effects.
    """
    part = result.time
    yield _judged(NONE, part.values, part, refitted=False)
    entries = part.evidence.entries
    for name, changes in effects().items():
        evidence = times(result.cases, without(entries, changes), change=switch(changes))
        logs = np.where(
            [entry.spread > 0 for entry in evidence.entries], part.logs, evidence.prior_logarithms
        )
        yield _judged(name, evidence.values(logs), part, refitted=False)
        again = fit(
            evidence, evidence.measured, weights=evidence.weights, start=logs, tolerance=CLOSE
        )
        yield _judged(name, evidence.values(again.logs), part, refitted=True)
        progress(name)


def without(
    entries: tuple[FreeConstant, ...], changes: Mapping[str, Any]
) -> tuple[FreeConstant, ...]:
    """The constants to fit (`entries`), as they are without an effect: where its `changes` name a
    factor of stacks, that factor is fixed at 1 for every stack.
    """
    path = changes.get("stacks")
    return tuple(
        replace(entry, prior=1.0, spread=0.0)
        if entry.factor and entry.path == path and entry.section.startswith("stack.")
        else entry
        for entry in entries
    )


def switch(changes: Mapping[str, Any]) -> Change:
    """A change of batches that sets the constants of an effect to values at which it
    does nothing.
    """
    groups: dict[str, dict[str, float]] = {}
    for path, value in changes.items():
        if "." in path:
            group, name = path.split(".")
            groups.setdefault(group, {})[name] = float(value)

    def change(batch: Batch) -> Batch:
        constants = batch.cluster.calibration
        parts: dict[str, Any] = {
            group: replace(getattr(constants, group), **values) for group, values in groups.items()
        }
        habit = {"placement": changes["placement"]} if "placement" in changes else {}
        return replace(
            batch, cluster=replace(batch.cluster, calibration=replace(constants, **parts, **habit))
        )

    return change


def _judged(name: str, values: Array, part: Calibrated, *, refitted: bool) -> Ablated:
    by_subject: dict[str, tuple[float, float]] = {}
    for subject in SUBJECTS:
        if subject.quantity == "time":
            figures = spread(errors(part, values, subject.chosen).values())
            if figures["n"]:
                by_subject[subject.name] = (figures["median_ape"], figures["mape"])
    regrets = {sweep: regret(part, values, sweep)["mean"] for sweep in ("nanotron", "vtrain")}
    return Ablated(name, refitted, by_subject, {k: v for k, v in regrets.items() if v is not None})
