"""Definitions that come late, go, and come again: their objects are seen within seconds, and no
other watch suffers.
"""

import json
import time
from pathlib import Path

import pytest
from advisor import Advisor, condition, ours, until
from foreign import KINDS, definition, job
from ruamel.yaml import YAML

from mofa_model.annotations import PREFIX
from mofa_model.kinds import BATCH_JOB
from mofa_operator.keys import NAMESPACE, NODE, OURS

ROOT = Path(__file__).parents[2]
QUICK = ("--settle=1", "--resync=600", "--backoff=0.2")
"""Full lists come so seldom that what is seen was watched."""
PLACE = "test-late"
SOON = 10.0
"""How soon a kind is watched once its definition is established. [s]"""
ALWAYS = {NODE.resource, NAMESPACE.resource, BATCH_JOB.resource}
"""What a cluster has without any definition."""
ORDERS = [
    (*KINDS[number:], *OURS, *KINDS[:number])
    if number % 2
    else (*OURS[number:], *KINDS[::-1], *OURS[:number])
    for number in range(5)
]
"""Ours first, last and in the midst; others' in either direction, and from another one on
each time.
"""


def definitions(*kinds):
    """Definitions of some kinds; ours are those that we ship."""
    shipped = {
        one["spec"]["names"]["kind"]: one
        for one in map(_read, sorted((ROOT / "crds").glob("*.yaml")))
    }
    return [shipped[kind.kind] if kind in OURS else definition(kind) for kind in kinds]


def _read(path):
    return YAML(typ="safe").load(path.read_text("utf-8"))


def remove(cluster, *kinds):
    """Take definitions away, and everything that they define."""
    names = [f"crd/{kind.resource}" for kind in kinds]
    cluster.kubectl("delete", *names, "--ignore-not-found", "--timeout=60s")


def establish(cluster, *kinds):
    """Have definitions in force, made in this order."""
    made = {"apiVersion": "v1", "kind": "List", "items": definitions(*kinds)}
    cluster.kubectl("create", "-f", "-", input=json.dumps(made))
    until(
        lambda: all(
            condition(one, "Established").get("status") == "True"
            for one in _defined(cluster, kinds)
        )
    )


def _defined(cluster, kinds):
    names = [f"crd/{kind.resource}" for kind in kinds]
    return json.loads(cluster.kubectl("get", *names, "-o", "json"))["items"]


@pytest.fixture(scope="module")
def bare(cluster):
    """The cluster without a definition that the operator knows; ours are there again afterwards."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}})
    remove(cluster, *OURS, *KINDS)
    yield cluster
    remove(cluster, *OURS, *KINDS)
    establish(cluster, *OURS)


@pytest.fixture(scope="module")
def advisors(bare, processes):
    """An operator of all namespaces and one of a single one, started while the cluster has
    no definitions.
    """
    made = [Advisor(bare, processes, "everywhere"), Advisor(bare, processes, "somewhere")]
    for one, more in zip(made, [(), (f"--namespace={PLACE}",)], strict=True):
        one.start(*QUICK, *more, wait=False)
    try:
        for one in made:
            until(lambda one=one: one.watched == ALWAYS, what=f"{one.name} watches what there is")
        yield made
    finally:  # whatever went wrong, nobody else's objects are written
        ends = [one.stop() for one in made]
    assert ends == [0, 0]


def answered(cluster):
    """Kinds whose job has an outcome: its object was seen."""
    found = cluster.kubectl(
        "get", ",".join(kind.resource for kind in KINDS), "-n", PLACE, "-o", "json"
    )
    return {one["kind"] for one in json.loads(found)["items"] if "status" in ours(one)}


def arrive(cluster, advisors, order):
    """Definitions come, and an object of each; everything is watched and seen in time, and then
    taken away.
    """
    establish(cluster, *order)
    since = time.monotonic()
    cluster.apply(
        *(job(kind, PLACE, "late", annotations={f"{PREFIX}mode": "Annotate"}) for kind in KINDS)
    )
    wanted = ALWAYS | {kind.resource for kind in order}
    for advisor in advisors:
        until(
            lambda a=advisor: a.watched == wanted,
            SOON - time.monotonic() + since,
            f"{advisor.name} watches all",
        )
    until(lambda: answered(cluster) == {kind.kind for kind in KINDS}, what="every job is seen")
    remove(cluster, *order)
    for advisor in advisors:
        until(
            lambda a=advisor: a.watched == ALWAYS,
            SOON,
            f"{advisor.name} watches nothing that is gone",
        )


def test_late_definitions_are_watched(bare, advisors):
    arrive(bare, advisors, ORDERS[3])


@pytest.mark.soak
@pytest.mark.parametrize("repeat", range(10))
@pytest.mark.parametrize("number", range(5))
def test_late_definitions_are_watched_in_every_order_again_and_again(
    bare, advisors, number, repeat
):
    arrive(bare, advisors, ORDERS[number])
