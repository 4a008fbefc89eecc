"""Composes the equations: (Workload, Cluster, Strategy) -> Estimate, for one layout or a family of them.

May import: placement, equations, spec, strategy, units, errors. Imported by: search, explain, validate, calibrate, advice.

    blocks     halves of a layer: attention, plain FFN, experts
    routing    how full the fullest rank of experts is, and what goes there
    layer      one layer, forward and backward; again: what it computes again
    stage      one pipeline stage and micro-batch: device work against host launches
    exchange   once a step: gradient and parameter collectives, optimizer
    resident   memory that stays between micro-batches
    live       memory that comes and goes with them
    footprint  both, per stage, and on the host
    step       all of it together
"""

from mofa_model.estimate.step import Estimate, StepTime, estimate

__all__ = ["Estimate", "StepTime", "estimate"]
