"""TRL: the file of `trl sft`, `trl dpo` and `trl reward`, beside Accelerate's, under which
it runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from mofa_model.errors import BadValue, NotRead
from mofa_model.launch import accelerate, deepspeed, hugging_face
from mofa_model.launch.answer import Launch, LaunchSettings, OpenFile, Reading
from mofa_model.launch.formats import document_for
from mofa_model.launch.table import Words, nested, setting, table
from mofa_model.launch.tuning import (
    PACKED,
    PADDED,
    PAIRED,
    FineTuning,
    base_of,
    notes_of,
    on,
    whole,
)
from mofa_model.launch.tuning_request import in_samples, tuning_of
from mofa_model.strategy import Strategy
from mofa_model.yaml_text import as_yaml

TRAINER: Final = "trl"
FILE: Final = "trl.yaml"
"""Name under which its configuration is printed."""
_TASKS: Final = ("sft", "dpo", "reward")
"""Commands whose file is read and written, by what a sample teaches."""
_SCRIPT: Final = re.compile(r"(?:^|[/.])trl[/.]scripts[/.](\w+?)(?:\.py)?$")
"""The script behind each command, which torchrun or `accelerate launch` may start too."""
_SHIPPED: Final[Mapping[str, Mapping[str, Any]]] = {
    "single_gpu": {"distributed_type": "NO"},
    "multi_gpu": {"distributed_type": "MULTI_GPU"},
    "fsdp1": {"distributed_type": "FSDP", "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD"}},
    "fsdp2": {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2}},
    **{
        f"zero{stage}": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": stage}}
        for stage in (1, 2, 3)
    },
}
"""Files of Accelerate that TRL brings. Source: trl 1.16.0, accelerate_configs."""


def write(strategy: Strategy, settings: LaunchSettings) -> Launch:
    """The files that make TRL run a layout."""
    tuning = tuning_of(TRAINER, settings, task=_TASKS, loss=("chunked",))
    strategy, settings = in_samples(tuning, strategy, settings)
    config, engine = accelerate.configuration(strategy, settings)
    keys = Words(TRAINER, setting)
    paired = tuning.task in PAIRED
    keys.add("dataset_name", "trl-lib/ultrafeedback_binarized" if paired else "stanfordnlp/imdb")
    keys.add("model_name_or_path", tuning.model)
    keys.add("output_dir", "out")
    keys.add("learning_rate", tuning.learning_rate)
    keys.add("num_train_epochs", 1)
    keys.add("dtype", tuning.dtype)
    is_packed = tuning.documents == PACKED
    keys.add("attn_implementation", "flash_attention_2" if is_packed else "sdpa")
    keys.add("max_length", settings.sequence)
    if not paired:
        packs = tuning.documents != PADDED
        keys.add("packing", packs)  # without ends of documents too, so that sequences are full
        keys.add("packing_strategy", "bfd" if is_packed else "wrapped", when=packs)
    _add_adapters(keys, tuning)
    recomputes = config["distributed_type"] != "FSDP"
    hugging_face.add_settings(keys, strategy, settings, recomputes=recomputes)
    files = {FILE: as_yaml(nested(keys.words)), accelerate.FILE: as_yaml(config)}
    words = Words(TRAINER, hugging_face.option)
    words.add("--config", FILE)
    words.add("--accelerate_config", accelerate.FILE)
    if engine:
        files[deepspeed.FILE] = json.dumps(engine, indent=2)
        words.add("--deepspeed_config_file", deepspeed.FILE)
    return words.launch(files=files, notes=notes_of(tuning), starter=(TRAINER, tuning.task))


def _add_adapters(keys: Words, tuning: FineTuning) -> None:
    if not tuning.rank:
        return
    keys.add("use_peft", True)
    keys.add("lora_r", tuning.rank)
    keys.add("lora_alpha", tuning.alpha)
    keys.add("lora_dropout", tuning.dropout)
    keys.add("lora_target_modules", tuning.modules)
    keys.add("lora_task_type", "SEQ_CLS", when=tuning.task == "reward")
    keys.add("use_dora", True, when=tuning.magnitudes)
    keys.add("load_in_8bit", True, when=tuning.base == "int8")
    if tuning.base.startswith("nf4"):
        keys.add("load_in_4bit", True)
        keys.add("use_bnb_nested_quant", tuning.base == "nf4-double")
        keys.add("bnb_4bit_quant_storage", tuning.dtype)  # FSDP shares pieces of one type alone


def matches(words: Sequence[str]) -> bool:
    """Whether a command is one of TRL's own."""
    return _task(words) is not None


def _task(words: Sequence[str]) -> str | None:
    """What a sample teaches, by the command of TRL or by the script that it starts."""
    named = [task for program, task in pairwise(words) if program.rpartition("/")[2] == TRAINER]
    if not {"--use_fsdp", "--use_deepspeed"} & {*words}:  # the layout is in Accelerate's options
        named += [script[1] for word in words if (script := _SCRIPT.search(word))]
    return next((task for task in named if task in _TASKS), None)


def read(words: Sequence[str], open_file: OpenFile | None = None) -> Reading:
    """What options of the command and the files that it names say."""
    options = hugging_face.trainer_options(table(TRAINER), words)
    path = options.pop("--config", None)
    if path is not None and open_file is None:
        raise NotRead("current", " ".join(words), "name a file of TRL that can be read")
    document = document_for(TRAINER, open_file(path), path) if path and open_file else {}
    overrides = hugging_face.keys_of(options)
    return _reading({**document, **overrides}, _task(words) or "sft", open_file)


def read_document(document: Mapping[str, Any], open_file: OpenFile | None = None) -> Reading:
    """The layout of a TRL file: that of the Accelerate file which it names."""
    if "accelerate_config" not in document:
        right = "the layout is in Accelerate's file: name it, or give the command of trl"
        raise BadValue("accelerate_config", None, right)
    return _reading(document, "sft", open_file)


def _documents(settings: Mapping[str, Any]) -> str:
    if not on(settings.get("packing")):
        return PADDED
    return "" if settings.get("packing_strategy") == "wrapped" else PACKED


def _reading(document: Mapping[str, Any], task: str, open_file: OpenFile | None) -> Reading:
    """The layout, settings and kind of fine-tuning that TRL's options and file state."""
    settings = dict(document)
    path = settings.pop("accelerate_config", None) or settings.pop("config_file", None)
    launcher = {"distributed_type": "MULTI_GPU"} if path is None else _SHIPPED.get(str(path))
    if launcher is None:
        if open_file is None:
            raise NotRead("accelerate_config", path, "name a file that can be read")
        launcher = document_for(accelerate.TRAINER, open_file(str(path)), str(path))
    settings.setdefault("gradient_checkpointing", settings.pop("activation_checkpointing", True))
    if on(settings.pop("no_gradient_checkpointing", False)):
        settings["gradient_checkpointing"] = False
    options = hugging_face.options_of(settings, accelerate.TRAINER)
    if settings.get("deepspeed_config_file"):
        options["--deepspeed_config_file"] = settings["deepspeed_config_file"]
    layout_reading = accelerate.reading(launcher, options, open_file)
    rank = whole(settings, "lora_r", 16) if on(settings.get("use_peft")) else 0
    is_half = str(settings.get("dtype", "float32")) in {"bfloat16", "float16"}
    mixed = {
        "FSDP": on(settings.get("bf16", True)),
        "DEEPSPEED": True,
    }  # these widen what they share
    pure = not rank and is_half and not mixed.get(str(launcher.get("distributed_type")), False)
    settings["lora_target_modules"] = settings.get("lora_target_modules") or ["q", "v"]
    tuning = hugging_face.tuning_in(
        settings,
        rank=rank or 0,
        pure=pure,
        base=base_of(
            settings, "load_in_4bit", "load_in_8bit", on(settings.get("use_bnb_nested_quant"))
        ),
        documents=_documents(settings),
        task=task,
        loss="chunked",  # whatever Liger's kernels are told
        alpha=32,
        dropout=0.05,
    )
    return hugging_face.tuner_reading(
        TRAINER, layout_reading, tuning, settings, sequence=whole(settings, "max_length", 1024)
    )
