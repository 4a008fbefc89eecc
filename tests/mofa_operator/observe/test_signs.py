"""What objects say of a job's life: each kind's public status fields, and the injected truth behind them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_operator.observe.life import Counter, Observation, Sign, interruptions, recoveries
from mofa_operator.observe.lifecycle import seen
from mofa_operator.observe.signs import of_job, of_nodes, of_pods, trained

NOON = 1_772_452_800.0
"""2026-03-02T12:00:00Z. [s]"""


def clock(seconds):
    """A moment after noon as the API server writes it; less than an hour."""
    return f"2026-03-02T12:{seconds // 60:02d}:{seconds % 60:02d}Z"


def condition(kind, at, status="True", reason=""):
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": clock(at)}


def job_set(restarts=0, ready=1, *, jobs=(), in_place=None, conditions=()):
    status = {"restarts": restarts, "conditions": list(conditions)}
    status["replicatedJobsStatus"] = [
        {"name": "trainer", "ready": ready, "succeeded": 0, "failed": 0, "active": 1}
    ]
    if jobs:
        status["replicatedJobsStatus"][0]["jobRestarts"] = list(jobs)
    if in_place is not None:
        status["currentInPlaceRestartAttempt"] = in_place
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": {"replicatedJobs": [{"name": "trainer", "replicas": 1}]},
        "status": status,
    }


def pod(
    *, conditions=(), phase="Running", restarted=None, failed=None, reason=None, labels=None, name="trainer"
):
    container = {"name": name, "restartCount": 0, "state": {"running": {}}}
    if restarted is not None:
        container |= {
            "restartCount": 1,
            "lastState": {"terminated": {"finishedAt": clock(restarted), "exitCode": 1}},
        }
    if failed is not None:
        container["state"] = {"terminated": {"finishedAt": clock(failed), "exitCode": 137}}
    return {
        "metadata": {"labels": labels or {}},
        "spec": {
            "containers": [
                {"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": 8}}},
                {"name": "logs", "resources": {}},
            ]
        },
        "status": {
            "phase": phase,
            "reason": reason,
            "conditions": list(conditions),
            "containerStatuses": [container],
        },
    }


def signs(*expected):
    return tuple(Sign(at=NOON + at, level=level, cause=cause) for at, level, cause in expected)


@pytest.mark.parametrize(
    "reason, cause",
    [
        ("PreemptionByScheduler", "preemption"),
        ("EvictionByEvictionAPI", "eviction"),
        ("TerminationByKubelet", "eviction"),
        ("DeletionByTaintManager", "failure"),
        ("DeletionByPodGC", "failure"),
        ("SomethingNew", "failure"),
    ],
)
def test_why_a_pod_went_is_its_cause(reason, cause):
    told = of_pods([pod(conditions=[condition("DisruptionTarget", 60, reason=reason)])])
    assert told.signs == signs((60, "pod", cause))


def test_a_failed_pod_and_a_restarted_container_are_signs_and_a_helper_container_is_not():
    assert of_pods([pod(phase="Failed", failed=70)]).signs == signs((70, "pod", "failure"))
    assert of_pods([pod(phase="Failed", failed=70, reason="Evicted")]).signs == signs((70, "pod", "eviction"))
    assert of_pods([pod(restarted=80)]).signs == signs((80, "process", "failure"))
    assert of_pods([pod(restarted=80, name="logs")]).signs == ()


def test_pods_of_a_job_set_say_its_attempts():
    labels = [
        {"jobset.sigs.k8s.io/restart-attempt": n, "jobset.sigs.k8s.io/job-restart-attempt": "0"}
        for n in "12x"
    ]
    told = of_pods(pod(labels=one) for one in labels)
    assert told.counters["JobSet.restarts"] == Counter(value=2, level="job")


def test_a_node_that_is_not_ready_says_since_when():
    nodes = [
        {"status": {"conditions": [condition("Ready", 30, status)]}}
        for status in ("True", "False", "Unknown")
    ]
    assert of_nodes(nodes).nodes_lost == (NOON + 30, NOON + 30)


def test_a_job_set_counts_by_class():
    told = of_job(job_set(2, jobs=[0, 3, 1], in_place=5), NOON)
    assert {name: (c.value, c.level, c.exact) for name, c in told.counters.items()} == {
        "JobSet.restarts": (2, "job", True),
        "JobSet.jobRestarts": (4, "pod", False),
        "JobSet.inPlace": (5, "process", True),
    }


def test_a_train_jobs_trainer_reports_tokens_and_steps():
    told = {
        "progressPercentage": 5,
        "lastUpdatedTime": clock(600),
        "metrics": [
            {"name": "loss", "value": "2.1"},
            {"name": "tokens_per_second", "value": "1.5e6"},
            {"name": "global_step", "value": "120"},
            {"name": "junk", "value": "NaN"},
        ],
    }
    tokens, steps = trained({"status": {"trainerStatus": told}})
    assert (tokens, steps.step, steps.step_at) == (1.5e6, 120, NOON + 600)
    assert trained({"status": {}}) == (None, Observation())


def live(*looks):
    life = None
    for at, observation in looks:
        life = seen(life, observation, NOON + at)
    return life


def pytorch(active, *conditions):
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}},
        "status": {
            "replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": active - 1}},
            "conditions": list(conditions),
        },
    }


def volcano(phase, at, retries=0, running=4):
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "spec": {"tasks": [{"replicas": 4}]},
        "status": {
            "state": {"phase": phase, "lastTransitionTime": clock(at)},
            "retryCount": retries,
            "running": running,
        },
    }


def ray(phase, job, *, failed=0, ready=4, end=None):
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "spec": {},
        "status": {
            "jobDeploymentStatus": phase,
            "jobStatus": job,
            "failed": failed,
            "endTime": None if end is None else clock(end),
            "rayClusterStatus": {"desiredWorkerReplicas": 4, "readyWorkerReplicas": ready},
        },
    }


def train_job(ready, failed=0, *conditions):
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "spec": {},
        "status": {
            "jobsStatus": [
                {"name": "node", "ready": ready, "succeeded": 0, "failed": failed, "active": 1 - failed}
            ],
            "conditions": list(conditions),
        },
    }


def batch_job(ready, failed):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"parallelism": 4},
        "status": {"ready": ready, "failed": failed},
    }


STORIES = {
    "JobSet, the whole set": ([(0, job_set()), (100, job_set(1, 0)), (400, job_set(1))], ("job", 300)),
    "JobSet, one of its jobs": ([(0, job_set(jobs=[0])), (100, job_set(0, 0, jobs=[1])), (300, job_set(jobs=[1]))], ("pod", 200)),
    "JobSet, in place": ([(0, job_set(in_place=0)), (100, job_set(0, 0, in_place=1)), (150, job_set(in_place=1))], ("process", 50)),
    "TrainJob": ([(0, train_job(1)), (100, train_job(0, 1)), (350, train_job(1))], ("pod", 250)),
    "PyTorchJob": (
        [(0, pytorch(4)), (105, pytorch(3, condition("Restarting", 100))), (300, pytorch(4, condition("Restarting", 300, "False")))],
        ("pod", 200),
    ),
    "Volcano Job": ([(0, volcano("Running", 0)), (100, volcano("Restarting", 98, 1, 0)), (398, volcano("Running", 398, 1))], ("job", 300)),
    "RayJob, a retry": ([(0, ray("Running", "RUNNING")), (100, ray("Retrying", "FAILED", failed=1, ready=0)), (400, ray("Running", "RUNNING", failed=1))], ("job", 300)),
    "RayJob, a worker": ([(0, ray("Running", "RUNNING")), (100, ray("Running", "RUNNING", ready=3)), (200, ray("Running", "RUNNING"))], ("pod", 100)),
    "batch Job": ([(0, batch_job(4, 0)), (100, batch_job(3, 1)), (160, batch_job(4, 1))], ("pod", 60)),
}  # fmt: skip


@pytest.mark.parametrize("looks, expected", STORIES.values(), ids=STORIES)
def test_an_interruption_of_each_kind_is_counted_once_and_its_recovery_measured(looks, expected):
    level, took = expected
    life = live(*((at, of_job(body, NOON + at)) for at, body in looks for _ in range(2)))
    assert interruptions(life) == {(level, "failure"): 1}
    assert recoveries(life) == {level: (1, pytest.approx(took, abs=5))}


@pytest.mark.parametrize(
    "body",
    [
        job_set(3, conditions=[condition("Failed", 100)]),
        train_job(0, 1, condition("Failed", 100)),
        pytorch(3, condition("Failed", 100)),
        volcano("Failed", 100, running=0),
        ray("Failed", "FAILED", failed=1, end=100),
    ],
    ids=lambda body: body["kind"],
)
def test_a_job_that_fails_for_good_was_interrupted_once_more_and_then_no_more(body):
    first = Observation(ready=True)
    life = live((0, first), (100, of_job(body, NOON + 100)), (101, of_job(body, NOON + 101)))
    life = seen(life, of_pods([pod(phase="Failed", failed=110)]), NOON + 110)
    assert interruptions(life) == {("job", "failure"): 1}
    assert life.ended == NOON + 100


@pytest.mark.parametrize(
    "bodies",
    [
        (job_set(), job_set(0, 0, conditions=[condition("Suspended", 100)])),
        (train_job(1), train_job(0, 0, condition("Suspended", 100))),
        (pytorch(4), pytorch(1, condition("Suspended", 100))),
        (volcano("Running", 0), volcano("Aborted", 100, running=0)),
        (ray("Running", "RUNNING"), ray("Suspended", "", ready=0)),
    ],
    ids=lambda bodies: bodies[0]["kind"],
)
def test_a_running_job_that_is_suspended_was_evicted(bodies):
    life = live(
        *((at, of_job(body, NOON + at)) for at, body in zip((0, 100, 160), (*bodies, bodies[1]), strict=True))
    )
    assert interruptions(life) == {("job", "eviction"): 1}


def test_a_node_loss_seen_through_every_object_is_one_restart_of_the_job():
    lost = {"status": {"conditions": [condition("Ready", 100, "Unknown")]}}
    gone = [
        pod(conditions=[condition("DisruptionTarget", 401, reason="DeletionByTaintManager")])
        for _ in range(4)
    ]
    life = live(
        (0, of_job(job_set(), NOON)),
        (140, of_nodes([lost])),
        (402, of_pods(gone)),
        (403, of_job(job_set(1, 0), NOON + 403)),
        (404, of_nodes([lost])),
        (900, of_job(job_set(1), NOON + 900)),
        (960, of_nodes([lost])),
    )
    assert interruptions(life) == {("job", "failure"): 1}
    assert recoveries(life) == {"job": (1, 800.0)}  # since the node was lost


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from((
            "restarts", "conditions", "type", "status", "state", "phase", "replicatedJobsStatus", "jobRestarts", "name",
            "lastTransitionTime", "containerStatuses", "metadata", "labels", "trainerStatus", "metrics", "value", "spec",
        )),
        inner,
        max_size=6,
    ),
    max_leaves=20,
)  # fmt: skip
KINDS = [
    job_set(),
    train_job(1),
    pytorch(4),
    volcano("Running", 0),
    ray("Running", "RUNNING"),
    batch_job(1, 0),
]


@given(JUNK, JUNK, st.sampled_from(KINDS))
def test_no_object_breaks_the_reading(spec, status, kind):
    body = {**kind, "spec": spec, "status": status}
    life = live((0, of_job(body, NOON)), (1, of_pods([body, {"spec": spec}])), (2, of_nodes([body])))
    trained(body)
    assert life.since == NOON
