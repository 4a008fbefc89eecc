"""How often a job saves is read from what is seen, what its pods are told, and its manifest."""

import asyncio
from dataclasses import replace

import pytest
from operator_objects import NOW, job_set, profile, ref, training_job

from mofa_model.kinds import JOB_SET
from mofa_operator.control.observers import facts_of_jobs
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.jobs.saves import time_between_saves
from mofa_operator.snapshot import Running

ADVISED = {
    "advisor.mofa.dev/checkpoint-interval-steps": "100",
    "advisor.mofa.dev/checkpoint-interval-seconds": "600",
}
"""A step is predicted to take 6 s."""
KEY = Key(JOB_SET, "ns", "js")


def saving(command, annotations=ADVISED, on_pods=None):
    """A JobSet with this command, and annotations of its pods."""
    body = job_set(annotations=annotations)
    template = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["spec"]["containers"][0]["command"] = command.split()
    template["metadata"] = {"annotations": on_pods or {}}
    return body


def interval(body, running=None):
    store = Store()
    store.put(JOB_SET, body)
    return time_between_saves(replace(store.snapshot(KEY, NOW), running=running))


@pytest.mark.parametrize(
    "body, running, expected",
    [
        (saving("train.sh"), None, None),
        (saving("torchrun pretrain_gpt.py --save-interval 50"), None, 300.0),
        (saving("torchrun pretrain_gpt.py --save-interval 50", {}), None, None),
        (
            saving("torchrun pretrain_gpt.py --save-interval 50", {}),
            Running(source="mofa", step_seconds=4.0),
            200.0,
        ),
        (
            saving("train.sh", on_pods={"advisor.mofa.dev/checkpoint-interval-steps": "100"}),
            None,
            600.0,
        ),
        (
            saving("torchrun pretrain_gpt.py --save-interval 50"),
            Running(source="mofa", step_seconds=4.0, checkpoint_interval=450.0),
            450.0,
        ),
        (saving("torchrun pretrain_gpt.py --save-interval 1"), None, None),
    ],
    ids=[
        "nothing says it, and advice alone changes no job",
        "the manifest in predicted steps",
        "a step of which nobody knows the length",
        "the manifest in seen steps",
        "what we put on its pods",
        "what its trainer does",
        "six seconds are not believed",
    ],
)
def test_what_is_seen_goes_before_what_is_said(body, running, expected):
    assert interval(body, running) == expected


def test_a_training_job_speaks_for_the_job_whose_pods_are_seen():
    store, body = Store(), saving("train.sh")
    store.put(CLUSTER_PROFILE, profile())
    store.put(JOB_SET, body)
    status = {"observed": {"checkpointIntervalSeconds": 900}}
    store.put(TRAINING_JOB, training_job("tj", targetRef=ref(body), status=status))
    told = asyncio.run(facts_of_jobs(store, "east", NOW))
    assert {name: (one.saves_every, one.wanted) for name, one in told.items()} == {
        "ns/js": (900.0, True)
    }
    assert asyncio.run(facts_of_jobs(store, "west", NOW)) == {}
