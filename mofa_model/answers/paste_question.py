"""The question of `mofa advise` that pasted texts ask: model, machines, batch, precision, tuning
and layout.
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
from mofa_model.pasted.wrapped import RunState
from mofa_model.units import GIB

if TYPE_CHECKING:
    from mofa_model.launch import Reading

_STATES: Final = {"none": "replicated", "zero1": "distributed", "zero2": "zero2", "zero3": "zero3"}
_USUAL_VOCABULARY: Final = 50304
"""GPT-2's vocabulary of 50,257, rounded up to a multiple of 128. [1]"""
_GATE_SWITCHES: Final = ("swiglu", "use_swiglu", "glu_activation", "is_llama_config")
_GATE_NAMES: Final = (
    "activation_type", "hidden_act", "activation_function", "ffn_type", "mlp_type",
    "glu_activation", "type", "model_type", "model_config_name",
)  # fmt: skip
_GATED: Final = r"swiglu|silu|geglu|llama|mistral|mixtral|qwen"
_FP8_RECIPES: Final = {
    "mxfp8": "mxfp8",
    "block": "fp8-block",
    "row": "fp8-rowwise",
    "tensorwise": "fp8-tensorwise",
    "current": "fp8-current",
}
"""Recipes of fp8 by a word in a trainer's setting; of several words the first counts."""


def question_for(
    question: PasteQuestion, pasted_facts: PastedFacts
) -> tuple[AdviceQuestion, list[str]]:
    """The question of `mofa advise` that texts ask, with a note on each fact that it leaves out or
    assumes.
    """
    facts, notes = pasted_facts.facts, list[str]()
    changed = question.changed_fields()
    changed = {name: changed[name] for name in changed if name in AdviceQuestion.options}
    gpus = int(facts["gpus"].value)
    fields: dict[str, Any] = {**changed, "gpu": str(facts["gpu"].value), "gpus": str(gpus)}
    fields.pop("nodes", None)
    if "model" in changed:
        fields["model"] = model_called(str(changed["model"]), notes)
    else:
        fields["model"] = _model(pasted_facts, notes)
    per_node = facts.get("gpus_per_node")
    if per_node is not None and "gpus_per_node" not in changed and gpus % int(per_node.value) == 0:
        fields["gpus_per_node"] = int(per_node.value)
    batch = facts["global_batch"].value if "global_batch" in facts else _batch(pasted_facts, notes)
    fields["sequence_length"] = str(facts["seq"].value)
    fields["global_batch_size"] = _in_tokens(str(batch), fields["sequence_length"], notes)
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
        fields |= _layout_option(_layout(pasted_facts, gpus, notes), pasted_facts.run, notes)
    if (trainer := pasted_facts.trainer) and not framework:
        notes.append(f"{trainer} is not priced by itself: the answer is the best of all trainers")
    advice_question = _runnable(AdviceQuestion(**fields), changed, notes)
    if has_layout:
        return advice_question, notes
    is_whole = not advice_question.current and not _elsewhere(pasted_facts)
    return _believed(advice_question, notes, is_whole=is_whole), notes


def _layout_option(layout: str, run: RunState, notes: list[str]) -> dict[str, str]:
    """The option of a layout that was read, by its run's end: --current, --planned, --failed."""
    if not layout:
        if run in {RunState.HOST_FULL, RunState.DEVICE_FULL}:
            unknown_layout = "nobody says with which layout: the answer leaves that out"
            notes.append(f"it ran out of memory, and {unknown_layout}")
        return {}
    if run is RunState.TRAINED:
        return {"current": layout}
    if run is RunState.UNSEEN:
        return {"planned": layout}
    return {"failed": f"{layout}{OF_HOST}" if run is RunState.HOST_FULL else layout}


def _in_tokens(batch: str, sequence: str, notes: list[str]) -> str:
    """The global batch; a number too large for sequences is taken for tokens."""
    from mofa_model import units
    from mofa_model.spec.training import DOUBTED

    if not re.fullmatch(r"\d[\d.]*[kKmMgG]?", batch):
        return batch
    tokens = units.count(sequence, field="--seq") * units.count(batch, field="--global-batch")
    if tokens <= DOUBTED:
        return batch
    note = f"a global batch of {batch} is read as tokens, as nobody trains with so many sequences"
    notes.append(note)
    return f"{batch} tokens"


def _batch(pasted_facts: PastedFacts, notes: list[str]) -> int:
    """The global batch, computed from the batch of one rank."""
    facts = pasted_facts.facts

    def degree(name: str) -> int:
        return int(facts[name].value) if name in facts else 1

    micro_batch, accumulation = int(facts["micro_batch"].value), degree("accumulation")
    ranks = max(1, int(facts["gpus"].value) // (degree("tp") * degree("pp") * degree("cp")))
    total = micro_batch * accumulation * ranks
    factors = f"micro-batch {facts['micro_batch'].value} x accumulation {accumulation} x {ranks}"
    notes.append(f"global batch: {factors} ranks = {total}")
    return total


def _model(pasted_facts: PastedFacts, notes: list[str]) -> str:
    """The model: its file, its preset, its id, or its shape."""
    facts = pasted_facts.facts
    file = next((name for name, kind in pasted_facts.parts if kind is PastedKind.MODEL), None)
    unnamed = {name: fact for name, fact in facts.items() if name != "model"}
    if file is not None and has_model(unnamed) and file != "standard input":
        return file
    name = str(facts["model"].value) if "model" in facts else ""
    if name and (preset := preset_named(name)):
        return preset
    sizes = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "top_k")
    shape = {size: facts[size].value for size in sizes if size in facts}
    if not {"layers", "hidden", "heads"} <= shape.keys():
        return model_called(name, notes)
    if _gated(pasted_facts):
        shape["gated"] = "true"
    if "vocab" not in shape:
        shape["vocab"] = _USUAL_VOCABULARY
        notes.append(f"vocabulary: nobody says it; {_USUAL_VOCABULARY} is taken")
    if "experts" in shape and "top_k" not in shape:
        shape["top_k"] = 2
        notes.append("experts of a token: nobody says them; 2 are taken")
    return ",".join(f"{size}={value}" for size, value in shape.items())


def model_called(named: str, notes: list[str]) -> str:
    """A model by its name: its preset, a file, a shape or a known id; else a preset like it."""
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
        value = setting.value.lower()
        if setting.key in _GATE_SWITCHES and value not in {"false", "0"}:
            return True
        if setting.key in _GATE_NAMES and re.search(_GATED, value):
            return True
    facts = pasted_facts.facts
    # A gated part is usually 8/3 times as wide as the layer, one without a gate 4 times.
    return {"ffn", "hidden"} <= facts.keys() and facts["ffn"].value % facts["hidden"].value != 0


def _recipe(word: str, pasted_facts: PastedFacts) -> str:
    """A precision by its width, in the form that the trainer has."""
    if word != "fp8":
        trainer = trainer_called(pasted_facts.trainer)
        return framework(trainer).recipe(word) if trainer else word
    keys = {"fp8_recipe", "float8_recipe_name", "recipe_name"}
    values = (setting.value for setting in pasted_facts.settings if setting.key in keys)
    setting = next(values, "").lower()
    for form, recipe in _FP8_RECIPES.items():
        if form in setting:
            return recipe
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
            f"{task}: its generation and its other models are not priced; the answer is for"
            " training the model"
        )
    return fields


def state_of(facts: Mapping[str, Fact]) -> str:
    """How ranks share their states, in the words of a layout; empty where no fact states it."""
    if "sharding" not in facts:
        return ""
    host = "-cpu" if "offload" in facts and "optimizer" in str(facts["offload"].value) else ""
    state = _STATES[str(facts["sharding"].value)]
    return f"{state}{host if state != 'replicated' else ''}"


def _layout(pasted_facts: PastedFacts, gpus: int, notes: list[str]) -> str:
    """The layout of the texts: in the trainer's own words, else by the facts; empty if unknown."""
    from mofa_model.strategy import parse_strategy

    facts = pasted_facts.facts
    layers = int(facts["layers"].value) if "layers" in facts else None
    if why := _why_unknown(pasted_facts):
        notes.append(f"{why}: its layout is not compared")
        return ""
    if command := _own_words(pasted_facts, gpus, layers):
        return command
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
        pairs.append("pp-overlap=false")  # Megatron overlaps the sends of interleaved stages alone
    text = ",".join(pairs)
    try:
        parse_strategy(text, gpus, field="its layout")
    except InputError as error:
        notes.append(f"{error}; it is not compared")
        return ""
    return text


def _own_words(pasted_facts: PastedFacts, gpus: int, layers: int | None) -> str:
    """The command, where its trainer reads all of the layout in it; empty where a part of it stands
    in a file or a variable.
    """
    from mofa_model.launch import read as read_launch

    if pasted_facts.command is None or _elsewhere(pasted_facts):
        return ""
    start, _ = program_at(pasted_facts.command)
    words = pasted_facts.command.texts
    if any("$" in word for word in words[:start]):  # the launcher before it has no layout
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
    """Whether tensor-parallel ranks share the rest of a layer by the sequence."""
    settings = {setting.key: setting.value.lower() for setting in pasted_facts.settings}
    if pasted_facts.trainer == "torchtitan":  # its ranks do so by default
        is_off = settings.get("no_enable_sequence_parallel", "false") != "false"
        return not is_off and settings.get("enable_sequence_parallel", "true") == "true"
    if settings.get("sequence_parallel") in {"true", "1"}:
        return True
    return settings.get("tp_mode") == "reduce_scatter"


def _why_unknown(pasted_facts: PastedFacts) -> str:
    """Why the layout is unknown: a part of it is in a file or variable that was not given; else
    empty.
    """
    elsewhere = _elsewhere(pasted_facts)
    if elsewhere and not _by_command(pasted_facts, "sharding"):
        return f"{elsewhere} says how ranks share their states and is not here; give it beside"
    degree = _open_degree(pasted_facts)
    return f"nobody says {degree}" if degree else ""


def _by_command(pasted_facts: PastedFacts, name: str) -> bool:
    """Whether a fact stands in the text of the command, which wins over files beside it."""
    fact, command = pasted_facts.facts.get(name), pasted_facts.command
    if fact is None or command is None:
        return False
    return fact.source.partition(":")[0] == command.where.partition(":")[0]


def _open_degree(pasted_facts: PastedFacts) -> str:
    """The first degree of the layout that is a variable without a value; empty without one."""
    rows = keys_of(pasted_facts.trainer)
    keys = {key for fact in ("tp", "pp", "cp", "ep", "micro_batch") for key in rows[fact]}
    for setting in pasted_facts.settings:
        if setting.key in keys and unknown(setting.value):
            return f"{setting.key} ({setting.value})"
    return ""


_NAMES_FILE: Final = re.compile(
    r"-*(deepspeed|deepspeed_config|ds_config|config_file|deepspeed_config_file)"
)


def _elsewhere(pasted_facts: PastedFacts) -> str:
    """The file of DeepSpeed or Accelerate that a command names and nobody gave; else empty."""
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
    """The question without a trainer or layout of the texts that the model refuses.

    A trainer or layout that options give stays: its user wants to see the error.
    """
    from mofa_model.advice.candidates import question_of
    from mofa_model.answers.advise import request_of
    from mofa_model.search import ANY

    def refused(candidate: AdviceQuestion) -> str:
        with redirect_stderr(StringIO()):  # the answer itself says once which words have no price
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
"""Factor by which the predicted memory of a layout that runs may exceed the device's. [1]"""


def _believed(question: AdviceQuestion, notes: list[str], *, is_whole: bool) -> AdviceQuestion:
    """The question without a layout that needs far too much memory to run: the texts must lack a
    part of it, such as sharding or offloading.

    `is_whole` tells that no part of it can be missing; then it stays if it states its sharding.
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
        f"{layout} alone needs {needs}, and a device has {limit}: {may}part of the layout is not"
        " stated; the answer leaves this layout out"
    )
    return without_layout(question)


def without_layout(question: AdviceQuestion) -> AdviceQuestion:
    """The question without a layout that exists already."""
    return replace(question, current=None, planned=None, failed=None)


def _says_sharding(layout: str) -> bool:
    """Whether a layout, or a trainer's command, states how ranks share their states."""
    from mofa_model.launch import read as read_launch
    from mofa_model.strategy import pairs_of

    with suppress(InputError):
        return "optimizer" in pairs_of(layout)
    with suppress(InputError):
        return "sharding" in read_launch(shlex.split(layout)).layout
    return False
