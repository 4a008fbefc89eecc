"""The device with the least memory that surely holds a run, among those that there are."""

from __future__ import annotations

import math

from mofa_model import presets
from mofa_model.advice.sizes import SURE
from mofa_model.bands.odds import END, chance
from mofa_model.bands.variance import memory_half_width


def is_sure(limit: float, predicted: float, estimated: float) -> bool:
    """Whether a predicted memory surely fits under a limit; `estimated` is the share of it that is
    estimated and not counted.
    """
    scale = float(memory_half_width(estimated)) / END
    return float(chance(math.log(limit / predicted) / scale)) >= SURE


def least_rooms(
    predicted: float, measured: float, estimated: float, usable: float
) -> tuple[float | None, float | None]:
    """The least room that surely holds a run, and the least that holds what was measured, of which
    devices have a share `usable`; None where none has it. [B]
    """
    sizes = sorted({float(presets.device(name).memory) for name in presets.names("devices")})
    rooms = [usable * size for size in sizes]
    picked = next((room for room in rooms if is_sure(room, predicted, estimated)), None)
    return picked, next((room for room in rooms if room >= measured), None)
