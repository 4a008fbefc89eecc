"""Applied means applied: what mode Apply says of a job is what its processes have in /proc, with
real controllers on the real node.
"""

import json
import random
import time

import pytest
from advisor import ours, read
from started import (
    LAYOUTS,
    OWN,
    SLOW,
    STUB,
    batch,
    checked,
    container,
    event_lines,
    job_set,
    mpi_job,
    on_real_node,
    pod,
    pytorch_job,
    ray_job,
    train_job,
)

from mofa_model.annotations import RUNS

pytestmark = pytest.mark.soak

CONTROLLERS = ("jobset", "trainer-2.2", "training-operator", "mpi-operator")
MADE = {"jobset": job_set, "job": batch, "trainjob": train_job, "pytorchjob": pytorch_job}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with on_real_node(tmp_path_factory.mktemp("applied"), *CONTROLLERS) as made:
        yield made


def test_what_is_said_of_a_job_of_each_kind_is_what_its_process_was_started_with(site):
    for kind, made in MADE.items():
        place, name = "ml-1", f"one-{kind}"
        site.cluster.apply(made(place, name))
        assert checked(site, kind, place, name), event_lines(site, place, name)
        site.gone(kind, place, name)


def test_a_job_that_reads_no_arguments_is_never_said_to_run_them_and_is_compared_with_what_it_runs(
    site,
):
    place = "ml-1"
    own = f"exec bash {STUB} {' '.join(OWN)} {' '.join(SLOW)}"
    template = pod(container("trainer", ["bash", "-c"], [own], reads=False))
    site.cluster.apply(job_set(place, "deaf", template=template))
    said = site.event_of_start(place, "deaf")
    assert said["reason"] == "StartedOtherwise"
    assert "--recompute-granularity=full" in said["message"]
    (why,) = site.events(place, "deaf", "GateReleased")
    assert "no container reads the annotation" in why["message"]
    current = json.loads(ours(read(site.cluster, "jobset", place, "deaf"))["recommendation"])[
        "current"
    ]
    assert "recompute=full" in current["strategy"]
    assert RUNS not in read(site.cluster, "jobset", place, "deaf")["metadata"]["annotations"], (
        "its manifest says it"
    )
    site.gone("jobset", place, "deaf")


def test_the_launcher_of_an_mpijob_keeps_its_arguments_and_that_is_said(site):
    site.cluster.apply(mpi_job("ml-1", "mpi"))
    assert not checked(site, "mpijob", "ml-1", "mpi")
    assert "none of its fields can change" in event_lines(site, "ml-1", "mpi")
    site.gone("mpijob", "ml-1", "mpi")


def test_what_is_said_of_a_rayjob_is_what_ray_started(site):
    """KubeRay makes a RayCluster, and a Job that submits the entrypoint; Ray starts it in the pod
    of the head.
    """
    site.add("kuberay")
    site.cluster.apply(ray_job("ml-1", "ray"))
    try:  # its two GPUs would be missing to the hundred that come next
        assert checked(site, "rayjob", "ml-1", "ray"), event_lines(site, "ml-1", "ray")
    finally:
        site.gone("rayjob", "ml-1", "ray")


def test_a_hundred_jobs_through_kills_of_the_operator_and_of_the_api_server(site):
    site.add("kuberay")
    kinds = {**MADE, "rayjob": ray_job}
    often = [1.0 if kind in MADE else 0.25 for kind in kinds]  # Ray takes half a minute to start
    draw, right, total = random.Random(7), 0, 100
    rounds = [list(range(at, min(at + 4, total))) for at in range(0, total, 4)]
    for number, jobs in enumerate(rounds):
        made = []
        for job in jobs:
            (kind,) = draw.choices(list(kinds), often)
            place, name = f"ml-{draw.randrange(len(LAYOUTS))}", f"job-{job}"
            site.cluster.apply(kinds[kind](place, name))
            made.append((kind, place, name))
        if number % 3 == 1:
            time.sleep(draw.uniform(0.0, 4.0))
            site.advisor.kill()
            site.advisor.start(*site.flags)
        if number % 5 == 2:
            time.sleep(draw.uniform(0.0, 4.0))
            site.cluster.kill_api_server()
            site.cluster.start_api_server()
        for kind, place, name in made:
            right += checked(site, kind, place, name)
        for kind, place, name in made:
            site.gone(kind, place, name)
    assert right == total
