"""LLaMA-Factory: one file of transformers' arguments and its own; DeepSpeed or DDP shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from mofa_model.errors import BadValue, NotRead
from mofa_model.launch import accelerate, deepspeed, hugging_face
from mofa_model.launch.answer import Launch, LaunchSettings, OpenFile, Reading
from mofa_model.launch.formats import document_for
from mofa_model.launch.table import Words, nested, setting, table
from mofa_model.launch.tuning import (
    ALL_LINEAR,
    PACKED,
    PADDED,
    PAIRED,
    notes_of,
    on,
    whole,
)
from mofa_model.launch.tuning_request import in_samples, tuning_of
from mofa_model.strategy import Placement, Recompute, Sharding, Strategy
from mofa_model.yaml_text import as_yaml

TRAINER: Final = "llama-factory"
FILE: Final = "llama-factory.yaml"
"""Name under which its configuration is printed."""
_STAGES: Final = {"sft": "sft", "dpo": "dpo", "reward": "rm"}


def write(strategy: Strategy, settings: LaunchSettings) -> Launch:
    """The file that makes LLaMA-Factory run a layout."""
    tuning = tuning_of(TRAINER, settings, task=tuple(_STAGES), loss=("whole", "fused"))
    strategy, settings = in_samples(tuning, strategy, settings)
    keys = Words(TRAINER, setting)
    keys.add("dataset", "dpo_en_demo" if tuning.task in PAIRED else "alpaca_en_demo")
    keys.add("dataset_dir", "REMOTE:llamafactory/demo_data")
    keys.add("template", "default")
    keys.add("model_name_or_path", tuning.model)
    keys.add("output_dir", "out")
    keys.add("learning_rate", tuning.learning_rate)
    keys.add("num_train_epochs", 1)
    keys.add("stage", _STAGES[tuning.task])
    keys.add("do_train", True)
    keys.add("finetuning_type", "lora" if tuning.rank else "full")
    keys.add("cutoff_len", settings.sequence)
    if tuning.task not in PAIRED:
        packs = tuning.documents != PADDED
        keys.add("packing", packs)  # without ends of documents too, so that sequences are full
        keys.add("neat_packing", tuning.documents == PACKED)
    keys.add("flash_attn", "fa2" if tuning.documents == PACKED else "sdpa")
    keys.add("enable_liger_kernel", True, when=tuning.loss == "fused")
    keys.add("pure_bf16", True, when=tuning.pure)
    if tuning.rank:
        keys.add("lora_rank", tuning.rank)
        keys.add("lora_alpha", tuning.alpha)
        keys.add("lora_dropout", tuning.dropout)
        all_linear = tuning.targets == ALL_LINEAR
        keys.add("lora_target", "all" if all_linear else ",".join(tuning.modules))
        keys.add("use_dora", True, when=tuning.magnitudes)
        if tuning.base:
            keys.add("quantization_bit", 8 if tuning.base == "int8" else 4)
            keys.add("quantization_method", "bnb")
            keys.add("double_quantization", tuning.base == "nf4-double")
    hugging_face.add_settings(keys, strategy, settings, recomputes=True)
    # its own switch decides: without it every layer is computed again, whatever the key above says
    keys.add("disable_gradient_checkpointing", strategy.recompute is not Recompute.FULL)
    shared = strategy.sharding is not Sharding.NONE and int(strategy.data_ranks) > 1
    if shared or strategy.optimizer is Placement.HOST:
        engine = Words(deepspeed.TRAINER, setting)
        deepspeed.add_engine(engine, strategy, settings)
        keys.add("deepspeed", nested(engine.words))
    words = Words(TRAINER, lambda name, _: [name])
    words.add(FILE)
    return words.launch(files={FILE: as_yaml(nested(keys.words))}, notes=notes_of(tuning))


def matches(words: Sequence[str]) -> bool:
    """Whether a command starts LLaMA-Factory with a file or with options."""
    return "llamafactory.launcher" in words or any(
        program.rpartition("/")[2] in {"llamafactory-cli", "lmf"} and verb == "train"
        for program, verb in pairwise(words)
    )


def read(words: Sequence[str], open_file: OpenFile | None = None) -> Reading:
    """What the file says that a command names, or its options."""
    path = next((word for word in words if word.endswith((".yaml", ".yml", ".json"))), None)
    document: Mapping[str, Any] = {}
    if path is not None and not path.endswith("config.json") and "--deepspeed" not in words:
        if open_file is None:
            raise NotRead("current", " ".join(words), "name a file that can be read")
        document = document_for(TRAINER, open_file(path), path)
    options = hugging_face.trainer_options(table(TRAINER), words)
    overrides = hugging_face.keys_of(options)
    if path is not None:
        pairs = (word.partition("=") for word in words[words.index(path) + 1 :])
        overrides |= {name: value for name, equals, value in pairs if equals and name[:1] != "-"}
    return read_document({**document, **overrides}, open_file)


def read_document(document: Mapping[str, Any], open_file: OpenFile | None = None) -> Reading:
    """The layout in a file of LLaMA-Factory."""
    settings = dict(document)
    stage = str(settings.get("stage", "sft"))
    task = {word: task for task, word in _STAGES.items()}.get(stage)
    if task is None and stage != "pt":
        raise BadValue("stage", stage, f"one of pt, {', '.join(_STAGES.values())} is priced here")
    method = str(settings.get("finetuning_type", "lora"))
    if method not in {"lora", "full"}:
        raise BadValue("finetuning_type", method, "lora or full")
    if not on(settings.get("disable_gradient_checkpointing")):
        settings["gradient_checkpointing"] = True
    launcher: Mapping[str, Any] = {"distributed_type": "MULTI_GPU"}
    if str(settings.get("deepspeed") or "null") != "null":
        launcher = hugging_face.engine_of(settings.pop("deepspeed"), open_file, "deepspeed")
    layout_reading = accelerate.reading(
        launcher, hugging_face.options_of(settings, accelerate.TRAINER), open_file
    )
    rank = (whole(settings, "lora_rank", 8) or 0) if method == "lora" else 0
    settings.setdefault("lora_target", "all")
    tuning = hugging_face.tuning_in(
        settings,
        rank=rank,
        pure=on(settings.get("pure_bf16")),
        base=_base(settings),
        documents=_documents(settings, stage),
        task=task or "sft",
        loss="fused" if on(settings.get("enable_liger_kernel")) else "whole",
        alpha=2 * rank,
        targets_key="lora_target",
    )
    return hugging_face.tuner_reading(
        TRAINER, layout_reading, tuning, settings, sequence=whole(settings, "cutoff_len", 2048)
    )


def _documents(settings: Mapping[str, Any], stage: str) -> str:
    if on(settings.get("neat_packing")):
        return PACKED
    # Pre-training packs where nobody says.
    return "" if on(settings.get("packing", stage == "pt")) else PADDED


def _base(settings: Mapping[str, Any]) -> str:
    bits = whole(settings, "quantization_bit")
    if bits is None:
        return ""
    if bits not in {4, 8} or str(settings.get("quantization_method", "bnb")) not in {"bnb", "BNB"}:
        raise BadValue("quantization_bit", bits, "4 or 8 of bitsandbytes is priced here")
    if bits == 8:
        return "int8"
    is_double = on(settings.get("double_quantization", True))
    return "nf4-double" if is_double and not on(settings.get("no_double_quantization")) else "nf4"
