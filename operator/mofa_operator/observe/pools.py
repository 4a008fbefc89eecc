"""Pools that a cluster seems to have: nodes with the same GPU and as many of them, for a first ClusterProfile.

`live` is the source `pools` of the entry-point group `mofa.sources`, which `mofa profile --from-cluster` asks.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

from mofa_model.errors import SourceUnreachable
from mofa_operator.api import Api
from mofa_operator.credentials import Credentials
from mofa_operator.keys import NODE
from mofa_operator.observe.nodes import NodeFacts, facts_of
from mofa_operator.refusals import ApiError


def pools_of(nodes: Iterable[NodeFacts]) -> list[dict[str, Any]]:
    """Pools by GPU product and GPUs of a node, the largest first; a node without the product's label is of no pool.

    >>> facts = NodeFacts(labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, ready=True, cordoned=False, gpus=8)
    >>> pools_of([facts, facts])
    [{'product': 'NVIDIA-H100-80GB-HBM3', 'gpus_per_node': 8, 'nodes': 2, 'ready': 2}]
    """
    total, ready = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for facts in nodes:
        if facts.product and facts.gpus:
            total[facts.product, facts.gpus] += 1
            ready[facts.product, facts.gpus] += facts.ready and not facts.cordoned
    return [
        {"product": product, "gpus_per_node": gpus, "nodes": count, "ready": ready[product, gpus]}
        for (product, gpus), count in total.most_common()
    ]


def live() -> list[dict[str, Any]]:
    """Pools of the cluster that KUBECONFIG or the pod's account leads to."""
    return asyncio.run(_live())


async def _live() -> list[dict[str, Any]]:
    try:
        async with Api(Credentials.from_environment()) as api:
            return pools_of([facts_of(body) async for body in api.list(NODE)])
    except ApiError as error:
        raise SourceUnreachable(f"--from-cluster: nodes cannot be listed: {error}") from None
