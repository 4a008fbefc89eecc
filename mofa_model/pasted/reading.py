"""The facts of what was pasted: what each text says, each with its place.

    read([Pasted(text, name), …])   PastedFacts of several texts together: a script with its file

A command says more than a file, and a file more than a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from mofa_model.identity.classes import LANGUAGE_MODELS, OTHER_MODELS
from mofa_model.identity.commands import ProgramCall, Said
from mofa_model.identity.fact import Fact
from mofa_model.identity.facts import ACCUMULATION
from mofa_model.identity.secret_words import is_secret
from mofa_model.identity.settings import Setting
from mofa_model.pasted import machines, settings
from mofa_model.pasted.choices import CHOICES
from mofa_model.pasted.launches import devices_of, names_file, variable
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
from mofa_model.pasted.told import Told, first_of
from mofa_model.pasted.wrapped import RunSeen
from mofa_model.records import dataclass


class Pasted(NamedTuple):
    """A text that somebody gives."""

    text: str
    name: str
    """What places in it are called: its file."""
    is_inside: bool = False
    """Whether the text was taken out of another one, as the code of a page is."""
    run: RunSeen = RunSeen.UNSEEN
    """What it shows of a run."""


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
    parts: tuple[tuple[str, PastedKind], ...] = ()
    """The texts by their names, with their kinds."""
    run: RunSeen = RunSeen.UNSEEN
    """What the texts show of a run of what they say."""
    is_batch_open: bool = False
    """Whether a variable that nobody sets says how many micro-batches a step has."""


SHAPE: Final = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "top_k")
"""Facts of a model's shape."""
_COUNTED: Final = (
    "seq", "global_batch", "micro_batch", "accumulation", "tp", "pp", "cp", "ep", "vpp", "dp", "interval", "lora_rank", *SHAPE,
)  # fmt: skip
_RANKS: Final = (
    PastedKind.SBATCH, PastedKind.SHELL, PastedKind.YAML, PastedKind.TOML, PastedKind.PYTHON, PastedKind.JSON,
    PastedKind.DEEPSPEED, PastedKind.ACCELERATE, PastedKind.MODEL,
)  # fmt: skip
"""Kinds in the order in which they say what is trained; machines come last."""


def read(texts: Sequence[Pasted]) -> PastedFacts:
    r"""The facts of several texts together; the first text that trains decides what is trained.

    >>> text = "#SBATCH -N 2 --gpus-per-node=8\nsrun python pretrain_gpt.py --bf16"
    >>> found = read([Pasted(text, "j.sh")])
    >>> found.kind.value, found.trainer, found.facts["gpus"].value, found.facts["precision"]
    ('sbatch', 'megatron-lm', 16, Fact(value='bf16', source='j.sh:2'))
    """
    kinds = [(one, kind_of(one.text, one.name)) for one in texts]
    scripts = {PurePosixPath(one.name).name: one.text for one, kind in kinds if kind.is_script}
    order = sorted(kinds, key=lambda pair: _RANKS.index(pair[1]) if pair[1] in _RANKS else 99)
    files = [pair for pair in order if not pair[1].is_script and not pair[1].is_machine]
    found, others = list[PastedFacts](), list[str]()
    training: Pasted | None = None
    for one, kind in order:
        if kind.is_script:
            part = _of_script(one, kind, scripts, files)
            if training is not None and part.command is not None and _apart(training, one):
                others.append(f"{one.name} starts another training, which the answer leaves out")
                continue
            found.append(part)
            training = training or (one if part.command is not None else None)
        elif kind.is_machine:
            found.append(_of_machine(one, kind))
        elif kind is not PastedKind.UNKNOWN and not _is_read(one, found):
            found.append(_of_file(one, kind))
    if not found:
        found.append(PastedFacts(kind=PastedKind.UNKNOWN, trainer="", facts={}))
    together = _together(found, tuple((one.name, kind) for one, kind in kinds))
    # Texts that contradict each other are of two runs.
    shown = max((one.run for one in texts), key=lambda one: one.value, default=RunSeen.UNSEEN)
    run = RunSeen.UNSEEN if together.disagree else shown
    return replace(together, run=run, disagree=(*others, *together.disagree))


def _apart(one: Pasted, other: Pasted) -> bool:
    """Whether neither of two scripts names the other, so that each starts a training of its own."""
    pairs = ((one, other), (other, one))
    return not any(PurePosixPath(named.name).name in by.text for by, named in pairs)


def _is_read(one: Pasted, found: Sequence[PastedFacts]) -> bool:
    """Whether a script that was read has this file among its own."""
    sources = (fact.source for part in found for fact in part.facts.values())
    return any(source.startswith(f"{one.name}:") for source in sources)


def _together(
    found: Sequence[PastedFacts], parts: tuple[tuple[str, PastedKind], ...]
) -> PastedFacts:
    """Facts of several pasted parts as one; where two differ the first holds, and the difference
    is told.
    """
    facts = dict[str, Fact]()
    disagree = [one for part in found for one in part.disagree]
    for part in found:
        for name, fact in part.facts.items():
            held = facts.setdefault(name, fact)
            if held.value != fact.value and "derived" not in held.source + fact.source:
                disagree.append(
                    f"{name} is {held.value} by {held.source} and {fact.value} by {fact.source}"
                )
    own = [part.trainer for part in found if part.trainer not in {"", "deepspeed", "accelerate"}]
    trainer = next(iter([*own, *(part.trainer for part in found if part.trainer)]), "")
    settings = tuple(one for part in found for one in part.settings)
    is_open = "accumulation" not in facts and any(
        one.key in ACCUMULATION and unknown(one.value) for one in settings
    )
    _derive(facts, trainer, is_batch_open=is_open)
    commands = (part.command for part in found if part.command is not None)
    return PastedFacts(
        kind=found[0].kind,
        trainer=trainer,
        facts=facts,
        disagree=tuple(dict.fromkeys(disagree)),
        command=next(commands, None),
        settings=settings,
        is_batch_open=is_open and "global_batch" not in facts,
        other=next((part.other for part in found if part.other), ""),
        parts=parts,
    )


# ---------------------------------------------------------------------------- machines and files


def _of_machine(one: Pasted, kind: PastedKind) -> PastedFacts:
    how = {
        PastedKind.NVIDIA_SMI: machines.of_nvidia_smi,
        PastedKind.SINFO: machines.of_sinfo,
        PastedKind.SCONTROL: machines.of_scontrol,
    }[kind]
    return PastedFacts(kind=kind, trainer="", facts=how(one.text, one.name))


def _settings_of(one: Pasted, kind: PastedKind) -> list[Setting]:
    """The settings of a file; tokens and passwords are none."""
    readers = {PastedKind.TOML: settings.of_toml, PastedKind.PYTHON: settings.of_python}
    found = readers.get(kind, settings.of_yaml)(one.text, one.name)
    return [each for each in found if not _secret(each)]


def _secret(one: Setting) -> bool:
    """Whether a setting is a token or a password; a number and a truth are none."""
    plain = re.fullmatch(r"[\d.eE+-]{1,12}|true|false", one.value)
    return plain is None and is_secret(one.path, one.value)


def _of_file(one: Pasted, kind: PastedKind) -> PastedFacts:
    """The facts of a trainer's file of settings; comments in it may name the GPUs."""
    found = _settings_of(one, kind)
    trainer = trainer_of_file(found, one.text, kind)
    told = Told(settings=tuple(found), trainer=trainer, kind=kind, text=one.text, name=one.name)
    facts = _facts(told)
    comments = machines.spoken(one.text, one.name)
    bare = not {"gpus", "nodes", "gpus_per_node"} & facts.keys()
    if bare or trainer in {"nemo-automodel", "torchtune"}:
        facts = {**comments, **facts}
    elif "gpu" in comments:
        facts.setdefault("gpu", comments["gpu"])
    each = facts.get("gpus_per_node")
    if trainer == "torchtune" and each is not None and not {"gpus", "nodes"} & facts.keys():
        facts["nodes"] = Fact(1, each.source)
    return PastedFacts(kind=kind, trainer=trainer, facts=facts, settings=tuple(found))


# ---------------------------------------------------------------------------- scripts


def _of_script(
    one: Pasted, kind: PastedKind, scripts: Mapping[str, str],
    files: Sequence[tuple[Pasted, PastedKind]],
) -> PastedFacts:  # fmt: skip
    """Facts from a pasted script, and from the files beside it that its command names."""
    said, batch = follow(one.text, one.name, scripts)
    slurm = {} if batch is None else machines.asked_of_slurm(batch)
    call = _call_of(said)
    if call is not None:
        said.variables |= {one.name: one for one in call.own_variables}
    if not slurm and call is not None and "srun" in call.texts[: program_at(call)[0]]:
        slurm = machines.asked_of_srun(call)
    launch, options = ([], []) if call is None else options_of(call)
    own = [setting for setting in options if not _secret(setting)]
    named = [pair for pair in files if names_file(call, pair[0].name)]
    beside = [setting for pair in named for setting in _settings_of(*pair)]
    of_starter = [
        setting
        for setting in launch
        if call is not None and starter_of(call) == "accelerate" and _SHARES.match(setting.key)
    ]
    everything = (*own, *of_starter, *beside, *_written(said, one.name))
    trainer = trainer_of(call, own, said, one.text)
    for pair in named:
        of_file = trainer_of_file(_settings_of(*pair), pair[0].text, pair[1])
        if of_file not in {"", "deepspeed", "accelerate"} and trainer in {"", "transformers"}:
            trainer = of_file
    told = Told(
        settings=everything, trainer=trainer, kind=kind, text=one.text, name=one.name, call=call
    )
    facts = _facts(told)
    facts |= _of_variables(said, facts, trainer)
    facts |= devices_of(slurm, launch, said, told)
    for name, fact in machines.spoken(one.text, one.name).items():
        if name == "gpu" or not (slurm or call):
            facts.setdefault(name, fact)
    return PastedFacts(
        kind=kind,
        trainer=trainer,
        facts=facts,
        command=call,
        settings=everything,
        other=_other(call, told),
        disagree=(*_contradictions(own), *_cut(one)),
    )


_SHARES: Final = re.compile(r"(use_)?fsdp|zero_stage$|offload_|mixed_precision$")
"""Options of Accelerate's own that say how ranks share their states, and in what precision."""


def _call_of(said: Said) -> ProgramCall | None:
    """The command that trains: of those that look most like it the first."""
    ranks = [(trains(call), call) for call in said.program_calls]
    best = max((rank for rank, _ in ranks), default=0)
    return next((call for rank, call in ranks if best and rank >= max(2, best - 12)), None)


def _written(said: Said, name: str) -> list[Setting]:
    """Settings of files that a script writes."""
    found = [
        setting
        for source in said.files
        if re.search(r"\.(ya?ml|json|toml)$", source.name) or source.text.lstrip()[:1] == "{"
        for setting in settings.of_yaml(source.text, name)
    ]
    return [each._replace(where=name) for each in found if not _secret(each)]


def _contradictions(options: Sequence[Setting]) -> Iterable[str]:
    said = dict[str, Setting]()
    for one in options:
        held = said.get(one.path)
        if held is not None and held.value != one.value and one.key in _TOLD:
            yield (
                f"{one.path} is {held.value} by {held.where} and {one.value} by {one.where}; "
                "the last counts"
            )
        said[one.path] = one


_TOLD: Final = frozenset(
    {"global_batch_size", "micro_batch_size", "seq_length", "tensor_model_parallel_size"}
    | {"pipeline_model_parallel_size"}
)


def _cut(one: Pasted) -> Iterable[str]:
    if line := cut_by_comment(one.text):
        yield (
            f"{one.name}:{line}: for a shell this comment ends the command; "
            "the lines after it are read as the command's own"
        )


def _other(call: ProgramCall | None, told: Told) -> str:
    """Why a script trains no language model, where its program names another one."""
    if call is None or told.having("model_name_or_path", "base_model", "num_attention_heads"):
        return ""
    at, program = program_at(call)
    found = OTHER_MODELS.search(re.sub(r"[_/.-]", " ", program))
    if found is None or LANGUAGE_MODELS.search(" ".join(call.texts)):
        return ""
    where = call.words[min(at, len(call.words) - 1)].where
    return f"{where} starts {program}, and {found[0]} is no language model"


_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "tp": ("TP", "TP_SIZE", "TENSOR_PARALLEL_SIZE", "TENSOR_MODEL_PARALLEL_SIZE", "TENSOR_PARALLEL"),
    "pp": ("PP", "PP_SIZE", "PIPELINE_PARALLEL_SIZE", "PIPELINE_MODEL_PARALLEL_SIZE"),
    "seq": ("SEQ_LENGTH", "SEQ_LEN", "SEQLEN", "MAX_SEQ_LEN", "SEQUENCE_LENGTH"),
    "global_batch": ("GLOBAL_BATCH_SIZE", "GBS", "GLOBAL_BATCH"),
    "micro_batch": ("MICRO_BATCH_SIZE", "MBS", "MICRO_BATCH"),
    "layers": ("NUM_LAYERS", "NLAYERS"),
    "hidden": ("HIDDEN_SIZE", "HIDDEN"),
    "heads": ("NUM_HEADS", "NUM_ATTN_HEADS", "NUM_ATTENTION_HEADS", "HEADS"),
}  # fmt: skip


def _of_variables(said: Said, facts: Mapping[str, Fact], trainer: str) -> dict[str, Fact]:
    """Facts that variables say by their names, where the options of a trainer of Megatron's family
    stand in a script that is not here.
    """
    if not trainer.startswith("megatron") or {"seq", "layers"} & facts.keys():
        return {}
    return {
        name: held
        for name, names in _VARIABLES.items()
        if name not in facts and (held := variable(said, names))
    }


# ---------------------------------------------------------------------------- facts of settings


def _facts(told: Told) -> dict[str, Fact]:
    own = told.of_training()
    names = [*_COUNTED, *(("gpus", "nodes", "gpus_per_node") if told.call is None else ())]
    facts = {name: fact for name in names if (fact := own.whole(own.row(name)))}
    if told.trainer == "axolotl":
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
    if told.kind is PastedKind.MODEL:  # it says nothing of a training
        kept = {*SHAPE, *(("seq",) if told.trainer == "open_lm" else ())}
        facts = {name: fact for name, fact in facts.items() if name in kept}
    return facts


def _derive(facts: dict[str, Fact], trainer: str, *, is_batch_open: bool) -> None:
    """Add facts that follow from others: GPUs of the job, data-parallel ranks, the global batch."""

    def value(name: str) -> int:
        return int(facts[name].value) if name in facts else 1

    taken, ranks = value("tp") * value("pp") * value("cp"), facts.pop("dp", None)
    if "gpus" not in facts and {"nodes", "gpus_per_node"} <= facts.keys():
        nodes, each = value("nodes"), value("gpus_per_node")
        facts["gpus"] = Fact(nodes * each, f"derived: {nodes} nodes x {each}")
    if "gpus" not in facts and ranks is not None:
        words = f"derived: {ranks.value} data-parallel ranks x {taken}"
        facts["gpus"] = Fact(int(ranks.value) * taken, words)
    if "gpus" not in facts:
        return
    gpus = value("gpus")
    for one, other in (("nodes", "gpus_per_node"), ("gpus_per_node", "nodes")):
        if one in facts and other not in facts and gpus % value(one) == 0:
            facts[other] = Fact(gpus // value(one), f"derived: {gpus} / {value(one)}")
    if gpus % taken:
        return
    copies = gpus // taken
    if trainer:
        words = f"derived: {gpus} / {taken}" if taken > 1 else facts["gpus"].source
        facts["dp"] = Fact(copies, words)
    if "global_batch" not in facts and "micro_batch" in facts and not is_batch_open:
        micro, again = value("micro_batch"), value("accumulation")
        words = f"derived: micro batch {micro} x accumulation {again} x {copies} ranks"
        facts["global_batch"] = Fact(micro * again * copies, words)
