"""The pipeline schedules, one file each (1F1B with its interleaved form): order of work, closed
form, activations, and limits.

A new one is its file and its place in `SCHEDULES`; search, estimate, manifests and constraints walk
over that list. `schedule` has the types of a schedule and its order; `replay` walks any order, and
the closed forms are proved against it. May import: equations, spec, units, errors, numpy. Imported
by: strategy and what stands above it.
"""

from typing import Final

from mofa_model.schedules.dualpipe import DUALPIPE
from mofa_model.schedules.dualpipe_v import DUALPIPE_V
from mofa_model.schedules.one_f_one_b import INTERLEAVED, ONE_F_ONE_B
from mofa_model.schedules.schedule import Flow, Schedule
from mofa_model.schedules.v_half import V_HALF
from mofa_model.schedules.zbv import ZBV
from mofa_model.schedules.zero_bubble import ZERO_BUBBLE

SCHEDULES: Final = (ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE, ZBV, V_HALF, DUALPIPE, DUALPIPE_V)
"""All of them, the simplest first: of two strategies that take the same time the one with the
simpler schedule wins."""

__all__ = [
    "DUALPIPE",
    "DUALPIPE_V",
    "INTERLEAVED",
    "ONE_F_ONE_B",
    "SCHEDULES",
    "V_HALF",
    "ZBV",
    "ZERO_BUBBLE",
    "Flow",
    "Schedule",
]
