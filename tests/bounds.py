"""What no pipeline can beat, whatever its order: the oracle of several tests."""

import numpy as np


def pipeline_lower_bound(
    *, slowest, total, microbatches, stages, virtual=1.0, hop=0.0, weight=1 / 3, pair=1.0
):
    """The larger of the slowest device's work, m max C (`pair` of it if all overlap), and one micro-batch down and up alone:
    sum C - sum W and 2 (p v - 1) hops, none on a single device. A pair takes at least as long as its longer half. [s]
    """
    down_and_up = total * (1 - weight) + np.where(stages > 1, 2 * (stages * virtual - 1), 0.0) * hop
    return np.maximum(microbatches * slowest * np.minimum(pair, 1.0), down_and_up)
