"""Collectives over the scale-up link by size and ranks, and the exchange of tokens among experts."""

from __future__ import annotations

import numpy as np

from mofa_model.kernels.surface import CallWork
from mofa_model.units import Bytes, Count


def share(size: Bytes, ranks: Count) -> CallWork:
    """Gather, scatter or all-to-all: of `size` bytes in all, a rank sends all but its own part. Source: counting.

    Each part waits at every rank of a ring but its own.

    >>> share(8e6, 8).sent, share(8e6, 8).steps
    (7000000.0, 7.0)
    """
    return CallWork(at=(size, ranks), sent=size * (1.0 - 1.0 / ranks), steps=ranks - 1.0)


def all_reduce(size: Bytes, ranks: Count) -> CallWork:
    """All-reduce: the least is to send the tensor once, where a switch adds up. Source: counting.

    Around a ring it is a scatter and a gather.
    """
    return CallWork(at=(size, ranks), sent=1.0 * size, steps=2.0 * (ranks - 1.0))


def exchange(
    tokens: Count,
    hidden: Count,
    topk: Count,
    ranks: Count,
    multiprocessors: Count,
    *,
    width: Bytes,
) -> CallWork:
    """Tokens of a rank to the ranks of their experts, or back: a copy for each rank that is hit. Ours.

    `multiprocessors` drive the copies; 0 is as many as the kernel takes.
    """
    hit = ranks * (1.0 - np.power(1.0 - 1.0 / ranks, topk))
    return CallWork(
        at=(1.0 * tokens * hidden, hit, ranks, 1.0 / np.maximum(multiprocessors, 1.0)),
        sent=width * tokens * hidden * hit * (1.0 - 1.0 / ranks),
    )
