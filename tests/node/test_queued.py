"""Jobs that Kueue admits, and those of LeaderWorkerSet, on the real node: what is said of them is
what their processes were started with.
"""

import json

import pytest
from advisor import ours, read, until
from mofa_local.client import Refused
from queued import CHECK, admission_check, queues, workload
from started import (
    OWN,
    SLOW,
    checked,
    event_lines,
    leader_worker_set,
    line,
    on_real_node,
    ray_job,
    train_job,
)

from mofa_model.annotations import PREFIX

pytestmark = pytest.mark.soak
CONTROLLERS = ("jobset", "kueue", "trainer", "kuberay", "leaderworkerset")
PLACE = "ml-1"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with on_real_node(tmp_path_factory.mktemp("queued"), *CONTROLLERS) as made:
        flavor, queue, way = queues(PLACE, 8)
        (group,) = queue["spec"]["resourceGroups"]
        group["coveredResources"] += ["cpu", "memory"]  # Ray's pods ask for these as well
        (listed,) = group["flavors"]
        listed["resources"] += [
            {"name": name, "nominalQuota": much} for name, much in (("cpu", 64), ("memory", "64Gi"))
        ]
        made.cluster.apply(admission_check(), flavor, queue, way)
        yield made


def asking(body, size):
    """A job that waits in the queue and asks for a size."""
    event_lines = body["metadata"]["annotations"] | {f"{PREFIX}size": size}
    event_lines.pop(f"{PREFIX}gate")
    body["metadata"] |= {
        "annotations": event_lines,
        "labels": {"kueue.x-k8s.io/queue-name": "team"},
    }
    return body


def open_train_job(name, size):
    """A TrainJob that says neither nodes nor GPUs."""
    body = asking(train_job(PLACE, name), size)
    for stated in ("numNodes", "numProcPerNode", "resourcesPerNode"):
        del body["spec"]["trainer"][stated]
    body["spec"]["trainer"]["args"] = [line(reads=False)]
    return body


def open_ray_job(name, size):
    """A RayJob whose group of workers has no pods, and whose pods ask for no GPUs."""
    body = asking(ray_job(PLACE, name), size)
    (group,) = body["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    group |= {"replicas": 0, "minReplicas": 0}
    (container,) = group["template"]["spec"]["containers"]
    container["resources"] = {}
    return body


OPEN = {"trainjob": open_train_job, "rayjob": open_ray_job}


def sized(site, kind, size):
    """GPUs that a job got, which was sized, admitted, and started with the advised arguments."""
    name = f"{kind}-{size}"
    body = OPEN[kind](name, size)
    until(lambda: taken(site.cluster, body), what="its webhooks are there")
    assert checked(site, kind, PLACE, name), event_lines(site, PLACE, name)
    advice = ours(read(site.cluster, kind, PLACE, name))
    assert float(advice["probability-of-fitting"]) >= 0.99
    said = workload(site.cluster, PLACE, name)["status"]
    assert [one["state"] for one in said["admissionChecks"] if one["name"] == CHECK] == ["Ready"]
    gpus = json.loads(advice["recommendation"])["gpus"]
    (note,) = site.events(PLACE, name, "SizedBeforeAdmission")
    assert note["message"].startswith(f"1 x {gpus} GPUs were written, as {size}:")
    limits = [
        int(one["resources"].get("limits", {}).get("nvidia.com/gpu", 0))
        for pod in read(site.cluster, "pods", PLACE)
        if pod["metadata"]["name"].startswith(name)
        for one in pod["spec"]["containers"]
    ]
    assert sum(limits) == gpus
    site.gone(kind, PLACE, name)
    return gpus


def taken(cluster, body):
    """Whether an object could be made; a webhook that has just started may know too little."""
    try:
        cluster.apply(body)
    except Refused:
        return False
    return True


def test_a_trainjob_without_sizes_is_sized_admitted_and_started_with_what_was_advised(site):
    assert sized(site, "trainjob", "least-gpus") in {2, 4}, "within the bounds of its policy"


@pytest.mark.parametrize("kind", OPEN)
def test_more_gpus_are_sooner_for_both_kinds_that_are_sized(site, kind):
    assert sized(site, kind, "soonest") == 4


def test_a_leaderworkerset_is_compared_with_what_it_runs_and_its_next_launch_is_as_advised(site):
    own = [*OWN, *SLOW]
    site.cluster.apply(leader_worker_set(PLACE, "own", own))
    assert not checked(site, "leaderworkerset", PLACE, "own")
    advice = json.loads(ours(read(site.cluster, "leaderworkerset", PLACE, "own"))["recommendation"])
    assert "recompute=full" in advice["current"]["strategy"]
    site.gone("leaderworkerset", PLACE, "own")
    site.cluster.apply(leader_worker_set(PLACE, "next", advice["launch"]))
    assert checked(site, "leaderworkerset", PLACE, "next"), event_lines(site, PLACE, "next")
    site.gone("leaderworkerset", PLACE, "next")
