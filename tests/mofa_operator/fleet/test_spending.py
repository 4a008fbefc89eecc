"""GPU-hours of one job, as one would reckon them on paper."""

import json
from datetime import UTC, datetime

import pytest

from mofa_model.kinds import JOB_SET, TRAIN_JOB, ReferencedObjects
from mofa_operator.decide.policy import Handling
from mofa_operator.fleet.spending import JobState, change, likely_model, spending
from mofa_operator.keys import TRAINING_JOB
from mofa_operator.objects import live

HOUR = 3600.0
MADE = 1_800_000_000.0
NOW = MADE + 10 * HOUR


def stamp(moment):
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def job(spec=None, status=None, kind=JOB_SET, command=()):
    resources = {"limits": {"nvidia.com/gpu": 8}}
    pod = {
        "spec": {
            "containers": [{"name": "trainer", "command": list(command), "resources": resources}]
        }
    }
    jobs = [{"name": "trainer", "template": {"spec": {"parallelism": 4, "template": pod}}}]
    made = {"name": "llama3-70b-seven", "namespace": "ml", "creationTimestamp": stamp(MADE)}
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": made,
        "status": status or {},
    }
    return live(kind, body | {"spec": {"replicatedJobs": jobs} | (spec or {})})


def told(**more):
    said = {
        "predicted": {"step_seconds": [4, 4, 4], "tokens_per_second": [100, 100, 100]},
        "current": {"step_seconds": 5},
    }
    return {
        "status": "Recommended",
        "predicted-ettr": "0.9",
        "strategy": "tp=8",
        "recommendation": json.dumps(said),
    } | more


def speaker(**observed):
    status = {"observed": {"source": "megatron", **observed}}
    body = {
        "apiVersion": TRAINING_JOB.api_version,
        "kind": "TrainingJob",
        "metadata": {"name": "a", "namespace": "ml"},
    }
    return body | {"spec": {}, "status": status}


def since(hours=0.0, **more):
    """What is shown of a job that was first seen after so many hours."""
    return {"since": stamp(MADE + hours * HOUR), "time": stamp(NOW), "interruptions": 0} | more


def test_a_job_on_thirty_two_gpus_for_ten_hours_loses_the_hour_that_was_seen_and_a_fifth_of_the_rest_to_its_layout():
    lost = [{"cause": "Failure", "seconds": 3000}, {"cause": "Preemption", "seconds": 600}]
    spoken = live(TRAINING_JOB, speaker(**since(lost=lost, interruptions=3)))
    found = spending(job(), spoken, told(), NOW)
    assert (found.gpus, found.gpu_hours, found.stopped_hours) == (32, 320, pytest.approx(32))
    assert found.slow_hours == pytest.approx((320 - 32) * (1 - 4 / 5))
    assert found.gpu_hours_lost == pytest.approx(32 + 57.6)
    assert found.since == stamp(MADE)


def test_a_healthy_job_minutes_old_has_lost_nothing_to_failures():
    """Its ETTR of the first thirty seconds was 0.38, and 20.4 of its 32.8 GPU-hours were
    called lost.
    """
    spoken = live(TRAINING_JOB, speaker(**since(ettr="0.380", tokensPerSecond=100)))
    found = spending(job(), spoken, told(), NOW)
    assert (found.stopped_hours, found.gpu_hours_lost) == (0.0, 0.0)
    assert change(found, told(), Handling.ADVISE, job(), spoken) == ""


def test_what_is_predicted_to_be_lost_is_no_loss_and_no_failure_is_looked_for():
    found = spending(job(), None, told(), NOW)
    assert found.stopped_hours == 0, "its object counts no restart"
    assert change(found, told(), Handling.ADVISE, job(), None) == "take tp=8"
    steady = told(recommendation="{}")
    assert change(spending(job(), None, steady, NOW), steady, Handling.ADVISE, job(), None) == ""


def test_what_was_lost_before_a_job_made_room_for_others_is_not_held_against_the_gpus_that_it_has_now():
    resumed = {
        "conditions": [
            {"type": "Suspended", "status": "False", "lastTransitionTime": stamp(NOW - HOUR)}
        ]
    }
    lost = since(lost=[{"cause": "Failure", "seconds": 7200}], interruptions=2)
    away = lost | {"interruptionsBy": [{"name": "job", "cause": "Eviction", "count": 1}]}
    for shown, hours in (
        (lost, 1.0),
        (away, None),
    ):  # it waited in a queue at first, or it ran before
        found = spending(job(status=resumed), live(TRAINING_JOB, speaker(**shown)), told(), NOW)
        assert (found.hours, found.stopped_hours) == (1.0, None if hours is None else 32.0 * hours)


def test_an_interval_four_times_too_long_is_told_where_it_costs_more_than_a_fiftieth():
    """At an ETTR of 0.9, (4 + 1/4) / 2 - 1 of the tenth that saves and failures cost: 11 % of
    320 GPU-hours.
    """
    plan = told(**{"checkpoint-interval-seconds": "300", "recommendation": "{}"})
    spoken = live(TRAINING_JOB, speaker(**since(checkpointIntervalSeconds=1200)))
    found = spending(job(), spoken, plan, NOW)
    assert (
        change(found, plan, Handling.ADVISE, job(), spoken) == "save every 300 s, not every 1200 s"
    )
    rare = plan | {"predicted-ettr": "0.99"}
    assert change(found, rare, Handling.ADVISE, job(), spoken) == ""


def test_a_job_whose_layout_most_likely_beats_the_advice_loses_nothing_to_it_and_is_told_no_other():
    said = told()
    kept = json.loads(said["recommendation"]) | {"odds": {"fits": 0.91, "beats": 0.04}}
    said = {**said, "recommendation": json.dumps(kept), "explanation": "keep what you run"}
    found = spending(job(), None, said, NOW)
    assert found.slow_hours == 0.0
    assert "take" not in change(found, said, Handling.ADVISE, job(), None)


def test_a_stuck_job_loses_everything_since_its_step_was_overdue():
    body = speaker()
    body["status"] |= {
        "health": "Stuck",
        "conditions": [{"type": "PredictionAccurate", "status": "False", "reason": "Stuck", "message": "x", "lastTransitionTime": stamp(NOW - 2 * HOUR)}],
    }  # fmt: skip
    spoken = live(TRAINING_JOB, body)
    found = spending(job(), spoken, told(), NOW)
    assert (found.stuck_hours, found.stopped_hours) == (64, 0)
    assert "logs" in change(found, told(), Handling.ADVISE, job(), spoken)


def test_a_job_of_which_nobody_says_anything_loses_what_its_restarts_cost_and_the_rest_is_open():
    found = spending(job(status={"restarts": 3}), None, {}, NOW)
    assert (found.slow_hours, found.stopped_hours) == (None, pytest.approx(3 * 307 / HOUR * 32))
    said = change(found, {}, Handling.NOT_ASKED, job(), None)
    assert said.endswith(
        "jobsets.jobset.x-k8s.io/llama3-70b-seven advisor.mofa.dev/model=llama3-70b"
    )


@pytest.mark.parametrize(
    "spec, status, state, hours",
    [
        ({"suspend": True}, {}, JobState.WAITS, 0),
        ({}, {"conditions": [{"type": "Completed", "status": "True", "lastTransitionTime": stamp(MADE + 3 * HOUR)}]}, JobState.ENDED, 3),
        ({}, {"conditions": [{"type": "Suspended", "status": "False", "lastTransitionTime": stamp(NOW - HOUR)}]}, JobState.RUNS, 1),
        ({}, {}, JobState.RUNS, 10),
    ],
)  # fmt: skip
def test_hours_are_those_in_which_gpus_were_held(spec, status, state, hours):
    found = spending(job(spec, status), None, told(), NOW)
    assert (found.state, found.hours) == (state, hours)


def test_gpus_that_only_a_runtime_says_are_counted_where_it_was_read():
    body = job(kind=TRAIN_JOB, spec={"runtimeRef": {"name": "torch"}, "replicatedJobs": None})
    resources = {"limits": {"nvidia.com/gpu": 8}}
    pod = {"spec": {"containers": [{"name": "node", "resources": resources}]}}
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
    runtime = {
        "apiVersion": TRAIN_JOB.api_version, "kind": "ClusterTrainingRuntime", "metadata": {"name": "torch"},
        "spec": {"mlPolicy": {"numNodes": 6}, "template": {"spec": {"replicatedJobs": jobs}}},
    }  # fmt: skip
    assert spending(body, None, {}, NOW, ReferencedObjects([runtime])).gpus == 48
    unread = spending(body, None, {}, NOW)
    assert unread.gpus == 0
    assert unread.wrong


def test_a_model_that_a_command_names_is_suggested():
    assert (
        likely_model(job(command=["train.py", "--model_name_or_path", "meta-llama/Llama-2-7b-hf"]))
        == "llama2-7b"
    )
