"""Three rooflines under which operators can be priced: what a data sheet says, what large shapes reach, what every shape does.

A roofline is a choice of constants: the equations are the same under all three, and all else of a calibration stays.
"""

from __future__ import annotations

import enum
from dataclasses import replace
from typing import Any, Final

from mofa_model.spec.calibration import Calibration, ComputeConstants


class Roofline(enum.Enum):
    """Which of the paper's three ways to model compute (its section 5.7, Fig. 10)."""

    THEORETICAL = "theoretical"
    """Eq. (19) with the peaks and bandwidths of the data sheet, every kernel fused."""
    MODIFIED = "modified"
    """Eq. (19) with the rates that large shapes reach, Eq. (17): the straight lines of a fit."""
    SHAPED = "shaped"
    """With a penalty for small shapes too, fitted on profiles of operators: what is used where nothing is said."""


_HALVES: Final = dict.fromkeys(("gemm_half_m", "gemm_half_n", "gemm_half_k", "attention_half"), 0.0)
_IDEAL: Final = dict.fromkeys(
    (
        "gemm_efficiency",
        "low_precision_rate",
        "attention_efficiency",
        "memory_efficiency",
        "elementwise_passes",
        "permute_passes",
        "optimizer_efficiency",
        "recompute_share",
        "layer_scale",
        "expert_scale",
    ),
    1.0,
)
_CHANGED: Final[dict[Roofline, dict[str, float]]] = {
    Roofline.THEORETICAL: {**_IDEAL, **_HALVES, "score_traffic": 0.0},
    Roofline.MODIFIED: _HALVES,
    Roofline.SHAPED: {},
}


def under(roofline: Roofline, calibration: Calibration) -> Calibration:
    """A calibration whose kernels follow a roofline.

    >>> under(Roofline.THEORETICAL, Calibration()).compute.gemm_efficiency
    1.0
    """
    changed: dict[str, Any] = _CHANGED[roofline]
    compute: ComputeConstants = replace(calibration.compute, **changed)
    kernels = calibration.kernels if roofline is Roofline.SHAPED else None
    return replace(calibration, compute=compute, kernels=kernels)
