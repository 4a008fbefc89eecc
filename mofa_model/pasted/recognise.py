"""What a text is, by what stands in it: its kind, and the trainer whose it is."""

from __future__ import annotations

import ast
import json
import re
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from mofa_model.identity.classes import ONLY_OF
from mofa_model.identity.commands import Contents, ProgramCall, TextFile
from mofa_model.identity.settings import Setting, file_settings, option_at


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
    {"architectures"},
    {"num_hidden_layers"},
    {"hidden_size", "vocab_size"},
    {"n_layers", "hidden_dim"},
    {"d_model", "n_layer"},
    {"n_embd", "n_head"},
    {"hidden_size", "num_attention_heads"},
)
"""A model's configuration has all keys of one row."""
_TRAINS: Final = frozenset(
    {"learning_rate", "per_device_train_batch_size", "train_batch_size", "optimizer", "trainer"}
    | {"training", "output_dir", "dataset", "max_steps", "num_train_epochs"}
)
"""Sections and keys that only a training has."""
_COMMANDS: Final = re.compile(
    r"(?m)^\s*(?:[A-Z_]+=\S* )*(?:torchrun|deepspeed|accelerate|srun|sbatch|mpirun|mpiexec|python3?"
    r"|export|source|set -|if \[|for \w+ in|tune run|llamafactory-cli|axolotl|trl|composer|nemo"
    r"|uv run|litgpt|swift|docker|singularity|apptainer|echo|cd|mkdir|[A-Za-z_]\w*=\S"
    r"|--?[a-z][\w-]*)(?:\s|$)"
)
"""How lines of a shell script begin."""


def kind_of(text: str, name: str = "") -> PastedKind:
    r"""The kind of a text.

    >>> kind_of("#!/bin/bash\n#SBATCH -N 4\nsrun python t.py").value
    'sbatch'
    >>> kind_of('{"model_type": "llama", "hidden_size": 64, "vocab_size": 9}').value
    'hf-config'
    """
    ways = (_by_head, _by_brackets, _by_ending, _by_form)
    lower = name.lower()
    kinds = (kind for way in ways if (kind := way(text, lower)) is not None)
    return next(kinds, PastedKind.UNKNOWN)


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
            return _of_object(json.loads(text))
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
    ".slurm": PastedKind.SBATCH,
    ".sbatch": PastedKind.SBATCH,
    ".sh": PastedKind.SHELL,
    ".bash": PastedKind.SHELL,
    ".sub": PastedKind.SHELL,
    ".py": PastedKind.PYTHON,
}


def _by_ending(text: str, name: str) -> PastedKind | None:
    kind = _ENDINGS.get(name[name.rfind(".") :] if "." in name else "")
    if kind is None and (re.match(r"\s*#!.*python", text) or _is_python(text)):
        return PastedKind.PYTHON
    return kind


def _by_form(text: str, name: str) -> PastedKind | None:
    if (kind := _mapping(text, name)) is not None:
        return kind
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
    settings = file_settings(TextFile(name, text, name), "yaml", {})
    paths = {setting.path for setting in settings}
    return _of_paths(paths, PastedKind.YAML) if paths else None


def _of_object(value: object) -> PastedKind:
    if not isinstance(value, dict):
        return PastedKind.JSON
    paths = {str(name).lower() for name in value}
    for name, inner in value.items():
        if isinstance(inner, dict):
            paths |= {f"{name}.{key}".lower() for key in inner}
    return _of_paths(paths, PastedKind.JSON)


def _of_paths(paths: set[str], otherwise: PastedKind) -> PastedKind:
    top = {path.partition(".")[0] for path in paths}
    if {"apiversion", "kind"} <= top:
        return PastedKind.KUBERNETES
    if "distributed_type" in top or "compute_environment" in top:
        return PastedKind.ACCELERATE
    if otherwise is PastedKind.JSON:
        neox = top & {"pipe_parallel_size", "model_parallel_size", "num_layers", "num-layers"}
        if not neox and (top & _DEEPSPEED or {"fp16.enabled", "bf16.enabled"} & paths):
            return PastedKind.DEEPSPEED
        plain = {path.rpartition(".")[2] for path in paths}
        if any(keys <= plain for keys in _MODEL_KEYS) and not top & _TRAINS:
            return PastedKind.MODEL
    return otherwise


_DEEPSPEED: Final = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu"})


class TrainerRow(NamedTuple):
    """How a trainer's launches and files are known."""

    trainer: str
    programs: str
    """Pattern of the program, module or script of a command."""
    options: tuple[str, ...]
    """Options of which one is enough, where the program is not known."""
    marks: tuple[tuple[str, ...], ...]
    """Places of a file; of one alternative all have to be there."""
    imports: str
    """Pattern of a Python source; empty = none is the trainer's."""

    def has_program(self, text: str, flags: int = 0) -> bool:
        """Whether a text has the name of the trainer's program in it."""
        return re.search(self.programs, text, flags) is not None


@cache
def _tables() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("programs.toml").read_text("utf-8"))


def _programs(kind: str) -> Sequence[str]:
    """Programs of one of the kinds that stand first in `programs.toml`."""
    programs: list[str] = _tables()["kinds"][kind]
    return programs


@cache
def _trainers() -> tuple[TrainerRow, ...]:
    """The trainers of `programs.toml`, in the order in which a text is compared with them."""
    return tuple(
        TrainerRow(
            trainer=trainer,
            programs="|".join(table["programs"]),
            options=tuple(table.get("options", ())),
            marks=tuple(map(tuple, table.get("marks", ()))),
            imports=table.get("imports", rf"(?m)^\s*(from|import) {trainer.replace('-', '_')}\b"),
        )
        for trainer, table in _tables()["trainers"].items()
    )


_ASIDE: Final = re.compile(
    r"(^|[/._-])(eval|evaluat\w*|convert\w*|preprocess\w*|prepare\w*|download\w*|tok_train"
    r"|tok_eval|vllm[-_.]serve|serve|infer\w*|generate|test_weight|merge\w*|tokenize\w*|dataset"
    r"|export|setup|install\w*|benchmark_data|stop|status|report)([/._-]|$)"
)
"""Names of programs that train nothing."""


def program_at(call: ProgramCall) -> tuple[int, str]:
    """Index and name of the program in a command that trains, a module stands behind `-m`; the
    command's end where there is none.
    """
    texts = call.texts
    for way in (_python_program, _command_line, _shell_script):
        if (place := way(texts)) is not None:
            return place
    return len(texts), texts[0] if texts else ""


_STARTS_PYTHON: Final = re.compile(
    r"(gaudi|xla)_spawn\.py$|torch/distributed/(run|launch)\.py$|numa\w*\.py$"
)
"""Python programs that start another one."""


def _python_program(texts: Sequence[str]) -> tuple[int, str] | None:
    """The first Python file or module, without those that only start another one."""
    rest = iter(pairwise([*enumerate(texts), (len(texts), "")]))
    for (index, text), (behind, following) in rest:
        if text in {"-m", "--module"} and following:
            if following.startswith("torch.distributed"):
                next(rest)
            elif re.fullmatch(r"[A-Za-z_$][\w.${}]*", following):
                return behind, following
        is_file = re.search(r"\.(py|pyz)$", text) and not text.startswith("-") and "=" not in text
        if is_file and not (following and _STARTS_PYTHON.search(text)):
            return index, text
    return None


def _command_line(texts: Sequence[str]) -> tuple[int, str] | None:
    """A trainer's own command; of torchtune's `tune run` the recipe."""
    for index, text in enumerate(texts):
        name = text.rpartition("/")[2]
        if name in _programs("own_commands"):
            return index, name
        if name == "tune" and "run" in texts[index : index + 2]:
            recipes = (
                (number, recipe)
                for number, recipe in enumerate(texts)
                if number > index and re.search(r"_(distributed|single_device)$", recipe)
            )
            return next(recipes, (index, text))
    return None


def _shell_script(texts: Sequence[str]) -> tuple[int, str] | None:
    scripts = (
        (index, text)
        for index, text in enumerate(texts)
        if index and re.search(r"\.(sh|bash)$", text) and not text.startswith("-")
    )
    return next(scripts, None)


def trains(call: ProgramCall) -> int:
    """How much a command looks like one that trains; 0 = not at all."""
    texts = call.texts
    first = texts[0].rpartition("/")[2]
    at, program = program_at(call)
    if _ASIDE.search(program) or any(_ASIDE.fullmatch(word) for word in texts[1:3]):
        return 0
    named = by_program(call)
    starter = any(word.rpartition("/")[2] in _programs("starters") for word in texts[:at])
    if first in _programs("others") and not named and not starter:
        return 0
    if at == len(texts) and not named:
        return 1 if starter and len(texts) > 4 else 0
    options = sum(
        word.startswith("--") or re.match(r"\+{0,2}[\w.]+=", word) is not None
        for word in texts[at:]
    )
    says_training = re.search(r"train|tune|sft", program) is not None
    return 2 + 6 * bool(named) + 3 * starter + min(options, 40) + 4 * says_training


_IN_ANY_CASE: Final = frozenset({"megatron-lm", "maxtext"})
"""Trainers whose programs people write in capitals and without."""


def by_program(call: ProgramCall) -> str:
    """The trainer whose program a command starts; empty where none is known."""
    at, program = program_at(call)
    for row in _trainers():
        if row.has_program(program, re.IGNORECASE if row.trainer in _IN_ANY_CASE else 0):
            return row.trainer
    files = [
        text for text in call.texts[at + 1 : at + 3] if text.endswith((".py", ".yaml", ".yml"))
    ]
    rows = (row for row in _trainers() if any(map(row.has_program, files)))
    return next((row.trainer for row in rows), "")


_MEGATRON_OPTIONS: Final = frozenset(
    {"tensor_model_parallel_size", "num_layers", "hidden_size", "num_attention_heads"}
    | {"seq_length"}
)
_DEEPSPEED_OPTIONS: Final = frozenset(
    {"zero_stage", "deepspeed", "deepspeed_config", "ds_sequence_parallel_size"}
    | {"deepspeed_activation_checkpointing"}
)
_MENTIONED: Final = frozenset({"olmo", "pytorch-ddp", "pytorch-fsdp", "transformers", "nemo"})
"""Trainers whose names also stand in scripts of other trainers."""


def trainer_of(
    call: ProgramCall | None, settings: Sequence[Setting], contents: Contents, text: str
) -> str:
    """The trainer of a command with its options; empty where nobody is known."""
    keys = {setting.key for setting in settings} | {setting.path for setting in settings}
    deepspeed = bool(_DEEPSPEED_OPTIONS & keys)
    trainer = by_program(call) if call is not None else ""
    if trainer == "megatron-lm" and (
        deepspeed or re.search(r"megatron[-_]?deepspeed", text, re.IGNORECASE)
    ):
        return "megatron-deepspeed"
    if trainer:
        return trainer
    if deepspeed and len(_MEGATRON_OPTIONS & keys) >= 3:
        return "megatron-deepspeed"
    sections = keys | {key[: dot.start()] for key in keys for dot in re.finditer(r"\.", key)}
    for row in _trainers():
        if sections.intersection(row.options):
            is_both = row.trainer == "megatron-lm" and deepspeed
            return "megatron-deepspeed" if is_both else row.trainer
    for other_call in contents.program_calls:
        if trainer := by_program(other_call):
            return trainer
    code = _without_comments(text)
    for row in _trainers():
        if row.trainer not in _MENTIONED and row.has_program(code):
            return row.trainer
    names_model = call is not None and {"model_name_or_path", "base_model"} & keys
    return "transformers" if names_model else ""


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def trainer_of_file(settings: Sequence[Setting], text: str, kind: PastedKind) -> str:
    """The trainer whose file of settings this is; empty where nobody is known."""
    if kind is PastedKind.DEEPSPEED:
        return "deepspeed"
    if kind is PastedKind.ACCELERATE:
        return "accelerate"
    paths = {setting.path for setting in settings}
    places = paths | {path[: dot.start()] for path in paths for dot in re.finditer(r"\.", path)}
    if kind is PastedKind.MODEL:
        open_lm = ({"hidden_dim", "n_layers"}, {"d_model", "n_layer", "seq_len"})
        is_open_lm = any(own <= places for own in open_lm) and "model_type" not in places
        return "open_lm" if is_open_lm else ""
    if kind is PastedKind.PYTHON:
        sources = (row for row in _trainers() if row.imports and re.search(row.imports, text))
        return next((row.trainer for row in sources), "")
    if only := ONLY_OF.keys() & {setting.key for setting in settings}:
        return ONLY_OF[only.pop()]
    for row in _trainers():
        if any(places.issuperset(mark) for mark in row.marks):
            return row.trainer
    batches = {"train.global_batch_size", "train.micro_batch_size"}
    if batches & places and "model.seq_length" in places:
        return "megatron-bridge"
    degrees = {"tensor_model_parallel_size", "pipeline_model_parallel_size"}
    keys = {path.rpartition(".")[2] for path in places}
    return "megatron-lm" if degrees <= keys else ""


def options_of(call: ProgramCall) -> tuple[list[Setting], list[Setting]]:
    """The options before a command's program, which its starters read, and those behind it."""
    at, _ = program_at(call)
    before, behind = list[Setting](), list[Setting]()
    words = call.words
    for number, word in enumerate(words[1:], 1):
        following = words[number + 1].text if number + 1 < len(words) else "-"
        option = option_at(word, following)
        if option is None and _COLON.fullmatch(word.text) and not following.startswith("-"):
            option = option_at(word._replace(text=f"{word.text[:-1]}={following}"), "")
        if option is not None:
            (before if number < at else behind).append(option)
    return before, behind


_COLON: Final = re.compile(r"[A-Za-z_][\w.]*:")
"""A name before its value in a file of YAML, which people type as words of a command too."""


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
