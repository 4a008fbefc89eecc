"""The operator decides by the same identity as the command: a server is never advised, whatever its
policy says.
"""

import pytest

from mofa_model.annotations import PREFIX, UNANSWERED
from mofa_operator.decide.answer import REASONS, answer
from mofa_operator.snapshot import Question

POLICY = {
    "apiVersion": "mofa.dev/v1alpha1",
    "kind": "AdvisorPolicy",
    "metadata": {"name": "all", "namespace": "team"},
    "spec": {
        "kinds": [{"apiVersion": "batch/v1", "kind": "Job"}],
        "profile": "pool",
        "training": {"model": "llama3-8b", "sequenceLength": 8192, "globalBatchSize": 256},
    },
}
PROFILE = {
    "apiVersion": "mofa.dev/v1alpha1",
    "kind": "ClusterProfile",
    "metadata": {"name": "pool"},
    "spec": {"gpu": "h100"},
}


def asked(*command, limits=None, selector=None, annotations=None, image="registry.example/own"):
    container = {
        "name": "main", "image": image, "command": list(command), "resources": {"limits": limits or {"nvidia.com/gpu": 8}},
    }  # fmt: skip
    pod = {"containers": [container], "nodeSelector": selector or {}}
    job = {
        "apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": pod}},
        "metadata": {"name": "run", "namespace": "team", "annotations": annotations or {}},
    }  # fmt: skip
    return answer(Question(job=job, profiles=(PROFILE,), policies=(POLICY,)))


def test_every_status_without_an_answer_has_a_reason():
    assert {*REASONS} == {*UNANSWERED}


@pytest.mark.parametrize(
    "told, status, says",
    [
        (asked("nginx"), "NotTraining", "web-or-other"),
        (asked("vllm", "serve", "meta-llama/Llama-3.1-8B"), "NotTraining", "inference"),
        (asked("torchrun", "pretrain_gpt.py", limits={"google.com/tpu": 4}), "NotApplicable", "TPUs"),
        (asked("torchrun", "pretrain_gpt.py", limits={"nvidia.com/mig-3g.40gb": 2}), "NotApplicable", "MIG"),
        (asked("torchrun", "pretrain_gpt.py", limits={"cpu": 4}), "FactsMissing", "asks for cpu: 4"),
        (asked("torchrun", "pretrain_gpt.py", selector={"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}), "FactsDisagree", "a100"),
        (asked("torchrun", "pretrain_gpt.py", limits={"amd.com/gpu": 8}), "FactsDisagree", "the profile pool has h100"),
        (asked("torchrun", "pretrain_gpt.py", "--model_name=meta-llama/Llama-2-7b-hf", annotations={PREFIX + "model": "llama3-8b"}),
         "FactsDisagree", "make them agree"),
        (asked("python", "tune.py", annotations={PREFIX + "class": "inference"}), "NotTraining", "the annotation advisor.mofa.dev/class says inference"),
        (asked("python", "tune.py", annotations={PREFIX + "class": "a job"}), "InvalidInput", "one of llm-pretraining"),
    ],
)  # fmt: skip
def test_what_is_no_job_of_ours_is_said_and_gets_no_layout(told, status, says):
    assert (told.outcome, told.strategy) == (status, {})
    assert says in told.explanation
    assert told.reason == REASONS[status]


def test_a_person_s_class_makes_a_job_of_what_runs_an_unknown_image():
    told = asked("run-it", annotations={PREFIX + "class": "llm-finetuning"})
    assert told.outcome in {"Recommended", "LowConfidence"}, told.explanation
