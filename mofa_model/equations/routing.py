"""Routing of tokens to experts: how full the fullest rank is, on the mean and at worst, and experts
in chunks.

A load is that of the fullest rank of an exchange over the mean of its ranks, one for each layer and
micro-batch. The largest of many ranks is a Gumbel variable: P(load < x) = exp(-exp(-(x - m + g b) /
b)), b = sqrt(6) sd / pi, g = 0.577 of Euler.
"""

from __future__ import annotations

import numpy as np

from mofa_model.units import Count, Ratio, Seconds

_SCALE = float(np.sqrt(6.0) / np.pi)
_EULER = float(np.euler_gamma)
_TINY = float(np.finfo(float).tiny)


def largest_load(ranks: Count, experts: Count, top_k: Count) -> Ratio:
    """Load of a rank to which every token goes with as many of its k choices as there are experts:
    min(e, E / k). Ours. [1]

    >>> float(largest_load(64, 256, 8)), float(largest_load(1, 8, 2))
    (32.0, 1.0)
    """
    return np.minimum(ranks, experts / top_k)


def tail_load(mean: Ratio, spread: Ratio, exchanges: Count, risk: Ratio) -> Ratio:
    """Load that the largest of so many exchanges exceeds with a probability of `risk`. Source:
    Gumbel 1958. [1]

    Their largest is a Gumbel variable again, b ln(exchanges) further up.

    >>> round(float(tail_load(1.4, 0.2, 1e6, 0.01)), 3), float(tail_load(1.4, 0.0, 1e6, 0.01))
    (4.182, 1.4)
    """
    return mean + spread * _SCALE * (np.log(exchanges / -np.log1p(-risk)) - _EULER)


def overflow_probability(mean: Ratio, spread: Ratio, exchanges: Count, load: Ratio) -> Ratio:
    """Probability that one of so many exchanges has a larger load: what `tail_load` turns around.
    Source: Gumbel 1958. [1]

    >>> round(float(overflow_probability(1.4, 0.2, 1e6, 4.182)), 3)
    0.01
    >>> float(overflow_probability(1.4, 0.0, 1e6, 1.3))
    1.0
    """
    scale = np.maximum(spread * _SCALE, _TINY)
    beyond = np.clip((load - mean) / scale + _EULER, -500.0, 500.0)  # so that exp stays finite
    return -np.expm1(-exchanges * np.exp(-beyond))


def chunks_run(chunks: Count, mean: Ratio, tail: Ratio) -> Count:
    """Chunks that a layer and micro-batch run in on the mean, where each takes as many as its load
    asks for. Ours. [1]

    The tail runs in all of them, so that a chunk has tail / c of the mean rank's tokens, and a load
    x in ceil(c x / tail): half a chunk more than c x / tail on the mean, one at least. After
    memory-aware chunk tuning, Source: MemFine.

    >>> [float(chunks_run(*case)) for case in ((4, 1.4, 4.2), (4, 1.4, 1.4), (1, 1.4, 4.2))]
    [1.8333333333333333, 4.0, 1.0]
    """
    return np.minimum(chunks, np.maximum(1.0, chunks * (mean / tail) + 0.5))


def chunk_launch_time(experts: Seconds, chunks: Count, repeats: Ratio, extra: Ratio) -> Seconds:
    """Host time that chunks of experts add to a layer's forward and backward pass. Ours. [s]

    `experts` is one launch of dispatch, experts and combine, which every chunk repeats. `extra` is
    the share that recomputing adds; `repeats` is 1 where a layer without chunks recomputes too.

    >>> round(chunk_launch_time(5.1e-3, 4.0, 0.0, 0.33) * 1e3, 3)
    22.032
    """
    return experts * (chunks * (1.0 + extra) - (1.0 + extra * repeats))
