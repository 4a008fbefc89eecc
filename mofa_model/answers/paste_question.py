"""The question of `mofa advise` that texts ask: model, machines, batch, precision, tuning, and the
layout that they say.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from contextlib import redirect_stderr, suppress
from dataclasses import replace
from io import StringIO
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from mofa_model import presets
from mofa_model.answers.questions import LAYOUTS, OF_HOST, AdviceQuestion, PasteQuestion
from mofa_model.axes.frameworks import framework, trainer_called
from mofa_model.errors import InputError, MofaError
from mofa_model.identity.fact import Fact
from mofa_model.pasted.lookup import keys_of
from mofa_model.pasted.missing import has_model
from mofa_model.pasted.model_names import alike, is_size, preset_named, sizes_of
from mofa_model.pasted.reading import PastedFacts
from mofa_model.pasted.recognise import PastedKind, program_at
from mofa_model.pasted.scripts import unknown
from mofa_model.pasted.wrapped import RunSeen
from mofa_model.units import GIB

if TYPE_CHECKING:
    from mofa_model.launch import Reading

_STATES: Final = {"none": "replicated", "zero1": "distributed", "zero2": "zero2", "zero3": "zero3"}
_USUAL_VOCABULARY: Final = 50304
"""GPT-2's vocabulary of 50,257, rounded up to a multiple of 128. [1]"""


def question_for(
    question: PasteQuestion, pasted_facts: PastedFacts
) -> tuple[AdviceQuestion, list[str]]:
    """The question of `mofa advise` that texts ask, and a sentence for each thing in them that it
    leaves out or assumes.
    """
    facts, notes = pasted_facts.facts, list[str]()
    changed = {
        name: value
        for name, value in question.changed_fields().items()
        if name in AdviceQuestion.options
    }
    gpus = int(facts["gpus"].value)
    fields: dict[str, Any] = {**changed}
    if "model" in changed:
        fields["model"] = model_called(str(changed["model"]), notes)
    else:
        fields["model"] = _model(pasted_facts, notes)
    fields["gpu"] = str(facts["gpu"].value)
    fields.pop("nodes", None)
    fields["gpus"] = str(gpus)
    per_node = facts.get("gpus_per_node")
    if per_node is not None and "gpus_per_node" not in changed and gpus % int(per_node.value) == 0:
        fields["gpus_per_node"] = int(per_node.value)
    fields["sequence_length"] = str(facts["seq"].value)
    fields["global_batch_size"] = str(
        facts["global_batch"].value if "global_batch" in facts else _batch(pasted_facts, notes)
    )
    fields["global_batch_size"] = _in_tokens(fields, notes)
    if changed.get("precision") == ("fp8",):
        fields["precision"] = (_recipe("fp8", pasted_facts),)
    elif "precision" in facts and "precision" not in changed:
        fields["precision"] = (_recipe(str(facts["precision"].value), pasted_facts),)
    framework = trainer_called(pasted_facts.trainer)
    if framework and not {"framework", "stack", "launch"} & changed.keys():
        fields["framework"] = framework
    fields |= _tuning(pasted_facts, changed, notes)
    has_layout = bool({*LAYOUTS} & changed.keys())
    if not has_layout:
        fields |= _what_became(_layout(pasted_facts, gpus, notes), pasted_facts.run, notes)
    if pasted_facts.trainer and not framework:
        notes.append(
            f"{pasted_facts.trainer} is not priced by itself: the answer is the best of all trainers"
        )
    advice_question = AdviceQuestion(**fields)
    advice_question = _runnable(advice_question, changed, notes)
    if has_layout:
        return advice_question, notes
    is_whole = not advice_question.current and not _elsewhere(pasted_facts)
    return _believed(advice_question, notes, is_whole=is_whole), notes


def _what_became(layout: str, run: RunSeen, notes: list[str]) -> dict[str, str]:
    """The option of a layout that was read: --current, --planned or --failed, by what became
    of it.
    """
    if not layout:
        if run in {RunSeen.HOST_FULL, RunSeen.DEVICE_FULL}:
            notes.append(
                "it ran out of memory, and nobody says with which layout: the answer leaves that out"
            )
        return {}
    if run is RunSeen.TRAINED:
        return {"current": layout}
    if run is RunSeen.UNSEEN:
        return {"planned": layout}
    return {"failed": f"{layout}{OF_HOST}" if run is RunSeen.HOST_FULL else layout}


def _in_tokens(fields: Mapping[str, Any], notes: list[str]) -> str:
    """The global batch; a number too large for sequences is taken for tokens."""
    from mofa_model import units
    from mofa_model.spec.training import DOUBTED

    text = str(fields["global_batch_size"])
    if not re.fullmatch(r"\d[\d.]*[kKmMgG]?", text):
        return text
    sequence = units.count(str(fields["sequence_length"]), field="--seq")
    if units.count(text, field="--global-batch") * sequence <= DOUBTED:
        return text
    notes.append(
        f"a global batch of {text} is read as tokens, as nobody trains with so many sequences"
    )
    return f"{text} tokens"


def _batch(pasted_facts: PastedFacts, notes: list[str]) -> int:
    """The global batch, computed from the batch of one rank."""
    facts = pasted_facts.facts

    def degree(name: str) -> int:
        return int(facts[name].value) if name in facts else 1

    gpus, taken = int(facts["gpus"].value), degree("tp") * degree("pp") * degree("cp")
    ranks = max(1, gpus // taken)
    total = int(facts["micro_batch"].value) * degree("accumulation") * ranks
    notes.append(
        f"global batch: micro-batch {facts['micro_batch'].value} x accumulation {degree('accumulation')} x {ranks} ranks = {total}"
    )
    return total


def _model(pasted_facts: PastedFacts, notes: list[str]) -> str:
    """The model: a file of it, its preset, its id, or its shape."""
    facts = pasted_facts.facts
    file = next((name for name, kind in pasted_facts.parts if kind is PastedKind.MODEL), None)
    if (
        file is not None
        and has_model({k: v for k, v in facts.items() if k != "model"})
        and file != "standard input"
    ):
        return file
    named = str(facts["model"].value) if "model" in facts else ""
    if named and (preset := preset_named(named)):
        return preset
    whole = {
        name: facts[name].value
        for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "top_k")
        if name in facts
    }
    if {"layers", "hidden", "heads"} <= whole.keys():
        if _gated(pasted_facts):
            whole["gated"] = "true"
        if "vocab" not in whole:
            whole["vocab"] = _USUAL_VOCABULARY
            notes.append(f"vocabulary: nobody says it; {_USUAL_VOCABULARY} is taken")
        if "experts" in whole and "top_k" not in whole:
            whole["top_k"] = 2
            notes.append("experts of a token: nobody says them; 2 are taken")
        return ",".join(f"{name}={value}" for name, value in whole.items())
    return model_called(named, notes)


def model_called(named: str, notes: list[str]) -> str:
    """A model that is named: its preset, a file, a shape or an id that is known, else a preset that
    is like it.
    """
    if preset := preset_named(named):
        return preset
    try:
        presets.model_named(named)
    except MofaError:
        near = alike(named)
        if not near and (sizes := sizes_of(named)):
            raise InputError(
                f"--model: {named!r} is several models; name one of {', '.join(sizes)}"
            ) from None
        if not near:
            raise
        doubt = "is a size alone" if is_size(named) else "is not known here"
        notes.append(
            f"{named} {doubt}; the shape of {near} is taken; else give --model config.json"
        )
        return near
    return named


def _gated(pasted_facts: PastedFacts) -> bool:
    """Whether the feed-forward part has a gate, as those of Llama's family have."""
    for setting in pasted_facts.settings:
        if setting.key in {
            "swiglu",
            "use_swiglu",
            "glu_activation",
            "is_llama_config",
        } and setting.value.lower() not in {"false", "0"}:
            return True
        if setting.key in {
            "activation_type",
            "hidden_act",
            "activation_function",
            "ffn_type",
            "mlp_type",
            "glu_activation",
            "type",
            "model_type",
            "model_config_name",
        } and re.search(r"swiglu|silu|geglu|llama|mistral|mixtral|qwen", setting.value.lower()):
            return True
    return (
        "ffn" in pasted_facts.facts
        and "hidden" in pasted_facts.facts
        and pasted_facts.facts["ffn"].value % pasted_facts.facts["hidden"].value != 0
    )


def _recipe(word: str, pasted_facts: PastedFacts) -> str:
    """A precision by its width, in the form that the trainer has."""
    if word != "fp8":
        trainer = trainer_called(pasted_facts.trainer)
        return framework(trainer).recipe(word) if trainer else word
    form_words = next(
        (
            setting.value.lower()
            for setting in pasted_facts.settings
            if setting.key in {"fp8_recipe", "float8_recipe_name", "recipe_name"}
        ),
        "",
    )
    for form, name in (
        ("mxfp8", "mxfp8"),
        ("block", "fp8-block"),
        ("row", "fp8-rowwise"),
        ("tensorwise", "fp8-tensorwise"),
        ("current", "fp8-current"),
    ):
        if form in form_words:
            return name
    return "fp8-tensorwise" if pasted_facts.trainer == "torchtitan" else "fp8-delayed"


def _tuning(
    pasted_facts: PastedFacts, changed: Mapping[str, Any], notes: list[str]
) -> dict[str, Any]:
    facts = pasted_facts.facts
    task = str(facts["task"].value) if "task" in facts else ""
    fields: dict[str, Any] = {}
    if (task in {"lora", "qlora"} or "lora_rank" in facts) and "adapter_rank" not in changed:
        fields["adapter_rank"] = int(facts["lora_rank"].value) if "lora_rank" in facts else 16
        if "lora_rank" not in facts:
            notes.append("rank of adapters: nobody says it; 16 is taken")
        if task == "qlora":
            fields["base"] = "nf4"
    if task == "dpo" and "task" not in changed:
        fields["task"] = "dpo"
    elif task and task not in {"pre-training", "full fine-tune", "lora", "qlora", "dpo", "sft"}:
        notes.append(
            f"{task}: its generation and its other models are not priced; the answer is for training the model"
        )
    return fields


def state_of(facts: Mapping[str, Fact]) -> str:
    """How ranks share their states, in the words of a layout; empty where nobody says it."""
    if "sharding" not in facts:
        return ""
    host = "-cpu" if "offload" in facts and "optimizer" in str(facts["offload"].value) else ""
    state = _STATES[str(facts["sharding"].value)]
    return f"{state}{host if state != 'replicated' else ''}"


def _layout(pasted_facts: PastedFacts, gpus: int, notes: list[str]) -> str:
    """The layout that the texts say: by the trainer's own words, else by the facts."""
    from mofa_model.strategy import parse_strategy

    facts = pasted_facts.facts
    layers = int(facts["layers"].value) if "layers" in facts else None
    if why := _not_told(pasted_facts):
        notes.append(f"{why}: its layout is not compared")
        return ""
    if own := _own_words(pasted_facts, gpus, layers):
        return own
    pairs = [
        f"{name}={facts[name].value}" for name in ("tp", "pp", "cp", "ep", "vpp") if name in facts
    ]
    if "micro_batch" in facts:
        pairs.append(f"mbs={facts['micro_batch'].value}")
    if state := state_of(facts):
        pairs.append(f"optimizer={state}")
    if "recompute" in facts:
        pairs.append(f"recompute={facts['recompute'].value}")
    if "tp" in facts and facts["tp"].value > 1 and _splits_sequence(pasted_facts):
        pairs.append("sp=true")
    if not {"tp", "pp", "cp", "ep", "sharding"} & facts.keys():
        return ""
    if pasted_facts.trainer.startswith("megatron") and "vpp" not in facts:
        pairs.append(
            "pp-overlap=false"
        )  # Megatron overlaps the sends of stages where they are interleaved
    text = ",".join(pairs)
    try:
        parse_strategy(text, gpus, field="its layout")
    except InputError as error:
        notes.append(f"{error}; it is not compared")
        return ""
    return text


def _own_words(pasted_facts: PastedFacts, gpus: int, layers: int | None) -> str:
    """The command, where its trainer reads all of the layout in it; empty where a file or a
    variable says a part.
    """
    from mofa_model.launch import read as read_launch

    if pasted_facts.command is None or _elsewhere(pasted_facts):
        return ""
    start, _ = program_at(pasted_facts.command)
    words = pasted_facts.command.texts
    if any("$" in word for word in words[:start]):  # what starts it says nothing of the layout
        words = words[start:]
    if not any(word.startswith("--") for word in words):
        return ""
    with suppress(InputError):
        reading: Reading = read_launch(words)
        open_ended = any("$" in word for word in words if word.startswith("-"))
        if not open_ended and reading.layout and {"tp", "pp", "mbs"} & reading.layout.keys():
            reading.strategy(gpus, layers=layers, field="current")
            return shlex.join(words)
    return ""


def _splits_sequence(pasted_facts: PastedFacts) -> bool:
    """Whether tensor-parallel ranks share the rest of a layer by the sequence: torchtitan's do
    unless told not to.
    """
    settings = {setting.key: setting.value.lower() for setting in pasted_facts.settings}
    if pasted_facts.trainer == "torchtitan":
        no = (
            settings.get("no_enable_sequence_parallel", "false"),
            settings.get("enable_sequence_parallel", "true"),
        )
        return no == ("false", "true")
    return (
        settings.get("sequence_parallel") in {"true", "1"}
        or settings.get("tp_mode") == "reduce_scatter"
    )


def _not_told(pasted_facts: PastedFacts) -> str:
    """Why the layout is unknown: a file or variable that was not given holds a part of it;
    else empty.
    """
    elsewhere = _elsewhere(pasted_facts)
    if elsewhere and not _by_command(pasted_facts, "sharding"):
        return f"{elsewhere} says how ranks share their states and is not here; give it beside"
    degree = _open_degree(pasted_facts)
    return f"nobody says {degree}" if degree else ""


def _by_command(pasted_facts: PastedFacts, name: str) -> bool:
    """Whether the text of the command says a fact, which goes before what files beside it say."""
    fact, command = pasted_facts.facts.get(name), pasted_facts.command
    if fact is None or command is None:
        return False
    return fact.source.partition(":")[0] == command.where.partition(":")[0]


def _open_degree(pasted_facts: PastedFacts) -> str:
    """A degree of the layout that stands in a variable which nobody sets; empty where there
    is none.
    """
    rows = keys_of(pasted_facts.trainer)
    names = {word for fact in ("tp", "pp", "cp", "ep", "micro_batch") for word in rows[fact]}
    open_settings = (
        setting
        for setting in pasted_facts.settings
        if setting.key in names and unknown(setting.value)
    )
    return next((f"{setting.key} ({setting.value})" for setting in open_settings), "")


_NAMES_FILE: Final = re.compile(
    r"-*(deepspeed|deepspeed_config|ds_config|config_file|deepspeed_config_file)"
)


def _elsewhere(pasted_facts: PastedFacts) -> str:
    """The file of DeepSpeed or Accelerate that a command names and nobody gave; empty where there
    is none.
    """
    if pasted_facts.command is None or any(
        setting.path.startswith(("zero_optimization", "deepspeed_config.", "distributed_type"))
        for setting in pasted_facts.settings
    ):
        return ""
    given_names = {PurePosixPath(name).name for name, _ in pasted_facts.parts}
    for before, word in pairwise(("", *pasted_facts.command.texts)):
        name, equals, value = word.partition("=")
        option, path = (name, value) if equals else (before, word)
        is_file = (
            re.search(r"\.(json|ya?ml)$", path) and PurePosixPath(path).name not in given_names
        )
        if is_file and _NAMES_FILE.fullmatch(option.replace("-", "_").lstrip("_")):
            return path
    return ""


def _runnable(
    question: AdviceQuestion, changed: Mapping[str, Any], notes: list[str]
) -> AdviceQuestion:
    """The question without what was read and its trainer, as it is known here, would refuse; what
    is given by options stays, for who gives it wants to know.
    """
    from mofa_model.advice.candidates import question_of
    from mofa_model.answers.advise import request_of
    from mofa_model.search import ANY

    def refused(candidate: AdviceQuestion) -> str:
        with redirect_stderr(StringIO()):  # what is not priced is said with the answer, once
            try:
                request = request_of(candidate)
                if request.framework != ANY:
                    question_of(request)
            except InputError as error:
                return str(error)
        return ""

    why, layout = refused(question), "today's layout" if question.current else "its layout"
    bare = question if {*LAYOUTS} & changed.keys() else without_layout(question)
    trainer = question.framework if "framework" in changed else None
    for without, left_out in (
        (bare, layout),
        (replace(question, framework=trainer), str(question.framework)),
        (replace(bare, framework=trainer), f"{question.framework} and {layout}"),
    ):
        if why and without != question and not refused(without):
            notes.append(f"{why}; the answer leaves {left_out} out")
            return without
    return question


BELIEVED: Final = 1.5
"""Times the memory of a device that a layout may need by the model, and still be taken for one that
runs. [1]
"""


def _believed(question: AdviceQuestion, notes: list[str], *, is_whole: bool) -> AdviceQuestion:
    """The question without a layout that needs so much more memory than there is that something of
    it, as sharding or offloading, cannot have been told: one that runs, or one that is not
    told whole.
    """
    from mofa_model.advice import memory_of_today
    from mofa_model.answers.advise import request_of

    layout = question.current or question.planned or question.failed
    if layout is None:
        return question
    with redirect_stderr(StringIO()):
        request = request_of(question)
    memory = memory_of_today(request)
    if memory is None or memory[0] <= BELIEVED * memory[1]:
        return question
    needs, limit = (f"{size / GIB:.0f} GiB" for size in memory)
    if is_whole and _says_sharding(layout.removesuffix(OF_HOST)):
        return question
    may = "" if question.current else "it cannot start, or "
    notes.append(
        f"{layout} alone needs {needs} of {limit}: {may}not all of its layout is told; the answer leaves it out"
    )
    return without_layout(question)


def without_layout(question: AdviceQuestion) -> AdviceQuestion:
    """The question without the layout that is there already."""
    return replace(question, current=None, planned=None, failed=None)


def _says_sharding(layout: str) -> bool:
    """Whether a layout, or a trainer's command, says how ranks share their states."""
    from mofa_model.launch import read as read_launch
    from mofa_model.strategy import pairs_of

    with suppress(InputError):
        return "optimizer" in pairs_of(layout)
    with suppress(InputError):
        return "sharding" in read_launch(shlex.split(layout)).layout
    return False
