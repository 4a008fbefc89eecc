"""Spares, shrinking, and nodes that fail together.

A job that needs N nodes waits while fewer are left. Broken nodes are repaired in parallel; spares do not fail; nothing
fails while the job waits. Then the number of broken nodes is a birth-death chain that stops at one more than the
spares, and the share of time waited is Erlang's loss formula.
"""

from __future__ import annotations

import numpy as np

from mofa_model.checks import not_negative
from mofa_model.errors import BadValue
from mofa_model.units import Ratio

_MOST_SPARES = 100_000


def spares_availability(load: Ratio, spares: int) -> Ratio:
    """Share of time that a full set of nodes works: 1 - B(load, spares + 1). Source: Erlang 1917. [1]

    `load` is the job's failures times the mean repair time: broken nodes on average [1].

    >>> round(float(spares_availability(256 * 0.0065, 3)), 4)
    0.9378
    """
    not_negative(load=load, spares=spares)
    if spares > _MOST_SPARES:
        raise BadValue("spares", spares, f"at most {_MOST_SPARES}")
    blocked = np.ones_like(np.asarray(load, dtype=float))
    for servers in range(1, spares + 2):
        passed = load * blocked
        blocked = passed / (servers + passed)
    answer: Ratio = (1 - blocked)[()]
    return answer
