"""Interleaved 1F1B: a device holds several virtual stages; the pipeline fills in smaller pieces.

Order, time and activations are those of 1F1B with v > 1; what is its own is which numbers it can
run.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from mofa_model.records import dataclass
from mofa_model.schedules.one_f_one_b import OneFOneB
from mofa_model.units import Count

USUAL: Final = (2, 4, 8)
"""Virtual stages that are tried for every model."""
_MOST: Final = 16


@dataclass(frozen=True)
class Interleaved(OneFOneB):
    """1F1B over virtual stages."""

    value: ClassVar[str] = "interleaved"
    looped: ClassVar[bool] = True

    def possible(self, *, microbatches: Count, stages: Count) -> Any:
        """Whether the micro-batches go in whole groups of p."""
        return np.mod(microbatches, stages) == 0

    def overlap_window(self, *, microbatches: Count, stages: Count, virtual: Count) -> Count:
        """1 + (min(p, m) - 1) (v - 1) / v. Ours.

        A chunk runs p micro-batches in a row, so its gradients leave beside all
        micro-batches of the chunks that come after it, and its parameters arrive beside those of
        the chunks before.

        >>> float(Interleaved().overlap_window(microbatches=16, stages=8, virtual=4))
        6.25
        """
        return 1.0 + (np.minimum(stages, microbatches) - 1.0) * (1.0 - 1.0 / np.asarray(virtual))

    def virtual_stages(self, layers: int) -> tuple[int, ...]:
        """2, 4, 8, and whatever else divides the layers, embedding and head counted or not.

        >>> Interleaved().virtual_stages(61)
        (2, 3, 4, 7, 8, 9)
        """
        even = {v for v in range(2, _MOST + 1) if layers % v == 0 or (layers + 2) % v == 0}
        return tuple(sorted({*USUAL, *even}))


INTERLEAVED = Interleaved()
