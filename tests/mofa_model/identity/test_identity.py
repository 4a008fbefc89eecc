"""What jobs are and what they say: each trap of published manifests as a small one, told by class,
facts and the places where they stand.
"""

import json
import time

import pytest
from each import each

from mofa_model.identity import JobClass, identify, masked
from mofa_model.identity.commands import Contents, TextFile, read_text
from mofa_model.identity.settings import file_settings, settings_of
from mofa_model.manifest.documents import Documents
from mofa_model.manifest.surroundings import surroundings


def job(
    command=None,
    args=None,
    image="registry.example/own:1",
    gpus="nvidia.com/gpu: 8",
    more="",
    pod="",
    env=(),
):
    """A Job of one container as people write it."""
    lines = [
        "apiVersion: batch/v1",
        "kind: Job",
        "metadata: {name: run}",
        "spec:",
        "  template:",
        "    spec:",
    ]
    lines += [f"      {line}" for line in pod.splitlines()]
    lines += ["      containers:", f"      - name: main\n        image: {image}"]
    if command is not None:
        lines.append(f"        command: {json.dumps(command)}")
    if args is not None:
        lines.append(f"        args: {json.dumps(args)}")
    if env:
        pairs = ", ".join(f"{{name: {name}, value: {json.dumps(value)}}}" for name, value in env)
        lines.append(f"        env: [{pairs}]")
    if gpus:
        lines.append(f"        resources: {{limits: {{{gpus}}}}}")
    lines += [f"        {line}" for line in more.splitlines()]
    return "\n".join(lines) + "\n"


def identity(text, kind=None):
    """The identity of the first object, or of that of a kind, beside all others of the text."""
    stream = Documents.parse(text, "x.yaml")
    around = surroundings([stream], [])
    item = next(one for one in stream.items if kind in {None, one.kind})
    maps = {name: data for (_, name), data in around.config_maps.items()}
    return identify(item.value, around.around(item.namespace), maps)


def values(found):
    return {name: fact.value for name, fact in found.facts.items()}


SH = ["bash", "-c"]


@each(
    [
        ("llm-pretraining", job(["torchrun", "--nproc-per-node=8", "/w/Megatron-LM/pretrain_gpt.py", "--seq-length=4096"])),
        ("llm-pretraining", job([*SH, "cd /w; pip install x; python -m maxtext.trainers.pre_train.train base.yml model_name=llama3.1-70b"])),
        ("llm-finetuning", job([*SH, "git clone https://host.example/x && axolotl train /c/run.yml"])),
        ("llm-finetuning", job(["torchrun", "examples/finetuning.py", "--model_name", "meta-llama/Llama-2-7b-hf"])),
        ("rl-post-training", job(["python3", "-m", "verl.trainer.main_ppo", "data.train_batch_size=1024"])),
        ("other-training", job(["torchrun", "imagenet.py", "--arch=resnet18", "--batch-size", "32"])),
        ("other-training", job(["python", "/w/bionemo/esm2nv/pretrain.py", "--seq-length=512", "--micro-batch-size=8"])),
        ("other-training", job(["llamafactory-cli", "train", "--model_name_or_path", "Qwen/Qwen2.5-VL-7B-Instruct"])),
        ("inference", job(["torchrun", "example_chat_completion.py", "--max_seq_len", "512", "--batch_size", "6"])),
        ("other-training", job(["torchrun", "main.py", "--max_seq_len", "512", "--batch_size", "6"])),
        ("llm-pretraining", job(["torchrun", "main.py", "--max_seq_len", "512", "--batch_size", "6", "--lr", "1e-4"])),
        ("evaluation-or-data", job([*SH, "axolotl preprocess /c/run.yml"])),
        ("inference", job(["vllm", "serve", "meta-llama/Llama-3.1-8B", "--tensor-parallel-size", "2"])),
        ("inference", job(["python3", "-m", "sglang.launch_server", "--model-path", "meta-llama/Llama-3.1-8B", "--tp", "2"])),
        ("inference", job(image="registry.example/vllm/vllm-openai:v0.8")),
        ("evaluation-or-data", job(["lm_eval", "--model", "hf", "--tasks", "mmlu"])),
        ("evaluation-or-data", job([*SH, "python /w/Megatron-LM/tools/preprocess_data.py --input a.jsonl"])),
        ("evaluation-or-data", job(["neuron_parallel_compile", "torchrun", "train.py", "--seq_len=8192"], gpus="aws.amazon.com/neuron: 16")),
        ("hpc-or-benchmark", job(["mpirun", "-np", "16", "-x", "PATH", "/opt/nccl-tests/build/all_reduce_perf", "-b", "8"])),
        ("hpc-or-benchmark", job(["mpirun", "-np", "4", "lmp", "-in", "in.melt"])),
        ("web-or-other", job(image="nginx:1.27")),
        ("web-or-other", job([*SH, "sleep infinity"])),
        ("cpu-only", job(["torchrun", "--nproc-per-node=2", "echo.py"], gpus="")),
        ("cpu-only", job([*SH, "for i in 1 2 3; do echo $i; sleep 1; done"], gpus="cpu: 2")),
    ]
)  # fmt: skip
def test_the_class_is_what_a_job_runs(expected, text):
    found = identity(text)
    assert found.job_class.value == expected, found.reason
    assert len(found.reason.splitlines()) == 1


@each(
    [
        ("CronJob", "spec: {schedule: daily, jobTemplate: {spec: {template: {spec: {containers: [BOX]}}}}}"),
        ("AppWrapper", "spec: {components: [{template: {kind: PyTorchJob, spec: {pytorchReplicaSpecs: {Worker: {replicas: 2, template: {spec: {containers: [BOX]}}}}}}}]}"),
        ("Workflow", "spec: {templates: [{name: train, container: BOX}]}"),
        ("StatefulSet", "spec: {replicas: 2, template: {spec: {containers: [BOX]}}}"),
    ]
)  # fmt: skip
def test_objects_that_wrap_others_are_looked_into(kind, spec):
    box = "{name: t, image: registry.example/t, command: [torchrun, pretrain_gpt.py, --seq-length=4096], resources: {limits: {nvidia.com/gpu: 8}}}"
    text = f"apiVersion: x.example/v1\nkind: {kind}\nmetadata: {{name: a}}\n{spec.replace('BOX', box)}\n"
    found = identity(text)
    assert found.job_class is JobClass.PRE_TRAINING
    assert found.facts["sequence_length"].value == 4096
    assert found.facts["sequence_length"].source.endswith("command[2]")


SCRIPT = """\
export BS=64 MBS=2
ARGS="--micro-batch-size $MBS \\
  --global-batch-size ${BS:-8}"
if [ "$FP8" = 1 ]; then
  ARGS="$ARGS --fp8-format hybrid"
fi
torchrun --nproc-per-node 8 pretrain_gpt.py $ARGS --seq-length 4096 --bf16
"""


def test_a_script_is_read_as_a_shell_would_and_never_run():
    """Variables are filled in, defaults give way, and what happens on a condition alone is not
    taken for said.
    """
    found = identity(job(SH, [SCRIPT]))
    assert values(found) | {"global_batch": 64, "micro_batch": 2, "precision": "bf16"} == values(
        found
    )
    source = found.facts["sequence_length"].source
    assert source == "spec.template.spec.containers[0].args[0] line 7"


MOUNTS = "volumeMounts: [{name: c, mountPath: /etc/run}]"
VOLUMES = "volumes: [{name: c, configMap: {name: tune}}]"
CONFIG = """\
---
apiVersion: v1
kind: ConfigMap
metadata: {name: tune}
data:
  start.sh: |
    set -e
    axolotl train /etc/run/lora.yml
  lora.yml: |
    base_model: NousResearch/Llama-3.2-1B
    sequence_len: 2048
    adapter: lora
    lora_r: 16
    gradient_accumulation_steps: 2
    micro_batch_size: 2
    bf16: auto
"""


def test_scripts_and_settings_in_config_maps_of_the_same_file_say_what_they_say():
    """Two sequences on each of 8 GPUs, twice over: 32."""
    found = identity(job(["/etc/run/start.sh"], more=MOUNTS, pod=VOLUMES) + CONFIG)
    assert found.job_class is JobClass.FINE_TUNING
    expected = {
        "model": "NousResearch/Llama-3.2-1B", "sequence_length": 2048, "global_batch": 32,
        "adapter_rank": 16, "trainer": "axolotl", "precision": "bf16",
    }  # fmt: skip
    assert values(found) | expected == values(found)
    assert found.facts["model"].source == "ConfigMap/tune: data.lora.yml line 1"
    assert found.facts["global_batch"].source == "derived: micro batch 2 x accumulation 2 x 8 ranks"


def test_a_python_source_in_a_here_document_says_its_constants():
    source = (
        "cat <<'EOF' > tune.py\nfrom trl import SFTConfig, SFTTrainer\nMODEL = 'Qwen/Qwen2.5-7B'\n"
        "args = SFTConfig(max_seq_length=1024, per_device_train_batch_size=4)\n"
        "trainer = SFTTrainer(model=MODEL, args=args)\nEOF\ntorchrun --nproc-per-node 8 tune.py\n"
    )
    found = identity(job(SH, [source]))
    assert found.job_class is JobClass.FINE_TUNING
    assert values(found) | {
        "model": "Qwen/Qwen2.5-7B", "sequence_length": 1024, "micro_batch": 4, "trainer": "trl",
    } == values(found)  # fmt: skip


@each(
    [
        ("nvidia.com/gpu: 8", "", "nvidia", 8),
        ("nvidia.com/gpu: 1", "nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}", "nvidia-l4", 1),
        ("nvidia.com/gpu: 8", "nodeSelector: {cloud.google.com/gke-accelerator: nvidia-tesla-a100}", "nvidia-a100", 8),
        ("nvidia.com/gpu: 8", "nodeSelector: {node.kubernetes.io/instance-type: p5en.48xlarge}", "nvidia-h200", 8),
        ("nvidia.com/gpu: 8", 'nodeSelector: {nvidia.com/gpu.product: "${GPU}"}', "nvidia", 8),
        ("amd.com/gpu: 4", "", "amd", 4),
        ("google.com/tpu: 4", "nodeSelector: {cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice}", "tpu-v6e", 4),
        ("aws.amazon.com/neuron: 16", "", "neuron", 16),
        ("habana.ai/gaudi: 8", "", "gaudi", 8),
        ("nvidia.com/mig-3g.40gb: 2", "", "nvidia-mig-3g.40gb", 2),
        ("cpu: 64", "", "cpu", None),
    ]
)  # fmt: skip
def test_devices_are_those_that_pods_ask_for_and_products_are_not_guessed(gpus, pod, kind, count):
    text = job(["torchrun", "--nproc-per-node=8", "pretrain_gpt.py"], gpus=gpus, pod=pod)
    found = values(identity(text))
    assert (found["device_kind"], found.get("devices")) == (kind, count)


@each(
    [
        ("nvidia.com/gpu: null", 8),  # named and left empty: as many as there are processes
        ("nvidia.com/gpu: $GPU_PER_NODE", None),
        ("cpu: 8", None),
    ]
)
def test_processes_are_processes(gpus, devices):
    text = job(["torchrun", "--nproc-per-node=8", "pretrain_gpt.py"], gpus=gpus)
    assert values(identity(text)).get("devices") == devices


@each(
    [
        (["--fp8-format", "hybrid", "--bf16"], "fp8"),
        (["--bf16"], "bf16"),
        (["--fp16"], "fp16"),
        (["--mixed_precision=bf16"], "bf16"),
        ([], None),
    ]
)
def test_eight_bits_are_not_answered_as_sixteen(options, precision):
    found = values(identity(job(["torchrun", "pretrain_gpt.py", *options])))
    assert found.get("precision") == precision


SHAPE = ["--num_layers=32", "--hidden_width=4096", "--num_heads=32"]


@each(
    [
        ([*SHAPE, "--num_key_value_heads=32", "--intermediate_size=11008", "--model_type=llama_v2"], "llama2-7b"),
        ([*SHAPE, "--num_key_value_heads=8", "--intermediate_size=14336", "--model_type=llama_v3"], "llama3-8b"),
        ([*SHAPE, "--tokenizer=mistralai/Mixtral-8x7B-v0.1"], "mistralai/Mixtral-8x7B-v0.1"),
        ([*SHAPE, "--num_key_value_heads=8", "--intermediate_size=14336"], None),  # Mistral's, too
        ([*SHAPE, "--num_key_value_heads=8", "--intermediate_size=14336", "--vocab_size=128256"], "llama3-8b"),
        ([*SHAPE, "--num_key_value_heads=8", "--intermediate_size=14336", "--padded_vocab_size=129024"], "llama3-8b"),
        ([*SHAPE, "--num_key_value_heads=8", "--intermediate_size=14336", "--vocab_size=64000"], None),
        (["--num_layers=31", "--hidden_width=4096", "--num_heads=32"], None),
    ]
)  # fmt: skip
def test_a_model_without_a_name_is_known_by_its_shape_or_not_at_all(options, model):
    found = values(
        identity(job(["torchrun", "/fsdp/train.py", "--max_context_width=4096", *options]))
    )
    assert found.get("model") == model
    assert ("shape" in found) == (model is None)


def test_a_job_that_contradicts_itself_is_told_so():
    command = ["torchrun", "pretrain_gpt.py", "--seq-length=2048", "--seq-length=4096"]
    (why,) = identity(job(command)).disagree
    assert why.startswith("sequence length is 2048 by")
    assert "4096 by" in why


def test_the_batch_of_a_jax_program_counts_its_devices():
    """A chip of a TPU v7x is two devices: 2 x 4 chips x 16 pods x 2 = 256."""
    text = (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: '${NAME}'}\nspec:\n  replicatedJobs:\n  - replicas: 1\n"
        "    template: {spec: {parallelism: 16, template: {spec: {nodeSelector: {cloud.google.com/gke-tpu-accelerator: tpu7x}, containers: [{command: "
        "[bash, -c, 'python3 -m maxtext.trainers.pre_train.train base.yml model_name=llama3.1-70b per_device_batch_size=2 max_target_length=8192 quantization=fp8_full'],"
        " resources: {limits: {google.com/tpu: 4}}}]}}}}\n"
    )
    assert values(identity(text)) | {
        "device_kind": "tpu7x", "devices": 64, "nodes": 16, "global_batch": 256, "micro_batch": 2, "precision": "fp8",
    } == values(identity(text))  # fmt: skip


SECRETS = ("hf_abcDEF123", "s3cr3t", "AKIAABCDEFGHIJKL")


def test_tokens_and_passwords_reach_no_fact_and_no_reason():
    command = [
        *SH,
        "huggingface-cli login --token hf_abcDEF123; torchrun tune.py --model_name_or_path hf_abcDEF123 --wandb_api_key s3cr3t --aws_key AKIAABCDEFGHIJKL",
    ]
    found = identity(
        job(
            command,
            env=[
                ("HF_TOKEN", "hf_abcDEF123"),
                ("MODEL_NAME", "https://u:s3cr3t@host.example/llama-7b"),
            ],
        )
    )
    told = json.dumps([found.reason, *found.facts.values()], default=str)
    assert [secret for secret in SECRETS if secret in told] == []
    assert [one for one in masked(command[2].split()) if one in SECRETS] == []


@pytest.mark.parametrize("kind", ["ClusterTrainingRuntime", "TrainingRuntime"])
def test_a_runtime_without_a_job_is_none_and_a_train_job_runs_what_it_says(kind):
    runtime = (
        f"---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: {kind}\nmetadata: {{name: torch}}\nspec:\n  mlPolicy: {{numNodes: 2}}\n"
        "  template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [{name: node, image: registry.example/torch}]}}}}}]}}\n"
    )
    own = (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: run}\nspec:\n"
        f"  runtimeRef: {{name: torch, kind: {kind}}}\n"
        "  trainer: {numNodes: 4, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}, command: [torchrun, pretrain_gpt.py, --seq-length=4096]}\n"
    )
    assert identity(runtime.removeprefix("---\n")).job_class is JobClass.OTHER
    found = identity(own + runtime, "TrainJob")
    assert found.job_class is JobClass.PRE_TRAINING
    assert values(found) | {"nodes": 4, "devices": 32} == values(found)


@each(
    [
        (["--model_name=meta-llama/Llama-2-7b-hf", "--num_layers=2"], None, "which has 32 layers"),
        (
            [
                *SHAPE,
                "--tokenizer=meta-llama/Llama-2-70b-hf",
                "--model_type=llama_v2",
                "--intermediate_size=11008",
            ],
            "llama2-7b",
            "",
        ),
    ]
)
def test_a_shortened_model_is_a_contradiction_and_a_borrowed_tokenizer_none(options, model, why):
    found = identity(job(["torchrun", "pretrain_gpt.py", *options]))
    assert model is None or found.facts["model"].value == model
    assert why in " ".join(found.disagree)
    assert bool(found.disagree) == bool(why)


NEMO = """\
trainer: {num_nodes: 16, precision: bf16}
model:
  micro_batch_size: 1
  global_batch_size: 512
  encoder_seq_length: 8192
  num_layers: 80
  hidden_size: 8192
  num_attention_heads: 64
  num_query_groups: 8
  ffn_hidden_size: 28672
  fp8: false
  fp8_hybrid: true
  tokenizer: {library: huggingface, type: meta-llama/Meta-Llama-3-70B}
  validation: {global_batch_size: 7}
"""


def test_nemo_s_settings_say_model_batch_and_precision_and_those_of_validation_do_not():
    data = "\n".join(f"    {line}" for line in NEMO.splitlines())
    config = f"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: tune}}\ndata:\n  nemo.yaml: |\n{data}\n"
    command = [
        "torchrun",
        "/opt/NeMo/examples/nlp/megatron_gpt_pretraining.py",
        "--config-path=/etc/run",
    ]
    found = identity(job(command, more=MOUNTS, pod=VOLUMES) + config)
    assert values(found) | {
        "model": "meta-llama/Meta-Llama-3-70B", "global_batch": 512, "sequence_length": 8192,
        "precision": "bf16", "trainer": "nemo",
    } == values(found)  # fmt: skip
    assert found.disagree == ()


def test_settings_as_json_in_an_option_and_a_recipe_s_script_are_read():
    command = ["torchrun", "train.py", "--model_uri", "hf://Qwen/Qwen2.5-7B"]
    told = '{"per_device_train_batch_size": 4, "max_seq_length": 1024}'
    found = values(identity(job([*command, "--training_parameters", told])))
    assert found | {"model": "Qwen/Qwen2.5-7B", "micro_batch": 4, "global_batch": 32} == found
    script = "/opt/NeMo/scripts/performance/llm/pretrain_llama3_70b.py"
    found = values(identity(job(["python", script])))
    assert (found["trainer"], found["model"]) == ("nemo", "llama3-70b")


def test_what_stands_in_a_recipe_of_torchtune_has_the_argument_that_names_it_as_its_source():
    """llama3_2/1B_full says 4 sequences and 8 micro-batches a device, and 8 devices run it."""
    line = "tune run full_finetune_distributed --config llama3_2/1B_full tokenizer.max_seq_len=2048"
    one = job(command=line.split(), image="registry.example/tune:1")
    found = identity(one).facts
    assert (found["global_batch"].value, found["global_batch"].source[-10:]) == (256, "command[4]")
    assert (found["sequence_length"].value, found["sequence_length"].source[-10:]) == (
        2048,
        "command[5]",
    )


def test_kinds_that_serve_are_servers_whatever_they_run():
    text = "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {name: a}\nspec: {rayClusterConfig: {headGroupSpec: {template: {spec: {containers: [{name: h, image: registry.example/ray}]}}}}}\n"
    assert identity(text).job_class is JobClass.INFERENCE


def test_four_times_as_many_settings_of_a_file_take_no_more_than_eight_times_as_long():
    """A ConfigMap of 100 KB took five seconds, because every key looked at every line."""

    def seconds(keys):
        text = "\n".join(f"key_{number}: {number}" for number in range(keys))
        said = Contents(files=[TextFile("settings.yaml", text, "data.settings")])
        began = time.process_time()
        found = settings_of(said)
        took = time.process_time() - began
        assert found[-1].where == f"data.settings line {keys}"
        return took

    assert min(seconds(3200) for _ in range(3)) < 8 * min(seconds(800) for _ in range(3))


def places_in(text, form):
    """Path, value and line of each setting of a file."""
    settings = file_settings(TextFile("f", text, "f", mark=":"), form, {})
    return [(one.path, one.value, int(one.where.rpartition(":")[2])) for one in settings]


def test_a_setting_stands_on_its_own_line_whatever_stands_above_it():
    """The first line with the key and the value was told, also that of another section."""
    assert places_in("eval:\n  mbs: 8\ntrain:\n  mbs: 8\n", "yaml") == [
        ("eval.mbs", "8", 2),
        ("train.mbs", "8", 4),
    ]
    assert places_in('{"x": {\n "x": "y",\n\t"y": null},\n "y": 3}', "json") == [
        ("x.x", "y", 2),
        ("y", "3", 4),
    ]


def test_of_a_key_that_is_given_twice_the_last_counts_and_a_merged_one_counts_least():
    text = "base: &b {tp: 1, pp: 2}\nrun:\n  <<: *b\n  tp: 4\n  tp: 8\n"
    assert places_in(text, "yaml")[2:] == [("run.tp", "8", 5), ("run.pp", "2", 1)]


def test_aliases_of_aliases_end():
    """Twelve lines of aliases would be a billion settings, and one that merges itself no end."""
    lines = [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 12)]
    assert len(places_in("\n".join(["a0: &a0 {x: 1}", *lines]), "yaml")) <= 6000
    assert places_in("a: &a\n  b: 1\n  <<: *a\n", "yaml")


def test_a_value_of_a_branch_counts_where_the_branch_is_surely_taken():
    """Of two branches that only a machine can choose from, the first is read; behind `fi` a value
    counts again.
    """

    def runs(*lines):
        said = read_text("\n".join(lines), "x", {}, {})
        (found,) = [one.texts for one in said.program_calls if one.program == "train.py"]
        return found[3], found[5], said.variables["A"].value

    train, branch = "torchrun train.py --a $A --b $B", ("A=2", "B=2")
    assert runs("A=1", "if true; then", *branch, "fi", train, "A=3") == ("2", "2", "3")
    maybe = "if ping -c 1 host; then"
    assert runs("A=1", maybe, *branch, "else", "A=4", "fi", train)[:2] == ("2", "2")
    assert runs("A=1", "if [ -f /data/ready ]; then", *branch, "fi", train) == ("1", "$B", "1")


def test_megatrons_defaults_tell_shapes_apart():
    """Of three models of 96 layers GPT-3 by its tokenizer; mock data change no Llama;
    experts count.
    """
    start = ["torchrun", "pretrain_gpt.py"]
    gpt = ["--num-layers=96", "--hidden-size=12288", "--num-attention-heads=96"]
    gpt += ["--tensor-model-parallel-size=8"]
    words = [*start, *gpt, "--vocab-file=/data/gpt2-vocab.json"]
    assert values(identity(job(words)))["model"] == "gpt3-175b"
    assert "model" not in values(identity(job([*start, *gpt])))
    llama = ["--num-layers=32", "--hidden-size=4096", "--num-attention-heads=32"]
    llama += ["--ffn-hidden-size=14336", "--group-query-attention", "--num-query-groups=8"]
    mock = [*start, *llama, "--mock-data", "--vocab-file=/data/gpt2-vocab.json"]
    mock += ["--tokenizer-model=/models/Llama-3.1-8B"]
    assert values(identity(job(mock)))["model"] == "Llama-3.1-8B"
    experts = [*start, *llama, "--num-experts=8", "--vocab-size=32000"]
    assert values(identity(job(experts)))["model"] == "mixtral-8x7b"
