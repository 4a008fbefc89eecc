"""Sets of pods of every kind as one number of GPUs, what they claim and name beside, and every size
of an elastic job.
"""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from mofa_model.errors import InputError
from mofa_model.kinds import (
    BATCH_JOB,
    DEVICE_CLASS,
    ReferencedObjects,
    controller_of,
    demand_of,
    job_kind,
)

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


def read(name):
    """The last job of a sample, and every object of it."""
    every = [
        one
        for one in YAML(typ="safe").load_all((SAMPLES / f"{name}.yaml").read_text("utf-8"))
        if one
    ]
    every = json.loads(json.dumps(every))
    return [one for one in every if job_kind(one["apiVersion"], one["kind"])][-1], every


@pytest.mark.parametrize(
    "name, gpus, pod, sizes",
    [
        ("job-indexed", 8, 2, ()),
        ("job-part", 4, 4, ()),
        ("jobset-claims", 8, 4, ()),
        ("jobset-shared-claim", 0, 0, ()),
        ("jobset-tpu", 0, 0, ()),
        ("leaderworkerset", 16, 8, ()),
        ("mpijob", 8, 2, ()),
        ("pytorchjob-elastic", 16, 8, (8, 16, 24)),
        ("raycluster-cpu", 0, 0, ()),
        ("rayjob-script", 16, 8, ()),
        ("rayjob-selects", 8, 4, ()),
        ("trainjob-alone", 0, 0, ()),
        ("trainjob-elastic", 8, 4, (4, 8, 12, 16)),
        ("trainjob-runtime", 4, 2, ()),
        ("volcano", 2, 1, ()),
        ("workload", 8, 2, (4, 6, 8)),
    ],
)
def test_gpus_of_all_pods_of_one_pod_and_of_every_size(name, gpus, pod, sizes):
    job, every = read(name)
    found = demand_of(job, ReferencedObjects(every))
    assert (found.gpus, found.gpus_per_pod, found.sizes) == (gpus, pod, sizes)
    assert bool(found.unread) != bool(gpus)


def test_what_is_not_here_is_asked_for_and_what_that_names_in_turn():
    """A template first, and once it is there the class that it names."""
    job, every = read("jobset-claims")
    kind, template, _ = every[0], every[1], every[2]
    (first,) = demand_of(job).missing
    assert str(first) == "ResourceClaimTemplate 'four'"
    (second,) = demand_of(job, ReferencedObjects([template])).missing
    assert (second.kind, second.name) == (DEVICE_CLASS, "large.example.org")
    assert demand_of(job, ReferencedObjects([template, kind])).missing == ()


@pytest.mark.parametrize(
    "change, gpus, unread",
    [
        ({"spec": {"selectors": [{"cel": {"expression": 'device.driver == "nic.example.org"'}}]}}, 0, "asks for nothing"),
        ({"spec": {"extendedResourceName": "amd.com/gpu"}}, 8, ""),
    ],
)  # fmt: skip
def test_a_class_says_whether_its_devices_are_gpus(change, gpus, unread):
    job, (kind, template, _) = read("jobset-claims")
    found = demand_of(job, ReferencedObjects([template, kind | change]))
    assert found.gpus == gpus
    assert unread in found.unread


@pytest.mark.parametrize(
    "request_, gpus, why",
    [
        ({"name": "g", "deviceClassName": "gpu.nvidia.com", "count": 2}, 4, ""),  # as older releases write it
        ({"name": "g", "firstAvailable": [{"name": "a", "deviceClassName": "gpu.nvidia.com", "count": 8}, {"name": "b", "deviceClassName": "gpu.amd.com"}]}, 16, ""),
        ({"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}}, 0, "allocationMode All: give it a count"),
    ],
)  # fmt: skip
def test_a_claim_is_worth_what_its_request_says(request_, gpus, why):
    job, (_, template, _) = read("jobset-claims")
    template["spec"]["spec"]["devices"]["requests"] = [request_]
    found = demand_of(job, ReferencedObjects([template]))
    assert found.gpus == gpus
    assert why in found.unread


def test_a_train_job_takes_from_its_runtime_what_it_does_not_say():
    job, every = read("trainjob-runtime")
    found = demand_of(job, ReferencedObjects(every))
    assert found.words[:2] == ("tune", "run")
    assert found.model == "hf://meta-llama/Llama-3.2-1B-Instruct"
    job["spec"]["trainer"] |= {
        "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}},
        "command": ["torchrun", "t.py"],
    }
    found = demand_of(job, ReferencedObjects(every))
    assert (found.gpus, found.gpus_per_pod, found.words, found.words_path) == (
        16,
        8,
        ("torchrun", "t.py"),
        "spec.trainer.command",
    )
    del job["spec"]["trainer"]["numNodes"]
    assert demand_of(job, ReferencedObjects(every)).gpus == 8  # the runtime has one node
    assert demand_of(job).unread.startswith(
        "spec.runtimeRef.name: ClusterTrainingRuntime 'tune-small' is not here"
    )


def test_a_number_that_cannot_be_is_refused_by_its_own_field():
    job, _ = read("mpijob")
    job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = "many"
    with pytest.raises(
        InputError, match=r"^spec\.mpiReplicaSpecs\.Worker\.replicas: a number .* cannot be 'many'"
    ):
        demand_of(job)


def test_no_pods_yet_is_a_number_to_give():
    job, _ = read("job-part")
    job["spec"]["parallelism"] = 0
    assert demand_of(job).unread.startswith("spec.parallelism: is 0; say how many pods there are")


def test_a_job_that_another_kind_made_knows_its_maker():
    owner = {"apiVersion": "batch/v1beta9", "kind": "Job", "name": "outer", "controller": True}
    assert controller_of({"metadata": {"ownerReferences": [owner]}}) == (BATCH_JOB, "outer")
    assert controller_of({"metadata": {"ownerReferences": [owner | {"controller": False}]}}) is None
    assert (
        controller_of({"metadata": {"ownerReferences": [owner | {"apiVersion": "apps/v1"}]}})
        is None
    )
