"""Streams of manifests are annotated with explicit outcomes, once, and everything else
passes through.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mofa_model.advice import Advice, Odds, Predicted, Status
from mofa_model.annotations import OUTPUTS, PREFIX
from mofa_model.errors import InputError
from mofa_model.kinds import demand_of
from mofa_model.manifest.documents import Documents
from mofa_model.manifest.parsing import cluster_profile
from mofa_model.manifest.stream import Annotator
from mofa_model.strategy import Strategy
from mofa_model.units import Range

EXAMPLES = Path(__file__).parents[3] / "examples"


def band(target):
    return Range(lower=0.9 * target, target=target, upper=1.1 * target)


class Answers:
    """Answers every question in the same way, and remembers the questions."""

    def __init__(self, status=Status.RECOMMENDED):
        self.questions = []
        self.status = status

    def __call__(self, question):
        self.questions.append(question)
        fits = self.status is not Status.NO_RECOMMENDATION
        predicted = Predicted(
            step_seconds=band(20.0),
            tokens_per_second=band(8e5),
            mfu=band(0.4),
            memory_bytes=band(7e10),
            ettr=band(0.9),
            duration_seconds=band(2e7),
        )
        return Advice(
            status=self.status,
            model=question.problems[0].workload.model.name,
            device=question.problems[0].cluster.device.name,
            objective=question.objective,
            strategy=Strategy(tp=8, dp=question.nodes) if fits else None,
            predicted=predicted if fits else None,
            odds=Odds(fits=0.95) if fits else None,
            checkpoint_interval_steps=40 if fits else None,
            checkpoint_interval_seconds=800.0 if fits else None,
            restarts=17 if fits else None,
            hang_timeout=240.0 if fits else None,
            nodes=question.nodes,
            gpus=8 * question.nodes,
            explanation="because" if fits else "OutOfMemory binds",
            raw=1,
            searched=1,
            pruned=0,
            confidence=0.8,
            memory_limit_bytes=8e10,
            model_version="1",
        )


def annotator(answers=None, *, version="1", now="2026-01-01T00:00:00Z", profiles=()):
    return Annotator(
        answer=answers or Answers(),
        words=lambda *_: (),
        model_version=version,
        now=now,
        profiles=profiles,
    )


def run(text, **options):
    texts, outcomes = annotator(**options).run([Documents.parse(text, "x.yaml")])
    return texts[0], outcomes


def annotations_of(text, index=0):
    return Documents.parse(text, "x.yaml").items[index].annotations


JOB = (EXAMPLES / "llama3-405b.yaml").read_text("utf-8")
JOBSET = (EXAMPLES / "jobset.yaml").read_text("utf-8")
PYTORCH = (EXAMPLES / "pytorchjob.yaml").read_text("utf-8")
EAST = (EXAMPLES / "h100-east.yaml").read_text("utf-8")
H200 = PYTORCH.replace("NVIDIA-H100-80GB-HBM3", "NVIDIA-H200")


def test_a_training_job_is_annotated_from_a_bundled_profile():
    answers = Answers()
    text, (outcome,) = run(JOB, answers=answers)
    assert annotations_of(text)[PREFIX + "status"] == outcome.status == "Recommended"
    assert answers.questions[0].nodes == 256
    assert set(annotations_of(text)) == set(OUTPUTS)


def test_running_it_twice_changes_nothing_and_asks_nothing():
    once, _ = run(JOB)
    answers = Answers()
    twice, (outcome,) = run(once, answers=answers, now="2027-01-01T00:00:00Z")
    assert twice == once
    assert answers.questions == []
    assert not outcome.changed


def test_a_new_model_version_answers_again():
    once, _ = run(JOB)
    again, _ = run(once, version="2", now="2027-01-01T00:00:00Z")
    assert annotations_of(again)[PREFIX + "computed-at"] == "2027-01-01T00:00:00Z"


def test_disabled_removes_all_our_keys():
    once, _ = run(JOB)
    text, _ = run(once.replace("spec:\n", "spec:\n  mode: Disabled\n", 1))
    assert text == JOB.replace("spec:\n", "spec:\n  mode: Disabled\n", 1)


def test_paused_leaves_an_object_as_it_is():
    paused = JOB.replace(
        "  name: llama3-405b\n",
        '  name: llama3-405b\n  annotations:\n    advisor.mofa.dev/paused: "true"\n',
    )
    assert run(paused) == (paused, [])


def test_no_recommendation_is_written_too():
    text, (outcome,) = run(JOB, answers=Answers(Status.NO_RECOMMENDATION))
    assert annotations_of(text)[PREFIX + "status"] == "NoRecommendation"
    assert "OutOfMemory binds" in outcome.line()


def test_where_nobody_names_a_profile_the_bundled_one_with_the_pods_gpu_is_taken_and_said():
    answers = Answers()
    text, (outcome,) = run(PYTORCH, answers=answers)
    assert outcome.status == "Recommended"
    assert answers.questions[0].problems[0].cluster.device.name == "h100-80gb-sxm"
    why = "profile h100-east of the package is assumed: none is named, and the pods select the GPU NVIDIA-H100-80GB-HBM3"
    assert outcome.explanation == f"because; {why}"
    assert json.loads(annotations_of(text)[PREFIX + "recommendation"])["caveats"] == [why]
    assert run(text)[0] == text


def test_an_answer_on_an_assumed_profile_is_another_one_as_soon_as_somebody_names_it():
    profile = cluster_profile(next(iter(Documents.parse(EAST, "x").items)).value)
    assumed, _ = run(PYTORCH)
    named, (outcome,) = run(assumed, profiles=[profile])
    assert outcome.explanation == "because"
    assert named != assumed


@pytest.mark.parametrize("label", ["nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"])
def test_the_gpu_may_stand_in_an_affinity_too(label):
    job = Documents.parse(PYTORCH, "x").items[0].value
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        pod = replica["template"]["spec"]
        pod.pop("nodeSelector", None)
        rule = {"key": label, "operator": "In", "values": ["NVIDIA-A100-SXM4-80GB"]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
        pod["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        }
    answers = Answers()
    run(json.dumps(job), answers=answers)
    assert answers.questions[0].problems[0].cluster.device.name == "a100-80gb-sxm"


@pytest.mark.parametrize(
    "text, message",
    [
        (H200, "no bundled profile has the GPU that the pods select by nvidia.com/gpu.product, 'NVIDIA-H200'; name one"),
        (H200, "or give one with --profile (bundled are a100-lab (a100-80gb-sxm), gb200-nvl72 (gb200), h100-east"),
        (PYTORCH.replace("nvidia.com/gpu.product", "pool"), "the pods do not select a GPU by nvidia.com/gpu.product; name one"),
        (f"{PYTORCH}---\n{EAST}---\n{EAST.replace('name: h100-east', 'name: other')}",
         "profile: is missing, and h100-east (h100-80gb-sxm), other (h100-80gb-sxm) could be meant; name one"),
    ],
)  # fmt: skip
def test_where_no_profile_can_be_assumed_the_choices_are_named(text, message):
    _, (outcome,) = run(text)
    assert outcome.status == "InvalidInput"
    assert message in outcome.explanation


def test_a_profile_that_is_not_right_is_neither_passed_over_nor_the_end_of_the_others():
    other = JOB.replace("profile: h100-east", "profile: h800-west")
    broken = EAST.replace("gpusPerNode: 8", "gpusPerNode: eight")
    text, outcomes = run(f"{JOB}---\n{broken}---\n{other}---\n{PYTORCH}")
    assert [outcome.status for outcome in outcomes] == [
        "InvalidInput",
        "InvalidInput",
        "Recommended",
        "InvalidInput",
    ]
    assert {outcome.explanation for outcome in outcomes if outcome.status == "InvalidInput"} == {
        "ClusterProfile h100-east: spec.gpusPerNode: 'eight' cannot be right; give a whole number, for example 8"
    }
    assert broken in text


def test_a_policy_that_is_not_right_is_told_once_and_by_the_jobs_that_it_speaks_for():
    config = "---\nkind: ConfigMap\nmetadata: {name: a}\n"
    text = JOBSET.replace("tokens: 2T", "tokens: many") + config
    out, outcomes = run(text)
    assert [(outcome.item.kind, outcome.status) for outcome in outcomes] == [
        ("JobSet", "InvalidInput"),
        ("AdvisorPolicy", "InvalidInput"),
    ]
    assert out.endswith(text.split("---", 1)[1])


def test_a_job_that_cannot_be_edited_is_told_and_the_others_are_answered():
    shared = "kind: ConfigMap\nmetadata: {name: a, annotations: &a {b: c}}\n---\n"
    held = JOB.replace("  name: llama3-405b\n", "  name: held\n  annotations: &held {a: b}\n")
    text, (first, second) = run(shared + held + "---\n" + JOB)
    assert (first.status, second.status) == ("InvalidInput", "Recommended")
    assert "annotations that objects share by a YAML anchor cannot be edited" in first.explanation
    assert text.startswith(shared + held)


def test_a_profile_of_the_stream_stands_before_a_bundled_one():
    profile = (
        (EXAMPLES / "h100-east.yaml").read_text("utf-8").replace("gpu: h100-80gb-sxm", "gpu: h200")
    )
    answers = Answers()
    run(JOB + "---\n" + profile, answers=answers)
    assert answers.questions[0].problems[0].cluster.device.name == "h200-141gb-sxm"


def test_an_unknown_profile_is_bad_input_with_the_known_ones():
    text, (outcome,) = run(JOB.replace("profile: h100-east", "profile: nowhere"))
    assert outcome.status == annotations_of(text)[PREFIX + "status"] == "InvalidInput"
    assert outcome.explanation.startswith(
        "spec.cluster.profile: 'nowhere' cannot be right; known: a100-lab"
    )


def test_a_target_in_the_stream_is_annotated_as_well():
    job = JOB + "  targetRef: {apiVersion: batch/v1, kind: Job, name: train}\n"
    target = "---\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: train\nspec: {}\n"
    text, outcomes = run(job + target)
    assert annotations_of(text, 1) == annotations_of(text, 0)
    assert len(outcomes) == 1
    assert run(text)[0] == text


def test_a_target_is_answered_by_its_training_job_alone_whichever_file_it_is_in():
    job = (
        JOB
        + "  targetRef: {apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, name: llama3-70b}\n"
    )
    streams = [Documents.parse(text, "x") for text in (JOBSET, job)]
    texts, outcomes = annotator().run(streams)
    assert [outcome.item.kind for outcome in outcomes] == ["TrainingJob"]
    expected = {PREFIX + "model": "llama3-70b", **annotations_of(texts[1])}
    assert annotations_of(texts[0]) == expected
    assert annotator().run([Documents.parse(text, "x") for text in texts])[0] == texts


def test_an_existing_job_is_read_from_its_pods_flags_and_policy():
    answers = Answers()
    text, (outcome,) = run(JOBSET, answers=answers)
    (question,) = answers.questions
    assert outcome.status == "Recommended"
    assert (question.nodes, question.problems[0].workload.training.sequence) == (32, 8192)
    assert question.problems[0].workload.training.tokens == 2_000_000_000_000
    assert (question.current.tp, question.current.pp, question.current.dp) == (8, 4, 8)
    assert run(text)[0] == text


def test_a_job_that_nobody_opted_in_passes_through():
    text = JOBSET.split("---")[0].replace(
        "  annotations:\n    advisor.mofa.dev/model: llama3-70b\n", ""
    )
    assert run(text) == (text, [])


def test_a_policy_that_lists_a_kind_opts_it_in():
    text = JOBSET.replace("  annotations:\n    advisor.mofa.dev/model: llama3-70b\n", "").replace(
        "    tokens: 2T\n", "    tokens: 2T\n    model: llama3-70b\n"
    )
    _, (outcome,) = run(text)
    assert outcome.status == "Recommended"


def test_a_disabled_existing_job_loses_our_outputs_and_keeps_its_inputs():
    once, _ = run(JOBSET)
    disabled = once.replace(
        "advisor.mofa.dev/model: llama3-70b\n",
        "advisor.mofa.dev/model: llama3-70b\n    advisor.mofa.dev/mode: Disabled\n",
    )
    text, _ = run(disabled)
    assert annotations_of(text) == {PREFIX + "model": "llama3-70b", PREFIX + "mode": "Disabled"}


@pytest.mark.parametrize(
    "change, message",
    [
        (("model: llama3-70b", "model: llama3-71b"), "did you mean llama3-70b"),
        (("parallelism: 32", "parallelism: many"), "a number of replicas or GPUs cannot be 'many'"),
        (("    advisor.mofa.dev/model", "    advisor.mofa.dev/mode: On\n    advisor.mofa.dev/model"), "one of Disabled, Annotate, Apply"),
        (("kind: JobSet\nmetadata", "kind: Pod\nmetadata"), "replicas of a Pod cannot be read"),
        (("profile: h100-east", "profile: nowhere"), "'nowhere' cannot be right"),
    ],
)  # fmt: skip
def test_what_an_existing_job_does_not_say_is_an_explicit_outcome(change, message):
    text, (outcome,) = run(JOBSET.replace(*change))
    assert outcome.status == "InvalidInput"
    assert message in outcome.explanation
    assert annotations_of(text)[PREFIX + "status"] == "InvalidInput"
    assert run(text)[0] == text


def test_a_fact_that_nobody_states_is_an_outcome_of_its_own():
    text, (outcome,) = run(JOBSET.replace("- --seq-length=8192\n", ""))
    assert outcome.status == annotations_of(text)[PREFIX + "status"] == "FactsMissing"
    said = "says no sequence length; give training.sequenceLength in an AdvisorPolicy"
    assert said in outcome.explanation
    assert run(text)[0] == text


def test_gpus_of_unequal_pods_that_do_not_fill_nodes_are_an_explicit_outcome():
    stream = Documents.parse(PYTORCH, "x.yaml")
    master = stream.items[0].value["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    master["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "4"
    _, (outcome,) = run(json.dumps(stream.items[0].value))
    assert (
        "GPUs of all pods: 124 cannot be right; nodes of profile h100-east have 8 each: give every pod the same number"
        in outcome.explanation
    )


@pytest.mark.parametrize(
    "pods, each, nodes, per_node, domain",
    [
        (1, 1, 1, 1, 1),
        (1, 4, 1, 4, 4),
        (2, 4, 1, 8, 4),
        (3, 4, 3, 4, 4),
        (16, 4, 8, 8, 4),
        (64, 1, 8, 8, 1),
        (12, 1, 2, 6, 1),
        (32, 8, 32, 8, 8),
    ],
)
def test_pods_with_a_part_of_a_node_are_a_question_of_nodes_parts_and_pods(
    pods, each, nodes, per_node, domain
):
    """NVLink reaches as far as a pod does, but all GPUs of a job on a node share that node's memory
    and storage.
    """
    text = JOBSET.replace("completions: 32", f"completions: {pods}").replace(
        "gpu: 8", f"gpu: {each}"
    )
    text = text.replace("parallelism: 32", f"parallelism: {pods}")
    text = text.replace("tensor-model-parallel-size=8", "tensor-model-parallel-size=1")
    text = text.replace("pipeline-model-parallel-size=4", "pipeline-model-parallel-size=1")
    answers = Answers()
    _, (outcome,) = run(
        text.replace("global-batch-size=512", "global-batch-size=768"), answers=answers
    )
    assert outcome.status == "Recommended", outcome.explanation
    (question,) = answers.questions
    cluster = question.problems[0].cluster
    assert (question.nodes, cluster.gpus_per_node, cluster.domain) == (nodes, per_node, domain)
    assert cluster.gpus == pods * each
    assert cluster.host.memory == 2 * 2**40 * per_node / 8
    assert question.reliability.tiers[0].node_bandwidth == 10e9 * per_node / 8
    assert question.reliability.tiers[1].total_bandwidth == 200e9
    assert question.reliability.classes[0].rate.mean == pytest.approx(1.4e-3 / 86400, rel=0.05)


def test_a_config_map_may_hold_the_whole_spec():
    text = JOBSET.replace(
        "advisor.mofa.dev/model: llama3-70b", "advisor.mofa.dev/config-ref: run/spec.yaml"
    ) + (
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: run\ndata:\n  spec.yaml: |\n"
        "    model: {preset: llama3-8b}\n    training: {globalBatchSize: 128}\n"
    )
    answers = Answers()
    run(text, answers=answers)
    assert answers.questions[0].problems[0].workload.model.name == "llama3-8b"
    assert answers.questions[0].problems[0].workload.training.global_batch == 128


def test_a_config_map_may_hold_the_model():
    text = JOBSET.replace(
        "advisor.mofa.dev/model: llama3-70b", "advisor.mofa.dev/config-ref: run"
    ) + (
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: run\ndata:\n  config.json: |\n"
        '    {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257}\n'
    )
    answers = Answers()
    run(text, answers=answers)
    assert answers.questions[0].problems[0].workload.model.layers == 12


def test_a_resource_list_is_answered_with_a_resource_list_and_its_results():
    body = "".join(
        f"  {line}\n" if line else "\n" for line in JOB.splitlines() if not line.startswith("#")
    )
    items = "- " + body.lstrip()
    text = f"apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems:\n{items}functionConfig: {{}}\n"
    out, _ = run(text, answers=Answers(Status.NO_RECOMMENDATION))
    stream = Documents.parse(out, "x")
    assert stream.resource_list.value["results"][0]["severity"] == "warning"
    assert stream.items[0].annotations[PREFIX + "status"] == "NoRecommendation"
    assert run(out, answers=Answers(Status.NO_RECOMMENDATION))[0] == out


def test_a_function_may_be_configured_with_a_profile():
    text = (
        "kind: ResourceList\nitems: []\nfunctionConfig:\n  apiVersion: mofa.dev/v1alpha1\n  kind: ClusterProfile\n"
        "  metadata: {name: mine}\n  spec: {gpu: a100}\n"
    )
    job = JOB.replace("profile: h100-east", "profile: mine")
    answers = Answers()
    annotator(answers).run([Documents.parse(text, "list"), Documents.parse(job, "job")])
    assert answers.questions[0].problems[0].cluster.device.name == "a100-80gb-sxm"


def pod(gpus=8, command=""):
    container = {"name": "t", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {
        "spec": {
            "containers": [container | ({"command": ["bash", "-c", command]} if command else {})]
        },
    }


@pytest.mark.parametrize(
    "api_version, kind, spec, gpus",
    [
        ("kubeflow.org/v1", "PyTorchJob",
         {"pytorchReplicaSpecs": {"Master": {"template": pod()}, "Worker": {"replicas": 3, "template": pod()}}}, 32),
        ("jobset.x-k8s.io/v1alpha2", "JobSet",
         {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 4, "template": pod()}}}]}, 64),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", {"trainer": {"numNodes": 4, "numProcPerNode": 8}}, 0),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob",
         {"trainer": {"numNodes": 4, "resourcesPerNode": {"limits": {"nvidia.com/gpu": "4"}}}}, 16),
        ("batch.volcano.sh/v1alpha1", "Job",
         {"tasks": [{"replicas": 1, "template": pod(0)}, {"replicas": 6, "template": pod()}]}, 48),
        ("ray.io/v1", "RayJob",
         {"rayClusterSpec": {"headGroupSpec": {"template": pod(0)},
                             "workerGroupSpecs": [{"replicas": 2, "numOfHosts": 2, "template": pod()}]}}, 32),
        ("batch/v1", "Job", {"parallelism": 5, "template": pod()}, 40),
        ("batch/v1", "Job", {"parallelism": 4, "template": pod(0, "torchrun --nnodes=4 --nproc-per-node 8 t.py")}, 0),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob",
         {"trainer": {"command": ["torchrun", "--nnodes", "4", "--nproc_per_node=8"], "args": ["t.py"]}}, 0),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob",
         {"trainer": {"numNodes": 2, "args": ["bash", "-c", "torchrun --nnodes=4 --nproc-per-node=8 t.py"]}}, 0),
        ("batch/v1", "Job", {"parallelism": 4, "template": pod(None, "torchrun --nnodes=4 --nproc-per-node 8 t.py")}, 32),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", {"trainer": {"numProcPerNode": 8}}, 0),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "torch-distributed"}}, 0),
        ("batch/v1", "Job", {"template": pod(0, "torchrun --nnodes=1:4 --nproc-per-node=gpu t.py")}, 0),
    ],
)  # fmt: skip
def test_gpus_are_counted_in_every_kind(api_version, kind, spec, gpus):
    assert demand_of({"apiVersion": api_version, "kind": kind, "spec": spec}).gpus == gpus


EAST_NODES = {"spec": {"nodeSelector": {"pool": "east"}}}


@pytest.mark.parametrize(
    "patch",
    [
        {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}]} | EAST_NODES]},
        {"runtimePatches": [{"manager": "us", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [
            {"name": "node", "template": {"spec": {"template": EAST_NODES}}}]}}}}]},
    ],
    ids=["older", "newer"],
)  # fmt: skip
def test_a_train_job_selects_nodes_by_what_it_changes_of_its_runtime(patch):
    spec = {"trainer": {"numNodes": 4, "numProcPerNode": 8}, **patch}
    found = demand_of(
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}
    )
    assert found.selector == {"pool": "east"}


def test_what_only_a_runtime_knows_can_be_said_behind_config_ref():
    text = (
        JOBSET.replace("nvidia.com/gpu: 8", "cpu: 8")
        .replace("--nnodes=32", "--nnodes=1:32")
        .replace("advisor.mofa.dev/model: llama3-70b", "advisor.mofa.dev/config-ref: run/spec.yaml")
    )
    said = "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: run\ndata:\n  spec.yaml: |\n    model: {preset: llama3-70b}\n"
    _, (outcome,) = run(text + said)
    assert outcome.status == "FactsMissing"
    where = "spec.replicatedJobs[0].template.spec.template.spec.containers[0].resources.limits"
    assert outcome.explanation.startswith(
        f"{where}: asks for cpu: 8, and for no nvidia.com/gpu or amd.com/gpu"
    )
    assert "config-ref" in outcome.explanation
    answers = Answers()
    _, (outcome,) = run(text + said + "    cluster: {nodes: 16}\n", answers=answers)
    assert outcome.status == "Recommended", outcome.explanation
    assert answers.questions[0].nodes == 16


def test_a_shell_line_is_read_as_the_words_in_it():
    container = {
        "command": ["bash", "-c", "torchrun pretrain_gpt.py \\\n  --tensor-model-parallel-size 8"],
        "resources": {"limits": {"nvidia.com/gpu": 8}},
    }
    spec = {"template": {"spec": {"containers": [container]}}}
    words = demand_of({"apiVersion": "batch/v1", "kind": "Job", "spec": spec}).words
    assert words[-2:] == ("--tensor-model-parallel-size", "8")


@settings(max_examples=250)
@given(data=st.data())
def test_a_truncated_or_mangled_manifest_is_answered_or_refused_in_one_line(data):
    text = data.draw(st.sampled_from([JOB, JOBSET]))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    junk = data.draw(
        st.sampled_from(
            [
                "",
                "[",
                "{",
                ": ",
                "&a ",
                "*a",
                "null",
                "-1",
                ".nan",
                "1e999",
                "\t",
                "'",
                "🦆",
                "0x",
                "\n",
            ]
        )
    )
    mangled = text[:start] + junk + (text[end:] if data.draw(st.booleans()) else "")
    try:
        out, _ = run(mangled)
    except InputError as error:
        said = str(error)
    else:
        said = ""
        assert run(out)[0] == out
    assert "\n" not in said


def test_an_existing_job_whose_command_does_not_fit_its_size_is_advised_without_a_comparison():
    answers = Answers()
    _, (outcome,) = run(
        JOBSET.replace("        parallelism: 32", "        parallelism: 1"), answers=answers
    )
    assert outcome.status != "InvalidInput"
    assert answers.questions[0].current.why.endswith("it must divide the 8 devices")
