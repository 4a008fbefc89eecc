"""Which pool a running job is counted in: the one whose nodes its pods can use, or none."""

import pytest
from operator_objects import NOW, job_set, node, profile

from mofa_model.kinds import JOB_SET
from mofa_operator.fleet.fleet import ClusterSeen
from mofa_operator.fleet.pools import pools
from mofa_operator.keys import CLUSTER_PROFILE, key_of
from mofa_operator.objects import live
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.nodes import facts_of


def seen(profiles, job, nodes):
    """A cluster with one running job of sixteen GPUs."""
    store = Store()
    for body in profiles:
        store.put(CLUSTER_PROFILE, body)
    store.put(JOB_SET, job)
    key = key_of(JOB_SET, job)
    return ClusterSeen(
        store=store,
        jobs={key: live(JOB_SET, job)},
        node_facts={body["metadata"]["name"]: facts_of(body) for body in nodes},
        absent=frozenset(),
        refused={},
        beside={},
        now=NOW,
    )


def selecting(**labels):
    job = job_set()
    (group,) = job["spec"]["replicatedJobs"]
    group["template"]["spec"]["template"]["spec"]["nodeSelector"] = labels
    return job


EAST = node("a", pool="east")


@pytest.mark.parametrize(
    "labels, held",
    [
        ({"pool": "east"}, 16),
        ({}, 16),  # whoever selects nothing may run anywhere, and there is one pool
        ({"nvidia.com/gpu.product": "NVIDIA-B200"}, 0),
        ({"pool": "west"}, 0),
        ({"pool": "west", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, 0),
    ],
)
def test_a_job_counts_in_the_only_pool_where_its_selector_can_mean_its_nodes(labels, held):
    nodes = [EAST, node("b", pool="west", product="NVIDIA-B200")]
    (east, *_) = pools(seen([profile()], selecting(**labels), nodes))
    assert (east.pool, east.held) == ("east", held)


def test_a_job_counts_in_the_one_of_two_pools_that_its_selector_names():
    profiles = [
        profile("east", nodeSelector={"pool": "east"}),
        profile("west", nodeSelector={"pool": "west"}),
    ]
    nodes = [EAST, node("b", pool="west")]
    found = pools(seen(profiles, selecting(pool="west"), nodes))
    assert [(line.pool, line.held) for line in found] == [("east", 0), ("west", 16)]


def test_a_job_that_may_run_in_two_pools_counts_in_neither():
    profiles = [
        profile("east", nodeSelector={"pool": "east"}),
        profile("west", nodeSelector={"pool": "west"}),
    ]
    nodes = [EAST, node("b", pool="west")]
    assert [line.held for line in pools(seen(profiles, selecting(), nodes))] == [0, 0]
