"""Whether somebody keeps what stands on our objects: an operator that is no Deployment of this cluster shows in nothing else. Pure."""

from __future__ import annotations

from mofa_operator.fleet.site import Site
from mofa_operator.observe.nodes import count


def is_kept(site: Site) -> bool:
    """Whether every ClusterProfile, and there is one, says of its spec and of its nodes what is so now."""
    nodes = site.fleet.nodes
    found = []
    for profile in site.fleet.store.profiles():
        counted, says = count(profile.asked.node_selector, nodes.items()), profile.status
        now = (profile.generation, counted.total, counted.ready)
        found.append((says.generation, says.total, says.ready) == now)
    return bool(found) and all(found)
