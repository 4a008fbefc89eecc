"""The facts of what was pasted: what each text says, each with its place.

    read([PastedText(text, name), …])   PastedFacts of several texts: a script with its file

A command says more than a file, and a file more than a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from mofa_model.identity.classes import LANGUAGE_MODELS, OTHER_MODELS
from mofa_model.identity.commands import Contents, ProgramCall, TextFile
from mofa_model.identity.fact import Fact
from mofa_model.identity.facts import WORDS
from mofa_model.identity.secret_words import is_secret
from mofa_model.identity.settings import Setting, file_settings
from mofa_model.pasted import machines
from mofa_model.pasted.choices import CHOICES
from mofa_model.pasted.launches import devices_of, names_file, variable
from mofa_model.pasted.lookup import Lookup, first_of
from mofa_model.pasted.recognise import (
    PastedKind,
    kind_of,
    options_of,
    program_at,
    starter_of,
    trainer_of,
    trainer_of_file,
    trains,
)
from mofa_model.pasted.scripts import cut_by_comment, follow, unknown
from mofa_model.pasted.sums import add_sums
from mofa_model.pasted.tasks import model_of, task_of, trains_all
from mofa_model.pasted.wrapped import RunState
from mofa_model.records import dataclass


class PastedText(NamedTuple):
    """A text that somebody gives."""

    text: str
    name: str
    """Its file's name, under which places in it are reported."""
    is_inside: bool = False
    """Whether the text was taken out of another one, as the code of a page is."""
    run: RunState = RunState.UNSEEN
    """What the text shows of a run."""


@dataclass(frozen=True, kw_only=True)
class PastedFacts:
    """The facts of several pasted texts together."""

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
    parts: tuple[tuple[str, PastedKind], ...] = ()
    """The texts by their names, with their kinds."""
    run: RunState = RunState.UNSEEN
    """What the texts show of a run."""
    is_batch_open: bool = False
    """Whether a variable that nobody sets says how many micro-batches a step has."""


SHAPE: Final = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "top_k")
"""Facts of a model's shape."""
_COUNTED: Final = (
    "seq", "global_batch", "micro_batch", "accumulation", "tp", "pp", "cp", "ep", "vpp", "dp",
    "interval", "lora_rank", *SHAPE,
)  # fmt: skip
_RANKS: Final = (
    PastedKind.SBATCH, PastedKind.SHELL, PastedKind.YAML, PastedKind.TOML, PastedKind.PYTHON,
    PastedKind.JSON, PastedKind.DEEPSPEED, PastedKind.ACCELERATE, PastedKind.MODEL,
)  # fmt: skip
"""Kinds in the order in which they say what is trained; machines come last."""


def read(texts: Sequence[PastedText]) -> PastedFacts:
    r"""The facts of several texts together; the first text that trains decides what is trained.

    >>> text = "#SBATCH -N 2 --gpus-per-node=8\nsrun python pretrain_gpt.py --bf16"
    >>> job = read([PastedText(text, "j.sh")])
    >>> job.kind.value, job.trainer, job.facts["gpus"].value, job.facts["precision"]
    ('sbatch', 'megatron-lm', 16, Fact(value='bf16', source='j.sh:2'))
    """
    kinds = [(pasted, kind_of(pasted.text, pasted.name)) for pasted in texts]
    scripts = {
        PurePosixPath(pasted.name).name: pasted.text for pasted, kind in kinds if kind.is_script
    }
    order = sorted(kinds, key=lambda pair: _RANKS.index(pair[1]) if pair[1] in _RANKS else 99)
    files = [pair for pair in order if not pair[1].is_script and not pair[1].is_machine]
    readings, others = list[PastedFacts](), list[str]()
    training: PastedText | None = None
    for pasted, kind in order:
        if kind.is_script:
            part = _script_facts(pasted, kind, scripts, files)
            if (
                training is not None
                and part.command is not None
                and _are_two_trainings(training, pasted)
            ):
                others.append(f"{pasted.name} starts another training, which the answer leaves out")
                continue
            readings.append(part)
            training = training or (pasted if part.command is not None else None)
        elif kind.is_machine:
            readings.append(_machine_facts(pasted, kind))
        elif kind is not PastedKind.UNKNOWN and not _is_read(pasted, readings):
            readings.append(_file_facts(pasted, kind))
    if not readings:
        readings.append(PastedFacts(kind=PastedKind.UNKNOWN, trainer="", facts={}))
    together = _merged(readings, tuple((pasted.name, kind) for pasted, kind in kinds))
    # Texts that contradict each other are of two runs.
    run_seen = max(
        (pasted.run for pasted in texts), key=lambda run: run.value, default=RunState.UNSEEN
    )
    run = RunState.UNSEEN if together.disagree else run_seen
    return replace(together, run=run, disagree=(*others, *together.disagree))


def _are_two_trainings(pasted: PastedText, other: PastedText) -> bool:
    """Whether two scripts start two trainings: neither names the other."""
    pairs = ((pasted, other), (other, pasted))
    return not any(PurePosixPath(named.name).name in by.text for by, named in pairs)


def _is_read(pasted: PastedText, readings: Sequence[PastedFacts]) -> bool:
    """Whether a script that was read before has already read this file."""
    sources = (fact.source for reading in readings for fact in reading.facts.values())
    return any(source.startswith(f"{pasted.name}:") for source in sources)


def _merged(
    readings: Sequence[PastedFacts], parts: tuple[tuple[str, PastedKind], ...]
) -> PastedFacts:
    """The facts of several texts as one. Where two texts differ the first one counts, and the
    contradiction is reported.
    """
    facts = dict[str, Fact]()
    disagree = [contradiction for reading in readings for contradiction in reading.disagree]
    for reading in readings:
        for name, fact in reading.facts.items():
            held = facts.setdefault(name, fact)
            if held.value != fact.value and "derived" not in held.source + fact.source:
                disagree.append(
                    f"{name} is {held.value} by {held.source} and {fact.value} by {fact.source}"
                )
    trainers = [reading.trainer for reading in readings if reading.trainer]
    own = (trainer for trainer in trainers if trainer not in {"deepspeed", "accelerate"})
    trainer = next(own, next(iter(trainers), ""))
    settings = tuple(setting for reading in readings for setting in reading.settings)
    is_open = "accumulation" not in facts and any(
        setting.key in WORDS["accumulation"] and unknown(setting.value) for setting in settings
    )
    _derive(facts, trainer, is_batch_open=is_open)
    commands = (reading.command for reading in readings if reading.command is not None)
    return PastedFacts(
        kind=readings[0].kind,
        trainer=trainer,
        facts=facts,
        disagree=tuple(dict.fromkeys(disagree)),
        command=next(commands, None),
        settings=settings,
        is_batch_open=is_open and "global_batch" not in facts,
        other=next((reading.other for reading in readings if reading.other), ""),
        parts=parts,
    )


# ---------------------------------------------------------------------------- machines and files


def _machine_facts(pasted: PastedText, kind: PastedKind) -> PastedFacts:
    readers = {
        PastedKind.NVIDIA_SMI: machines.of_nvidia_smi,
        PastedKind.SINFO: machines.of_sinfo,
        PastedKind.SCONTROL: machines.of_scontrol,
    }
    return PastedFacts(kind=kind, trainer="", facts=readers[kind](pasted.text, pasted.name))


def _settings_of(pasted: PastedText, kind: PastedKind) -> list[Setting]:
    """The settings of a file; tokens and passwords are none."""
    form = {PastedKind.TOML: "toml", PastedKind.PYTHON: "py"}.get(kind, "yaml")
    source = TextFile(pasted.name, pasted.text, pasted.name, mark=":")
    settings = file_settings(source, form, {}, by_name=True)
    return [setting for setting in settings if not _is_secret(setting)]


def _is_secret(setting: Setting) -> bool:
    """Whether a setting is a token or a password; numbers and switches never are."""
    plain = re.fullmatch(r"[\d.eE+-]{1,12}|true|false", setting.value)
    return plain is None and is_secret(setting.path, setting.value)


def _file_facts(pasted: PastedText, kind: PastedKind) -> PastedFacts:
    """The facts of a trainer's file of settings; comments in it may name the GPUs."""
    own = _settings_of(pasted, kind)
    trainer = trainer_of_file(own, pasted.text, kind)
    lookup = Lookup(
        settings=tuple(own), trainer=trainer, kind=kind, text=pasted.text, name=pasted.name
    )
    facts = _facts_of_settings(lookup)
    comments = machines.in_comments(pasted.text, pasted.name)
    bare = not {"gpus", "nodes", "gpus_per_node"} & facts.keys()
    if bare or trainer in {"nemo-automodel", "torchtune"}:
        facts = {**comments, **facts}
    elif "gpu" in comments:
        facts.setdefault("gpu", comments["gpu"])
    gpus_per_node = facts.get("gpus_per_node")
    if trainer == "torchtune" and gpus_per_node and not {"gpus", "nodes"} & facts.keys():
        facts["nodes"] = Fact(1, gpus_per_node.source)
    return PastedFacts(kind=kind, trainer=trainer, facts=facts, settings=tuple(own))


# ---------------------------------------------------------------------------- scripts


def _script_facts(
    pasted: PastedText, kind: PastedKind, scripts: Mapping[str, str],
    files: Sequence[tuple[PastedText, PastedKind]],
) -> PastedFacts:  # fmt: skip
    """Facts from a pasted script, and from the files beside it that its command names."""
    contents, batch = follow(pasted.text, pasted.name, scripts)
    slurm = {} if batch is None else machines.asked_of_slurm(batch)
    call = _training_call(contents)
    if call is not None:
        contents.variables |= {own.name: own for own in call.own_variables}
    if not slurm and call is not None and "srun" in call.texts[: program_at(call)[0]]:
        slurm = machines.asked_of_srun(call)
    launch, options = ([], []) if call is None else options_of(call)
    own = [setting for setting in options if not _is_secret(setting)]
    named = [pair for pair in files if names_file(call, pair[0].name)]
    beside = [setting for pair in named for setting in _settings_of(*pair)]
    of_starter = [
        setting
        for setting in launch
        if call is not None and starter_of(call) == "accelerate" and _SHARES.match(setting.key)
    ]
    everything = (*own, *of_starter, *beside, *_written_settings(contents, pasted.name))
    trainer = trainer_of(call, own, contents, pasted.text)
    for pair in named:
        of_file = trainer_of_file(_settings_of(*pair), pair[0].text, pair[1])
        if of_file not in {"", "deepspeed", "accelerate"} and trainer in {"", "transformers"}:
            trainer = of_file
    lookup = Lookup(
        settings=everything,
        trainer=trainer,
        kind=kind,
        text=pasted.text,
        name=pasted.name,
        call=call,
    )
    facts = _facts_of_settings(lookup)
    facts |= _variable_facts(contents, facts, trainer)
    facts |= devices_of(slurm, launch, contents, lookup)
    for name, fact in machines.in_comments(pasted.text, pasted.name).items():
        if name == "gpu" or not (slurm or call):
            facts.setdefault(name, fact)
    return PastedFacts(
        kind=kind,
        trainer=trainer,
        facts=facts,
        command=call,
        settings=everything,
        other=_other_model(call, lookup),
        disagree=(*_contradictions(own), *_comment_in_command(pasted)),
    )


_SHARES: Final = re.compile(r"(use_)?fsdp|zero_stage$|offload_|mixed_precision$")
"""Options of Accelerate's own that say how ranks share their states, and in what precision."""


def _training_call(contents: Contents) -> ProgramCall | None:
    """The command that trains: the first of those that look most like training."""
    ranks = [(trains(call), call) for call in contents.program_calls]
    best = max((rank for rank, _ in ranks), default=0)
    return next((call for rank, call in ranks if best and rank >= max(2, best - 12)), None)


def _written_settings(contents: Contents, name: str) -> list[Setting]:
    """Settings of files that a script writes."""
    written = [
        setting
        for source in contents.files
        if re.search(r"\.(ya?ml|json|toml)$", source.name) or source.text.lstrip()[:1] == "{"
        for setting in file_settings(source, "yaml", {})
    ]
    return [setting._replace(where=name) for setting in written if not _is_secret(setting)]


def _contradictions(options: Sequence[Setting]) -> Iterable[str]:
    options_by_path = dict[str, Setting]()
    for option in options:
        earlier = options_by_path.get(option.path)
        if earlier is not None and earlier.value != option.value and option.key in _COMPARED:
            yield (
                f"{option.path} is {earlier.value} by {earlier.where} "
                f"and {option.value} by {option.where}; the last counts"
            )
        options_by_path[option.path] = option


_COMPARED: Final = frozenset(
    {"global_batch_size", "micro_batch_size", "seq_length", "tensor_model_parallel_size"}
    | {"pipeline_model_parallel_size"}
)


def _comment_in_command(pasted: PastedText) -> Iterable[str]:
    if line := cut_by_comment(pasted.text):
        yield (
            f"{pasted.name}:{line}: for a shell this comment ends the command; "
            "the lines after it are read as the command's own"
        )


def _other_model(call: ProgramCall | None, lookup: Lookup) -> str:
    """Why a script trains no language model, where its program names another one."""
    if call is None or lookup.has("model_name_or_path", "base_model", "num_attention_heads"):
        return ""
    index, program = program_at(call)
    model = OTHER_MODELS.search(re.sub(r"[_/.-]", " ", program))
    if model is None or LANGUAGE_MODELS.search(" ".join(call.texts)):
        return ""
    where = call.words[min(index, len(call.words) - 1)].where
    return f"{where} starts {program}, and {model[0]} is no language model"


_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "tp": (
        "TP", "TP_SIZE", "TENSOR_PARALLEL_SIZE", "TENSOR_MODEL_PARALLEL_SIZE", "TENSOR_PARALLEL",
    ),
    "pp": ("PP", "PP_SIZE", "PIPELINE_PARALLEL_SIZE", "PIPELINE_MODEL_PARALLEL_SIZE"),
    "seq": ("SEQ_LENGTH", "SEQ_LEN", "SEQLEN", "MAX_SEQ_LEN", "SEQUENCE_LENGTH"),
    "global_batch": ("GLOBAL_BATCH_SIZE", "GBS", "GLOBAL_BATCH"),
    "micro_batch": ("MICRO_BATCH_SIZE", "MBS", "MICRO_BATCH"), "layers": ("NUM_LAYERS", "NLAYERS"),
    "hidden": ("HIDDEN_SIZE", "HIDDEN"),
    "heads": ("NUM_HEADS", "NUM_ATTN_HEADS", "NUM_ATTENTION_HEADS", "HEADS"),
}  # fmt: skip


def _variable_facts(contents: Contents, facts: Mapping[str, Fact], trainer: str) -> dict[str, Fact]:
    """Facts by the usual names of variables, for a Megatron trainer whose options stand in a script
    that was not pasted.
    """
    if not trainer.startswith("megatron") or {"seq", "layers"} & facts.keys():
        return {}
    return {
        name: fact
        for name, names in _VARIABLES.items()
        if name not in facts and (fact := variable(contents, names))
    }


# ---------------------------------------------------------------------------- facts of settings


def _facts_of_settings(lookup: Lookup) -> dict[str, Fact]:
    own = lookup.of_training()
    names = [*_COUNTED, *(("gpus", "nodes", "gpus_per_node") if lookup.call is None else ())]
    facts = {name: fact for name in names if (fact := own.whole(own.keys(name)))}
    if lookup.trainer == "axolotl":
        facts.pop("gpus", None)
    for name, how in (("model", model_of), ("task", task_of)):
        if (fact := how(own)) is not None:
            facts[name] = fact
    if trains_all(own):
        facts.pop("lora_rank", None)
    for name, rules in CHOICES.items():
        if (fact := first_of(rules, own)) is not None:
            facts[name] = fact
    add_sums(facts, own)
    if lookup.kind is PastedKind.MODEL:  # it says nothing of a training
        kept = {*SHAPE, *(("seq",) if lookup.trainer == "open_lm" else ())}
        facts = {name: fact for name, fact in facts.items() if name in kept}
    return facts


def _derive(facts: dict[str, Fact], trainer: str, *, is_batch_open: bool) -> None:
    """Add facts that follow from others: GPUs of the job, data-parallel ranks, the global batch."""

    def value(name: str) -> int:
        return int(facts[name].value) if name in facts else 1

    taken, ranks = value("tp") * value("pp") * value("cp"), facts.pop("dp", None)
    if "gpus" not in facts and {"nodes", "gpus_per_node"} <= facts.keys():
        nodes, gpus_per_node = value("nodes"), value("gpus_per_node")
        facts["gpus"] = Fact(nodes * gpus_per_node, f"derived: {nodes} nodes x {gpus_per_node}")
    if "gpus" not in facts and ranks is not None:
        source = f"derived: {ranks.value} data-parallel ranks x {taken}"
        facts["gpus"] = Fact(int(ranks.value) * taken, source)
    if "gpus" not in facts:
        return
    gpus = value("gpus")
    for name, other in (("nodes", "gpus_per_node"), ("gpus_per_node", "nodes")):
        if name in facts and other not in facts and gpus % value(name) == 0:
            facts[other] = Fact(gpus // value(name), f"derived: {gpus} / {value(name)}")
    if gpus % taken:
        return
    copies = gpus // taken
    if trainer:
        source = f"derived: {gpus} / {taken}" if taken > 1 else facts["gpus"].source
        facts["dp"] = Fact(copies, source)
    if "global_batch" not in facts and "micro_batch" in facts and not is_batch_open:
        micro, accumulation = value("micro_batch"), value("accumulation")
        source = f"derived: micro batch {micro} x accumulation {accumulation} x {copies} ranks"
        facts["global_batch"] = Fact(micro * accumulation * copies, source)
