"""What a text is, by what stands in it: its kind, and the trainer whose it is."""

from __future__ import annotations

import ast
import json
import re
import tomllib
import warnings
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from mofa_model.identity.classes import ONLY_OF
from mofa_model.identity.commands import ProgramCall, Said
from mofa_model.identity.settings import Setting
from mofa_model.pasted import settings as reader


class PastedKind(StrEnum):
    """Forms of what people have."""

    SBATCH = "sbatch"
    SHELL = "shell"
    YAML = "yaml"
    TOML = "toml"
    JSON = "json"
    PYTHON = "python"
    MODEL = "hf-config"
    DEEPSPEED = "ds-config"
    ACCELERATE = "accelerate-config"
    NVIDIA_SMI = "text-nvidia-smi"
    SINFO = "text-sinfo"
    SCONTROL = "text-scontrol"
    KUBERNETES = "kubernetes"
    UNKNOWN = "unknown"

    @property
    def is_script(self) -> bool:
        """Whether a shell reads it."""
        return self in {PastedKind.SBATCH, PastedKind.SHELL}

    @property
    def is_machine(self) -> bool:
        """Whether it shows machines."""
        return self in {PastedKind.NVIDIA_SMI, PastedKind.SINFO, PastedKind.SCONTROL}


_MODEL_KEYS: Final = (
    {"architectures"}, {"num_hidden_layers"}, {"hidden_size", "vocab_size"}, {"n_layers", "hidden_dim"},
    {"d_model", "n_layer"}, {"n_embd", "n_head"}, {"hidden_size", "num_attention_heads"},
)  # fmt: skip
_TRAINS: Final = frozenset(
    {"learning_rate", "per_device_train_batch_size", "train_batch_size", "optimizer", "trainer", "training",
     "output_dir", "dataset", "max_steps", "num_train_epochs"}
)  # fmt: skip
_COMMANDS: Final = re.compile(
    r"(?m)^\s*(?:[A-Z_]+=\S* )*(?:torchrun|deepspeed|accelerate|srun|sbatch|mpirun|mpiexec|python3?|export|source"
    r"|set -|if \[|for \w+ in|tune run|llamafactory-cli|axolotl|trl|composer|nemo|uv run|litgpt|swift|docker|singularity"
    r"|apptainer|echo|cd|mkdir|[A-Za-z_]\w*=\S|--?[a-z][\w-]*)(?:\s|$)"
)


def kind_of(text: str, name: str = "") -> PastedKind:
    r"""The kind of a text.

    >>> kind_of("#!/bin/bash\n#SBATCH -N 4\nsrun python t.py").value
    'sbatch'
    >>> kind_of('{"model_type": "llama", "hidden_size": 64, "vocab_size": 9}').value
    'hf-config'
    """
    ways = (_by_head, _by_brackets, _by_ending, _by_form)
    lower = name.lower()
    found = (kind for way in ways if (kind := way(text, lower)) is not None)
    return next(found, PastedKind.UNKNOWN)


_HEADS: Final = (
    (PastedKind.SBATCH, re.compile(r"(?m)^\s*#(SBATCH|PBS|BSUB)\b")),
    (
        PastedKind.NVIDIA_SMI,
        re.compile(r"(?m)NVIDIA-SMI \d|^\s*GPU \d+: |\A\s*(name|index), ?(name|memory)"),
    ),
    (PastedKind.SCONTROL, re.compile(r"(?m)\bJobId=\d+|^NodeName=\S+ ")),
    (
        PastedKind.SINFO,
        re.compile(r"\A\s*(?=[^\n]*\bNODELIST\b)[^\n]*\b(PARTITION|STATE|NODES|GRES)\b"),
    ),
)
"""What stands in texts of a kind and in no other."""


def _by_head(text: str, name: str) -> PastedKind | None:
    if re.match(r"\s*#!\s*\S*(?:/|env )(?:ba|z|da|k)?sh\b", text) and not _HEADS[0][1].search(text):
        return PastedKind.SBATCH if name.endswith((".slurm", ".sbatch")) else PastedKind.SHELL
    return next((kind for kind, form in _HEADS if form.search(text)), None)


def _by_brackets(text: str, name: str) -> PastedKind | None:
    if text.lstrip("\ufeff \t\r\n")[:1] in {"{", "["}:
        try:
            return _of_object(json.loads(text), PastedKind.JSON)
        except (ValueError, RecursionError):
            pass
    if not name.endswith((".yaml", ".yml")) and re.search(
        r"(?m)^\s*\[+[A-Za-z_][\w.\"-]*\]+\s*(#.*)?$", text
    ):
        try:
            tomllib.loads(text)
        except (ValueError, RecursionError):
            return None
        return PastedKind.TOML
    return None


_ENDINGS: Final = {
    ".slurm": PastedKind.SBATCH, ".sbatch": PastedKind.SBATCH, ".sh": PastedKind.SHELL, ".bash": PastedKind.SHELL,
    ".sub": PastedKind.SHELL, ".py": PastedKind.PYTHON,
}  # fmt: skip


def _by_ending(text: str, name: str) -> PastedKind | None:
    found = _ENDINGS.get(name[name.rfind(".") :] if "." in name else "")
    if found is None and (re.match(r"\s*#!.*python", text) or _is_python(text)):
        return PastedKind.PYTHON
    return found


def _by_form(text: str, name: str) -> PastedKind | None:
    if (found := _mapping(text, name)) is not None:
        return found
    if name.endswith((".yaml", ".yml")):
        return PastedKind.YAML
    if name.endswith(".toml"):
        return PastedKind.TOML
    return PastedKind.SHELL if _COMMANDS.search(text) else None


def _is_python(text: str) -> bool:
    if not re.search(r"(?m)^(import|from) \w|^def \w|^class \w", text):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _mapping(text: str, name: str) -> PastedKind | None:
    """The kind of a text in YAML that is a mapping; None where it is none."""
    if not re.search(r"(?m)^[\"']?[A-Za-z_][\w.-]*[\"']?\s*:(\s|$)", text):
        return None
    if re.search(r"(?m)^\s*(torchrun|deepspeed|srun|accelerate launch) ", text):
        return None
    found = reader.of_yaml(text, name or "input")
    paths = {one.path for one in found}
    if not paths:
        return None
    return _of_paths(paths, PastedKind.YAML)


def _of_object(value: object, otherwise: PastedKind) -> PastedKind:
    if not isinstance(value, dict):
        return otherwise
    paths = {str(name).lower() for name in value}
    for name, inner in value.items():
        if isinstance(inner, dict):
            paths |= {f"{name}.{one}".lower() for one in inner}
    return _of_paths(paths, otherwise, whole={str(name) for name in value})


def _of_paths(paths: set[str], otherwise: PastedKind, whole: set[str] | None = None) -> PastedKind:
    top = {path.partition(".")[0] for path in paths}
    if {"apiversion", "kind"} <= top:
        return PastedKind.KUBERNETES
    if "distributed_type" in top or "compute_environment" in top:
        return PastedKind.ACCELERATE
    if otherwise is PastedKind.JSON or whole is not None:
        neox = top & {"pipe_parallel_size", "model_parallel_size", "num_layers", "num-layers"}
        if not neox and (top & _DEEPSPEED or {"fp16.enabled", "bf16.enabled"} & paths):
            return PastedKind.DEEPSPEED
        plain = {one.rpartition(".")[2] for one in paths}
        if any(keys <= plain for keys in _MODEL_KEYS) and not top & _TRAINS:
            return PastedKind.MODEL
    return otherwise


_DEEPSPEED: Final = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu"})


class TrainerRow(NamedTuple):
    """How a trainer's launches and files are known."""

    trainer: str
    programs: str
    """What the program, module or script of a command is like."""
    options: tuple[str, ...] = ()
    """Options of which one is enough, where the program tells nothing."""
    marks: tuple[tuple[str, ...], ...] = ()
    """Places of a file; of each alternative all have to be there."""


ROWS: Final = (
    TrainerRow("megatron-bridge", r"megatron[-._]?bridge|scripts/training/run_recipe|run_recipe\.py|setup_experiment\.py"),
    TrainerRow("nemo-automodel", r"nemo_automodel|^automodel$|Automodel/", marks=(("step_scheduler",), ("model._target_", "dataset._target_"))),
    TrainerRow("verl", r"(^|[./])verl([./]|$)", ("actor_rollout_ref",), (("actor_rollout_ref",),)),
    TrainerRow("openrlhf", r"openrlhf", ("ckpt.output_dir", "micro_train_batch_size")),
    TrainerRow("nemo-launcher", r"launcher_scripts/main\.py"),
    TrainerRow("nemo", r"megatron_gpt_(pretraining|finetuning)|megatron_gpt_\w+\.py|nemo[./]collections|^nemo$|nemo_run|examples/nlp/language_modeling",
               marks=(("exp_manager",), ("trainer.num_nodes", "model.tensor_model_parallel_size"), ("trainer.strategy",))),
    TrainerRow("torchtune", r"^tune$|torchtune|(full|lora|qat|knowledge)\w*_(distributed|single_device)$|(full|lora)_(finetune|dpo)\w*(distributed|single_device)",
               marks=(("model._component_",), ("tokenizer._component_",), ("checkpointer._component_",))),
    TrainerRow("axolotl", r"axolotl", marks=(("base_model", "datasets"), ("base_model", "sequence_len"), ("base_model", "micro_batch_size"), ("base_model", "pretraining_dataset"), ("base_model", "adapter"), ("base_model",))),
    TrainerRow("llama-factory", r"llama_?factory|llamafactory|train_bash\.py$", ("finetuning_type", "cutoff_len"), marks=(("model_name_or_path", "finetuning_type"), ("model_name_or_path", "stage"), ("model_name_or_path", "template"))),
    TrainerRow("ms-swift", r"(^|/)llm_(sft|pt|dpo|rlhf)\.py$|^swift$|(^|[/.])swift([/.]|$)"),
    TrainerRow("xtuner", r"^xtuner"),
    TrainerRow("torchtitan", r"torchtitan|run_train\.sh$|run_llama_train\.sh$", ("job.config_file", "parallelism.tensor_parallel_degree"),
               (("job", "training", "parallelism"), ("model.flavor",), ("training.tensor_parallel_degree",), ("metrics", "training", "parallelism"), ("parallelism.tensor_parallel_degree", "training.seq_len"), ("job.dump_folder",))),
    TrainerRow("nanotron", r"nanotron|(^|/)run_train\.py$"),
    TrainerRow("maxtext", r"maxtext|MaxText", ("ici_fsdp_parallelism", "dcn_fsdp_parallelism", "dcn_data_parallelism"),
               (("base_config",), ("base_emb_dim",), ("ici_fsdp_parallelism",), ("per_device_batch_size", "remat_policy"), ("base_output_directory",))),
    TrainerRow("levanter", r"levanter", marks=(("trainer.mp",), ("trainer.train_batch_size",), ("trainer.tracker",))),
    TrainerRow("olmo-core", r"olmo[-_]?core|scripts/train/OLMo|official/OLMo", ("train_module.rank_microbatch_size",)),
    TrainerRow("olmo", r"(^|/)OLMo/|olmo", marks=(("tokenizer.identifier",), ("fsdp.wrapping_strategy",), ("device_train_microbatch_size", "save_interval_unsharded"), ("optimizer.metrics_log_interval",))),
    TrainerRow("llm-foundry", r"llm[-_]?foundry|scripts/train/train\.py|^composer$", marks=(("device_train_microbatch_size",), ("train_loader", "model"), ("global_train_batch_size",), ("fsdp_config", "max_duration"))),
    TrainerRow("picotron", r"picotron", marks=(("distributed.tp_size",), ("distributed.dp_size",))),
    TrainerRow("nanochat", r"scripts\.base_train|nanochat"),
    TrainerRow("lit-gpt", r"lit[-_]?gpt|tinyllama_?code|pretrain/tinyllama|^litgpt$"),
    TrainerRow("open_lm", r"open_lm"),
    TrainerRow("gpt-neox", r"deepy\.py|gpt-?neox", marks=(("pipe_parallel_size",), ("model_parallel_size",), ("pos_emb", "norm"))),
    TrainerRow("megatron-deepspeed", r"megatron[-_]?deepspeed|Megatron-DeepSpeed"),
    TrainerRow("megatron-lm", r"pretrain_(gpt|mamba|retro|llama|t5|bert|vlm|hybrid|ict)\w*|megatron[-_/]?lm|finetune_(gpt|llama)\w*\.py|train_gpt\.py|finetune\.py(?=.*tensor)",
               ("tensor_model_parallel_size", "num_query_groups", "pipeline_model_parallel_size", "use_distributed_optimizer", "max_position_embeddings", "recompute_granularity")),
    TrainerRow("trl", r"^trl$|(^|[./])trl[./]|open_?r1|(^|/)(sft|dpo|grpo|kto|orpo|rloo|online_dpo)\.py$|alignment-handbook|run_(sft|dpo|orpo)\.py", ("vllm_server_host",),
               (("model_name_or_path", "dataset_name"), ("model_name_or_path", "use_peft"), ("model_name_or_path", "packing"), ("model_name_or_path", "dataset_mixture"), ("model_name_or_path", "dataset_mixer"))),
    TrainerRow("colossalai", r"colossalai"),
    TrainerRow("transformers", r"run_clm|transformers[./]", ("per_device_train_batch_size",), (("per_device_train_batch_size",), ("model_name_or_path", "output_dir"))),
    TrainerRow("pytorch-fsdp", r"fsdp", ("sharding_strategy", "limit_all_gathers", "fsdp_config.sharding_strategy", "enable_fsdp"), ()),
    TrainerRow("pytorch-ddp", r"(^|[/_.-])ddp([/_.-]|$)"),
)  # fmt: skip
"""In the order in which they are asked."""

STARTERS: Final = frozenset(
    {
        "torchrun",
        "deepspeed",
        "accelerate",
        "composer",
        "mpirun",
        "mpiexec",
        "srun",
        "torchpippy",
        "colossalai",
    }
)
_ASIDE: Final = re.compile(
    r"(^|[/._-])(eval|evaluat\w*|convert\w*|preprocess\w*|prepare\w*|download\w*|tok_train|tok_eval|vllm[-_.]serve|serve"
    r"|infer\w*|generate|test_weight|merge\w*|tokenize\w*|dataset|export|setup|install\w*|benchmark_data|stop|status|report)([/._-]|$)"
)
_NO_PROGRAM: Final = frozenset({"pip", "pip3", "wget", "curl", "git", "apt", "apt-get", "sed", "awk", "grep", "cp", "mv", "ln", "tee", "tar", "unzip", "huggingface-cli", "hf",
    "conda", "module", "scontrol", "sacct", "scancel", "chmod", "touch", "which", "find", "xargs", "ls", "env", "nvidia-smi", "kill", "pkill", "ps", "hostname",
    "uv", "tail", "head", "df", "free", "ulimit", "numactl", "cut", "wandb", "aws", "gsutil", "gcloud", "modprobe", "ssh-keygen", "command", "type", "declare", "exit", "ray", "ping", "nslookup", "sort", "wc", "tr", "seq"})  # fmt: skip


def program_at(call: ProgramCall) -> tuple[int, str]:
    """Where in a command the program stands that trains, and what it is; the command's end where
    there is none. A module stands behind `-m`.
    """
    texts = call.texts
    at = 0
    while at < len(texts):
        text = texts[at]
        following = texts[at + 1] if at + 1 < len(texts) else ""
        if text in {"-m", "--module"} and following:
            if following.startswith("torch.distributed"):
                at += 2
                continue
            if re.fullmatch(r"[A-Za-z_$][\w.${}]*", following):
                return at + 1, following
        if re.search(r"\.(py|pyz)$", text) and not text.startswith("-") and "=" not in text:
            if (
                re.search(
                    r"(gaudi|xla)_spawn\.py$|torch/distributed/(run|launch)\.py$|numa\w*\.py$", text
                )
                and following
            ):
                at += 1
                continue
            return at, text
        at += 1
    for number, text in enumerate(texts):
        plain = text.rpartition("/")[2]
        if plain in {
            "axolotl",
            "llamafactory-cli",
            "trl",
            "swift",
            "litgpt",
            "xtuner",
            "nemo",
            "automodel",
            "megatron",
            "oumi",
            "ilab",
        }:
            return number, plain
        if plain == "tune" and "run" in texts[number : number + 2]:
            recipe = next(
                (
                    n
                    for n in range(number + 1, len(texts))
                    if re.search(r"_(distributed|single_device)$", texts[n])
                ),
                number,
            )
            return recipe, texts[recipe]
    for number, text in enumerate(texts[1:], 1):
        if re.search(r"\.(sh|bash)$", text) and not text.startswith("-"):
            return number, text
    return len(texts), texts[0] if texts else ""


def trains(call: ProgramCall) -> int:
    """How much a command looks like one that trains: none where it is zero."""
    texts = call.texts
    first = texts[0].rpartition("/")[2]
    at, program = program_at(call)
    if _ASIDE.search(program) or any(_ASIDE.fullmatch(one) for one in texts[1:3]):
        return 0
    named = by_program(call)
    starter = any(one.rpartition("/")[2] in STARTERS for one in texts[:at])
    if first in _NO_PROGRAM and not named and not starter:
        return 0
    if at == len(texts) and not named:
        return 1 if starter and len(texts) > 4 else 0
    options = sum(
        one.startswith("--") or re.match(r"\+{0,2}[\w.]+=", one) is not None for one in texts[at:]
    )
    return (
        2
        + 6 * bool(named)
        + 3 * starter
        + min(options, 40)
        + 4 * bool(re.search(r"train|tune|sft", program))
    )


def by_program(call: ProgramCall) -> str:
    """The trainer whose program a command starts; empty where none is known."""
    at, program = program_at(call)
    for row in ROWS:
        if re.search(
            row.programs, program, re.IGNORECASE if row.trainer in {"megatron-lm", "maxtext"} else 0
        ):
            return row.trainer
    for row in ROWS:
        if any(
            re.search(row.programs, word)
            for word in call.texts[at + 1 : at + 3]
            if word.endswith((".py", ".yaml", ".yml"))
        ):
            return row.trainer
    return ""


def trainer_of(call: ProgramCall | None, settings: Sequence[Setting], said: Said, text: str) -> str:
    """The trainer of a command with its options; empty where nobody is known."""
    keys = {one.key for one in settings} | {one.path for one in settings}
    megatron = {
        "tensor_model_parallel_size",
        "num_layers",
        "hidden_size",
        "num_attention_heads",
        "seq_length",
    } & keys
    deepspeed = bool(
        {
            "zero_stage",
            "deepspeed",
            "deepspeed_config",
            "ds_sequence_parallel_size",
            "deepspeed_activation_checkpointing",
        }
        & keys
    )
    found = by_program(call) if call is not None else ""
    if found == "megatron-lm" and (
        deepspeed or re.search(r"megatron[-_]?deepspeed", text, re.IGNORECASE)
    ):
        return "megatron-deepspeed"
    if found:
        return found
    if deepspeed and len(megatron) >= 3:
        return "megatron-deepspeed"
    for row in ROWS:
        if row.options and any(
            option in keys or any(one.startswith(f"{option}.") for one in keys)
            for option in row.options
        ):
            return (
                "megatron-deepspeed" if row.trainer == "megatron-lm" and deepspeed else row.trainer
            )
    if said is not None:
        for one in said.program_calls:
            if other := by_program(one):
                return other
    if found := next(
        (
            row.trainer
            for row in ROWS
            if row.trainer not in {"olmo", "pytorch-ddp", "pytorch-fsdp", "transformers", "nemo"}
            and re.search(row.programs, _words(text))
        ),
        "",
    ):
        return found
    if call is not None and {"model_name_or_path", "base_model"} & keys:
        return "transformers"
    return ""


def _words(text: str) -> str:
    """Code of a script without its comments."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def trainer_of_file(settings: Sequence[Setting], text: str, kind: PastedKind) -> str:
    """The trainer whose file of settings this is; empty where nobody is known."""
    if kind is PastedKind.DEEPSPEED:
        return "deepspeed"
    if kind is PastedKind.ACCELERATE:
        return "accelerate"
    paths = {one.path for one in settings}
    known = set(paths)
    for path in paths:
        parts = path.split(".")
        known |= {".".join(parts[:at]) for at in range(1, len(parts))}
    if kind is PastedKind.MODEL:
        own = {"hidden_dim", "n_layers"} <= known or {"d_model", "n_layer", "seq_len"} <= known
        return "open_lm" if own and "model_type" not in known else ""
    if kind is PastedKind.PYTHON:
        return next(
            (
                row.trainer
                for row in ROWS
                if row.trainer != "olmo"
                and re.search(
                    _IMPORTS.get(
                        row.trainer, rf"(?m)^\s*(from|import) {row.trainer.replace('-', '_')}\b"
                    ),
                    text,
                )
            ),
            "",
        )
    if only := ONLY_OF.keys() & {one.key for one in settings}:
        return ONLY_OF[only.pop()]
    for row in ROWS:
        if any(all(place in known for place in places) for places in row.marks):
            return row.trainer
    if {
        "train.global_batch_size",
        "train.micro_batch_size",
    } & known and "model.seq_length" in known:
        return "megatron-bridge"
    return (
        "megatron-lm"
        if {"tensor_model_parallel_size", "pipeline_model_parallel_size"}
        <= {one.rpartition(".")[2] for one in known}
        else ""
    )


_IMPORTS: Final = {
    "megatron-bridge": r"(?m)^\s*(from|import) megatron\.bridge",
    "nemo": r"(?m)^\s*(from|import) nemo(\.|_run)",
    "megatron-lm": r"(?m)^\s*(from|import) megatron\.(core|training)",
    "maxtext": r"(?m)^\s*(from|import) (MaxText|maxtext)",
    "pytorch-fsdp": r"FullyShardedDataParallel|fully_shard",
    "pytorch-ddp": r"DistributedDataParallel",
    "openrlhf": r"(?m)^\s*(from|import) openrlhf",
    "llm-foundry": r"(?m)^\s*(from|import) (llmfoundry|composer)",
    "nemo-automodel": r"(?m)^\s*(from|import) nemo_automodel",
    "megatron-deepspeed": r"(?m)^\s*import deepspeed(.|\n)*from megatron",
    "nemo-launcher": r"$^",
    "ms-swift": r"(?m)^\s*(from|import) swift\b",
    "lit-gpt": r"(?m)^\s*(from|import) (lit_gpt|litgpt)\b",
}  # fmt: skip


def options_of(call: ProgramCall) -> tuple[list[Setting], list[Setting]]:
    """The options before a command's program, which its starters read, and those behind it."""
    at, _ = program_at(call)
    before, behind = list[Setting](), list[Setting]()
    words = call.words
    for number, word in enumerate(words):
        following = words[number + 1].text if number + 1 < len(words) else "-"
        pair = _option(word.text, following) if number else None
        if pair is not None:
            value = pair[1].strip().strip("\"'")
            made = Setting(reader.key(pair[0]), value, word.where, "option")
            (before if number < at else behind).append(made)
    return before, behind


def _option(text: str, following: str) -> tuple[str, str] | None:
    """Name and value of a word that is an option: `--a 1`, `--a=1`, `a=1`, `a: 1`."""
    name, equals, value = text.partition("=")
    if text.startswith("-"):
        if not re.fullmatch(r"--?[A-Za-z_][\w./-]*", name):
            return None
        if equals:
            return name, value
        negative = re.fullmatch(r"-[\d.]+(e-?\d+)?", following)
        return name, "true" if following.startswith("-") and not negative else following
    if equals and re.fullmatch(r"\+{0,2}[A-Za-z_][\w./-]*", name):
        return name, value
    if re.fullmatch(r"[\w.]+:", text) and not following.startswith("-"):
        return text[:-1], following
    return None


_STARTED: Final = (
    ("torchrun", re.compile(r"\btorchrun\b|torch\.distributed\.(run|launch)|\btune run\b")),
    ("accelerate", re.compile(r"\baccelerate\b")),
    ("deepspeed", re.compile(r"\bdeepspeed\b")),
    ("composer", re.compile(r"\bcomposer\b")),
    ("mpirun", re.compile(r"\bmpi(run|exec)\b")),
    ("srun", re.compile(r"\bsrun\b")),
)


def starter_of(call: ProgramCall | None) -> str:
    """What starts the processes of a command: a starter before its program; `plain` without one."""
    if call is None:
        return ""
    at, _ = program_at(call)
    joined = " ".join(text.rpartition("/")[2] for text in call.texts[:at])
    return next((name for name, form in _STARTED if form.search(joined)), "plain")
