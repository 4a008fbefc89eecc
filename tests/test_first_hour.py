"""Fifty things that people get wrong in their first hour, through the real command: one line that
says what to do, and its exit code.
"""

import json
import shlex
from pathlib import Path

import pytest

pytest.importorskip(
    "aiohttp", reason="the verbs of a cluster are the operator's, which needs its extra"
)

import mofa_model as mofa
from mofa_model.answers.advise import AdviceQuestion, request_of, settled
from mofa_model.cli import main
from mofa_model.errors import InputError

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
MODEL = json.dumps(
    {
        "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8,
        "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000,
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
    "a list": ("- a\n", "not a Kubernetes object", "apiVersion and kind"),
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
    "advise": (2, "--model, --gpu, --gpus, --seq and --global-batch: are missing", "for example mofa advise --model llama3-8b --gpu h100 --gpus 64 --seq 8192 --global-batch 512; or give a job's file"),
    "advise --model llama3-70b --nodes 4": (2, "--gpu: is missing", "for example mofa --model llama3-70b --nodes 4 --gpu h100"),
    "advise good.json": (2, "--gpu, --gpus, --seq and --global-batch: are missing", "for example mofa advise good.json --gpu h100"),
    f"advise good.json --model llama3-8b {ASK}": (2, "--model: 'llama3-8b'", "good.json is a model too"),
    f"advise good.yaml {ASK}": (2, "good.yaml: holds no job but Config", "a model hub's config.json"),
    f"advise nowhere.yaml {ASK}": (2, "nowhere.yaml: cannot be read", "no such file"),
    f"advise job.yaml {ASK}": (2, "--seq, --global-batch, --gpus: 'job.yaml'", "write it there"),
    "sweep": (2, "--vary, --model, --gpu, --seq and --global-batch: are missing", "mofa sweep --vary gpus=64,128 --model llama3-8b"),
    "sweep --vary gpu=h100,h200 global_batch=64": (2, "--model, --gpus and --seq: are missing", "for example mofa sweep --vary gpu=h100,h200 global_batch=64 --model"),
    "explain --gpu h100": (2, "--strategy, --model, --gpus, --seq and --global-batch: are missing", "mofa explain --gpu h100 --strategy tp=2"),
    "ettr": (2, "--nodes and --step: are missing", "for example mofa ettr --nodes 32 --step 27.99s"),
    "simulate --gpu h100": (2, "unknown name '--gpu'", "did you mean --nodes?"),
    "simulate --gpu h100 --nodes 4 --step 2s": (2, "unknown name '--gpu'", "did you mean --nodes?"),
    "advise --mod llama3-8b": (2, "unknown name '--mod'", "did you mean --model?"),
    "advise --model llama3-8b --tensor-model-parallel-size 8": (2, "unknown name", "did you mean --constraint tp=…?"),
    "advise --context-length 8192": (2, "unknown name '--context-length'", "did you mean --seq?"),
    "profile h100": (2, "h100: no option stands before it", "did you mean --gpu h100?"),
    "sweep good.json --gpu h100": (2, "good.json: no option stands before it", "did you mean --model good.json?"),
    "explain --model llama3-8b tp=8": (2, "tp=8: no option stands before it", "did you mean --strategy tp=8?"),
    f"explain --model llama3-8b {ASK} --strategy fsdp": (2, "unknown name 'fsdp'", "did you mean optimizer=zero3?"),
    "sweep --model llama3-8b --vary batch=8,16": (2, "unknown name 'batch'", "did you mean global_batch?"),
    "sweep --model llama3-8b --vary gpus=8-64": (2, "--vary: 'gpus=8-64'", "write a range as gpus=8..64"),
    "advise -m llama3-8b": (2, "--gpu and --gpus: are missing", "for example mofa --model llama3-8b --gpu h100 --gpus 64"),
    f"advise --model ./nowhere {ASK}": (2, "nowhere: cannot be read", "no such file"),
    f"advise --model model.safetensors {ASK}": (2, "model.safetensors: is a file of weights", "give the config.json"),
    "calibrate": (2, "--from-runs: is missing", "mofa calibrate --from-runs runs.csv"),
    "calibrate --from-runs train.log --gpu h100": (2, "--model, --gpus, --strategy, --global-batch and --seq: are missing", "for example mofa calibrate --from-runs train.log --gpu h100 --model llama3-8b --gpus 64 --strategy tp=2"),
    "profile": (2, "--gpu: is missing", "mofa profile --gpu h100-sxm; or --from-cluster"),
    "rates --failures 5": (2, "--node-days: is missing", "mofa rates --failures 5 --node-days 110592"),
    "--verison": (2, "unknown name '--verison'", "did you mean --version?"),
    "advise --gpu H100:8": (2, "--gpu: unknown name 'H100:8'", "did you mean h100-80gb-sxm?"),
    f"advise --model llama3-8b {ASK} --constraint tensor_parallel=8": (2, "unknown name 'tensor-parallel'", "did you mean tp?"),
    f"advise --model llama3-8b {ASK} --constraint zero=3": (2, "unknown name 'zero'", "did you mean optimizer=zero3?"),
    f"advise --model llama3-8b {ASK} --scale-out 400": (2, "--scale-out: '400'", "is it '400 Gbit/s' or '400 GB/s'?"),
    "ettr --nodes 128 --step 10": (2, "--step: '10'", "is it '10 s', '10 min' or '10 h'?"),
    "ettr --nodes 128 --step 10s --mtbf 3h": (2, "unknown name '--mtbf'", "did you mean --rate?"),
    "ettr --nodes 128 --step 10s --checkpoint-interval 30": (2, "unknown name", "did you mean --interval?"),
    "simulate --nodes 128 --step 10s --days 7": (2, "unknown name '--days'", "did you mean --duration?"),
    "rates": (2, "--failures and --node-days: are missing", "mofa rates --failures 419 --node-days 110592"),
    f"advise --model config.json {ASK}": (2, "config.json: cannot be read", "no such file"),
    f"advise --model half.json {ASK}": (2, "half.json: is not JSON", "line 1"),
    f"advise --model bare.json {ASK}": (2, "config.hidden_size: is missing", "a whole number"),
    f"advise --model ear.json {ASK}": (2, "config.model_type: unknown name 'whisper'", "known: apertus"),
    "advise --model llama3-8b --gpu h100 --gpus 8 --global-batch 64 -o json": (2, "--seq: is missing", "--seq 8192"),
    f"advise --model llama3-8b {ASK.replace('h100', 'rtx9090')}": (2, "--gpu: unknown name 'rtx9090'", "mofa presets devices"),
    f"advise --model llama3-8b {ASK.replace('64', '63')} --constraint dp=8": (3, "no strategy is legal", "divide"),
    f"advise --model llama3-405b {ASK}": (3, "nothing fits on 1 node", "more nodes"),
    f"explain --model llama3-8b {ASK}": (2, "--strategy: is missing", "--strategy tp=2"),
    f"explain --model llama3-8b {ASK} --strategy tp=16": (2, "--strategy: 'tp x pp x cp = 16'", "divide the 8 devices"),
    "annotate": (2, "FILE: is missing", "mofa annotate examples/"),
    "advice": (2, "verb: unknown name 'advice'", "did you mean advise"),
    "completion powershell": (2, "'powershell'", "fish"),
    "top": (4, "there is no kubeconfig", "set KUBECONFIG"),
    "doctor": (4, "there is no kubeconfig", "set KUBECONFIG"),
    "why": (2, "JOB: is missing", "mofa why"),
    "top --kubeconfig nowhere": (2, "nowhere", "no such kubeconfig"),
    "top --kubeconfig half.json": (2, "half.json: is not a kubeconfig", "flow node"),
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
        "good.json": MODEL, "job.yaml": JOB, "good.yaml": KUBECONFIG, "empty.yaml": EMPTY,
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


ASSUMED = {  # a command that leaves something usual out, and what is said of it
    "advise llama3-8b h100": "nobody says how many: 8 h100 are the fewest that surely hold it",
    "advise --model llama3-8b --gpu h100 --gpus 8 --global-batch 64": "nobody says sequence 8192, which is assumed",
}  # fmt: skip


@pytest.mark.parametrize("words", ASSUMED)
def test_a_command_that_leaves_something_usual_out_is_answered_and_says_so(words, capsys):
    code, out, err = answered(words.split(), capsys)
    assert (code, err) == (0, "")
    assert ASSUMED[words] in " ".join(out.split())
    assert "llama3-8b on 8 h100-80gb-sxm" in out


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


@pytest.mark.parametrize("said", ["good.json", ".", "llama3-8b", "meta-llama/Llama-3.1-8B"])
def test_a_model_in_the_place_of_a_jobs_file_is_the_model(said):
    """`mofa advise config.json --gpu …` once said that the manifest says --gpu."""
    Path("config.json").write_text(MODEL)
    words = {"gpu": "h100", "gpus": 8, "global_batch_size": 64, "sequence_length": 4096}
    found = request_of(settled(AdviceQuestion(said, **words)))
    named = request_of(
        settled(AdviceQuestion(model="config.json" if said == "." else said, **words))
    )
    assert found.problems == named.problems


@pytest.mark.parametrize(
    "words",
    [
        "advise --model llama3.1-8b --gpu h200",
        "sweep",
        "explain --seq 4k",
        "ettr",
        "simulate",
        "rates",
    ],
)
def test_the_command_that_is_shown_for_what_is_missing_is_answered(words, capsys, asked_once):
    said = answered(words.split(), capsys)[2]
    assert (
        answered(shlex.split(said.partition("for example mofa ")[2].partition(";")[0]), capsys)[0]
        == 0
    )


def test_python_is_told_all_that_is_missing_in_its_own_words():
    with pytest.raises(
        InputError,
        match=r"^model, gpus and global_batch_size: are missing; for example model='llama3-8b', gpus='64'",
    ):
        mofa.advise(gpu="h100", sequence_length=4096)
    with pytest.raises(
        InputError, match=r"^nodes and step: are missing; for example nodes='32', step='27.99s'"
    ):
        mofa.ettr()


@pytest.mark.parametrize("words", ["version", "-v", "-V", "--version"])
def test_the_version_is_told_however_it_is_asked_for(words, capsys):
    assert answered([words], capsys)[:2] == (0, f"mofa {mofa.VERSION}\n")


def test_a_batch_size_is_the_global_batch(capsys):
    said = "advise --model llama3-8b --gpu h100 --gpus 8 --seq 4096 --framework nanotron"
    ours, theirs = (
        answered([*said.split(), option, "64"], capsys)
        for option in ("--global-batch", "--batch-size")
    )
    assert ours == theirs
    assert ours[0] == 0


def test_times_counts_and_shares_are_read_as_people_write_them(capsys):
    plain = answered(
        [
            "ettr",
            "--nodes",
            "1000",
            "--step",
            "10s",
            "--mttr",
            "600s",
            "--level",
            "0.8",
            "--total-steps",
            "500000",
        ],
        capsys,
    )
    human = answered(
        [
            "ettr",
            "--nodes",
            "1k",
            "--step",
            "10 seconds",
            "--mttr",
            "10m",
            "--level",
            "80%",
            "--total-steps",
            "500k",
        ],
        capsys,
    )
    assert plain == human
    assert plain[0] == 0


def test_a_profile_of_a_cloud_s_machine_has_its_network_and_memory(capsys):
    code, out, _ = answered(["profile", "--gpu", "p4d.24xlarge", "--nodes", "4"], capsys)
    assert code == 0
    for line in ("gpu: a100-40gb-sxm", "scaleOut: efa-p4d", "memory: 1152 GiB"):
        assert line in out


def test_they_are_fifty():
    assert len(FILES) + len(WORDS) >= 50


@pytest.mark.parametrize("words", [["help"], ["help", "advise"], ["advise", "help"]], ids=" ".join)
def test_help_is_helped(words, capsys):
    assert answered(words, capsys)[0] == 0
