"""What is trained, and how: the model's name, and whether all weights are trained, adapters,
or preferences.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from mofa_model.identity.classes import LANGUAGE_MODELS
from mofa_model.identity.fact import Fact
from mofa_model.identity.named_models import model_preset
from mofa_model.identity.settings import Setting
from mofa_model.pasted.recognise import PastedKind, program_at
from mofa_model.pasted.scripts import unknown
from mofa_model.pasted.told import OFF, Told, first_of, number, said_of

_SIZED: Final = re.compile(
    r"(?<![a-z0-9.])(\d+x)?\d+(\.\d+|[_p]\d)?[bm](?![a-z0-9])", re.IGNORECASE
)
_RECIPE: Final = re.compile(r"_(pretrain|sft|peft|finetune)(_config|_recipe)?$|_config$")
_NO_NAME: Final = frozenset({"true", "false", "none", "null", "auto"})
_NAMES_A_MODEL: Final = frozenset(
    {"model_name_or_path", "pretrained_model_name_or_path", "base_model"}
)
_FOLDERS: Final = frozenset(
    {
        "checkpoint",
        "checkpoints",
        "ckpt",
        "ckpts",
        "model",
        "models",
        "output",
        "outputs",
        "pretrained",
        "weights",
    }
)
"""Folders of people's own, which are no organisation of a hub."""
_NO_MODEL: Final = re.compile(r"(run|ckpt|checkpoint|output|iter|step|epoch|exp)", re.IGNORECASE)

# ------------------------------------------------------------------ the model's name


def _in_two_words(told: Told) -> Fact | None:
    """The model of trainers that name it in two settings: a family and a size."""
    if told.trainer == "torchtitan":
        name, flavor = told.first("model.name"), told.first("model.flavor")
        module, config = told.first("module"), told.first("config")
        if name and flavor:
            return Fact(f"{name.value} {flavor.value}", name.where)
        return said_of(config if module else None, config.value if config else "")
    if told.trainer == "nemo" and told.kind is PastedKind.PYTHON:
        named = (one for one in told.settings if one.path == "name" and _SIZED.search(one.value))
        one = next(named, None)
        return said_of(one, one.value if one else "")
    return None


def _by_option(told: Told) -> Fact | None:
    for one in told.each(told.row("model")):
        if value := name_of(one, told.trainer):
            return Fact(value, one.where)
    return None


def _by_file(told: Told) -> Fact | None:
    """The task, by the name of the settings file that a command gives to its trainer."""
    ends = {"llm-foundry": (".yaml", ".yml"), "maxtext": (".yaml", ".yml"), "olmo-core": (".py",)}
    if told.call is None or told.trainer not in {*ends, "torchtune"}:
        return None
    if told.trainer == "torchtune":  # its own configurations are named for their models
        config = told.first("config")
        family, _, size = (config.value if config else "").rpartition("/")
        sized = _SIZED.match(size)
        return said_of(config, f"{family} {sized[0]}" if family and sized else "")
    for word in told.call.words:
        path = PurePosixPath(word.text)
        if path.suffix in ends[told.trainer] and _SIZED.search(path.stem):
            return Fact(
                path.stem.replace("_", "-") if told.trainer == "maxtext" else path.stem, word.where
            )
    return None


def model_of(told: Told) -> Fact | None:
    """The model that settings or command name; None where neither does."""
    if told.kind in {PastedKind.DEEPSPEED, PastedKind.ACCELERATE, PastedKind.MODEL}:
        return None
    return first_of((_in_two_words, _by_option, _by_file), told)


def name_of(setting: Setting, trainer: str) -> str:
    """A model's name in a setting; empty where it has none."""
    value = (
        setting.value.strip().strip("'\"").rstrip("/").replace("___", ".")
    )  # as ModelScope stores names
    last = value.rpartition("/")[2]
    if (
        not value
        or unknown(last)
        or re.search(r"[<{]", last)
        or value.lower() in _NO_NAME
        or len(value) > 200
    ):
        return ""
    if re.search(r"\.(py|sh|json|jsonl|txt|pt|bin|model|nemo|gin)$", value):
        return ""
    if trainer in _OWN:
        return _OWN[trainer](setting, value)
    return _of_path(setting, value)


def _of_recipe(one: Setting, value: str) -> str:
    tail = value if one.key == "hf_path" else value.rpartition("/")[2]
    return _RECIPE.sub("", tail)


def _of_factory(_: Setting, value: str) -> str:
    return value if re.search(r"\d[bm]\b", value, re.IGNORECASE) else ""


_OWN: Final = {
    "torchtune": lambda _, value: re.sub(r"^(q?lora|dora)_", "", value.rpartition(".")[2]),
    "megatron-bridge": _of_recipe,
    "nemo-launcher": lambda _, value: value.rpartition("/")[2] if "/" in value else "",
    "olmo-core": _of_factory,
}
"""Trainers that name models in a way of their own."""


def _of_path(one: Setting, value: str) -> str:
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
        if LANGUAGE_MODELS.search(part) and (_SIZED.search(part) or re.search(r"[-_]v?\d", part)):
            return part
    if LANGUAGE_MODELS.search(last) or (len(parts) == 1 and _SIZED.search(last)):
        return last
    named = one.key in _NAMES_A_MODEL and re.search(r"[A-Za-z]", last) and re.search(r"\d", last)
    return last if named and not _NO_MODEL.match(last) else ""


# ------------------------------------------------------------------ the task

_PREFERENCES: Final = re.compile(
    r"(?:^|[^a-z])(dpo|orpo|kto|grpo|ppo|rloo|simpo|gpg|dapo|gspo|reinforce\w*)(?:[^a-z]|$)"
)
_TUNERS: Final = frozenset(
    {"axolotl", "llama-factory", "torchtune", "trl", "transformers", "nemo-automodel", "openrlhf"}
    | {"ms-swift", "xtuner", "verl"}
)
"""Trainers that tune where nothing else is said; all others begin from the beginning."""
_NO_TASK: Final = frozenset({"", "deepspeed", "accelerate", "pytorch-ddp", "open_lm"})
_FINE: Final = "full fine-tune"
_PRE: Final = "pre-training"


def task_of(told: Told) -> Fact | None:
    """The task; None where nothing tells."""
    if told.trainer in _NO_TASK or told.kind is PastedKind.MODEL:
        return None
    if told.call is not None and unknown(PurePosixPath(program_at(told.call)[1]).name):
        return None
    return first_of(
        (
            _recipe_of_python,
            _preference,
            _by_adapters,
            _by_program,
            _of_bridge,
            _of_tuner,
            _of_others,
        ),
        told,
    )


def _recipe_of_python(told: Told) -> Fact | None:
    found = told.kind is PastedKind.PYTHON and re.search(
        r"\bdef pretrain|\bpretrain_recipe\b", told.text
    )
    return Fact(_PRE, told.place) if found else None


def _preference(told: Told) -> Fact | None:
    if (one := told.first("adv_estimator")) is not None and not unknown(one.value):
        return Fact(one.value, one.where)
    for one in told.each(("stage", "rl", "rlhf_type", "train_type", "loss_type", "trainer_type")):
        if found := _PREFERENCES.search(one.value.lower()):
            return Fact(found[1], one.where)
    if told.trainer not in _TUNERS:
        return None
    for text in (told.program, *_names(told)):
        if found := _PREFERENCES.search(text.lower()):
            return Fact(found[1], told.place)
    rewards = any(
        re.search(r"num_generations|reward_funcs|max_completion_length", one.path)
        for one in told.settings
    )
    return Fact("grpo", told.place) if rewards else None


def _names(told: Told) -> list[str]:
    """Names that tell of the task: parts of torchtune, and of a file its own and that of
    its recipe.
    """
    found = [
        one.value
        for one in told.settings
        if one.path in {"loss._component_", "dataset._component_"}
    ]
    if told.call is None:
        found.append(" ".join(PurePosixPath(told.name.replace("__", "/")).parts[-3:]))
        found += re.findall(r"tune run [^\n]*", told.text)[:2]
    return found


def _by_adapters(told: Told) -> Fact | None:
    adapters, bits = _adapters(told), _few_bits(told)
    alone = {"qlora", "adapter", "use_qlora", "_component_", "finetuning_type"}
    if bits is not None and (adapters is not None or bits.key in alone):
        return Fact("qlora", bits.where)
    return said_of(adapters, "lora")


def _by_program(told: Told) -> Fact | None:
    """The task, by the name of the program or recipe: `lora-finetune.py`,
    `lora_finetune_distributed`.
    """
    if told.trainer not in {*_TUNERS, "pytorch-fsdp"} or told.call is None:
        return None
    if any(one.value.lower() in OFF for one in told.each(("use_lora", "lora_enable", "use_peft"))):
        return None
    config = told.first("config") if told.trainer == "torchtune" else None
    text = f"{PurePosixPath(program_at(told.call)[1]).name} {config.value if config else ''}"
    found = re.findall(r"(?:^|[^a-z])(q?lora)(?![a-z])", text.lower())
    return Fact("qlora" if "qlora" in found else "lora", told.place) if found else None


def _few_bits(told: Told) -> Setting | None:
    if one := told.on("load_in_4bit", "qlora", "quantize_base", "load_in_8bit", "use_qlora"):
        return one
    for one in told.each(("adapter", "finetuning_type", "model._component_")):
        if "qlora" in one.value.lower():
            return one
    return next(
        (one for one in told.each(("quantization_bit", "bits")) if number(one.value) in {4, 8}),
        None,
    )


_ADAPTERS: Final = (
    "use_lora", "use_peft", "finetuning_type", "adapter", "peft_method", "peft_scheme", "peft_type", "enable_lora",
    "lora_enable", "lora", "mode", "peft", "peft._target_", "tuner_type", "train_type", "model._component_",
)  # fmt: skip


def trains_all(told: Told) -> bool:
    """Whether a setting says that all weights are trained; a rank beside it is left over."""
    words = ("train_type", "sft_type", "finetuning_type", "tuner_type")
    return any(one.value.lower() == "full" for one in told.each(words))


def _adapters(told: Told) -> Setting | None:
    if trains_all(told):
        return None
    for one in told.each(_ADAPTERS):
        named = re.search(r"lora|peft", one.value.lower()) is not None
        if named or (
            one.key not in {"mode", "peft", "_component_"} and one.value.lower() in {"true", "1"}
        ):
            return one
    ranks = (one for one in told.each(told.row("lora_rank")) if (number(one.value) or 0) > 0)
    return next(ranks, None)


def _of_bridge(told: Told) -> Fact | None:
    if told.trainer not in {"megatron-bridge", "nemo", "nemo-launcher"}:
        return None
    one = told.first("recipe", "training", "factory")
    text = (
        f"{one.value if one else ''} {told.program}{told.name if told.call is None else ''}".lower()
    )
    if re.search(r"peft|lora", text):
        return Fact("lora", told.place)
    tunes = re.search(r"sft|finetun", text) or any("finetune" in one.key for one in told.settings)
    return Fact(_FINE if tunes else _PRE, told.place)


def _of_tuner(told: Told) -> Fact | None:
    if told.trainer not in _TUNERS:
        return None
    if told.trainer in {"trl", "openrlhf", "axolotl"} and not told.having(
        "model_name_or_path", "model", "pretrain", "base_model"
    ):
        return None  # what it does stands in a file that is not here
    one = next((one for one in told.settings if one.path.startswith("pretraining_dataset")), None)
    stage = told.first("stage")
    begins = one or (stage if stage is not None and stage.value == "pt" else None)
    return Fact(_PRE if begins else _FINE, begins.where if begins else told.place)


def _of_others(told: Told) -> Fact | None:
    """Fine-tuning or pre-training, by weights to start from, data, or the program's name;
    else pre-training.
    """
    from_weights = told.first("initialize_from_hf")
    if from_weights is not None and from_weights.value.lower() not in OFF:
        return Fact(_FINE, from_weights.where)
    loader = told.first("train_loader.name")
    if loader is not None and loader.value == "finetuning":
        return Fact(_FINE, loader.where)
    named = re.search(
        r"(?:^|[^a-z])(sft|finetun\w*|fine[-_]tun\w*|instruct|tuning)", told.program.lower()
    )
    may_tune = told.trainer in {"megatron-lm", "megatron-deepspeed", "lit-gpt", "pytorch-fsdp"}
    if may_tune and (named or told.on("finetune")):
        return Fact(_FINE, told.place)
    return Fact(_PRE, told.place)
