"""How far the memory of a layout may be off.

Weights, gradients, optimizer states and buffers are counted, and right to half a percent. All else
is estimated: activations, the loss, workspaces, what an allocator keeps. So the band of a layout's
memory widens with the share of it that is estimated:

    half² = (ESTIMATED share)² + COUNTED²

ESTIMATED is the likeliest one: by what runs measured, against what a fit without their publisher, or
without their model of a sweep, says; by published runs, which had room; and by runs of a sweep that
had none. `mofa fit` finds it again. What differs between trainers and publishers is no larger than
what differs between layouts, so they need no width of their own.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.units import Ratio

Array = NDArray[np.floating[Any]]

ESTIMATED: Final = 0.129
"""Half the width of the band of a memory that is all estimated, as a logarithm. [1]"""
COUNTED: Final = 0.02
"""The same of one that is all counted, where contexts and other processes differ. Ours. [1]"""

REPEATED: Final = 0.001
"""Scale of the logarithm between runs of one layout on one device: 0.0006 in the median of 23
layouts of Megatron's tests. [1]"""


def half_width(estimated: Array | Ratio) -> Array:
    """Half the width of the band of a memory, by the share that is estimated. Ours. [1]

    >>> float(half_width(1.0).round(3)), float(half_width(0.2).round(3))
    (0.131, 0.033)
    """
    return np.hypot(ESTIMATED * np.asarray(estimated, dtype=float), COUNTED)
