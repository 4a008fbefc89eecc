"""Fifty things that people get wrong in their first hour, through the real command: one line that says what to do, and its exit code."""

import json
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the verbs of a cluster are the operator's, which needs its extra")

from mofa_model.cli import main

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
JOB = (EXAMPLES / "llama3-405b.yaml").read_text("utf-8")
JOBSET = (EXAMPLES / "jobset.yaml").read_text("utf-8")
ASK = "--gpu h100 --gpus 8 --global-batch 64 --seq 4096"
KUBECONFIG = json.dumps(
    {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "a", "user": "a"}}],
    }
)  # fmt: skip
EMPTY = "apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts: []\n"


def job(before, after, text=JOB):
    assert before in text
    return text.replace(before, after, 1)


def jobset(before, after):
    return job(before, after, JOBSET)


FILES = {  # a manifest that is a little wrong, what is named, and what would be right
    "a preset that is misspelt": (job("preset: llama3-405b", "preset: llama-3-405"), "spec.model.preset: unknown name 'llama-3-405'", "did you mean llama3.1-405b"),
    "a number in words": (job("nodes: 256", "nodes: many"), "spec.cluster.nodes: 'many'", "give a whole number"),
    "no nodes": (job("nodes: 256", "nodes: 0"), "spec.cluster.nodes: 0", "give 1 or more"),
    "a field as Python has it": (job("globalBatchSize", "global_batch_size"), "spec.training: unknown name 'global_batch_size'", "did you mean globalBatchSize"),
    "a length with a unit": (job("sequenceLength: 8192", "sequenceLength: 8k tokens"), "spec.training.sequenceLength: '8k tokens'", "a whole number"),
    "tokens in words": (job("15T", "15 trillion"), "spec.training.tokens: '15 trillion'", "'15T'"),
    "a kind in the plural": (job("kind: TrainingJob", "kind: TrainingJobs"), "kind 'TrainingJobs' is unknown", "did you mean TrainingJob?"),
    "a version that will be": (job("mofa.dev/v1alpha1", "mofa.dev/v1"), "apiVersion: 'mofa.dev/v1'", "knows mofa.dev/v1alpha1"),
    "a tab": (job("  model:", "\tmodel:"), "is not YAML: line 11", r"'\t'"),
    "no spec": ("apiVersion: mofa.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: a}\n", "spec: is missing", "give a mapping"),
    "no name": (job("  name:", "  nam:"), "metadata.name: is missing", "give the object a name"),
    "an empty file": ("", "job.yaml: is empty", "give a TrainingJob"),
    "a half of JSON": ("{", "is not YAML: line 1", "stream end"),
    "a list": ("- a\n", "something else than objects", "apiVersion and kind"),
    "a key twice": (job("spec:", "spec: {}\nspec:"), "the key 'spec'", "twice"),
    "a picture": ("\x00PNG", "is not YAML", "#x0000"),
    "a template of helm": (job("nodes: 256", "nodes: {{ .Values.nodes }}"), "is a template", "helm template"),
    "a loop of helm": (job("  model:", "  {{- with .Values.model }}\n  model:"), "is a template", "helm template"),
    "a profile of another house": (job("profile: h100-east", "profile: h100-west"), "spec.cluster.profile: 'h100-west'", "known: a100-lab"),
    "a trainer that is misspelt": (job("framework: megatron", "framework: megatorn"), "spec.training.framework: unknown name 'megatorn'", "did you mean megatron"),
    "an objective": (job("objective: Time", "objective: Speed"), "spec.objective: 'Speed'", "Throughput"),
    "a word that is no axis": (job("sp=true", "fast=true"), "spec.current: unknown name 'fast'", "known"),
    "a model that is misspelt": (jobset("model: llama3-70b", "model: llama3-71b"), "unknown name 'llama3-71b'", "did you mean llama3-70b"),
    "no model": (jobset("advisor.mofa.dev/model: llama3-70b", "team: a"), "says no model", "the annotation advisor.mofa.dev/model"),
    "an annotation that is misspelt": (jobset("advisor.mofa.dev/model", "advisor.mofa.dev/modle"), "says no model", "the annotation advisor.mofa.dev/model"),
    "GPUs in words": (jobset("nvidia.com/gpu: 8", "nvidia.com/gpu: all"), "resources: a number of replicas or GPUs cannot be 'all'", "give a whole number"),
    "no GPUs": (JOBSET.replace("nvidia.com/gpu: 8", "cpu: 8").replace("--nproc-per-node=8, ", ""), "asks for cpu: 8", "ask for them there"),
    "a mode": (jobset("advisor.mofa.dev/model", "advisor.mofa.dev/mode: On\n    advisor.mofa.dev/model"), "annotation advisor.mofa.dev/mode: 'On'", "Disabled, Annotate, Apply"),
    "a kind in other letters": (jobset("kind: JobSet", "kind: Jobset"), "kind 'Jobset' is unknown", "did you mean JobSet?"),
    "an object that trains nothing": ("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {}\n", "holds no job but Deployment a", "JobSet"),
}  # fmt: skip
WORDS = {  # a command that is a little wrong, its exit code, what is named, and what would be right
    "advise": (2, "--gpus: is missing", "give it, or a TrainingJob manifest"),
    f"advise --model config.json {ASK}": (2, "config.json: cannot be read", "no such file"),
    f"advise --model half.json {ASK}": (2, "half.json: is not JSON", "line 1"),
    f"advise --model bare.json {ASK}": (2, "config.hidden_size: is missing", "a whole number"),
    f"advise --model ear.json {ASK}": (2, "config.model_type: unknown name 'whisper'", "known: apertus"),
    "advise --model llama3-8b --gpu h100 --gpus 8 --global-batch 64": (2, "--seq: is missing", "give it"),
    f"advise --model llama3-8b {ASK.replace('h100', 'rtx9090')}": (2, "--gpu: unknown name 'rtx9090'", "mofa presets devices"),
    f"advise --model llama3-8b {ASK.replace('64', '63')} --constraint dp=8": (3, "no strategy is legal", "divide"),
    f"advise --model llama3-405b {ASK}": (3, "nothing fits on 1 node", "more nodes"),
    f"explain --model llama3-8b {ASK}": (2, "--strategy", "required"),
    f"explain --model llama3-8b {ASK} --strategy tp=16": (2, "--strategy: 'tp x pp x cp = 16'", "divide the 8 devices"),
    "annotate": (2, "FILE", "required"),
    "advice": (2, "verb: unknown name 'advice'", "did you mean advise"),
    "completion powershell": (2, "'powershell'", "fish"),
    "top": (4, "there is no kubeconfig", "set KUBECONFIG"),
    "doctor": (4, "there is no kubeconfig", "set KUBECONFIG"),
    "why": (2, "JOB", "required"),
    "top --kubeconfig nowhere": (2, "nowhere", "no such kubeconfig"),
    "top --kubeconfig half.json": (2, "half.json: is no kubeconfig", "flow node"),
    "top --kubeconfig empty.yaml": (4, "Kubernetes", "set KUBECONFIG"),
    "doctor --kubeconfig good.yaml --context there": (2, "--context: 'there'", "this kubeconfig has here"),
    "pools --kubeconfig good.yaml": (4, "the API server http://127.0.0.1:9 does not answer", "Connect call failed"),
    "incidents --prometheus http://127.0.0.1:9": (4, "Prometheus at http://127.0.0.1:9", "cannot be connected to"),
    "rates --prometheus http://127.0.0.1:9 --profile h100-east": (4, "Prometheus at http://127.0.0.1:9", "cannot be connected to"),
    "observe train.log": (2, "--job: is missing", "TRAINING_JOB"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def desk(tmp_path, monkeypatch):
    """An empty desk: no kubeconfig, no cluster around, a few files that are not what they seem."""
    monkeypatch.chdir(tmp_path)
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "TRAINING_JOB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, text in {
        "half.json": "{", "bare.json": '{"model_type": "llama"}', "ear.json": '{"model_type": "whisper"}',
        "good.yaml": KUBECONFIG, "empty.yaml": EMPTY,
    }.items():  # fmt: skip
        Path(name).write_text(text)


def answered(words, capsys):
    try:
        code = main(words)
    except SystemExit as stop:
        code = stop.code
    return code, *capsys.readouterr()


@pytest.mark.parametrize("name", FILES)
def test_a_manifest_that_is_a_little_wrong(name, capsys):
    text, named, right = FILES[name]
    Path("job.yaml").write_text(text, encoding="utf-8")
    code, out, err = answered(["advise", "job.yaml"], capsys)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert named in err
    assert right in err


@pytest.mark.parametrize("words", WORDS)
def test_a_command_that_is_a_little_wrong(words, capsys):
    right_code, named, right = WORDS[words]
    code, out, err = answered(words.split(), capsys)
    said = err or out
    assert code == right_code, said
    assert "Traceback" not in said
    assert "our fault" not in said
    if code != 3:  # an answer that there is none says why in its own form
        assert (out, err.count("\n")) == ("", 1), said
    assert named in said
    assert right in said


def test_they_are_fifty():
    assert len(FILES) + len(WORDS) >= 50


@pytest.mark.parametrize("words", [["help"], ["help", "advise"]], ids=" ".join)
def test_help_is_helped(words, capsys):
    assert answered(words, capsys)[0] == 0
