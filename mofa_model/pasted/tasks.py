"""What is trained, and how: the model's name, and whether all weights are trained, adapters,
or preferences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Final

from mofa_model.identity.classes import LANGUAGE_MODELS
from mofa_model.identity.fact import OFF, Fact, number
from mofa_model.identity.named_models import SIZED, model_preset
from mofa_model.identity.settings import Setting
from mofa_model.pasted.lookup import Lookup, fact_at, first_fact, first_of
from mofa_model.pasted.recognise import PastedKind, program_at
from mofa_model.pasted.scripts import unknown

_RECIPE: Final = re.compile(r"_(pretrain|sft|peft|finetune)(_config|_recipe)?$|_config$")
_NO_NAME: Final = frozenset({"", "true", "false", "none", "null", "auto"})
_NAMES_A_MODEL: Final = frozenset(
    {"model_name_or_path", "pretrained_model_name_or_path", "base_model"}
)
_FOLDERS: Final = frozenset(
    {"checkpoint", "checkpoints", "ckpt", "ckpts", "model", "models", "output", "outputs"}
    | {"pretrained", "weights"}
)
"""Names of local folders, which are no organisation of a hub."""
_NO_MODEL: Final = re.compile(r"(run|ckpt|checkpoint|output|iter|step|epoch|exp)", re.IGNORECASE)

# ------------------------------------------------------------------ the model's name


def _in_two_words(lookup: Lookup) -> Fact | None:
    """The model of trainers that name it in two settings: a family and a size."""
    if lookup.trainer == "torchtitan":
        name, flavor = lookup.first("model.name"), lookup.first("model.flavor")
        module, config = lookup.first("module"), lookup.first("config")
        if name and flavor:
            return Fact(f"{name.value} {flavor.value}", name.where)
        return fact_at(config if module else None, str)
    if lookup.trainer == "nemo" and lookup.kind is PastedKind.PYTHON:
        names = (setting for setting in lookup.settings if setting.path == "name")
        return first_fact(names, lambda name: name if SIZED.search(name) else "")
    return None


def _by_option(lookup: Lookup) -> Fact | None:
    settings = lookup.each(lookup.keys("model"))
    facts = (fact_at(setting, name_of(setting, lookup.trainer)) for setting in settings)
    return next(filter(None, facts), None)


def _by_file(lookup: Lookup) -> Fact | None:
    """The model, by the name of the settings file that a command gives to its trainer."""
    ends = {"llm-foundry": (".yaml", ".yml"), "maxtext": (".yaml", ".yml"), "olmo-core": (".py",)}
    if lookup.call is None or lookup.trainer not in {*ends, "torchtune"}:
        return None
    if lookup.trainer == "torchtune":  # its own configurations are named for their models
        return fact_at(lookup.first("config"), _torchtune_model)
    for word in lookup.call.words:
        path = PurePosixPath(word.text)
        if path.suffix in ends[lookup.trainer] and SIZED.search(path.stem):
            name = path.stem.replace("_", "-") if lookup.trainer == "maxtext" else path.stem
            return Fact(name, word.where)
    return None


def _torchtune_model(config: str) -> str:
    family, _, size = config.rpartition("/")
    sized = SIZED.match(size)
    return f"{family} {sized[0]}" if family and sized else ""


def model_of(lookup: Lookup) -> Fact | None:
    """The model that settings or command name; None where neither does."""
    if lookup.kind in {PastedKind.DEEPSPEED, PastedKind.ACCELERATE, PastedKind.MODEL}:
        return None
    return first_of((_in_two_words, _by_option, _by_file), lookup)


def name_of(setting: Setting, trainer: str) -> str:
    """A model's name in a setting; empty where it has none."""
    value = setting.value.strip().strip("'\"").rstrip("/")
    value = value.replace("___", ".")  # as ModelScope stores names
    last = value.rpartition("/")[2]
    if value.lower() in _NO_NAME or len(value) > 200 or unknown(last) or re.search(r"[<{]", last):
        return ""
    if re.search(r"\.(py|sh|json|jsonl|txt|pt|bin|model|nemo|gin)$", value):
        return ""
    if trainer in _OWN:
        return _OWN[trainer](setting, value)
    return _of_path(setting, value)


def _of_recipe(setting: Setting, value: str) -> str:
    tail = value if setting.key == "hf_path" else value.rpartition("/")[2]
    return _RECIPE.sub("", tail)


_OWN: Final[Mapping[str, Callable[[Setting, str], str]]] = {
    "torchtune": lambda _, value: re.sub(r"^(q?lora|dora)_", "", value.rpartition(".")[2]),
    "megatron-bridge": _of_recipe,
    "nemo-launcher": lambda _, value: value.rpartition("/")[2] if "/" in value else "",
    "olmo-core": lambda _, value: value if re.search(r"(?i)\d[bm]\b", value) else "",
}
"""Trainers that name models in a way of their own."""


def _of_path(setting: Setting, value: str) -> str:
    """A hub's id, or the part of a path that names a model."""
    plain = value.partition("://")[2] or value
    parts = [part for part in plain.split("/") if part and "$" not in part]
    if not parts:
        return ""
    is_here = value.startswith(("/", ".", "~")) or parts[0].lower() in _FOLDERS
    if len(parts) == 2 and not is_here and "://" not in value:
        return value
    last = parts[-1]
    if model_preset(last):
        return last
    for part in reversed(parts):
        if LANGUAGE_MODELS.search(part) and (SIZED.search(part) or re.search(r"[-_]v?\d", part)):
            return part
    if LANGUAGE_MODELS.search(last) or (len(parts) == 1 and SIZED.search(last)):
        return last
    named = (
        setting.key in _NAMES_A_MODEL and re.search(r"[A-Za-z]", last) and re.search(r"\d", last)
    )
    return last if named and not _NO_MODEL.match(last) else ""


# ------------------------------------------------------------------ the task

_PREFERENCES: Final = re.compile(
    r"(?:^|[^a-z])(dpo|orpo|kto|grpo|ppo|rloo|simpo|gpg|dapo|gspo|reinforce\w*)(?:[^a-z]|$)"
)
_TUNERS: Final = frozenset(
    {"axolotl", "llama-factory", "torchtune", "trl", "transformers", "nemo-automodel", "openrlhf"}
    | {"ms-swift", "xtuner", "verl"}
)
"""Trainers that fine-tune by default; all others pre-train."""
_NO_TASK: Final = frozenset({"", "deepspeed", "accelerate", "pytorch-ddp", "open_lm"})
_FINE: Final = "full fine-tune"
_PRE: Final = "pre-training"


def task_of(lookup: Lookup) -> Fact | None:
    """The task; None where nothing tells."""
    if lookup.trainer in _NO_TASK or lookup.kind is PastedKind.MODEL:
        return None
    if lookup.call is not None and unknown(PurePosixPath(program_at(lookup.call)[1]).name):
        return None
    if lookup.kind is PastedKind.PYTHON and re.search(
        r"\bdef pretrain|\bpretrain_recipe\b", lookup.text
    ):
        return Fact(_PRE, lookup.place)
    rules = (_preference, _by_adapters, _by_program, _of_bridge, _of_tuner, _of_others)
    return first_of(rules, lookup)


def _preference(lookup: Lookup) -> Fact | None:
    if (setting := lookup.first("adv_estimator")) is not None and not unknown(setting.value):
        return Fact(setting.value, setting.where)
    keys = ("stage", "rl", "rlhf_type", "train_type", "loss_type", "trainer_type")
    if fact := first_fact(lookup.each(keys), _preference_in):
        return fact
    if lookup.trainer not in _TUNERS:
        return None
    for text in (lookup.program, *_names(lookup)):
        if preference := _preference_in(text):
            return Fact(preference, lookup.place)
    rewards = lookup.at(r"num_generations|reward_funcs|max_completion_length")
    return Fact("grpo", lookup.place) if rewards else None


def _preference_in(text: str) -> str:
    preference = _PREFERENCES.search(text.lower())
    return preference[1] if preference else ""


def _names(lookup: Lookup) -> list[str]:
    """Names that tell of the task: parts of torchtune, and of a file its own and that of
    its recipe.
    """
    names = [
        setting.value
        for setting in lookup.settings
        if setting.path in {"loss._component_", "dataset._component_"}
    ]
    if lookup.call is None:
        names.append(" ".join(PurePosixPath(lookup.name.replace("__", "/")).parts[-3:]))
        names += re.findall(r"tune run [^\n]*", lookup.text)[:2]
    return names


def _by_adapters(lookup: Lookup) -> Fact | None:
    adapters, bits = _adapters(lookup), _few_bits(lookup)
    alone = {"qlora", "adapter", "use_qlora", "_component_", "finetuning_type"}
    if bits is not None and (adapters is not None or bits.key in alone):
        return Fact("qlora", bits.where)
    return fact_at(adapters, "lora")


def _by_program(lookup: Lookup) -> Fact | None:
    """The task, by the name of the program or recipe: `lora-finetune.py`,
    `lora_finetune_distributed`.
    """
    if lookup.trainer not in {*_TUNERS, "pytorch-fsdp"} or lookup.call is None:
        return None
    switches = lookup.each(("use_lora", "lora_enable", "use_peft"))
    if any(switch.value.lower() in OFF for switch in switches):
        return None
    config = lookup.first("config") if lookup.trainer == "torchtune" else None
    text = f"{PurePosixPath(program_at(lookup.call)[1]).name} {config.value if config else ''}"
    adapters = re.findall(r"(?:^|[^a-z])(q?lora)(?![a-z])", text.lower())
    return Fact("qlora" if "qlora" in adapters else "lora", lookup.place) if adapters else None


def _few_bits(lookup: Lookup) -> Setting | None:
    if setting := lookup.on("load_in_4bit", "qlora", "quantize_base", "load_in_8bit", "use_qlora"):
        return setting
    for setting in lookup.each(("adapter", "finetuning_type", "model._component_")):
        if "qlora" in setting.value.lower():
            return setting
    widths = lookup.each(("quantization_bit", "bits"))
    return next((width for width in widths if number(width.value) in {4, 8}), None)


_ADAPTERS: Final = (
    "use_lora", "use_peft", "finetuning_type", "adapter", "peft_method", "peft_scheme", "peft_type",
    "enable_lora", "lora_enable", "lora", "mode", "peft", "peft._target_", "tuner_type",
    "train_type", "model._component_",
)  # fmt: skip


def trains_all(lookup: Lookup) -> bool:
    """Whether a setting says that all weights are trained; a rank of adapters beside it does not
    count.
    """
    words = ("train_type", "sft_type", "finetuning_type", "tuner_type")
    return any(setting.value.lower() == "full" for setting in lookup.each(words))


def _adapters(lookup: Lookup) -> Setting | None:
    if trains_all(lookup):
        return None
    for setting in lookup.each(_ADAPTERS):
        value, is_switch = setting.value.lower(), setting.key not in {"mode", "peft", "_component_"}
        if re.search(r"lora|peft", value) or (is_switch and value in {"true", "1"}):
            return setting
    ranks = lookup.each(lookup.keys("lora_rank"))
    return next((rank for rank in ranks if (number(rank.value) or 0) > 0), None)


def _of_bridge(lookup: Lookup) -> Fact | None:
    if lookup.trainer not in {"megatron-bridge", "nemo", "nemo-launcher"}:
        return None
    recipe = lookup.first("recipe", "training", "factory")
    file_name = lookup.name if lookup.call is None else ""
    text = f"{recipe.value if recipe else ''} {lookup.program}{file_name}".lower()
    if re.search(r"peft|lora", text):
        return Fact("lora", lookup.place)
    tunes = re.search(r"sft|finetun", text) or any(
        "finetune" in setting.key for setting in lookup.settings
    )
    return Fact(_FINE if tunes else _PRE, lookup.place)


def _of_tuner(lookup: Lookup) -> Fact | None:
    if lookup.trainer not in _TUNERS:
        return None
    if lookup.trainer in {"trl", "openrlhf", "axolotl"} and not lookup.has(
        "model_name_or_path", "model", "pretrain", "base_model"
    ):
        return None  # what it does stands in a file that is not here
    stage = lookup.first("stage")
    begins = lookup.at("^pretraining_dataset")
    if begins is None and stage is not None and stage.value == "pt":
        begins = stage
    return Fact(_PRE if begins else _FINE, begins.where if begins else lookup.place)


def _of_others(lookup: Lookup) -> Fact | None:
    """Fine-tuning or pre-training, by weights to start from, data, or the program's name;
    else pre-training.
    """
    from_weights = lookup.first("initialize_from_hf")
    if from_weights is not None and from_weights.value.lower() not in OFF:
        return Fact(_FINE, from_weights.where)
    loader = lookup.first("train_loader.name")
    if loader is not None and loader.value == "finetuning":
        return Fact(_FINE, loader.where)
    named = re.search(
        r"(?:^|[^a-z])(sft|finetun\w*|fine[-_]tun\w*|instruct|tuning)", lookup.program.lower()
    )
    may_tune = lookup.trainer in {"megatron-lm", "megatron-deepspeed", "lit-gpt", "pytorch-fsdp"}
    if may_tune and (named or lookup.on("finetune")):
        return Fact(_FINE, lookup.place)
    return Fact(_PRE, lookup.place)
