"""Composes the equations: (Workload, Cluster, Strategy) -> Estimate, for one layout or a family of
them.

May import: placement, equations, spec, strategy, units, errors. Imported by: search, explain,
validate, calibrate, advice.

    terms              terms of a layer's time and of memory, each with its equation and meaning
    expert_load        load of the fullest rank of experts, and the exchange of tokens with it
    block_time         one block of a layer: products, attention, traffic, messages
    layer_time         one layer, forward and backward, and its forward work that is done again
    stage_time         one pipeline stage and micro-batch: device work against host launches
    gradient_exchange  once a step: gradient and parameter collectives, optimizer
    model_states       memory that stays between micro-batches, and checkpoints
    activation_memory  memory that comes and goes with micro-batches
    step               all of it together: the terms of a step, and memory by stage and on the host
"""

import numpy as np

from mofa_model.estimate.step import Estimate, StepTime, estimate

__all__ = ["Estimate", "StepTime", "estimate"]

# Of an array of 128 KiB the C library of Linux gives the memory back at once, and asks for it anew
# for the next: a third of the time of a family. Having freed a larger one, it keeps so much.
np.empty(16 * 2**20, dtype=np.uint8)
