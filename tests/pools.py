"""Pools of fake nodes in a real cluster, and waiting until an operator is at rest."""

import itertools
import secrets
import time
from contextlib import contextmanager
from pathlib import Path

from mofa_local import nodes
from ruamel.yaml import YAML

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
_pools = itertools.count()


@contextmanager
def pool(cluster, size=2, *, spec=None, form="{}-{}"):
    """A ClusterProfile of a few ready nodes that are nobody else's; `spec` gives more of its spec,
    by its name, and `form` the names of its nodes.
    """
    name = f"pool-{next(_pools)}-{secrets.token_hex(3)}"
    labels = {"example.org/pool": name}
    made = [nodes.node(form.format(name, number), labels=labels) for number in range(size)]
    nodes.create(cluster, made, kwok=False)
    profile = YAML(typ="safe").load((EXAMPLES / "h100-east.yaml").read_text())
    profile.pop("status", None)
    profile["metadata"] = {"name": name}
    profile["spec"] |= {"nodeSelector": labels} | (spec(name) if spec else {})
    cluster.apply(profile)
    try:
        yield name
    finally:
        cluster.delete("clusterprofiles", name)
        cluster.delete("nodes", labels=f"example.org/pool={name}")


def settled(advisor):
    """Wait until nothing is written for a while; the result is the number of writes so far."""
    quiet, count = 0, -1
    while quiet < 5:
        now = len(advisor.writes())
        quiet, count = (quiet + 1, now) if now == count else (0, now)
        time.sleep(0.2)
    return count
