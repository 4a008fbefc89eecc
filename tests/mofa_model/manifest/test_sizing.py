"""A job that states no size gets one within the bounds of its namespace's policy and of
its pool.
"""

from __future__ import annotations

import json

import pytest
from ruamel.yaml import YAML

from mofa_model.advice import advise
from mofa_model.annotations import PREFIX
from mofa_model.errors import BadValue, InputError
from mofa_model.kinds import RAY_JOB, TRAIN_JOB
from mofa_model.kinds.pods import gpu_resource
from mofa_model.manifest import jobs
from mofa_model.manifest.documents import Documents
from mofa_model.manifest.jobs import request_of
from mofa_model.manifest.sizing import at_best_size, at_every_size
from mofa_model.manifest.stream import Annotator
from mofa_model.manifest.surroundings import surroundings

FLAGS = ["pretrain_gpt.py", "--tensor-model-parallel-size=8", "--micro-batch-size=1"]
FLAGS += ["--global-batch-size=64", "--seq-length=4096", "--bf16"]


def objects(size="soonest", *, trainer=None, nodes=None, spares=0, **sizing):
    """A pool, a policy, a runtime without GPUs, and a TrainJob that asks for a size."""
    pool = {"gpu": "h100", "gpusPerNode": 8, "failures": {"spareNodes": spares}}
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pods = {"spec": {"containers": [{"name": "node", "image": "registry.example/megatron:1"}]}}
    job = {"name": "node", "template": {"metadata": {"labels": step}, "spec": {"template": pods}}}
    known = {"size": size, "model": "llama3.1-8b"}
    trainer = {"command": ["torchrun"], "args": FLAGS, **(trainer or {})}
    return [
        {
            "apiVersion": "mofa.dev/v1alpha1", "kind": "ClusterProfile", "metadata": {"name": "h100"},
            "spec": pool, "status": {"nodes": nodes or {"total": 4, "ready": 4, "steady": 4}},
        },
        {
            "apiVersion": "mofa.dev/v1alpha1", "kind": "AdvisorPolicy",
            "metadata": {"name": "sizes", "namespace": "research"},
            "spec": {"profile": "h100", "sizing": sizing},
        },
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
            "metadata": {"name": "torch-distributed"},
            "spec": {
                "mlPolicy": {"numNodes": 1, "torch": {}},
                "template": {"spec": {"replicatedJobs": [job]}},
            },
        },
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
            "metadata": {
                "name": "open", "namespace": "research",
                "annotations": {PREFIX + key: value for key, value in known.items()},
            },
            "spec": {
                "suspend": True, "runtimeRef": {"name": "torch-distributed"}, "trainer": trainer,
            },
        },
    ]  # fmt: skip


def asked(*given, job=None, **more):
    every = objects(*given, **more)
    if job is not None:
        every[-1] = job
    stream = Documents.parse("\n---\n".join(map(json.dumps, every)), "given")
    return jobs.job_question(stream.items[-1], surroundings([stream], []))


def in_place(kind, api_version, spec, size="soonest"):
    """A job of another kind in the place of the TrainJob."""
    metadata = objects(size)[-1]["metadata"]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def ray_job(replicas=0, gpus=None):
    limits = {} if gpus is None else {"limits": {"nvidia.com/gpu": gpus}}
    head, worker = (
        {"spec": {"containers": [{"name": name, "image": "x", "resources": asks}]}}
        for name, asks in (("ray-head", {}), ("ray-worker", limits))
    )
    group = {"groupName": "gpu", "replicas": replicas, "template": worker}
    cluster = {"headGroupSpec": {"template": head}, "workerGroupSpecs": [group]}
    line = " ".join(["python", *FLAGS])
    return in_place("RayJob", "ray.io/v1", {"suspend": True, "entrypoint": line, "rayClusterSpec": cluster})  # fmt: skip


def job_set(parallelism=None, gpus=None):
    limits = {} if gpus is None else {"limits": {"nvidia.com/gpu": gpus}}
    container = {"name": "trainer", "command": ["torchrun"], "args": FLAGS, "resources": limits}
    one = {"template": {"spec": {"containers": [container]}}}
    if parallelism is not None:
        one["parallelism"] = parallelism
    spec = {"suspend": True, "replicatedJobs": [{"name": "trainer", "template": {"spec": one}}]}
    return in_place("JobSet", "jobset.x-k8s.io/v1alpha2", spec)


def sizes(question):
    found = [request_of(one).problems[0] for one in at_every_size(question)]
    return [(int(one.cluster.gpus), int(one.workload.training.global_batch)) for one in found]


def test_the_gpu_of_a_job_without_sizes_stands_in_its_runtimes_node_selector():
    """Of two pools the one whose nodes the runtime selects, with no policy that names one."""
    every = objects()
    pool, rule, runtime, job = every
    label = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    other = {**pool, "metadata": {"name": "a100"}}
    other["spec"] = {**pool["spec"], "gpu": "a100-80gb-sxm", "nodeSelector": label}
    pool["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    del rule["spec"]["profile"]
    template = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]
    text = json.dumps
    stream = Documents.parse("\n---\n".join(map(text, [pool, other, rule, runtime, job])), "given")
    with pytest.raises(InputError, match="could be meant"):
        jobs.job_question(stream.items[-1], surroundings([stream], []))
    template["spec"]["template"]["spec"]["nodeSelector"] = label
    stream = Documents.parse("\n---\n".join(map(text, [pool, other, rule, runtime, job])), "given")
    asked_of = jobs.job_question(stream.items[-1], surroundings([stream], []))
    assert (asked_of.profile.name, asked_of.size) == ("a100", "soonest")


def test_sizes_are_parts_of_a_node_and_whole_nodes_up_to_those_of_the_pool():
    assert sizes(asked()) == [(gpus, 64) for gpus in (1, 2, 4, 8, 16, 24, 32)]


def test_bounds_hold():
    found = asked(maxNodes=2, minNodes=2, globalBatchSizes=[64, 96])
    assert sizes(found) == [(16, 64), (16, 96)]
    found = asked(gpusPerNode=[4], maxNodes=2)
    assert sizes(found) == [(4, 64), (8, 64)]


def test_spares_and_nodes_that_the_pool_had_not_all_the_time_are_left_out():
    lately = {"total": 4, "ready": 4, "steady": 4, "lately": 3}
    assert max(sizes(asked(nodes=lately, spares=1))) == (16, 64)


def test_methods_are_questions_of_their_own():
    found = at_every_size(
        asked(methods=["Full", "LoRA"], maxNodes=1, gpusPerNode=[8], adapterRank=8)
    )
    assert [one.spec.training.adapter_rank for one in found] == [None, 8]


def test_the_chosen_size_is_asked_alone_and_surely_fits():
    chosen = at_best_size(asked("least-gpus"))
    assert at_every_size(chosen) == ()
    advice = advise(request_of(chosen))
    assert advice.odds.fits >= 0.99
    assert advice.gpus < 32


def test_a_job_that_states_nodes_or_gpus_is_not_sized():
    gpus = {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}
    for stated in (gpus, {"numNodes": 2, **gpus}):
        assert asked(trainer={"numProcPerNode": 8, **stated}).size == ""


@pytest.mark.parametrize("made", [ray_job, job_set], ids=["RayJob", "JobSet"])
def test_sizes_of_other_kinds_are_those_of_a_trainjob(made):
    assert sizes(asked(job=made())) == sizes(asked())
    assert asked(job=made(2, 8)).size == ""
    assert advise(request_of(at_best_size(asked(job=made())))).gpus == advise(request_of(at_best_size(asked()))).gpus  # fmt: skip


def test_a_rayjob_of_no_workers_keeps_the_gpus_that_each_would_have():
    """A TrainJob has its runtime's nodes where it states GPUs alone; `replicas: 0` is no number."""
    body = ray_job(replicas=0, gpus=8)
    assert sizes(asked(job=body)) == [(gpus, 64) for gpus in (8, 16, 24, 32)]
    _, change, *_ = RAY_JOB.size_patch(body, 3, 8, "nvidia.com/gpu", ["--micro-batch-size", "2"])
    (container,) = change["value"]["template"]["spec"]["containers"]
    assert change["value"]["replicas"] == 3
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}


def test_a_jobset_with_gpus_has_a_pod_of_them_where_it_says_no_number():
    assert asked(job=job_set(gpus=8)).size == ""


def test_what_it_is_to_be_best_at_is_one_of_three():
    with pytest.raises(BadValue, match="one of least-gpu-hours, soonest, least-gpus"):
        asked("cheap")


def test_too_many_sizes_and_too_few_nodes_are_refused():
    many = asked(globalBatchSizes=[8, 16, 32, 64, 128, 256, 512], methods=["Full", "LoRA"])
    with pytest.raises(BadValue, match="at most 48"):
        at_every_size(many)
    with pytest.raises(InputError, match="it has 4 nodes for a job of at least 5"):
        at_every_size(asked(minNodes=5))


def test_annotate_writes_the_answer_of_the_chosen_size_and_leaves_it_while_nothing_changes():
    stream = Documents.parse("\n---\n".join(map(json.dumps, objects(maxNodes=1))), "given")
    annotator = Annotator(
        answer=advise, words=lambda *_: (), model_version="1", now="2026-01-01T00:00:00Z"
    )
    (text,), (outcome,) = annotator.run([stream])
    assert outcome.status == "Recommended"
    *_, job = YAML(typ="safe").load_all(text)
    told = json.loads(job["metadata"]["annotations"][PREFIX + "recommendation"])
    assert (told["nodes"], told["gpus"]) == (1, 8)
    _, (again,) = annotator.run([Documents.parse(text, "again")])
    assert not again.changed


def test_the_patch_sizes_a_trainjob_through_its_own_section():
    body = objects()[-1]
    words = ["--tensor-model-parallel-size", "2", "--micro-batch-size", "2"]
    seen, change = TRAIN_JOB.size_patch(body, 2, 8, "nvidia.com/gpu", words)
    assert seen == {"op": "test", "path": "/spec/trainer", "value": body["spec"]["trainer"]}
    after = change["value"]
    assert (after["numNodes"], after["numProcPerNode"]) == (2, 8)
    assert after["resourcesPerNode"] == {"limits": {"nvidia.com/gpu": "8"}}
    assert after["args"][0] == "pretrain_gpt.py"
    assert {"--tensor-model-parallel-size", "2"} <= {*after["args"]}
    assert "--tensor-model-parallel-size=8" not in after["args"]
    _, other = TRAIN_JOB.size_patch(body, 2, 8, gpu_resource("AMD-Instinct-MI300X"), words)
    assert other["value"]["resourcesPerNode"] == {"limits": {"amd.com/gpu": "8"}}
    stated = {**body, "spec": {**body["spec"], "trainer": after}}
    assert TRAIN_JOB.states_size(stated["spec"])
    assert not TRAIN_JOB.states_size(body["spec"])
    with pytest.raises(InputError, match="nothing to write the layout's arguments into"):
        TRAIN_JOB.size_patch(objects(trainer={"args": []})[-1], 2, 8, "amd.com/gpu", words)
