"""What a profile's conditions say of its nodes: whether there are any, as it states them, and of no other profile."""

from __future__ import annotations

from typing import Any, Final

from mofa_model import presets
from mofa_model.errors import InputError
from mofa_model.manifest.cluster_profile import ClusterProfileSpec
from mofa_model.manifest.inputs import cluster_of
from mofa_operator.decide.conditions import Found
from mofa_operator.decide.pool_size import PoolSize
from mofa_operator.decide.reading import joined, moment
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import NodeCount, ProfileSnapshot
from mofa_operator.words import Aspect, Reason

_NAMED: Final = 3
"""Most node names that a message lists for each other profile that shares nodes. [1]"""


def ready(
    spec: ClusterProfileSpec, nodes: NodeCount, size: PoolSize, settings: LoopSettings
) -> Found:
    """Whether there are nodes, and whether they are what the profile says; what comes back within minutes changes words alone."""
    try:
        per_node = spec.gpus_per_node or int(cluster_of(spec, 1).gpus_per_node)
        device = presets.resolve("devices", spec.gpu, field="spec.gpu")
    except InputError as error:
        return Found(Aspect.READY, "False", Reason.INVALID_INPUT, str(error))
    if not nodes.total and not size.nodes:
        return Found(Aspect.READY, "False", Reason.NO_NODES, "no node matches spec.nodeSelector")
    if not nodes.ready and not size.nodes:
        return Found(
            Aspect.READY,
            "False",
            Reason.NO_READY_NODES,
            "nodes match spec.nodeSelector, but none is ready",
        )
    offered = sorted(number for number in nodes.gpus if number != per_node)
    others = [product for product in nodes.products if _is_other(product, device)]
    if nodes.gpus and per_node not in nodes.gpus:
        message = f"nodes offer {_either(offered)} GPUs; spec.gpusPerNode is {per_node}"
        return Found(Aspect.READY, "False", Reason.NODES_DIFFER, message)
    if others:
        message = f"nodes have {_either(others)}; spec.gpu is {spec.gpu}"
        return Found(Aspect.READY, "False", Reason.NODES_DIFFER, message)
    some = f"some nodes offer {_either(offered)} GPUs instead of {per_node}" if offered else ""
    turns = (
        ""
        if size.since is None
        else f"{nodes.ready} nodes are ready since {moment(size.since)}; advice stays for {size.nodes} until others have been there, "
        f"or away, for {settings.steady:g} s"
    )
    return Found(Aspect.READY, "True", Reason.NODES_AS_STATED, joined([some, turns]))


def _is_other(product: str, device: str) -> bool:
    """Whether a node's product is another device than the profile's; one that nobody knows says nothing."""
    try:
        return presets.resolve("devices", product) != device
    except InputError:
        return False


def _either(words: list[Any]) -> str:
    return " or ".join(str(word) for word in words[:4])


def exclusive(snapshot: ProfileSnapshot) -> Found:
    """Whether its nodes are of no other profile."""
    if not snapshot.shared:
        return Found(Aspect.NODES_EXCLUSIVE, "True", Reason.NOT_SHARED)
    which = [
        f"{', '.join(names[:_NAMED])}{f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''} with {other}"
        for other, names in sorted(snapshot.shared.items())
    ]
    message = f"it shares nodes with other ClusterProfiles: {'; '.join(which)}"
    return Found(Aspect.NODES_EXCLUSIVE, "False", Reason.NODES_SHARED, message)
