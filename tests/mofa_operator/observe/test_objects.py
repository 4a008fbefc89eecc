"""What objects say of a job's life: each kind's public status fields, and the injected truth
behind them.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timed import recoveries

from mofa_model.kinds import TRAIN_JOB, job_kind
from mofa_model.kinds.kind import Observation, Sign
from mofa_operator.observe.jobs.interruptions import after_look
from mofa_operator.observe.jobs.run_record import interruptions

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


def of_job(body, now):
    return job_kind(body["apiVersion"], body["kind"]).observed(body, now)


def signs(*expected):
    return tuple(
        Sign(at=NOON + at, recovery_class=level, cause=cause) for at, level, cause in expected
    )


def test_a_job_set_counts_by_class():
    told = of_job(job_set(2, jobs=[0, 3, 1], in_place=5), NOON)
    assert {name: (c.value, c.recovery_class, c.exact) for name, c in told.counters.items()} == {
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
    tokens, steps = TRAIN_JOB.reported({"status": {"trainerStatus": told}})
    assert (tokens, steps.step, steps.step_at) == (1.5e6, 120, NOON + 600)
    assert TRAIN_JOB.reported({"status": {}}) == (None, Observation())


def live(*looks):
    life = None
    for at, observation in looks:
        life = after_look(life, observation, NOON + at)
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
                {
                    "name": "node",
                    "ready": ready,
                    "succeeded": 0,
                    "failed": failed,
                    "active": 1 - failed,
                }
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
    life = after_look(life, Observation(signs=signs((110, "pod", "failure"))), NOON + 110)
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
        *(
            (at, of_job(body, NOON + at))
            for at, body in zip((0, 100, 160), (*bodies, bodies[1]), strict=True)
        )
    )
    assert interruptions(life) == {("job", "eviction"): 1}


def test_a_node_loss_seen_through_every_object_is_one_restart_of_the_job():
    lost = Observation(nodes_lost=(NOON + 100,))
    gone = Observation(signs=signs((401, "pod", "failure")))
    life = live(
        (0, of_job(job_set(), NOON)),
        (140, lost),
        (402, gone),
        (403, of_job(job_set(1, 0), NOON + 403)),
        (404, lost),
        (900, of_job(job_set(1), NOON + 900)),
        (960, lost),
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
    life = live((0, of_job(body, NOON)))
    TRAIN_JOB.reported(body)
    assert life.since == NOON
