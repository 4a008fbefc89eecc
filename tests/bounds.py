"""What no pipeline can beat, whatever its order: the oracle of several tests."""

import numpy as np

from mofa_model.schedules import INTERLEAVED, ONE_F_ONE_B

ROUNDING = 1e-12
"""Sums of the same numbers in another order."""


def one_ratio(family):
    """What a law on whole steps allows each layout of a family, as a share of the step.

    Schedules that split the backward pass, and hops between virtual stages, take one ratio of
    forward to weight gradient for all stages. No way of sharing out a maximum of work and launches
    (or of work and offloading) makes every pass grow with both, and the slowest stage may have
    another ratio than the others: so what is better in each stage may lengthen the bubble. Among
    450,000 layouts it did by 2.8 % of a step, by 3.4 % under V-half. What stages do in all holds
    without it.
    """
    if family.schedule in {ONE_F_ONE_B, INTERLEAVED}:
        return np.where(np.asarray(family.vpp) > 1, 0.02, ROUNDING)
    return 0.04


def pipeline_lower_bound(
    *, slowest, total, microbatches, stages, virtual=1.0, hop=0.0, weight=1 / 3, pair=1.0
):
    """The larger of the slowest device's work, m max C (`pair` of it if all overlap), and one
    micro-batch down and up alone: sum C - sum W and 2 (p v - 1) hops, none on a single device. A
    pair takes at least as long as its longer half. [s]
    """
    down_and_up = total * (1 - weight) + np.where(stages > 1, 2 * (stages * virtual - 1), 0.0) * hop
    return np.maximum(microbatches * slowest * np.minimum(pair, 1.0), down_and_up)
