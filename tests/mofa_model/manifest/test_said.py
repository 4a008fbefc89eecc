"""Jobs of other kinds as questions: facts from wherever they are said, what is missing in the
kind's own words, every size answered.
"""

from pathlib import Path

import pytest

from mofa_model import presets
from mofa_model.advice import advise
from mofa_model.manifest.documents import Documents
from mofa_model.manifest.jobs import question_of, request_of
from mofa_model.manifest.stream import Annotator, digest_of, sizes_of
from mofa_model.manifest.surroundings import surroundings

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
PROFILE = (Path(__file__).parents[3] / "examples" / "h100-east.yaml").read_text("utf-8")
POLICY = """\
---
apiVersion: mofa.dev/v1alpha1
kind: AdvisorPolicy
metadata: {name: everything}
spec:
  profile: h100-east
  constraints: {tp: {values: [1]}, pp: {values: [1]}, cp: {values: [1]}, mbs: {values: [1, 2]}}
  kinds: [{apiVersion: ray.io/v1, kind: RayJob}, {apiVersion: kubeflow.org/v9, kind: PyTorchJob}, {apiVersion: batch/v1, kind: Job}]
"""
SIZE = "  training: {model: llama3.2-1b, sequenceLength: 2048, globalBatchSize: 64}\n"


def asked(name, *more, change=("", "")):
    """What becomes of a sample under the policy, and the questions that were asked."""
    questions = []

    def answer(question):
        questions.append(question)
        return advise(question)

    whole = f"{PROFILE}---\n{(SAMPLES / f'{name}.yaml').read_text('utf-8').replace(*change)}{POLICY}{''.join(more)}"
    annotator = Annotator(
        answer=answer, words=lambda *_: (), model_version="1", now="2026-01-01T00:00:00Z"
    )
    (text,), outcomes = annotator.run([Documents.parse(whole, "x.yaml")])
    return text, outcomes, questions


def test_a_script_of_ones_own_says_model_sequence_and_batch():
    """Two sequences on each of 16 GPUs, four times over: 128."""
    _, (outcome,), (question,) = asked("rayjob-script")
    assert outcome.status in {"Recommended", "LowConfidence"}, outcome.explanation
    workload = question.problems[0].workload
    assert workload.model.name.lower().startswith("qwen2.5")
    assert (workload.training.sequence, workload.training.global_batch) == (4096, 128)


MOUNTED = """\
---
apiVersion: v1
kind: ConfigMap
metadata: {name: tune}
data:
  run.yaml: |
    model: {model_name_or_path: meta-llama/Llama-3.2-1B}
    data: {cutoff_len: 2048}
    train: {per_device_train_batch_size: 4, gradient_accumulation_steps: 2}
"""


def test_a_trainers_own_file_that_a_config_map_brings_says_model_sequence_and_batch():
    """Four sequences on each of four GPUs, twice over: 32."""
    change = (
        "command: [python, train.py],",
        "command: [train, /etc/run/run.yaml], volumeMounts: [{name: run, mountPath: /etc/run/}],",
    )
    volumes = "restartPolicy: Never\n      volumes: [{name: run, configMap: {name: tune}}]"
    text = (
        (SAMPLES / "job-part.yaml")
        .read_text("utf-8")
        .replace(*change)
        .replace("restartPolicy: Never", volumes)
    )
    policy = POLICY.replace("---\n", "", 1)
    streams = [
        Documents.parse(one.removeprefix("---\n"), "x") for one in (text, PROFILE, policy, MOUNTED)
    ]
    request = request_of(question_of(streams[0].items[0], surroundings(streams, [])))
    workload = request.problems[0].workload
    assert (workload.training.sequence, workload.training.global_batch) == (2048, 32)
    assert workload.model.name == presets.model("llama3.2-1b").name


@pytest.mark.parametrize(
    "name, change, more, status, right",
    [
        ("rayjob-script", ("--max_seq_length 4096 ", ""), "", "FactsMissing",
         "spec.entrypoint: its command says no sequence length; give training.sequenceLength in"),
        ("rayjob-script", ("Qwen/Qwen2.5-7B", "acme/llama-9b"), "", "FactsMissing",
         "spec.entrypoint line 1: names 'acme/llama-9b', which is no model that is known; give the RayJob"),
        ("job-part", ("[python, train.py]", "[python, pretrain_gpt.py]"), "", "FactsMissing",
         "spec.template.spec.containers[0]: its command says no model; give the Job the annotation advisor.mofa.dev/model"),
        ("job-part", ("[python, train.py]", "[python, train.py]"), "  training: {model: llama3.2-1b}\n", "FactsMissing",
         "spec.template.spec.containers[0]: its command says no sequence length and no global batch size; give"),
        ("job-part", ("command: [python, train.py], ", ""), "  training: {model: llama3.2-1b}\n", "FactsMissing",
         "spec.template: says no sequence length and no global batch size; give training.sequenceLength and"),
        ("job-part", ("", ""), SIZE.replace("llama3.2-1b", "llama9"), "InvalidInput",
         "AdvisorPolicy everything: spec.training.model: unknown name 'llama9'"),
    ],
    ids=["sequence", "unknown model", "model", "a script of unknown model", "no command", "policy"],
)  # fmt: skip
def test_what_is_missing_or_wrong_is_told_by_the_place_where_it_would_stand(
    name, change, more, status, right
):
    _, (outcome,), questions = asked(name, more, change=change)
    assert (outcome.status, questions) == (status, [])
    assert outcome.explanation.startswith(right), outcome.explanation
    assert "job." not in outcome.explanation.partition(";")[0].replace("job.yaml", "")


def test_what_a_job_says_beats_its_policy_known_or_not():
    """The policy's 1B model is no answer for a job that names another one."""
    _, (outcome,), questions = asked(
        "rayjob-script", SIZE, change=("Qwen/Qwen2.5-7B", "acme/llama-9b")
    )
    assert (outcome.status, questions) == ("FactsMissing", [])
    _, (outcome,), (question,) = asked("rayjob-script", SIZE)
    assert question.problems[0].workload.model.name.lower().startswith("qwen2.5")


def test_a_policy_s_model_makes_a_script_of_unknown_model_an_answer_in_doubt():
    _, (outcome,), _ = asked("job-part", SIZE)
    assert outcome.status == "LowConfidence"
    assert "nothing in the job says that it trains the model of its policy" in outcome.explanation


def test_a_policy_s_model_is_no_answer_for_a_program_that_shows_nothing_of_training():
    """`sample_code.py` without any option: neither its name nor its words speak of training."""
    change = ("[python, train.py]", "[python, /home/ray/samples/sample_code.py]")
    _, (outcome,), questions = asked("job-part", SIZE, change=change)
    assert (outcome.status, questions) == ("NotTraining", [])


def test_an_elastic_job_is_answered_once_at_each_of_its_sizes():
    text, (outcome,), questions = asked("pytorchjob-elastic", SIZE)
    assert outcome.status in {"Recommended", "LowConfidence"}, outcome.explanation
    assert [int(one.problems[0].cluster.gpus) for one in questions] == [16, 8, 24]
    assert '\\"sizes\\":[{\\"gpus\\":8,\\"nodes\\":' in text


def test_a_job_that_another_one_made_is_left_to_that_one():
    owner = "metadata: {name: half, ownerReferences: [{apiVersion: ray.io/v1, kind: RayJob, name: outer, controller: true}]}"
    _, outcomes, questions = asked("job-part", SIZE, change=("metadata: {name: half}", owner))
    assert (outcomes, questions) == ([], [])


def test_the_sizes_are_in_the_hash():
    """A job that may shrink asks something else than one that may not."""
    asked = [
        Documents.parse((SAMPLES / "pytorchjob-elastic.yaml").read_text("utf-8"), "x"),
        Documents.parse(PROFILE, "y"),
    ]
    around = surroundings([*asked, Documents.parse((POLICY + SIZE).removeprefix("---\n"), "z")], [])
    found = question_of(asked[0].items[0], around)
    request, sizes = request_of(found), sizes_of(found)
    assert [*sizes] == [8, 16, 24]
    assert (
        len({digest_of(request, dict([*sizes.items()][:number]), "1") for number in range(4)}) == 4
    )


NAMESPACE = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {advisor.mofa.dev/advise: 'true'}}\n"


def test_a_label_of_its_namespace_opts_a_job_in():
    """Nothing else asks, and the policy without kinds still gives its defaults."""
    defaults = POLICY.partition("  kinds:")[0] + SIZE
    text = (SAMPLES / "rayjob-script.yaml").read_text("utf-8")
    for more, count in (("", 0), (NAMESPACE, 1)):
        annotator = Annotator(answer=advise, words=lambda *_: (), model_version="1", now="")
        whole = f"{PROFILE}---\n{text}{defaults}{more}"
        _, outcomes = annotator.run([Documents.parse(whole, "x.yaml")])
        assert len(outcomes) == count
    assert outcomes[0].status in {"Recommended", "LowConfidence"}, outcomes[0].explanation


@pytest.mark.parametrize("size", ["2", "3"], ids=["a layout that fits", "a layout that does not"])
def test_tokens_in_arguments_reach_no_annotation(size):
    token = "hf_abcDEF123456"
    command = (
        f"[torchrun, pretrain_gpt.py, --tensor-model-parallel-size, '{size}', --hf-token, {token}, "
        f"--wandb-api-key={token}, --seq-length, '2048', --global-batch-size, '64']"
    )
    text, (outcome,), _ = asked("job-part", SIZE, change=("[python, train.py]", command))
    assert outcome.status in {"Recommended", "LowConfidence"}, outcome.explanation
    assert text.count(token) == 2
