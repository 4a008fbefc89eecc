"""The real JobSet, Kueue and Trainer beside the operator: jobs live their lives, and are advised
before they are admitted.
"""

import json
import time
from collections import Counter

import pytest
from advisor import ours, read, until
from foreign import example, reading
from kind_site import KindSite
from mofa_local import nodes
from mofa_local.client import Refused
from mofa_local.cluster import KubectlFailed
from mofa_local.control_plane import ControlPlane
from mofa_local.neighbourhood import missing, start
from mofa_local.processes import Processes
from queued import (
    CHECK,
    GPUS,
    LEAST,
    NODES,
    admission_check,
    batch,
    holds,
    job_set,
    plain_runtime,
    pods_of,
    policy,
    profile,
    queues,
    runtime,
    state,
    train_job,
    unsized,
    workload,
)

from mofa_model.annotations import PREFIX
from mofa_model.kinds import (
    JOB_SET,
    LEADER_WORKER_SET,
    MPI_JOB,
    PYTORCH_JOB,
    RAY_CLUSTER,
    RAY_JOB,
    TRAIN_JOB,
)
from mofa_model.kinds.shape import at

pytestmark = pytest.mark.soak

NAMES = ("jobset", "kueue", "trainer")
QUICK = (
    "--settle=1",
    "--settle-longest=1",
    "--backoff=0.2",
    "--prometheus-interval=1",
    "--quiet=2",
)
SIZE = 8
"""Nodes, of eight GPUs each. [1]"""
POOL, APART = "neighbours", "apart"
"""What fails in the one, the other does not learn."""
LABELS, AWAY = {NODES: POOL}, {NODES: APART}


class Site:
    """The stack of this file."""

    def __init__(self, cluster, neighbours, kind):
        self.cluster = cluster
        self.neighbours = neighbours
        self.advisor = kind.advisor
        self.start = lambda: kind.advisor.start(*kind.arguments)
        self.made, self.open = Counter(), []

    def place(self, name, *, gpus=32, pool=POOL, **admission):
        """A namespace of its own for each try of a test, with its policy and its queue."""
        self.made[name] += 1
        name = f"{name}-{self.made[name]}"
        self.open.append(name)
        self.cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            policy(name, pool, **admission),
            *queues(name, gpus),
        )
        return name

    def read(self, kind, place, name):
        return read(self.cluster, kind, place, name)

    def advised(self, kind, place, name):
        found = until(lambda: "status" in ours(self.read(kind, place, name)) and self.read(kind, place, name), what=f"{name} has an outcome")  # fmt: skip
        assert ours(found)["status"] in {"Recommended", "LowConfidence"}, ours(found)["explanation"]
        return ours(found)

    def running(self, place, name, count):
        """Its pods, once so many run."""

        def look():
            found = [
                one
                for one in pods_of(self.cluster, place, name)
                if one["status"]["phase"] == "Running"
            ]
            return found if len(found) == count else None

        return until(look, what=f"{count} pods of {name} run")

    def failures(self):
        """What the profile has counted, by class."""
        status = read(self.cluster, "clusterprofiles", "default", APART)["status"]
        return {row["name"]: row["failures"] for row in status.get("failures") or ()}

    def resume(self, kind, place, name):
        body = json.dumps({"spec": {"suspend": False}})
        self.cluster.kubectl("patch", kind, name, "-n", place, "--type=merge", "-p", body)

    def end(self, pod, phase):
        body = json.dumps({"status": {"phase": phase}})
        metadata = pod["metadata"]
        self.cluster.kubectl("patch", "pod", metadata["name"], "-n", metadata["namespace"], "--subresource=status", "--type=merge", "-p", body)  # fmt: skip

    def said(self, place, name, wanted):
        """What our check says of the Workload of a job, once it says a certain thing."""

        def look():
            found, told = state(workload(self.cluster, place, name))
            return told if found == wanted else None

        return until(look, what=f"the check says {wanted} of {name}")


@pytest.fixture(scope="module")
def plane(binaries, tmp_path_factory):
    """A control plane with its controllers, fake nodes, and room for processes."""
    if why := missing(*NAMES, "kube-state-metrics"):
        pytest.skip(why)
    for name in ("etcd", "kube-apiserver", "kubectl", "helm", "kube-controller-manager", "kube-scheduler", "kwok"):  # fmt: skip
        binaries.path(name)
    folder = tmp_path_factory.mktemp("neighbours")
    with Processes(folder / "run") as processes, ControlPlane(folder / "plane", processes, controllers=True) as made:  # fmt: skip
        nodes.start_kwok(processes, made.kubeconfig)
        here = [nodes.node(f"{POOL}-{number}", labels=LABELS) for number in range(SIZE)]
        nodes.create(
            made, [*here, *(nodes.node(f"{APART}-{number}", labels=AWAY) for number in range(2))]
        )
        yield made


@pytest.fixture(scope="module")
def kind(plane):
    """The operator as people get it into a kind cluster: by deploy/kind/up.sh, on this
    control plane.
    """
    made = KindSite(plane, plane.processes, plane.folder / "kind", *QUICK).run()
    yield made
    assert made.advisor.stop() == 0


@pytest.fixture(scope="module")
def whole_site(plane, kind):
    running = start(plane, plane.processes, *NAMES)
    plane.apply(
        profile(POOL, LABELS), profile(APART, AWAY), admission_check(), runtime(), plain_runtime()
    )
    return Site(plane, running, kind)


@pytest.fixture
def site(whole_site):
    """The site. All that a test made is deleted after it, because the next test needs the nodes."""
    yield whole_site
    while whole_site.open:
        whole_site.cluster.empty(whole_site.open.pop())


def test_the_script_of_kind_makes_a_cluster_in_which_a_job_is_advised(kind):
    assert kind.commands == [
        "kind get clusters",
        "kind create cluster --config deploy/kind/demo.yaml --wait 180s",
        "docker build --file operator/Dockerfile --tag mofa-advisor:kind .",
        "kind load docker-image mofa-advisor:kind --name mofa",
    ]
    job = read(kind.plane, "trainingjobs", "default", "llama3-8b")
    assert holds(job, "Ready")
    assert "llama3-8b" in kind.output
    states = read(kind.plane, "deployments", "kube-system", "kube-state-metrics")
    (allowed,) = states["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "jobset.sigs.k8s.io/restart-attempt" in allowed
    assert read(kind.plane, "configmaps", "monitoring", "mofa-rules")["data"].keys() == {"mofa-recording.yaml", "mofa-alerts.yaml"}  # fmt: skip


def test_a_jobset_lives_its_life_with_advice(site):
    place = site.place("life-of-a-jobset", pool=APART)
    site.cluster.apply(job_set(place, "life", 2, nodes=AWAY))
    told = site.advised("jobset", place, "life")
    assert json.loads(told["recommendation"])["nodes"] == 2
    site.resume("jobset", place, "life")
    first = site.running(place, "life", 2)
    until(
        lambda: (
            site.read("jobset", place, "life")["status"]["replicatedJobsStatus"][0]["ready"] == 1
        )
    )
    time.sleep(3.0)  # a few looks at how it trains
    site.end(first[0], "Failed")
    until(
        lambda: site.read("jobset", place, "life")["status"].get("restarts") == 1,
        what="it starts again",
    )
    names = {one["metadata"]["uid"] for one in first}
    again = until(
        lambda: (
            [one for one in site.running(place, "life", 2) if one["metadata"]["uid"] not in names]
            or None
        )
    )
    until(lambda: site.failures().get("job") == 1, what="the profile counts the restart")
    for pod in again:
        site.end(pod, "Succeeded")
    until(lambda: holds(site.read("jobset", place, "life"), "Completed"), what="it is complete")
    assert ours(site.read("jobset", place, "life"))["strategy"] == told["strategy"]


def test_a_trainjob_lives_its_life_with_advice(site):
    place = site.place("life-of-a-trainjob")
    site.cluster.apply(train_job(place, "life", 2))
    told = site.advised("trainjob", place, "life")
    site.resume("trainjob", place, "life")
    first = site.running(place, "life", 2)
    assert (
        site.read("jobset", place, "life")["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"
    )
    for pod in first:
        site.end(pod, "Succeeded")
    until(lambda: holds(site.read("trainjob", place, "life"), "Complete"), what="it is complete")
    assert ours(site.read("trainjob", place, "life"))["inputs-hash"] == told["inputs-hash"]


def test_mode_apply_starts_a_jobset_with_its_arguments_and_a_trainjob_without_a_field_for_them(
    site,
):
    place = site.place("apply")
    asks = {
        f"{PREFIX}mode": "Apply",
        f"{PREFIX}gate": "suspend",
        f"{PREFIX}framework-version": "0.19.2",
    }
    site.cluster.apply(
        reading(JOB_SET, job_set(place, "set", 2, **asks)),
        reading(TRAIN_JOB, train_job(place, "train", 2, **asks)),
    )
    pods = site.running(place, "set", 2)
    for pod in pods:
        assert "--tensor-model-parallel-size 8" in ours(pod)["launch-args"]
    assert all("launch-args" not in ours(pod) for pod in site.running(place, "train", 2))
    released = [
        one["message"]
        for one in read(site.cluster, "events", place)
        if one["reason"] == "GateReleased"
    ]
    assert len(released) == 1, released
    (why,) = released
    assert "runtimePatches" in why  # this Trainer has no such field
    for name in ("set", "train"):
        for pod in site.running(place, name, 2):
            site.end(pod, "Succeeded")
        until(lambda n=name: pods_of(site.cluster, place, n) == [], what=f"{name} has ended")


def test_a_queue_admits_jobs_with_our_words_on_their_pods(site):
    place = site.place("queue", nodeSelector=True)
    until(
        lambda: holds(read(site.cluster, "admissioncheck", "default", CHECK), "Active"),
        what="it is active",
    )
    for kind, body in (
        ("jobset", job_set(place, "set", 2, queue="team")),
        ("trainjob", train_job(place, "train", 2, queue="team")),
    ):
        name = body["metadata"]["name"]
        site.cluster.apply(body)
        pods = site.running(place, name, 2)
        told = site.advised(kind, place, name)
        found = site.event_of_start(place, name, "Ready")
        assert told["strategy"] in found["message"]
        for pod in pods:
            written = ours(pod)
            assert {key: written[key] for key in ("strategy", "checkpoint-interval-steps")} == {
                key: told[key] for key in ("strategy", "checkpoint-interval-steps")
            }
            assert pod["spec"]["nodeSelector"][NODES] == POOL
        assert 'mofa_advisor_admission_checks_total{state="Ready"}' in site.advisor.metrics()
        for pod in pods:
            site.end(pod, "Succeeded")
        until(
            lambda n=name: holds(workload(site.cluster, place, n), "Finished"),
            what=f"{name} has ended",
        )


def taken(cluster, body):
    """Whether an object could be made; a webhook that has just started may know too little."""
    try:
        cluster.apply(body)
    except Refused:
        return False
    return True


def test_a_trainjob_without_sizes_is_sized_admitted_and_started(site, kind):
    """Of one and two nodes with 8 GPUs two are sooner; Kueue counts what it counts of a job that
    says so.
    """
    place = site.place("sized")
    rule = policy(place, POOL)
    rule["spec"]["sizing"] = {"maxNodes": 2, "gpusPerNode": [8]}
    site.cluster.apply(rule)
    body = unsized(place, "open", "soonest", queue="team")
    until(lambda: taken(site.cluster, body), what="Trainer knows its runtime")
    pods = site.running(place, "open", 2)
    job = site.read("trainjob", place, "open")
    told = job["spec"]["trainer"]
    assert (told["numNodes"], told["numProcPerNode"]) == (2, GPUS)
    assert told["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": str(GPUS)}
    assert float(ours(job)["probability-of-fitting"]) >= 0.99
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == str(GPUS)
        assert container["args"] == told["args"]
        assert "--tensor-model-parallel-size" in " ".join(container["args"])
    with pytest.raises(KubectlFailed, match="deletes nothing"):  # what runs is not made anew
        site.cluster.kubectl("delete", "jobset", "open", "-n", place, as_=kind.account)
    site.cluster.apply(train_job(place, "stated", 2, queue="team"))
    made = until(lambda: workload(site.cluster, place, "stated"), what="Kueue counts the other")
    counted, stated = (
        [(one["count"], one["template"]["spec"]["containers"][0]["resources"]) for one in found]
        for found in (
            workload(site.cluster, place, "open")["spec"]["podSets"],
            made["spec"]["podSets"],
        )
    )
    assert counted == stated, "as a job that says two nodes of eight GPUs"
    said = [one for one in read(site.cluster, "events", place) if one["reason"] == "SizedBeforeAdmission"]  # fmt: skip
    assert [one["message"].partition(":")[0] for one in said] == ["2 x 8 GPUs were written, as soonest"]  # fmt: skip
    for pod in pods:
        site.end(pod, "Succeeded")


IMPOSSIBLE = {"tp": {"values": [8]}, "pp": {"values": [3]}}
"""Of a job on 16 devices."""


def test_the_fence_lets_nothing_be_said_of_a_workload_but_by_a_check_that_waits(site, kind):
    place = site.place("fence")
    site.cluster.apply(job_set(place, "told", 1, queue="team"))
    site.event_of_start(place, "told", "Ready")
    name = workload(site.cluster, place, "told")["metadata"]["name"]
    entry = {
        "name": CHECK,
        "state": "Retry",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    for status in ({"conditions": []}, {"admissionChecks": [entry]}, {"admissionChecks": []}):
        body = json.dumps({"status": status})
        with pytest.raises(KubectlFailed, match="fence"):
            site.cluster.kubectl("patch", "workload", name, "-n", place, "--subresource=status", "--type=merge", "-p", body, as_=kind.account)  # fmt: skip


def test_what_does_not_fit_is_refused_where_the_policy_says_so(site):
    place = site.place("refused")
    site.cluster.apply(policy(place, POOL, constraints=IMPOSSIBLE, noLayout="Reject"))
    site.cluster.apply(
        job_set(place, "unfit", 2, queue="team")
    )  # a moment later: what the policy says now counts
    until(
        lambda: at(workload(site.cluster, place, "unfit"), "spec", "active") is False,
        what="it is refused",
    )
    assert read(site.cluster, "jobset", place, "unfit")["spec"]["suspend"] is True
    assert pods_of(site.cluster, place, "unfit") == []


def test_what_does_not_fit_makes_room_and_comes_back_where_the_policy_says_so(site):
    rule = {"noLayout": "Retry", "retrySeconds": 3600}
    place = site.place("again", gpus=16, constraints=IMPOSSIBLE, **rule)
    site.cluster.apply(job_set(place, "unfit", 2, queue="team"))
    until(
        lambda: at(workload(site.cluster, place, "unfit"), "status", "requeueState", "requeueAt"),
        what="it is told to wait, once nobody else wanted the room",
    )
    _, told = state(workload(site.cluster, place, "unfit"))
    assert told["retryCount"] >= 1
    assert pods_of(site.cluster, place, "unfit") == []


def test_a_part_is_admitted_with_advice_for_its_size(site):
    place = site.place("part", gpus=16)
    site.cluster.apply(batch(place, "part", 4, **{LEAST: "1"}))
    pods = site.running(place, "part", 2)
    assert site.read("job", place, "part")["spec"]["parallelism"] == 2
    found = site.event_of_start(place, "part", "Ready")
    after = until(lambda: json.loads(ours(site.read("job", place, "part"))["recommendation"])["nodes"] == 2 and ours(site.read("job", place, "part")))  # fmt: skip
    assert {ours(pod)["strategy"] for pod in pods} == {after["strategy"]}
    assert after["strategy"] in found["message"]
    for pod in pods:
        site.end(pod, "Succeeded")


def test_kueue_and_we_may_start_again_at_any_point(site):
    place, kueue = site.place("restarts"), site.neighbours["kueue"]
    site.advisor.stop()
    site.cluster.apply(job_set(place, "away", 2, queue="team"))
    until(
        lambda: state(workload(site.cluster, place, "away"))[0] == "Pending", what="it waits for us"
    )
    kueue.kill()
    site.start()
    kueue.start()
    pods = site.running(place, "away", 2)
    site.advisor.kill()
    kueue.kill()
    kueue.start()
    site.start()
    site.cluster.apply(job_set(place, "after", 2, queue="team"))
    site.running(place, "after", 2)
    assert {one["metadata"]["uid"] for one in site.running(place, "away", 2)} == {
        one["metadata"]["uid"] for one in pods
    }


OTHERS = [
    ("kuberay", RAY_JOB),
    ("kuberay", RAY_CLUSTER),
    ("leaderworkerset", LEADER_WORKER_SET),
    ("mpi-operator", MPI_JOB),
    ("training-operator", PYTORCH_JOB),
    ("trainer-2.2", TRAIN_JOB),
]


@pytest.mark.parametrize(
    ("name", "of"), OTHERS, ids=lambda one: one if isinstance(one, str) else one.kind
)
def test_every_other_controller_makes_the_pods_of_a_job_that_was_advised(plane, kind, name, of):
    if why := missing(name):
        pytest.skip(why)
    place = f"soak-{of.word}"
    if name == "trainer-2.2":
        plane.processes.stop("trainer")  # of two releases each would make the pods
    running = start(plane, plane.processes, name)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}}
    body = example(of, place)
    listed = {"apiVersion": of.api_version, "kind": of.kind}
    rule = policy(place, POOL, constraints={})
    rule["spec"]["kinds"] = [listed]
    rule["spec"]["training"] |= {
        "sequenceLength": 8192,
        "globalBatchSize": 512,
    }  # a RayCluster says neither
    plane.apply(profile(POOL, LABELS), namespace, rule, *([runtime()] if of == TRAIN_JOB else []))
    if limit := of.restart_limit:  # as its project defines it, or the API server drops it
        *parents, field = limit.path
        inside = body["spec"]
        for step in parents:
            inside = inside.setdefault(step, {})
        inside[field] = limit.enough_for(8, 64)
    try:
        plane.apply(body)
        if limit:
            stands = at(
                read(plane, of.resource, place, body["metadata"]["name"]), "spec", *limit.path
            )
            assert stands == limit.enough_for(8, 64)
        found = until(lambda: ours(read(plane, of.resource, place, body["metadata"]["name"])).get("status"), what="it has an outcome")  # fmt: skip
        assert found in {"Recommended", "LowConfidence", "NoRecommendation"}, ours(read(plane, of.resource, place, body["metadata"]["name"]))  # fmt: skip
        until(lambda: read(plane, "pods", place), what=f"{name} makes its pods")
    finally:
        plane.delete(of.resource, body["metadata"]["name"], namespace=place)
        for one in reversed(running.values()):
            one.stop()
