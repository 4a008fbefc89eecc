"""How sure an estimate is: 80 % bands by what is known of stack, device and scale.

`presets/bands.toml` holds them; `mofa fit` writes it from residuals of runs that the fit did not see. A band is two
factors on the estimate: the measured value lies between low x estimate and high x estimate in four runs of five.

    known        stack and class of devices are calibrated
    new stack    nobody calibrated this stack: `mofa calibrate --from-runs` narrows it with one run
    new device   no run on this class of devices took part
    scale        more GPUs than any run of the stack: wider with every doubling
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mofa_model import presets
from mofa_model.presets import chosen
from mofa_model.units import Count, Ratio

SHARE: Final = 0.8
"""Runs that a band is made to hold. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Band:
    """Where a measured value is expected, as factors on its estimate."""

    low: Ratio
    """One run in ten is below this. [1]"""
    high: Ratio
    """One run in ten is above this. [1]"""
    basis: str
    """What is known: `known`, `new stack`, `new device`, with ` at scale` where it is wider for the number of GPUs."""


def step_band(*, stack: str, device: str, gpus: Count = 1.0) -> Band:
    """Band of a step time on so many devices.

    >>> band = step_band(stack="nanotron", device="h100")
    >>> bool(band.low < 1 < band.high)
    True
    """
    return _band("step", stack, device, gpus)


def memory_band(*, stack: str, device: str) -> Band:
    """Band of the memory on the fullest device."""
    return _band("memory", stack, device, 1.0)


def _band(quantity: str, stack: str, device: str, gpus: Count) -> Band:
    name, device_class = presets.resolve("stacks", stack), presets.device_class(device).split("-")[0]
    tables = [root.get(quantity, {}) for root in chosen.tables(chosen.files(), "bands")]
    narrowest = [table["stack"][name] for table in tables if name in table.get("stack", {})]
    shipped = tables[0]
    if not narrowest:
        band, basis = shipped["new-stack"], "new stack"
    elif len(narrowest) == 1 and narrowest[0].get("runs", 0) and device_class not in shipped["devices"]:
        band, basis = shipped["new-device"], "new device"
    else:
        band, basis = narrowest[-1], "known"
    relatives = [
        table["stack"][kin]
        for table in tables
        for kin in presets.family(name)
        if kin in table.get("stack", {})
    ]
    return _widened(band, shipped["scale"], basis, gpus, _largest(relatives))


def _largest(known: list[Mapping[str, Any]]) -> float:
    """Most GPUs of a run that a stack or a relative of it saw, which share what grows with scale; 0 = none. [1]"""
    return max((float(band.get("largest", 0)) for band in known), default=0.0)


def _widened(
    band: Mapping[str, Any], scale: Mapping[str, Any], basis: str, gpus: Count, largest: float
) -> Band:
    """The band, wider by a share of itself for every doubling beyond the largest run. [1]"""
    beyond = (
        np.maximum(0.0, np.log2(np.maximum(np.asarray(gpus, dtype=float), 1.0) / largest)) if largest else 0.0
    )
    wider = 1.0 + scale["per_doubling"] * beyond
    return Band(
        low=np.exp(np.log(band["low"]) * wider)[()],
        high=np.exp(np.log(band["high"]) * wider)[()],
        basis=f"{basis} at scale" if np.any(np.asarray(beyond) > 0) else basis,
    )
