"""The facts of what was pasted: what each text says, each with its place, and what is missing.

    read([Pasted(text, name), …])   Reading of several texts together: a script with its file

A command says more than a file, and a file more than a comment.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from mofa_model.identity.classes import LANGUAGE_MODELS, OTHER_MODELS
from mofa_model.identity.commands import PlacedVariable, ProgramCall, Said
from mofa_model.identity.facts import Fact, is_secret, model_preset
from mofa_model.identity.settings import Setting
from mofa_model.pasted import machines
from mofa_model.pasted import settings as reader
from mofa_model.pasted.recognise import (
    PastedKind,
    kind_of,
    program_at,
    trainer_of,
    trainer_of_file,
    trains,
)
from mofa_model.pasted.scripts import Given, Script, follow, unknown
from mofa_model.records import dataclass


class Pasted(NamedTuple):
    """A text that somebody gives."""

    text: str
    name: str
    """What places in it are called: its file."""


@dataclass(frozen=True, kw_only=True)
class PastedFacts:
    """What texts say together."""

    kind: PastedKind
    trainer: str
    facts: Mapping[str, Fact]
    disagree: tuple[str, ...] = ()
    """Contradictions, each in one sentence."""
    command: ProgramCall | None = None
    """The command that trains."""
    settings: tuple[Setting, ...] = ()
    """What the command and the files say."""
    other: str = ""
    """Why it trains no language model; empty where it does, or where nothing tells."""
    parts: tuple[tuple[str, PastedKind], ...] = field(default_factory=tuple)
    """The texts by their names, with their kinds."""


_MACHINE: Final = ("gpu", "gpus", "nodes", "gpus_per_node")
_SHAPE: Final = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "top_k")


def read(texts: Sequence[Pasted]) -> PastedFacts:
    """What texts say together; the first that trains says what they are.

    >>> found = read([Pasted("#SBATCH -N 2 --gpus-per-node=8\\nsrun python pretrain_gpt.py --bf16", "j.sh")])
    >>> found.kind.value, found.trainer, found.facts["gpus"].value, found.facts["precision"]
    ('sbatch', 'megatron-lm', 16, Fact(value='bf16', source='j.sh:2'))
    """
    kinds = [(one, kind_of(one.text, one.name)) for one in texts]
    scripts = {
        PurePosixPath(one.name).name: Script(text=one.text, name=one.name)
        for one, kind in kinds
        if kind.is_script
    }
    order = sorted(kinds, key=lambda pair: _RANKS.index(pair[1]) if pair[1] in _RANKS else 9)
    files = [(one, kind) for one, kind in order if not kind.is_script and not kind.is_machine]
    found: list[PastedFacts] = []
    called = {PurePosixPath(name).name for name in scripts}
    for one, kind in order:
        if kind.is_script:
            found.append(_of_script(one, kind, scripts, files))
        elif kind.is_machine:
            found.append(_of_machine(one, kind))
        elif kind is not PastedKind.UNKNOWN and not (scripts and called and _is_read(one, found)):
            found.append(_of_file(one, kind))
    if not found:
        first = texts[0]
        return PastedFacts(kind=PastedKind.UNKNOWN, trainer="", facts={}, parts=((first.name, PastedKind.UNKNOWN),))
    return _together(found, tuple((one.name, kind) for one, kind in kinds))


_RANKS: Final = (PastedKind.SBATCH, PastedKind.SHELL, PastedKind.YAML, PastedKind.TOML, PastedKind.PYTHON, PastedKind.JSON,
    PastedKind.DEEPSPEED, PastedKind.ACCELERATE, PastedKind.MODEL)  # fmt: skip


def _is_read(one: Pasted, found: Sequence[PastedFacts]) -> bool:
    """Whether a script that was read already has this file among its own."""
    return any(fact.source.startswith(f"{one.name}:") for part in found for fact in part.facts.values())


def _together(found: Sequence[PastedFacts], parts: tuple[tuple[str, PastedKind], ...]) -> PastedFacts:
    first = found[0]
    facts: dict[str, Fact] = {}
    disagree = [one for part in found for one in part.disagree]
    for part in found:
        for name, fact in part.facts.items():
            held = facts.get(name)
            if held is None:
                facts[name] = fact
            elif held.value != fact.value and "derived" not in held.source + fact.source:
                disagree.append(f"{name} is {held.value} by {held.source} and {fact.value} by {fact.source}")
    trainer = next((part.trainer for part in found if part.trainer and part.trainer not in {"deepspeed", "accelerate"}), "")
    trainer = trainer or next((part.trainer for part in found if part.trainer), "")
    settings = tuple(one for part in found for one in part.settings)
    _derive(facts, trainer, settings)
    return PastedFacts(
        kind=first.kind, trainer=trainer, facts=facts, disagree=tuple(dict.fromkeys(disagree)),
        command=next((part.command for part in found if part.command is not None), None),
        settings=settings, other=next((part.other for part in found if part.other), ""), parts=parts,
    )  # fmt: skip


# ---------------------------------------------------------------------------- machines and files


def _of_machine(one: Pasted, kind: PastedKind) -> PastedFacts:
    how = {
        PastedKind.NVIDIA_SMI: machines.of_nvidia_smi,
        PastedKind.SINFO: machines.of_sinfo,
        PastedKind.SCONTROL: machines.of_scontrol,
    }[kind]
    return PastedFacts(kind=kind, trainer="", facts=how(one.text, one.name))


def settings_of(one: Pasted, kind: PastedKind) -> list[Setting]:
    """The settings of a file; tokens and passwords are none."""
    if kind is PastedKind.TOML:
        found = reader.of_toml(one.text, one.name)
    elif kind is PastedKind.PYTHON:
        found = reader.of_python(one.text, one.name)
    else:
        found = reader.of_yaml(one.text, one.name)
    return [each for each in found if not _secret(each)]


def _secret(one: Setting) -> bool:
    """Whether a setting is a token or a password; a number and a truth are none."""
    plain = re.fullmatch(r"[\d.eE+-]{1,12}|true|false", one.value)
    return plain is None and is_secret(one.path, one.value)


def _of_file(one: Pasted, kind: PastedKind) -> PastedFacts:
    settings = settings_of(one, kind)
    trainer = trainer_of_file(settings, one.text, one.name, kind)
    facts = _facts(settings, trainer, one, kind)
    comments = machines.spoken(one.text, one.name)
    if not {"gpus", "nodes", "gpus_per_node"} & facts.keys() or trainer in {"nemo-automodel", "torchtune"}:
        for name, fact in comments.items():
            facts.setdefault(name, fact)
    elif "gpu" in comments:
        facts.setdefault("gpu", comments["gpu"])
    if trainer == "torchtune" and "gpus_per_node" in facts and not {"gpus", "nodes"} & facts.keys():
        facts["nodes"] = Fact(1, facts["gpus_per_node"].source)
    for name in _MACHINE:
        held = facts.get(name)
        if held is not None and held.value in ("", None):
            facts.pop(name)
    return PastedFacts(kind=kind, trainer=trainer, facts=facts, settings=tuple(settings))


# ---------------------------------------------------------------------------- scripts


def _of_script(one: Pasted, kind: PastedKind, scripts: Mapping[str, Script], files: Sequence[tuple[Pasted, PastedKind]]) -> PastedFacts:
    asked = list(machines.directives(one.text))
    slurm = machines.asked_of_slurm(asked, one.name)
    said = follow(Script(text=one.text, name=one.name), Given(variables=_scheduled(slurm), scripts=scripts))
    calls = sorted(said.program_calls, key=lambda call: -trains(call))
    best = max((trains(call) for call in calls), default=0)
    near = [call for call in said.program_calls if best and trains(call) >= max(2, best - 12)]
    call = near[0] if near else None
    options = _options(call) if call is not None else ([], [])
    launch, settings = options
    named = [pair for pair in files if _names(call, pair[0].name)] if call is not None else []
    beside = [setting for pair in named for setting in settings_of(*pair)]
    written = [
        setting
        for source in said.files
        if re.search(r"\.(ya?ml|json|toml)$|[a-z_]+_(json|config)\}?$", source.name) or source.text.lstrip()[:1] == "{"
        for setting in reader.of_yaml(source.text, one.name)
    ]
    written = [each._replace(where=one.name) for each in written if not _secret(each)]
    # What stands in comments is less than what stands in options, and more than a variable's name.
    trainer = trainer_of(call, settings, said, one.text, one.name)
    if not call and not trainer:
        trainer = trainer_of(None, [], said, one.text, one.name)
    file_trainer = next((t for pair in named if (t := trainer_of_file(settings_of(*pair), pair[0].text, pair[0].name, pair[1]))), "")
    if file_trainer and file_trainer not in {"deepspeed", "accelerate", ""} and trainer in {"", "transformers"}:
        trainer = file_trainer
    everything = [*settings, *beside, *written]
    facts = _facts(everything, trainer, one, kind, call=call)
    facts = {**facts, **_of_variables(said, facts, trainer)}
    facts |= _of_machines(slurm, launch, settings, said, call, trainer, one)
    for name, fact in machines.spoken(one.text, one.name).items():
        if name == "gpu" or (name not in facts and not (slurm or call)):
            facts.setdefault(name, fact)
    other = _other(one, call)
    return PastedFacts(
        kind=kind, trainer=trainer, facts=facts, command=call, settings=tuple(everything), other=other,
        disagree=tuple(_contradictions(settings)),
    )  # fmt: skip


def _scheduled(slurm: Mapping[str, Fact]) -> dict[str, PlacedVariable]:
    """The variables that Slurm sets for a script."""
    given: dict[str, Fact] = {}
    for fact, names in (
        ("nodes", ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")),
        ("gpus_per_node", ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE")),
        ("tasks_per_node", ("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE")),
        ("tasks", ("SLURM_NTASKS", "SLURM_NPROCS")),
        ("gpus", ("SLURM_GPUS",)),
    ):
        if fact in slurm:
            given |= dict.fromkeys(names, slurm[fact])
    if "tasks" not in slurm and {"nodes", "tasks_per_node"} <= slurm.keys():
        every = slurm["nodes"].value * slurm["tasks_per_node"].value
        given |= dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), Fact(every, slurm["nodes"].source))
    return {name: PlacedVariable(name, str(fact.value), fact.source) for name, fact in given.items()}


def _names(call: ProgramCall | None, name: str) -> bool:
    tail = PurePosixPath(name).name
    return call is not None and any(PurePosixPath(word.partition("=")[2] or word).name == tail for word in call.texts)


def _options(call: ProgramCall) -> tuple[list[Setting], list[Setting]]:
    """The options before a command's program, which its starters read, and those behind it."""
    at, _ = program_at(call)
    before, behind = list[Setting](), list[Setting]()
    words = call.words
    for number, word in enumerate(words):
        text = word.text
        following = words[number + 1].text if number + 1 < len(words) else "-"
        target = before if number < at else behind
        if text.startswith("-") and re.fullmatch(r"--?[A-Za-z_][\w./-]*", text.partition("=")[0]):
            name, equals, value = text.partition("=")
            if not equals:
                negative = re.fullmatch(r"-[\d.]+(e-?\d+)?", following)
                value = "true" if following.startswith("-") and not negative else following
                if number + 1 == len(words):
                    value = "true"
            target.append(Setting(reader.key(name), value.strip().strip("\"'"), word.where, "option"))
        elif number and (pair := re.fullmatch(r"(\+{0,2}[A-Za-z_][\w./-]*)=(.*)", text, re.DOTALL)):
            target.append(Setting(reader.key(pair[1]), pair[2].strip().strip("\"'"), word.where, "option"))
        elif number and re.fullmatch(r"[\w.]+:", text) and following != "-":
            target.append(Setting(reader.key(text[:-1]), following, word.where, "option"))
    return before, [one for one in behind if not _secret(one)]


def _contradictions(settings: Sequence[Setting]) -> Iterable[str]:
    said: dict[str, Setting] = {}
    for one in settings:
        held = said.get(one.path)
        if held is not None and held.value != one.value and one.key in _TOLD:
            yield f"{one.path} is {held.value} by {held.where} and {one.value} by {one.where}; the last counts"
        said[one.path] = one


_TOLD: Final = frozenset({"global_batch_size", "micro_batch_size", "seq_length", "tensor_model_parallel_size", "pipeline_model_parallel_size"})


def _other(one: Pasted, call: ProgramCall | None) -> str:
    """Why a script trains no language model, where its program names another one."""
    if call is None:
        return ""
    at, program = program_at(call)
    words = re.sub(r"[_/.-]", " ", program)
    if OTHER_MODELS.search(words) and not LANGUAGE_MODELS.search(" ".join(call.texts)):
        found = OTHER_MODELS.search(words)
        where = call.words[min(at, len(call.words) - 1)].where
        return f"{where} starts {program}, and {found[0] if found else 'that'} is no language model"
    del one
    return ""


# ---------------------------------------------------------------------------- devices of a launch


def _of_machines(slurm: Mapping[str, Fact], launch: Sequence[Setting], settings: Sequence[Setting], said: Said,
                 call: ProgramCall | None, trainer: str, one: Pasted) -> dict[str, Fact]:  # fmt: skip
    facts: dict[str, Fact] = {}
    by_key = {one.key: one for one in launch}

    def of(names: Sequence[str], among: Mapping[str, Setting] = by_key) -> Fact | None:
        for name in names:
            if name in among and (value := number(among[name].value)) and value > 0:
                return Fact(value, among[name].where)
        return None

    starter = _starter(call)
    nodes = of(("nnodes", "num_machines", "num_nodes", "nodes") if starter != "srun" else ("nodes",))
    each = of(("nproc_per_node", "nproc", "num_gpus", "num_processes_per_node", "gpus_per_node", "ntasks_per_node"))
    total = of(("num_processes", "np", "world_size"))
    include = by_key.get("include")
    if include is not None and ":" in include.value:
        hosts = [part for part in include.value.split("@") if part]
        slots = hosts[0].partition(":")[2]
        if slots:
            each = Fact(len(slots.split(",")), include.where)
            nodes = nodes or Fact(len(hosts), include.where)
    words = {reader.key(one.key): one for one in settings}
    if trainer in {"verl", "nemo", "nemo-launcher", "openrlhf", "lit-gpt", "nemo-automodel", "megatron-bridge"}:
        table = words_of(trainer)
        each = each or _whole(settings, table["gpus_per_node"])
        nodes = nodes or _whole(settings, table["nodes"])
    if trainer == "lit-gpt" and each is not None and nodes is None:
        total, each = each, None
    if call is not None and each is None and starter in {"deepspeed", "accelerate", "torchrun", "plain"}:
        visible = said.variables.get("CUDA_VISIBLE_DEVICES")
        if visible is not None and re.fullmatch(r"\d+(,\d+)*", visible.value):
            each = Fact(len(visible.value.split(",")), visible.where)
    if "nodes" in slurm:
        facts["nodes"] = slurm["nodes"]
    if "gpus_per_node" in slurm:
        facts["gpus_per_node"] = slurm["gpus_per_node"]
    if "gpu" in slurm:
        facts["gpu"] = slurm["gpu"]
    if nodes is not None and not ("nodes" in slurm and nodes.value > 0 and starter == "srun" and nodes.value <= slurm["nodes"].value and nodes.value == 1):
        facts["nodes"] = nodes if "nodes" not in slurm or starter != "srun" else slurm["nodes"]
    if each is not None:
        facts["gpus_per_node"] = each
    for fact, names in (("nodes", _NODES), ("gpus_per_node", _EACH)):
        if fact not in facts and (held := _variable(said, names)):
            facts[fact] = held
    if "gpus_per_node" not in facts and "tasks_per_node" in slurm and slurm["tasks_per_node"].value > 1:
        facts["gpus_per_node"] = slurm["tasks_per_node"]
    if total is not None and starter in {"accelerate", "plain", "mpirun", "composer", "srun"}:
        facts["gpus"] = total
    if "gpus" in slurm and "gpus" not in facts:
        facts["gpus"] = slurm["gpus"]
    if starter in {"torchrun", "deepspeed"} and "nodes" not in facts and "gpus_per_node" in facts:
        alone = not any(one.key in {"nnodes", "hostfile", "rdzv_endpoint", "num_nodes", "master_addr"} and one.value != "localhost" for one in launch)
        if alone:
            facts["nodes"] = Fact(1, facts["gpus_per_node"].source)
    if starter == "accelerate" and "gpus" in facts and "nodes" not in facts and not any(one.key in {"num_machines", "machine_rank"} for one in launch) and not slurm:
        facts["nodes"] = Fact(1, facts["gpus"].source)
    if "gpus" not in facts and not ({"nodes", "gpus_per_node"} <= facts.keys()) and (held := _variable(said, _ALL)):
        facts["gpus"] = held
    if {"nodes", "gpus_per_node"} <= facts.keys() and starter != "accelerate":
        facts.pop("gpus", None) if "gpus" in facts and starter not in {"accelerate"} else None
    del words, one
    return facts


_NODES: Final = ("NNODES", "NUM_NODES", "NODES", "N_NODES", "NUM_NODE", "NNODE", "num_nodes", "nnodes", "NODE_COUNT", "WORKER_NUM", "NHOSTS", "COUNT_NODE")
_EACH: Final = ("GPUS_PER_NODE", "GPN", "NUM_GPUS_PER_NODE", "N_GPUS_PER_NODE", "NPROC_PER_NODE", "N_GPU_PER_NODE", "NGPU_PER_NODE", "GPU_PER_NODE", "GPUS_PER_HOST", "NGPUS_PER_NODE", "NGPU_PER_HOST", "NUM_GPUS_PER_WORKER", "num_gpus_pernode", "gpus_per_node", "nproc_per_node", "DEVICES_PER_NODE", "KUBERNETES_CONTAINER_RESOURCE_GPU")
_ALL: Final = ("WORLD_SIZE", "NUM_GPUS", "N_GPUS", "NGPUS", "num_gpus", "NUM_GPU", "TOTAL_GPUS", "NGPU", "NUM_PROCESSES")


def _variable(said: Said, names: Sequence[str]) -> Fact | None:
    for name in names:
        held = said.variables.get(name)
        if held is not None and held.value.isdigit() and int(held.value) > 0:
            return Fact(int(held.value), held.where)
    return None


def _starter(call: ProgramCall | None) -> str:
    """What starts the processes of a command: the last starter before its program."""
    if call is None:
        return ""
    at, _ = program_at(call)
    texts = [text.rpartition("/")[2] for text in call.texts[:at]]
    joined = " ".join(texts)
    for name, pattern in (
        ("torchrun", r"\btorchrun\b|torch\.distributed\.(run|launch)|^tune run|\btune run\b"),
        ("accelerate", r"\baccelerate\b"), ("deepspeed", r"\bdeepspeed\b"), ("composer", r"\bcomposer\b"),
        ("mpirun", r"\bmpi(run|exec)\b"), ("srun", r"\bsrun\b"),
    ):  # fmt: skip
        if re.search(pattern, joined):
            return name
    return "plain"


_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "tp": ("TP", "TP_SIZE", "TENSOR_PARALLEL_SIZE", "TENSOR_MODEL_PARALLEL_SIZE", "TENSOR_PARALLEL"),
    "pp": ("PP", "PP_SIZE", "PIPELINE_PARALLEL_SIZE", "PIPELINE_MODEL_PARALLEL_SIZE"),
    "seq": ("SEQ_LENGTH", "SEQ_LEN", "SEQLEN", "MAX_SEQ_LEN", "SEQUENCE_LENGTH"),
    "global_batch": ("GLOBAL_BATCH_SIZE", "GBS", "GLOBAL_BATCH"),
    "micro_batch": ("MICRO_BATCH_SIZE", "MBS", "MICRO_BATCH"),
    "layers": ("NUM_LAYERS", "NLAYERS"),
    "hidden": ("HIDDEN_SIZE", "HIDDEN"),
    "heads": ("NUM_HEADS", "NUM_ATTN_HEADS", "NUM_ATTENTION_HEADS", "HEADS"),
}


def _of_variables(said: Said, facts: Mapping[str, Fact], trainer: str) -> dict[str, Fact]:
    """Facts that variables of a script say by their names, where a trainer of Megatron's family hides its options."""
    if not trainer.startswith("megatron") or {"seq", "layers"} & facts.keys():
        return {}
    return {fact: held for fact, names in _VARIABLES.items() if fact not in facts and (held := _variable(said, names))}


# ---------------------------------------------------------------------------- facts of settings


@cache
def _tables() -> Mapping[str, Mapping[str, Sequence[str]]]:
    return tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))


@cache
def words_of(trainer: str) -> Mapping[str, Sequence[str]]:
    """Keys of each fact, in a trainer's words."""
    tables = _tables()
    return {**tables["any"], **tables.get(trainer, {})}


def number(text: str) -> int | None:
    """A whole number as files and commands write it; None where it is none.

    >>> number("8_192"), number("1e3"), number("auto"), number("4096.0"), number("16 * 2")
    (8192, 1000, None, 4096, None)
    """
    plain = text.strip().strip("\"'").replace("_", "").replace(",", "")
    if re.fullmatch(r"[+-]?\d+", plain) and len(plain) < 19:
        return int(plain)
    if re.fullmatch(r"[+-]?\d+(\.\d*)?([eE][+]?\d{1,2})?", plain):
        value = float(plain)
        return int(value) if value.is_integer() else None
    return None


_ASIDE: Final = re.compile(
    r"(^|[._])(eval|evaluation|val|valid|validation|test|infer|inference|generation|rollout|vllm|sglang|teacher|draft|reward|critic"
    r"|ref|embedding|tokenizer_config|monitoring|dataloader_val|dataset_val|profiler|benchmark|ci|sampling)([._]|$)"
)


def _matching(settings: Sequence[Setting], word: str) -> list[Setting]:
    if "." in word:
        return [one for one in settings if one.path == word or one.path.endswith(f".{word}")]
    return [one for one in settings if one.path.rpartition(".")[2] == word]


def _found(settings: Sequence[Setting], words: Sequence[str]) -> Iterable[Setting]:
    """Settings of some keys, the first key first; of options of one key the last, of files the least deep."""
    for word in words:
        same = _matching(settings, word)
        options = [one for one in same if one.origin == "option"]
        yield from reversed(options)
        rest = [one for one in same if one.origin != "option"]
        yield from sorted(rest, key=lambda one: one.path.count(".") if one.origin == "file" else 0)


def _whole(settings: Sequence[Setting], words: Sequence[str]) -> Fact | None:
    for one in _found(settings, words):
        value = number(one.value)
        if value is not None and value > 0:
            return Fact(value, one.where)
    return None


def _told(settings: Sequence[Setting], *words: str) -> Setting | None:
    return next(iter(_found(settings, words)), None)


def _on(one: Setting | None) -> bool:
    return one is not None and one.value.lower() in {"true", "1", "yes", "on"}


_PLAIN: Final = frozenset({"seq", "global_batch", "micro_batch", "accumulation", "tp", "pp", "cp", "ep", "vpp", "dp", "interval", *_SHAPE, "lora_rank"})


def _facts(settings: Sequence[Setting], trainer: str, one: Pasted, kind: PastedKind, call: ProgramCall | None = None) -> dict[str, Fact]:
    table = words_of(trainer)
    aside = re.compile(_ASIDE.pattern.replace("|rollout", "").replace("|ref", "").replace("|ci", "")) if trainer in {"verl", "nemo-automodel"} else _ASIDE
    own = [each for each in settings if not aside.search(each.path)]
    if trainer == "verl":
        own = [each for each in own if not re.search(r"actor_rollout_ref\.(ref|rollout)\.", each.path)]
    if kind is PastedKind.MODEL:
        own = _of_text(own)
    facts: dict[str, Fact] = {}
    for name in _PLAIN:
        if fact := _whole(own, table[name]):
            facts[name] = fact
    for name in ("gpus", "nodes", "gpus_per_node"):
        if call is None and (fact := _whole(own, table[name])):
            facts[name] = fact
    if trainer == "axolotl":
        facts.pop("gpus", None)
    for name, how in (
        ("model", _model), ("precision", _precision), ("sharding", _sharding), ("recompute", _recompute),
        ("offload", _offload), ("optimizer", _optimizer), ("task", _task),
    ):  # fmt: skip
        fact = how(own, trainer, one, kind, call)
        if fact is not None:
            facts[name] = fact
    _special(facts, own, trainer, kind)
    if kind is PastedKind.MODEL:
        for name in set(facts) - {*_SHAPE, "seq"}:
            facts.pop(name)
        if trainer != "open_lm":
            facts.pop("seq", None)
    if kind in {PastedKind.DEEPSPEED, PastedKind.ACCELERATE}:
        facts.pop("task", None)
        facts.pop("model", None)
    return facts


def _of_text(settings: Sequence[Setting]) -> list[Setting]:
    """What a model of text and images says of its text."""
    inside = [one._replace(path=one.path.removeprefix("text_config.")) for one in settings if one.path.startswith("text_config.")]
    return inside if any(one.path in {"num_hidden_layers", "hidden_size"} for one in inside) else [one for one in settings if "vision" not in one.path and "audio" not in one.path]


def _special(facts: dict[str, Fact], own: Sequence[Setting], trainer: str, kind: PastedKind) -> None:
    """What a trainer says by several settings together."""
    if "seq" not in facts:
        for pair in (("max_prompt_length", "max_response_length"), ("max_prompt_length", "max_completion_length"), ("source_max_len", "target_max_len"), ("prompt_max_len", "generate_max_len")):
            parts = [_whole(own, (name,)) for name in pair]
            if parts[0] and parts[1]:
                facts["seq"] = Fact(parts[0].value + parts[1].value, parts[0].source)
    if trainer == "olmo-core":
        seq = facts.get("seq")
        whole, each = _whole(own, ("global_batch_size",)), _whole(own, ("rank_microbatch_size",))
        length = seq.value if seq else 4096 if each and each.value % 4096 == 0 and not seq else 0
        for name, tokens in (("global_batch", whole), ("micro_batch", each)):
            facts.pop(name, None)
            if tokens and length and tokens.value % length == 0:
                facts[name] = Fact(tokens.value // length, tokens.source)
    if trainer == "olmo" and (hidden := facts.get("hidden")) and "ffn" not in facts:
        ratio = _whole(own, ("mlp_ratio",))
        if ratio:
            facts["ffn"] = Fact(ratio.value * hidden.value // 2, ratio.source)
    if trainer == "olmo" and (ffn := _whole(own, ("mlp_hidden_size",))):
        facts["ffn"] = Fact(ffn.value // 2, ffn.source)
    if trainer == "llm-foundry" and (hidden := facts.get("hidden")) and "ffn" not in facts:
        if ratio := _whole(own, ("expansion_ratio",)):
            facts["ffn"] = Fact(ratio.value * hidden.value, ratio.source)
    if trainer == "maxtext":
        meshes = {name: _whole(own, (f"ici_{name}_parallelism",)) for name in ("data", "fsdp", "tensor", "pipeline", "expert", "context")}
        outer = {name: _whole(own, (f"dcn_{name}_parallelism",)) for name in ("data", "fsdp", "tensor", "pipeline")}
        inner = 1
        for fact in meshes.values():
            inner *= fact.value if fact else 1
        across = 1
        for fact in outer.values():
            across *= fact.value if fact else 1
        first = next((fact for fact in (*meshes.values(), *outer.values()) if fact), None)
        if first and inner > 1 and across > 1:
            facts["gpus"] = Fact(inner * across, first.source)
            facts["gpus_per_node"], facts["nodes"] = Fact(inner, first.source), Fact(across, first.source)
        elif first and inner * across > 1:
            facts["gpus"] = Fact(inner * across, first.source)
        for name, axis in (("tp", "tensor"), ("pp", "pipeline"), ("ep", "expert"), ("cp", "context")):
            if (fact := meshes.get(axis)) and fact.value > 1:
                facts[name] = fact
    if trainer == "axolotl":
        shard, copies = _whole(own, ("dp_shard_size",)), _whole(own, ("dp_replicate_size",))
        if shard:
            facts["dp_ranks"] = Fact(shard.value * (copies.value if copies else 1), shard.source)
        elif (ep := facts.get("ep")) and not copies:
            facts["dp_ranks"] = Fact(ep.value, ep.source)
    if trainer == "torchtitan" or "data_parallel_shard_degree" in {one.key for one in own}:
        shard, copies = _whole(own, ("data_parallel_shard_degree",)), _whole(own, ("data_parallel_replicate_degree",))
        if shard:
            facts["dp_ranks"] = Fact(shard.value * (copies.value if copies else 1), shard.source)
    if kind is PastedKind.ACCELERATE and (total := _whole(own, ("num_processes",))):
        facts["gpus"] = total
    if trainer == "megatron-deepspeed" and "experts" in facts and facts["experts"].value <= 1:
        facts.pop("experts")
    if trainer.startswith("megatron") and "vpp" not in facts and {"layers", "pp"} <= facts.keys():
        per = _whole(own, ("num_layers_per_virtual_pipeline_stage",))
        if per and facts["layers"].value % (facts["pp"].value * per.value) == 0:
            facts["vpp"] = Fact(facts["layers"].value // facts["pp"].value // per.value, per.source)
    multi = _told(own, "attention_head_type")
    if multi is not None and multi.value == "multiquery":
        facts["kv_heads"] = Fact(1, multi.where)
    stated = _whole(own, ("num_experts",))
    if stated and stated.value <= 1:
        facts.pop("experts", None)
    if "lora_rank" in facts and trainer == "maxtext":
        facts.pop("lora_rank")


# ---------------------------------------------------------------------------- words that are no numbers

_SIZED: Final = re.compile(r"(?<![a-z0-9.])(\d+x)?\d+(\.\d+|[_p]\d)?[bm](?![a-z0-9])", re.IGNORECASE)
_RECIPE: Final = re.compile(r"_(pretrain|sft|peft|finetune|lora|qlora|dora)?_?config$|_(pretrain|sft|peft|finetune)(_recipe)?$")


def _model(own: Sequence[Setting], trainer: str, one: Pasted, kind: PastedKind, call: ProgramCall | None) -> Fact | None:
    table = words_of(trainer)
    if trainer == "torchtitan":
        name, flavor = _told(own, "model.name"), _told(own, "model.flavor")
        module, config = _told(own, "module"), _told(own, "config")
        if name and flavor:
            return Fact(f"{name.value} {flavor.value}", name.where)
        if module and config:
            return Fact(config.value, config.where)
    if trainer == "nemo" and kind is PastedKind.PYTHON:  # a recipe
        named = next((each for each in own if each.path == "name" and _SIZED.search(each.value)), None)
        return Fact(named.value, named.where) if named else None
    for each in _found(own, table["model"]):
        value = _name_of(each, trainer)
        if value:
            return Fact(value, each.where)
    if trainer == "llm-foundry" and call is not None or trainer == "maxtext" and call is not None:
        for word in call.words:
            tail = PurePosixPath(word.text)
            if tail.suffix in {".yaml", ".yml"} and _SIZED.search(tail.stem):
                return Fact(tail.stem.replace("_", "-") if trainer == "maxtext" else tail.stem, word.where)
    if trainer == "olmo-core" and call is not None:
        for word in call.words:
            if word.text.endswith(".py") and _SIZED.search(PurePosixPath(word.text).stem):
                return Fact(PurePosixPath(word.text).stem, word.where)
    return None


def _name_of(each: Setting, trainer: str) -> str:
    value = each.value.strip().strip("'\"").rstrip("/")
    if not value or unknown(value.rpartition("/")[2]) or "<" in value or len(value) > 200 or value.lower() in {"true", "false", "none", "null", "auto"}:
        return ""
    if re.search(r"\.(py|sh|json|jsonl|txt|pt|bin|model|nemo|gin)$", value) or "{" in value.rpartition("/")[2]:
        return ""
    if trainer == "torchtune":
        tail = value.rpartition(".")[2]
        return re.sub(r"^(q?lora|dora)_", "", tail)
    if trainer in {"megatron-bridge"}:
        tail = value.rpartition("/")[2] if each.key != "hf_path" else value
        tail = re.sub(r"_(pretrain|sft|peft|finetune)_config$", "", tail)
        return _RECIPE.sub("", tail)
    if trainer == "nemo-launcher":
        return value.rpartition("/")[2] if "/" in value else ""
    if trainer == "olmo-core":
        return value if _SIZED.search(value) or re.search(r"\d[bm]\b", value, re.IGNORECASE) else ""
    plain = value.partition("://")[2] or value
    parts = [part for part in plain.split("/") if part and "$" not in part]
    if len(parts) == 2 and not value.startswith(("/", ".", "~")) and "://" not in value:
        return value
    if model_preset(parts[-1] if parts else ""):
        return parts[-1]
    for part in reversed(parts):
        if LANGUAGE_MODELS.search(part) and (_SIZED.search(part) or re.search(r"[-_]v?\d", part)):
            return part
    if len(parts) == 1 and (LANGUAGE_MODELS.search(parts[0]) or _SIZED.search(parts[0])):
        return parts[0]
    last = parts[-1] if parts else ""
    if LANGUAGE_MODELS.search(last):
        return last
    named = each.key in _NAMES_A_MODEL and re.search(r"[A-Za-z]", last) and re.search(r"\d", last)
    return last if named and not re.match(r"(run|ckpt|checkpoint|output|iter|step|epoch|exp)", last.lower()) else ""


_NAMES_A_MODEL: Final = frozenset({"model_name_or_path", "pretrained_model_name_or_path", "base_model"})


def _precision(own: Sequence[Setting], trainer: str, one: Pasted, kind: PastedKind, call: ProgramCall | None) -> Fact | None:
    if kind is PastedKind.MODEL:
        return None
    off = {"false", "0", "none", "no", "null", "off", ""}
    for name in ("fp8", "enable_fp8", "use_fp8", "fp8_format", "fp8_hybrid", "fp8_recipe", "float8.enable_fp8_linear", "fp8_e4m3"):
        each = _told(own, name)
        if each is not None and each.value.lower() not in off and (name not in {"fp8_recipe"} or _told(own, "fp8_format", "fp8_hybrid", "fp8")):
            return Fact("fp8", each.where)
    converters = _told(own, "converters")
    if converters is not None and "float8" in converters.value:
        return Fact("fp8", converters.where)
    quantised = _told(own, "quantization")
    if quantised is not None and "fp8" in quantised.value:
        return Fact("fp8", quantised.where)
    for word, name in (("bf16", "bf16"), ("pure_bf16", "bf16"), ("use_bf16", "bf16"), ("enable_bf16", "bf16"), ("fp16", "fp16"), ("use_fp16", "fp16")):
        each = _told(own, word)
        if each is not None and each.value.lower() in {"true", "1", "yes", "auto", "full"} and not (each.value.lower() == "auto" and kind is PastedKind.DEEPSPEED):
            return Fact(name, each.where)
    for each in own:
        if each.path.endswith(("bf16.enabled", "bfloat16.enabled")) and each.value.lower() == "true":
            return Fact("bf16", each.where)
        if each.path.endswith("fp16.enabled") and each.value.lower() == "true":
            return Fact("fp16", each.where)
    for word in ("mixed_precision", "precision", "trainer.precision", "plugins", "mp", "mixed_precision_param", "param_dtype", "compute_dtype", "dtype", "torch_dtype", "model_dtype", "mixed_precision_dtype", "data_type"):
        if trainer == "maxtext" and word == "dtype":
            pass
        each = next((each for each in _found(own, (word,)) if _dtype(each.value)), None)
        if each is not None:
            return Fact(_dtype(each.value), each.where)
    if trainer == "nemo-automodel":
        each = _told(own, "bnb_4bit_compute_dtype", "mp_policy.param_dtype")
        if each is not None and _dtype(each.value):
            return Fact(_dtype(each.value), each.where)
    return None


def _dtype(value: str) -> str:
    lower = value.lower()
    for form, kind in (("fp8|float8", "fp8"), ("bf16|bfloat16|(^|[,= ])(c=|compute=)bf", "bf16"), ("fp16|float16|half|^16(-mixed)?$", "fp16"), ("fp32|float32|^32", "fp32")):
        if re.search(form, lower):
            return kind if kind != "fp32" else ""
    return ""


_STAGES: Final = {0: "none", 1: "zero1", 2: "zero2", 3: "zero3"}


def _sharding(own: Sequence[Setting], trainer: str, one: Pasted, kind: PastedKind, call: ProgramCall | None) -> Fact | None:
    for word in ("zero_stage", "zero_optimization.stage", "deepspeed_config.zero_stage", "ds_zero_stage", "stage"):
        each = _told(own, word)
        if each is None or (word == "stage" and "zero" not in each.path):
            continue
        stage = number(each.value)
        if stage in _STAGES:
            return Fact(_STAGES[stage], each.where)
    if each := _told(own, "use_megatron_fsdp", "use_custom_fsdp"):
        strategy = _told(own, "data_parallel_sharding_strategy")
        if _on(each):
            named = {"no_shard": "none", "optim": "zero1", "optim_grads": "zero2"}.get(strategy.value if strategy else "", "zero3")
            return Fact(named, each.where)
    if (each := _told(own, "use_torch_fsdp2")) and _on(each):
        return Fact("zero3", each.where)
    if (each := _told(own, "use_distributed_optimizer")) and _on(each):
        return Fact("zero1", each.where)
    if trainer == "megatron-lm" and call is not None and any(e.key == "micro_batch_size" for e in own):
        return Fact("none", f"{call.where}: no --use-distributed-optimizer")
    for word in ("sharding_strategy", "fsdp_sharding_strategy"):
        each = _told(own, word)
        if each is not None:
            text = each.value.upper()
            named = {"FULL_SHARD": "zero3", "FULL": "zero3", "HYBRID_SHARD": "zero3", "HYBRID": "zero3", "SHARD_GRAD_OP": "zero2", "NO_SHARD": "none", "1": "zero3", "2": "zero2", "3": "none", "4": "zero3", "HYBRID_SHARD_ZERO2": "zero2", "_HYBRID_SHARD_ZERO2": "zero2"}.get(text)
            if named:
                return Fact(named, each.where)
    if kind is PastedKind.ACCELERATE:
        each = _told(own, "distributed_type")
        if each is not None and each.value.upper() == "FSDP":
            again = _told(own, "fsdp_reshard_after_forward")
            text = again.value.upper() if again else "TRUE"
            return Fact({"FALSE": "zero2", "SHARD_GRAD_OP": "zero2", "NO_SHARD": "none"}.get(text, "zero3"), (again or each).where)
        if each is not None and each.value.upper() in {"MULTI_GPU", "NO"}:
            return Fact("none", each.where)
    if trainer == "axolotl":
        each = next((e for e in own if e.path.startswith("fsdp_config.")), None) or _told(own, "fsdp", "fsdp_version")
        if each is not None:
            again = _told(own, "reshard_after_forward", "fsdp_reshard_after_forward")
            return Fact("zero2" if again is not None and again.value == "false" else "zero3", each.where)
    for word in ("deepspeed", "deepspeed_config", "config_file", "deepspeed_config_file", "ds_config"):
        each = _told(own, word) or (_in_call(call, word) if call is not None else None)
        if each is not None and (found := re.search(r"(?:zero|stage|z)[-_]?([0-3])(?!\d)", each.value.lower())):
            return Fact(_STAGES[int(found[1])], each.where)
    each = _told(own, "fsdp")
    if each is not None and each.value.lower() not in {"false", "true", ""}:
        text = each.value.lower()
        return Fact("zero2" if "shard_grad_op" in text else "none" if "no_shard" in text else "zero3", each.where)
    if trainer == "torchtitan" or trainer == "nemo-automodel":
        shard = _told(own, "data_parallel_shard_degree")
        if shard is not None:
            value, copies = number(shard.value), _told(own, "data_parallel_replicate_degree")
            plain = value == 1 or (value is None and copies is None)
            return Fact("none" if plain else "zero3", shard.where)
        strategy = _told(own, "distributed.strategy", "distributed._target_")
        if strategy is not None and "fsdp" in strategy.value.lower():
            return Fact("zero3", strategy.where)
        if strategy is not None and "ddp" in strategy.value.lower():
            return Fact("none", strategy.where)
    if trainer == "olmo" and (each := _told(own, "fsdp.wrapping_strategy")):
        return Fact("zero3", each.where)
    if trainer == "olmo-core":
        for each in own:
            if each.path.endswith("dataparallelconfig.name"):
                return Fact("none" if each.value == "ddp" else "zero3", each.where)
    if trainer == "maxtext":
        for axis in ("ici_fsdp_parallelism", "dcn_fsdp_parallelism"):
            each = _told(own, axis)
            if each is not None and (number(each.value) or 0) not in {0, 1}:
                return Fact("zero3", each.where)
    if trainer == "torchtune" and call is None:
        if re.search(r"_distributed\b", one.text):
            return Fact("zero3", f"{one.name}: its recipe shards everything")
    if trainer == "transformers" and call is not None and _starter(call) == "accelerate":
        flags = {word.lstrip("-") for word in call.texts}
        if "multi_gpu" in flags and not flags & {"use_fsdp", "use_deepspeed"}:
            return Fact("none", call.where)
    return None


def _in_call(call: ProgramCall, word: str) -> Setting | None:
    before, behind = _options(call)
    return next((one for one in [*before, *behind] if one.key == word), None)


def _recompute(own: Sequence[Setting], trainer: str, one: Pasted, kind: PastedKind, call: ProgramCall | None) -> Fact | None:
    if trainer == "megatron-deepspeed" and call is not None:
        switch = re.search(r"(?mi)^\s*activation_checkpoint=[\"']?false", one.text)
        if switch and not any("checkpoint_activations" in e.key or "activation_checkpointing" in e.key for e in own):
            return Fact("none", f"{one.name}:{one.text.count(chr(10), 0, switch.start()) + 1 + switch[0].count(chr(10))}")
    each = _told(own, "recompute_granularity")
    if each is not None and each.value in {"full", "selective"}:
        return Fact(each.value, each.where)
    for word, value in (("recompute_activations", "selective"), ("checkpoint_activations", "full"), ("deepspeed_activation_checkpointing", "full"), ("activations_checkpoint_method", "full"), ("activations_checkpoint_granularity", "")):
        each = _told(own, word)
        if each is not None and each.value.lower() not in {"false", "null", "none"}:
            if word == "activations_checkpoint_granularity" and each.value in {"full", "selective"}:
                return Fact(each.value, each.where)
            if value:
                return Fact(value, each.where)
    if trainer == "maxtext":
        each = _told(own, "remat_policy")
        if each is not None:
            named = {"full": "full", "none": "none", "minimal": "selective"}.get(each.value)
            return Fact(named or "selective", each.where)
    each = _told(own, "activation_checkpoint.mode", "ac.mode")
    if each is not None and each.value in {"full", "selective", "none"}:
        return Fact(each.value, each.where)
    each = _told(own, "activation_checkpointing.mode")
    if each is not None:
        return Fact("full" if each.value not in {"none", "null"} else "none", each.where)
    for word in ("recompute_layer", "gradient_checkpointing", "activation_checkpointing", "enable_activation_checkpointing", "gradient_checkpointing_enable", "fsdp_activation_checkpointing", "enable_gradient_checkpointing", "use_gradient_checkpointing", "checkpoint_layers", "grad_checkpointing", "grad_checkpoint", "use_activation_checkpoint"):
        each = next((e for e in _found(own, (word,)) if e.value.lower() in {"true", "false", "1", "0", "unsloth", "full", "selective", "offload", "nothing_saveable"}), None)
        if each is not None:
            return Fact("none" if each.value.lower() in {"false", "0"} else "selective" if each.value == "selective" else "full", each.where)
    return None


def _offload(own: Sequence[Setting], trainer: str, one: Pasted, kind: PastedKind, call: ProgramCall | None) -> Fact | None:
    parts: list[str] = []
    first = ""
    said = False
    for word, name in (("offload_optimizer.device", "optimizer"), ("offload_optimizer_device", "optimizer"), ("offload_param.device", "param"), ("offload_param_device", "param")):
        each = _told(own, word)
        if each is not None:
            said, first = True, first or each.where
            if each.value.lower() in {"cpu", "nvme"}:
                parts.append(name)
    for word, names in (("cpu_offload", ("optimizer",)), ("optimizer_cpu_offload", ("optimizer",)), ("cpu_optimizer", ("optimizer",)), ("offload_params", ("param",)), ("fsdp_offload_params", ("param",)),
                        ("fsdp_cpu_offload", ("optimizer", "param")), ("actor.megatron.param_offload", ("param",)), ("actor.megatron.optimizer_offload", ("optimizer",)),
                        ("actor.fsdp_config.param_offload", ("param",)), ("actor.fsdp_config.optimizer_offload", ("optimizer",)),
                        ("offload_activations", ("activations",)), ("activation_offloading", ("activations",)), ("enable_activation_offloading", ("activations",)),
                        ("activation_cpu_offload", ("activations",)), ("cpu_offloading", ("activations",)), ("adam_offload", ("optimizer",))):
        each = _told(own, word)
        if each is None:
            continue
        said, first = True, first or each.where
        if each.value.lower() not in {"false", "0", "none", "no", "null"}:
            parts += names
    if not said:
        return None
    order = [name for name in ("optimizer", "param", "activations") if name in parts]
    return Fact("+".join(order) or "none", first)


def _optimizer(own: Sequence[Setting], trainer: str, one: Pasted, kind: PastedKind, call: ProgramCall | None) -> Fact | None:
    for each in _found(own, words_of(trainer)["optimizer"]):
        name = _rule(each.value)
        if name:
            return Fact(name, each.where)
    if trainer == "olmo-core":
        each = next((e for e in own if re.search(r"(adamw?|lion|muon)config$", e.value.lower()) and e.key == "optim"), None)
        if each is not None and (name := _rule(each.value)):
            return Fact(name, each.where)
    return None


def _rule(value: str) -> str:
    """The rule of an optimizer by any of its names.

    >>> [_rule(one) for one in ("adamw_torch_fused", "torch.optim.AdamW", "paged_adamw_8bit", "decoupled_lionw", "false")]
    ['adamw', 'adamw', 'adamw-8bit', 'lion', '']
    """
    lower = value.lower().rpartition(".")[2] if value.count(".") else value.lower()
    for form, name in (("adafactor", "adafactor"), ("lion", "lion"), ("muon", "muon"), ("adamw|skipstepadamw", "adamw"), ("adam", "adam"), ("sgd", "sgd"), ("shampoo", "shampoo"), ("sophia", "sophia"), ("galore", "galore")):
        if re.search(form, lower):
            return f"{name}-8bit" if "8bit" in lower else name
    return ""


_PREFERENCES: Final = r"(?:^|[^a-z])(dpo|orpo|kto|grpo|ppo|rloo|simpo|gpg|dapo|gspo|reinforce\w*)(?:[^a-z]|$)"
_PRE_TRAINERS: Final = frozenset({"megatron-lm", "megatron-deepspeed", "nanotron", "torchtitan", "maxtext", "levanter", "olmo", "olmo-core", "llm-foundry", "picotron", "nanochat", "pytorch-fsdp",
    "lit-gpt", "gpt-neox", "nemo", "nemo-launcher", "megatron-bridge"})  # fmt: skip
_TUNERS: Final = frozenset({"axolotl", "llama-factory", "torchtune", "trl", "transformers", "nemo-automodel", "openrlhf", "ms-swift", "xtuner"})


def _task(own: Sequence[Setting], trainer: str, one: Pasted, kind: PastedKind, call: ProgramCall | None) -> Fact | None:
    if not trainer or trainer in {"deepspeed", "accelerate", "pytorch-ddp", "open_lm"}:
        return None
    where = call.where if call is not None else one.name
    if kind is PastedKind.PYTHON and re.search(r"\bdef pretrain|\bpretrain_recipe\b", one.text):
        return Fact("pre-training", where)
    estimator = _told(own, "adv_estimator")
    if estimator is not None and not unknown(estimator.value):
        return Fact(estimator.value, estimator.where)
    for word in ("stage", "rl", "rlhf_type", "train_type", "loss_type", "trainer_type"):
        each = _told(own, word)
        if each is not None and (found := re.search(_PREFERENCES, each.value.lower())):
            return Fact(found[1], each.where)
    program = " ".join(call.texts[: program_at(call)[0] + 3]) if call is not None else ""
    if call is not None and unknown(PurePosixPath(program_at(call)[1]).name):
        return None
    names = [program]
    component = [e.value for e in own if e.path in {"loss._component_", "dataset._component_"}]
    names += component
    if call is None:
        names.append(" ".join(PurePosixPath(one.name.replace("__", "/")).parts[-3:]))
        names += re.findall(r"tune run [^\n]*", one.text)[:2]
    if trainer in _TUNERS or trainer == "verl":
        for text in names:
            if found := re.search(_PREFERENCES, text.lower().replace("minicpm", "")):
                return Fact(found[1], where)
        if any(re.search(r"num_generations|reward_funcs|max_completion_length", e.path) for e in own):
            return Fact("grpo", where)
    bits = next((e for w in ("load_in_4bit", "qlora", "quantize_base", "load_in_8bit", "use_qlora") if (e := _told(own, w)) and _on(e)), None)
    bits = bits or next((e for w in ("adapter", "finetuning_type") if (e := _told(own, w)) and "qlora" in e.value.lower()), None)
    bits = bits or next((e for w in ("quantization_bit", "bits") if (e := _told(own, w)) and number(e.value) in {4, 8}), None)
    bits = bits or next((e for e in own if e.path == "model._component_" and "qlora" in e.value), None)
    adapters = _adapters(own)
    if bits is not None and (adapters is not None or bits.key in {"qlora", "adapter", "use_qlora", "_component_"}):
        return Fact("qlora", bits.where)
    if adapters is not None:
        return Fact("lora", adapters.where)
    tunes = re.search(r"(?:^|[^a-z])(sft|finetun\w*|fine[-_]tun\w*|instruct|chat_sft|tuning)", f"{program} {' '.join(component)}".lower())
    if trainer == "megatron-bridge" or trainer in {"nemo", "nemo-launcher"}:
        recipe = _told(own, "recipe", "training", "factory")
        text = f"{recipe.value if recipe else ''} {program}".lower()
        if re.search(r"peft|lora", text):
            return Fact("lora", where)
        if re.search(r"sft|finetun", text) or any("finetune" in e.key for e in own):
            return Fact("full fine-tune", where)
        if call is None and re.search(r"finetun|sft", one.name.lower()):
            return Fact("full fine-tune", where)
        return Fact("pre-training", where)
    if trainer == "llm-foundry":
        loader = _told(own, "train_loader.name")
        if loader is not None and loader.value == "finetuning":
            return Fact("full fine-tune", loader.where)
        return Fact("pre-training", where)
    if trainer in {"axolotl"}:
        pre = next((e for e in own if e.path.startswith("pretraining_dataset")), None)
        return Fact("pre-training", pre.where) if pre else Fact("full fine-tune", where) if own and any(e.key == "base_model" for e in own) else None
    if trainer == "llama-factory":
        stage = _told(own, "stage")
        if stage is not None and stage.value == "pt":
            return Fact("pre-training", stage.where)
        return Fact("full fine-tune", where)
    if trainer == "levanter" and (each := _told(own, "initialize_from_hf")):
        return Fact("full fine-tune", each.where) if each.value.lower() not in {"false", "null"} else Fact("pre-training", where)
    if trainer in {"megatron-lm", "megatron-deepspeed"}:
        flag = _told(own, "finetune")
        if tunes or _on(flag):
            return Fact("full fine-tune", where)
        return Fact("pre-training", where)
    if trainer in _PRE_TRAINERS:
        return Fact("full fine-tune" if tunes and trainer in {"lit-gpt"} else "pre-training", where)
    if trainer in _TUNERS:
        if trainer == "trl" and call is not None and not any(e.key in {"model_name_or_path", "model"} for e in own):
            return None
        if trainer == "openrlhf" and not any(e.key == "model_name_or_path" or e.key == "pretrain" for e in own):
            return None
        return Fact("full fine-tune", where)
    return None


def _adapters(own: Sequence[Setting]) -> Setting | None:
    for word in ("use_lora", "use_peft", "finetuning_type", "adapter", "peft_method", "peft_scheme", "peft_type", "enable_lora", "lora_enable", "lora", "mode", "peft", "peft._target_", "tuner_type", "train_type"):
        each = _told(own, word)
        if each is not None and (re.search(r"lora|peft", each.value.lower()) or (word not in {"mode", "peft"} and _on(each))):
            return each
    for word in words_of("")["lora_rank"]:
        each = _told(own, word)
        if each is not None and (number(each.value) or 0) > 0:
            return each
    return next((e for e in own if e.path == "model._component_" and "lora" in e.value), None)


# ---------------------------------------------------------------------------- what follows from facts


def _derive(facts: dict[str, Fact], trainer: str, settings: Sequence[Setting]) -> None:
    """Facts that follow from others: devices of the job, ranks that see different samples, the batch of a step."""

    def value(name: str, otherwise: int = 1) -> int:
        held = facts.get(name)
        return int(held.value) if held is not None else otherwise

    model_ranks = value("tp") * value("pp") * value("cp")
    if "gpus" not in facts and {"nodes", "gpus_per_node"} <= facts.keys():
        nodes, each = facts["nodes"], facts["gpus_per_node"]
        facts["gpus"] = Fact(nodes.value * each.value, f"derived: {nodes.value} nodes x {each.value}")
    ranks = facts.pop("dp_ranks", None)
    said = facts.pop("dp", None)
    ranks = ranks or said
    if "gpus" not in facts and ranks is not None:
        facts["gpus"] = Fact(ranks.value * model_ranks, f"derived: {ranks.value} data-parallel ranks x {model_ranks}")
    if "gpus" in facts and "nodes" in facts and "gpus_per_node" not in facts and facts["gpus"].value % facts["nodes"].value == 0:
        facts["gpus_per_node"] = Fact(facts["gpus"].value // facts["nodes"].value, f"derived: {facts['gpus'].value} / {facts['nodes'].value} nodes")
    if "gpus" in facts and "gpus_per_node" in facts and "nodes" not in facts and facts["gpus"].value % facts["gpus_per_node"].value == 0:
        facts["nodes"] = Fact(facts["gpus"].value // facts["gpus_per_node"].value, f"derived: {facts['gpus'].value} / {facts['gpus_per_node'].value}")
    dp = 0
    if "gpus" in facts and facts["gpus"].value % model_ranks == 0:
        dp = facts["gpus"].value // model_ranks
        if trainer:
            facts["dp"] = Fact(dp, f"derived: {facts['gpus'].value} / {model_ranks}" if model_ranks > 1 else facts["gpus"].source)
    if "global_batch" not in facts and "micro_batch" in facts and dp:
        again = value("accumulation")
        total = facts["micro_batch"].value * again * dp
        facts["global_batch"] = Fact(total, f"derived: micro batch {facts['micro_batch'].value} x accumulation {again} x {dp} ranks")
    del settings
