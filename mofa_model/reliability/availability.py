"""Spares, shrinking, and nodes that fail together.

A job that needs N nodes waits while fewer are left. Broken nodes are repaired in parallel; spares do not fail; nothing
fails while the job waits. Then the number of broken nodes is a birth-death chain that stops at one more than the
spares, and the share of time waited is Erlang's loss formula.
"""

from __future__ import annotations

from math import comb

import numpy as np

from mofa_model.errors import BadValue
from mofa_model.spec.checks import not_negative, share, whole
from mofa_model.units import Count, Ratio

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


def spares_for(load: float, availability: Ratio) -> int:
    """Fewest spares with which a full set works at least this share of time. Source: Erlang 1917. [1]

    >>> spares_for(2048 * 0.0065, 0.99)
    21
    """
    share(availability=availability)
    not_negative(load=load)
    blocked = 1.0
    for spares in range(_MOST_SPARES):
        passed = load * blocked
        blocked = passed / (spares + 1 + passed)
        if 1 - blocked >= availability:
            return spares
    raise BadValue("availability", availability, f"more than {_MOST_SPARES} spares would be needed")


def shrunk_capacity(nodes: int, group: int, load_per_node: float) -> float:
    """Mean share of full speed of a job that sheds groups of `group` nodes instead of waiting. Ours. [1]

    `load_per_node` is failures of a node times the mean repair time [1]. Only running nodes fail; whole nodes are put
    together into full groups again. Birth-death chain over broken nodes.

    >>> round(shrunk_capacity(2048, 16, 0.0065), 3)
    0.991
    """
    whole(nodes=nodes, group=group)
    not_negative(load=load_per_node)
    total = weight = 1.0
    capacity = 1.0
    running = float(nodes)
    broken = 0
    while running > 0 and weight > 1e-18 * total:
        broken += 1
        weight *= running * load_per_node / broken
        running = float(max(0, nodes - broken) // group * group)
        total += weight
        capacity += weight * running / nodes
    return capacity / total


def domain_failures(nodes: Count, rate: Ratio, domain_nodes: Count, domain_rate: Ratio) -> Ratio:
    """Failures of a job when nodes and domains of h nodes fail alone: N l_node + (N / h) l_domain. Source: Poisson sums. [1/s]

    Rates in [1/s]. A shock of a domain counts once for the job, h times for the spares.

    >>> round(domain_failures(2048, 1e-7, 16, 1e-6), 8)
    0.0003328
    """
    return nodes * rate + nodes / domain_nodes * domain_rate


def groups_survive(nodes: int, group: int, killed: int) -> Ratio:
    """Chance that no peer group of g loses all its nodes when k random nodes are lost. Source: inclusion-exclusion. [1]

    P = sum over j of (-1)^j C(N/g, j) C(N - j g, k - j g) / C(N, k).

    >>> round(groups_survive(64, 2, 4), 6)
    0.905543
    """
    whole(nodes=nodes, group=group)
    if not 0 <= killed <= nodes:
        raise BadValue("killed", killed, f"give a number of nodes from 0 to {nodes}")
    groups = nodes // group
    ways = sum(
        (-1) ** j * comb(groups, j) * comb(nodes - j * group, killed - j * group)
        for j in range(killed // group + 1)
    )
    chance: float = ways / comb(nodes, killed)
    return chance
