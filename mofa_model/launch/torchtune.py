"""torchtune: the file of a recipe that `tune run` starts; FSDP2 shares over all devices."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from mofa_model.errors import BadValue, NotRead
from mofa_model.launch import hugging_face
from mofa_model.launch.answer import TUNE, Launch, LaunchSettings, OpenFile, Reading
from mofa_model.launch.formats import document_for
from mofa_model.launch.table import Settings, Words, nested, setting, table
from mofa_model.launch.tuning import (
    ATTENTION,
    FEED_FORWARD,
    PACKED,
    PADDED,
    FineTuning,
    notes_of,
    targets_of,
)
from mofa_model.launch.tuning_request import tuning_of
from mofa_model.strategy import Recompute, Sharding, Strategy
from mofa_model.yaml_text import as_yaml

TRAINER: Final = "torchtune"
FILE: Final = "torchtune.yaml"
"""Name under which its configuration is printed."""
_OPTIMIZERS: Final = {
    "adamw-bf16": "torch.optim.AdamW",
    "adamw-8bit": "bitsandbytes.optim.AdamW8bit",
    "paged-adamw": "bitsandbytes.optim.PagedAdamW",
    "paged-adamw-8bit": "bitsandbytes.optim.PagedAdamW8bit",
    "sgd": "torch.optim.SGD",
}
"""Components that update the weights; moments of torch's are as wide as the weights."""
_LOSSES: Final = {
    "chunked": "torchtune.modules.loss.CEWithChunkedOutputLoss",
    "whole": "torch.nn.CrossEntropyLoss",
}
_ATTENTION: Final = {**{layer: f"{layer}_proj" for layer in ATTENTION}, "o": "output_proj"}
_RECIPES: Final = "_finetune_"


@cache
def _read(part: str) -> Mapping[str, Mapping[str, Any]]:
    """A packaged table of torchtune's own recipes and models."""
    text = Path(__file__).with_name("arguments").joinpath("torchtune.toml").read_text("utf-8")
    return dict(tomllib.loads(text)[part])


def write(strategy: Strategy, settings: LaunchSettings) -> Launch:
    """The file that makes a recipe of torchtune run a layout."""
    tuning = tuning_of(
        TRAINER, settings, task=("sft",), loss=tuple(_LOSSES), base=("", "nf4-double"),
        released=(False, True),
    )  # fmt: skip
    model = _read("models").get(tuning.model)
    if model is None:
        raise BadValue("model", tuning.model, f"torchtune builds {', '.join(_read('models'))}")
    keys = Words(TRAINER, setting)
    folder = f"/tmp/{tuning.model.rpartition('/')[2]}"  # noqa: S108 as its own recipes
    keys.add("dataset._component_", "torchtune.datasets.alpaca_cleaned_dataset")
    keys.add("dataset.packed", tuning.documents != PADDED)  # so that sequences are full
    keys.add("output_dir", "out")
    _add_model(keys, model, folder, tuning, settings)
    keys.add("batch_size", int(strategy.mbs))
    keys.add("gradient_accumulation_steps", settings.micro_batches(strategy))
    keys.add("optimizer._component_", _OPTIMIZERS[settings.optimizer])
    keys.add("optimizer.lr", tuning.learning_rate)
    keys.add(
        "lr_scheduler._component_",
        "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
    )
    keys.add("lr_scheduler.num_warmup_steps", 100)
    keys.add("loss._component_", _LOSSES[tuning.loss])
    if tuning.released:
        if settings.micro_batches(strategy) > 1 or tuning.rank:
            right = "torchtune releases gradients of all weights, in one micro-batch a step"
            raise BadValue("training.released", True, right)
        keys.add("optimizer_in_bwd", True)
    keys.add("enable_activation_checkpointing", strategy.recompute is Recompute.FULL)
    keys.add("enable_activation_offloading", False)
    alone = int(strategy.gpus) == 1
    if not alone:
        keys.add("fsdp_reshard_after_forward", strategy.sharding is Sharding.WEIGHTS)
    keys.add("dtype", "bf16")
    _add_rest(keys)
    words = Words(TRAINER, hugging_face.option)
    words.add("--config", FILE)
    method, devices = (
        "lora" if tuning.rank else "full",
        "single_device" if alone else "distributed",
    )
    recipe = f"{method}{_RECIPES}{devices}"
    fetched = f"fetch the weights first: tune download {tuning.model} --output-dir {folder}"
    notes = [*notes_of(tuning), fetched]
    if settings.interval_steps is not None:
        notes.append("torchtune saves at the end of an epoch, and at no interval of steps")
    return words.launch(
        files={FILE: as_yaml(nested(keys.words))}, notes=notes, starter=TUNE, before=(recipe,)
    )


def _add_model(
    keys: Words, model: Mapping[str, Any], folder: str, tuning: FineTuning, settings: LaunchSettings
) -> None:
    """Add to a torchtune configuration the keys for the model, its tokenizer and its adapters."""
    family, _, size = str(model["builder"]).rpartition(".")
    keys.add("tokenizer._component_", f"torchtune.models.{model['tokenizer']}")
    name = {"LLAMA2": "tokenizer.model", "MISTRAL": "tokenizer.model", "QWEN2": "vocab.json"}
    keys.add("tokenizer.path", f"{folder}/{name.get(model['type'], 'original/tokenizer.model')}")
    keys.add("tokenizer.merges_file", f"{folder}/merges.txt", when=model["type"] == "QWEN2")
    keys.add("tokenizer.max_seq_len", settings.sequence)
    prefix = "lora_" if tuning.rank else ""
    keys.add("model._component_", f"torchtune.models.{family}.{prefix}{size}")
    if tuning.rank:
        part = tuning.targets & {*FEED_FORWARD}
        if part not in (set(), {*FEED_FORWARD}):
            right = "torchtune adapts all of the feed-forward block or none"
            raise BadValue("training.adapterTargets", min(part), right)
        if not tuning.targets & {*ATTENTION}:
            right = "torchtune adapts some of attention: name q, k, v or o too"
            raise BadValue("training.adapterTargets", min(tuning.targets), right)
        keys.add(
            "model.lora_attn_modules",
            [_ATTENTION[layer] for layer in ATTENTION if layer in tuning.targets],
        )
        keys.add("model.apply_lora_to_mlp", bool(part))
        keys.add("model.apply_lora_to_output", False)
        keys.add("model.lora_rank", tuning.rank)
        keys.add("model.lora_alpha", tuning.alpha)
        keys.add("model.lora_dropout", tuning.dropout)
        keys.add("model.use_dora", True, when=tuning.magnitudes)
        keys.add("model.quantize_base", True, when=tuning.base)  # what its builders qlora_… say
    keys.add("checkpointer._component_", "torchtune.training.FullModelHFCheckpointer")
    keys.add("checkpointer.checkpoint_dir", folder)
    files = int(model["files"])
    several = {"filename_format": "model-{}-of-{}.safetensors", "max_filename": f"{files:05d}"}
    keys.add("checkpointer.checkpoint_files", several if files > 1 else ["model.safetensors"])
    keys.add("checkpointer.recipe_checkpoint", None)
    keys.add("checkpointer.output_dir", "${output_dir}")
    keys.add("checkpointer.model_type", model["type"])
    keys.add("save_adapter_weights_only", True, when=tuning.rank)


def _add_rest(keys: Words) -> None:
    """Add the keys that recipes require and that no layout decides."""
    for name, value in {
        "resume_from_checkpoint": False, "seed": None, "shuffle": True, "epochs": 1,
        "max_steps_per_epoch": None, "clip_grad_norm": None, "compile": False, "device": "cuda",
        "metric_logger._component_": "torchtune.training.metric_logging.DiskLogger",
        "metric_logger.log_dir": "${output_dir}/logs", "log_every_n_steps": 1,
        "log_peak_memory_stats": True,
    }.items():  # fmt: skip
        keys.add(name, value)


def matches(words: Sequence[str]) -> bool:
    """Whether a command starts a recipe of torchtune."""
    return any(
        program.rpartition("/")[2] == "tune" and verb == "run" for program, verb in pairwise(words)
    )


def read(words: Sequence[str], open_file: OpenFile | None = None) -> Reading:
    """What the configuration says that a command names, and the keys over it."""
    path = next((value for option, value in pairwise(words) if option == "--config"), None)
    if path is None:
        raise BadValue("current", " ".join(words), "name a configuration: --config FILE")
    recipe = next((word for word in words if _RECIPES in word), "")
    if path in _read("recipes"):
        document = _whole(_read("recipes")[path])
    elif open_file is None:
        raise NotRead("current", path, "name a file of torchtune that can be read")
    else:
        document = dict(document_for(TRAINER, open_file(path), path))
    for word in words[words.index(path) + 1 :]:
        name, equals, value = word.partition("=")
        if equals and not name.startswith("-"):
            _put(document, name, value)
    if "single_device" in recipe:
        document["fsdp_reshard_after_forward"] = False  # one device shares nothing
    reading = read_document(document, open_file)
    return replace(reading, recipe=path) if path in _read("recipes") else reading


def configuration(name: str) -> dict[str, Any]:
    """One of torchtune's own configurations by its name; nothing of any other."""
    recipes = _read("recipes")
    return _whole(recipes[name]) if name in recipes else {}


def _put(document: dict[str, Any], name: str, value: str) -> None:
    *above, last = name.split(".")
    place = document
    for key in above:
        section = place.get(key)
        place[key] = dict(section) if isinstance(section, Mapping) else {"_component_": section}
        place = place[key]
    place[last] = value


_INSIDE: Final = (
    "lora_attn_modules", "apply_lora_to_mlp", "apply_lora_to_output", "lora_rank", "lora_alpha",
    "lora_dropout", "use_dora", "quantize_base",
)  # fmt: skip


def _whole(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A packaged recipe of torchtune in the form of torchtune's own configuration file."""
    model_keys = {name: recipe[name] for name in _INSIDE if name in recipe}
    loss = next(component for component in _LOSSES.values() if component.endswith(recipe["loss"]))
    plain = {name: value for name, value in recipe.items() if name not in _INSIDE}
    return plain | {
        "model": {"_component_": f"torchtune.models.{recipe['model']}", **model_keys},
        "optimizer": {"_component_": recipe["optimizer"]},
        "loss": {"_component_": loss},
        "dataset": {"packed": recipe.get("packed", False)},
        "tokenizer": {"max_seq_len": recipe.get("max_seq_len")},
        "dtype": "bf16",
    }


def read_document(document: Mapping[str, Any], _: OpenFile | None = None) -> Reading:
    """The layout in a configuration of torchtune."""
    settings, arguments = Settings(document), table(TRAINER)
    unpriced = arguments.not_priced(
        {name: value for name, value in settings.leaves().items() if value not in (None, False)}
    )
    builder = str(settings.value("model._component_") or "").removeprefix("torchtune.models.")
    family, _dot, size = builder.rpartition(".")
    has_adapters = size.startswith(("lora_", "qlora_"))
    plain = f"{family}.{size.partition('lora_')[2] if has_adapters else size}"
    rank = (_number(settings, "model.lora_rank") or 8) if has_adapters else 0
    recomputes = settings.truth("enable_activation_checkpointing")
    component = str(settings.value("optimizer._component_") or "torch.optim.AdamW")
    loss = str(settings.value("loss._component_") or _LOSSES["chunked"])
    dtype = str(settings.value("dtype") or "bf16")
    tuning = FineTuning(
        model=_model(plain),
        rank=rank,
        targets=_targets(settings) if rank else frozenset(),
        base="nf4-double"
        if size.startswith("qlora_") or settings.truth("model.quantize_base")
        else "",
        magnitudes=settings.truth("model.use_dora"),
        alpha=int(float(settings.value("model.lora_alpha") or 16)) if rank else 0,
        dropout=float(settings.value("model.lora_dropout") or 0.0) if rank else 0.0,
        optimizer={word: name for name, word in _OPTIMIZERS.items()}.get(component, component),
        pure=True,
        documents=PACKED if settings.truth("dataset.packed") else PADDED,
        loss={word: name for name, word in _LOSSES.items()}.get(loss, loss),
        released=settings.truth("optimizer_in_bwd"),
    )
    reshards = settings.truth("fsdp_reshard_after_forward", default=True)
    layout: dict[str, Any] = {
        "sharding": Sharding.WEIGHTS if reshards else Sharding.GRADIENTS,
        "recompute": Recompute.FULL if recomputes else Recompute.NONE,
    }
    if (mbs := _number(settings, "batch_size")) is not None:
        layout["mbs"] = mbs
    return Reading(
        trainer=TRAINER,
        layout=layout,
        rounds=_number(settings, "gradient_accumulation_steps") or 1,
        sequence=_number(settings, "tokenizer.max_seq_len"),
        precision={"bf16": "bf16-pure", "fp32": "fp32"}.get(dtype),
        tuning=tuning,
        unpriced=unpriced,
    )


def _number(settings: Settings, name: str) -> int | None:
    """A whole number, also where a command says it."""
    value = settings.value(name)
    if value is None or str(value).lower() == "null":
        return None
    return table(TRAINER).number(name, str(value))


def _model(builder: str) -> str:
    """The id of a model by its builder, or the builder's own name."""
    family, _, size = builder.rpartition(".")
    for instead, module in (("llama3.", "llama3_1."), ("llama3_3.", "llama3_1.")):
        if f"{family}." == instead:
            family, size = module[:-1], size.replace(instead[:-1], module[:-1], 1)
    size = size.replace("_instruct", "_base")
    names = {str(row["builder"]): name for name, row in _read("models").items()}
    return names.get(f"{family}.{size}", builder)


def _targets(settings: Settings) -> frozenset[str]:
    named = settings.value("model.lora_attn_modules")
    if named is None:
        named = ["q_proj", "v_proj"]
    if isinstance(named, str):
        named = [name.strip(" '\"") for name in named.strip("[]").split(",")]
    attention = [str(name).replace("output_proj", "o_proj") for name in named]
    more = FEED_FORWARD if settings.truth("model.apply_lora_to_mlp") else ()
    return targets_of([*attention, *more], "model.lora_attn_modules")
