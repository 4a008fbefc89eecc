"""The evidence map: for every feature of a layout how many measured runs have it, and how well those are predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.bands.band import here
from mofa_model.bands.coordinates import PLACES, SIZES, Coordinates, family_of
from mofa_model.bands.table import MeasuredRuns

Mask = NDArray[np.bool_]

ALWAYS: Final = (
    "stack",
    "device",
    "format",
    "blocks",
    "gpus",
    "tp",
    "pp",
    "cp",
    "ep",
    "optimizer",
    "recompute",
)
"""Features that are told even where they are the plainest."""
AROUND: Final = 2.0
"""Sizes up to so many times as large or as small are told together. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """Runs that have a feature."""

    runs: int
    """Measured runs. [1]"""
    error: float | None
    """Median error of their steps by fits that did not see their groups; None where there are none. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Feature:
    """A value of a coordinate or of an axis of the layout, and who has it."""

    name: str
    """Coordinate, or key of the layout."""
    value: str
    """What it is."""
    seen: Mapping[str, Seen]
    """Runs that have it: `here`, of the stack on these devices; of the `stack`; on these `devices`; in this `format`; `all`."""


def features_of(runs: MeasuredRuns, asked: Coordinates) -> tuple[Feature, ...]:
    """Every feature of a layout with the runs that have it."""
    measured = np.isfinite(runs.errors["step"])
    devices, which = runs.places["device"]
    family = family_of(asked.device)[1]
    on = np.array([family_of(device)[1] == family for device in devices])[which]
    among = {
        "here": here(runs, asked),
        "stack": runs.have("stack", asked.stack),
        "devices": on,
        "format": runs.have("format", asked.format),
        "all": np.ones(len(runs.names), dtype=bool),
    }
    names = dict.fromkeys((*PLACES, *ALWAYS, *sorted(asked.layout)))
    return tuple(
        Feature(
            name=name,
            value=asked.word(name),
            seen={
                where: _seen(runs, mask & _has(runs, asked, name) & measured) for where, mask in among.items()
            },
        )
        for name in names
    )


def _has(runs: MeasuredRuns, asked: Coordinates, name: str) -> Mask:
    """Runs with the value that is asked about; of a size those about as large."""
    if name not in SIZES:
        return runs.have(name, asked.word(name))
    words, which = runs.places[name]
    ratios = np.array([float(word) for word in words]) / float(asked.word(name))
    near: Mask = ((ratios <= AROUND) & (ratios >= 1.0 / AROUND))[which]
    return near


def _seen(runs: MeasuredRuns, mask: Mask) -> Seen:
    errors: NDArray[Any] = np.abs(np.expm1(-runs.errors["step"][mask]))
    return Seen(runs=int(mask.sum()), error=float(np.median(errors)) if errors.size else None)
