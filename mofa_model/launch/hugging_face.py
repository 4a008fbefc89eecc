"""Arguments of the Hugging Face trainer, which Accelerate and DeepSpeed start, and its fine-tuners.

As options of a command, or as keys of a fine-tuner's file, whose names are those of the options.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mofa_model.errors import BadValue, NotRead
from mofa_model.launch.answer import LaunchSettings, OpenFile, Reading
from mofa_model.launch.formats import document_for
from mofa_model.launch.table import Arguments, Words, table
from mofa_model.launch.tuning import PAIRED, PURE, FineTuning, on, targets_of, whole
from mofa_model.strategy import LAYER_INPUT, Recompute, Strategy

_KEYWORDS: Final = "--activation_checkpointing_kwargs"
_KNOWN: Final = frozenset(
    {
        "offload",
        "every_n_layers",
        "use_reentrant",
        "preserve_rng_state",
        "determinism_check",
        "debug",
    }
)
"""Keywords of checkpointing: the first two say what is kept, the others how it is done."""


def add_trainer(
    words: Words, strategy: Strategy, settings: LaunchSettings, *, recomputes: bool
) -> None:
    """The arguments of a layout; `recomputes`: whether they say what is computed again."""
    words.add("--per_device_train_batch_size", int(strategy.mbs))
    words.add("--gradient_accumulation_steps", settings.micro_batches(strategy))
    words.add(f"--{settings.precision}")
    if recomputes and strategy.recompute is Recompute.FULL:
        words.add("--activation_checkpointing")
        # DeepSpeed's `cpu_checkpointing` would act on its own checkpointing only.
        words.add(_KEYWORDS, json.dumps({"offload": True}), when=strategy.offload)
    if settings.interval_steps is not None:
        words.add("--save_strategy", "steps")
        words.add("--save_steps", settings.interval_steps)


def option(name: str, values: tuple[object, ...]) -> list[str]:
    """An argument as words, its name before its values: a form for `Words`."""
    return [name, *(str(value) for value in values)]


def trainer_options(arguments: Arguments, words: Sequence[str]) -> dict[str, str | None]:
    """Options of a command by today's names; None where an option stands alone."""
    options: dict[str, str | None] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            name, fixed = arguments.today(name, value if equals else None)
            options[name] = fixed
        elif name and options[name] is None:
            options[name] = word
    return options


def trainer_layout(arguments: Arguments, options: Mapping[str, str | None]) -> dict[str, Any]:
    """The fields of a layout that options of a Hugging Face trainer state, and no others."""
    layout: dict[str, Any] = {}
    if (options.get("--activation_checkpointing", "false") or "true").lower() == "true":
        layout["recompute"] = Recompute.FULL
    if _checkpointing(options).get("offload") is True:
        layout["offload"] = frozenset({LAYER_INPUT})
    if "--per_device_train_batch_size" in options:
        size = options["--per_device_train_batch_size"]
        layout["mbs"] = arguments.number("--per_device_train_batch_size", size)
    return layout


def trainer_precision(options: Mapping[str, str | None]) -> str | None:
    """The precision that options name; None where they name none."""
    return next((word for word in ("bf16", "fp16") if f"--{word}" in options), None)


def save_interval(arguments: Arguments, options: Mapping[str, str | None]) -> int | None:
    """Steps between checkpoints. [1]"""
    saves = options.get("--save_steps")
    return arguments.number("--save_steps", saves) if saves is not None else None


def recomputes_every(options: Mapping[str, str | None]) -> int:
    """N where every N-th layer is computed again; 1 where all are, or none is. [1]"""
    if "--activation_checkpointing" not in options:
        return 1
    interval = _checkpointing(options).get("every_n_layers", 1)
    if isinstance(interval, bool) or not isinstance(interval, int) or interval < 1:
        raise BadValue(
            f"{_KEYWORDS}: every_n_layers", interval, "give a whole number of one or more"
        )
    return interval


def _checkpointing(options: Mapping[str, str | None]) -> Mapping[str, Any]:
    """Keywords of checkpointing, of which all are known that decide what is kept."""
    text = options.get(_KEYWORDS)
    try:
        keywords = json.loads(text or "{}")
    except ValueError:
        keywords = None
    if not isinstance(keywords, dict):
        raise BadValue(_KEYWORDS, text, "give a JSON object")
    unknown = next((name for name in keywords if name not in _KNOWN), None)
    if unknown is not None:
        right = f"its cost is not modelled; give some of {', '.join(sorted(_KNOWN))}"
        raise BadValue(_KEYWORDS, unknown, right)
    return keywords


OPTIMIZERS: Final = {
    "adamw": "adamw_torch_fused",
    "adamw-bf16": "adamw_torch_fused",
    "adamw-8bit": "adamw_bnb_8bit",
    "paged-adamw": "paged_adamw_32bit",
    "paged-adamw-8bit": "paged_adamw_8bit",
    "lion": "lion_32bit",
    "adagrad": "adagrad",
    "sgd": "sgd",
    "adafactor": "adafactor",
}
"""What transformers calls optimizers. Source: transformers 5.23.0, training_args.py:
OptimizerNames."""
_OPTIMIZERS: Final = {
    **{word: name for name, word in OPTIMIZERS.items() if name != "adamw-bf16"},
    "adamw_torch": "adamw",
    "adamw_hf": "adamw",
    "adamw_8bit": "adamw-8bit",
    "adamw_torch_8bit": "adamw-8bit",
    "lion_pytorch": "lion",
}


def add_settings(
    words: Words, strategy: Strategy, settings: LaunchSettings, *, recomputes: bool
) -> None:
    """The keys of a layout in a fine-tuner's file; `recomputes`: whether they say it."""
    words.add("per_device_train_batch_size", int(strategy.mbs))
    words.add("gradient_accumulation_steps", settings.micro_batches(strategy))
    pure = settings.precision == PURE  # then nothing is mixed
    words.add("bf16" if pure else settings.precision, not pure)
    recomputes_all = recomputes and strategy.recompute is Recompute.FULL
    # Always written, because its default differs from trainer to trainer.
    words.add("gradient_checkpointing", recomputes_all)
    if recomputes_all and strategy.offload:
        words.add("gradient_checkpointing_kwargs", {"offload": True})
    words.add("optim", OPTIMIZERS[settings.optimizer])
    if settings.interval_steps is not None:
        words.add("save_strategy", "steps")
        words.add("save_steps", settings.interval_steps)


def options_of(document: Mapping[str, Any], trainer: str) -> dict[str, str | None]:
    """Keys of a fine-tuner's file as options by today's names; what is off is not there."""
    arguments, options = table(trainer), dict[str, str | None]()
    for key, value in document.items():
        if value is None or str(value).lower() == "false":
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        name, fixed = arguments.today(f"--{key}", text)
        if name in arguments.kinds:
            options[name] = fixed
    return options


def keys_of(options: Mapping[str, str | None]) -> dict[str, Any]:
    """Options of a command as keys of a fine-tuner's file: an option that stands alone is on."""
    return {
        name.removeprefix("--"): True if value is None else value for name, value in options.items()
    }


def optimizer_of(word: object, *, pure: bool) -> str:
    """The preset of an optimizer by transformers' word, or the word where it is not priced.

    torch's moments are as wide as the weights that it updates.
    """
    preset = _OPTIMIZERS.get(str(word), str(word))
    return "adamw-bf16" if pure and preset == "adamw" else preset


def tuning_in(
    settings: Mapping[str, Any],
    *,
    rank: int,
    pure: bool,
    base: str,
    documents: str,
    task: str,
    loss: str,
    alpha: int,
    dropout: float = 0.0,
    model_key: str = "model_name_or_path",
    targets_key: str = "lora_target_modules",
    magnitudes_key: str = "use_dora",
    optimizer_key: str = "optim",
) -> FineTuning:
    """The fine-tuning in a file of a trainer that is built on PEFT and the Trainer of transformers.

    `alpha` and `dropout` hold where the file has none; keys are what the trainer calls a setting.
    """
    word, share = settings.get(optimizer_key), settings.get("lora_dropout")
    return FineTuning(
        model=str(settings.get(model_key) or ""),
        rank=rank,
        targets=targets_of(settings.get(targets_key), targets_key) if rank else frozenset(),
        base=base,
        magnitudes=on(settings.get(magnitudes_key)),
        alpha=(whole(settings, "lora_alpha", alpha) or 0) if rank else 0,
        dropout=float(dropout if share is None else share) if rank else 0.0,
        optimizer=optimizer_of("adamw_torch_fused" if word is None else word, pure=pure),
        pure=pure,
        documents=documents,
        task=task,
        loss=loss,
    )


def tuner_reading(
    trainer: str,
    reading: Reading,
    tuning: FineTuning,
    settings: Mapping[str, Any],
    *,
    sequence: int | None,
) -> Reading:
    """What the trainer of transformers is told, as its fine-tuner's file says it."""
    arguments, pairs = table(trainer), 1 + (tuning.task in PAIRED)
    size, batch = reading.layout.get("mbs"), reading.global_batch
    return replace(
        reading,
        trainer=trainer,
        layout={**reading.layout, **({} if size is None else {"mbs": size * pairs})},
        global_batch=batch and batch * pairs,
        sequence=sequence,
        tuning=tuning,
        precision=PURE if tuning.pure else reading.precision,
        unpriced=tuple(dict.fromkeys((*reading.unpriced, *arguments.not_priced(settings)))),
    )


_SHIPPED: Final = re.compile(
    r"(?:examples/deepspeed/ds_z|deepspeed_configs/zero)([0-3])(?:_bf16)?"
    r"(_offload|_cpuoffload_all|_cpuoffload_params)?(?:_config)?\.json"
)
"""Files of DeepSpeed that LLaMA-Factory and Axolotl bring: the stage, and what waits on the host.
Source: LLaMA-Factory, examples/deepspeed; axolotl, deepspeed_configs."""


def engine_of(source: object, open_file: OpenFile | None, field: str) -> Mapping[str, Any]:
    """Accelerate's file that has the layout of DeepSpeed's, which a fine-tuner names or holds."""
    engine = source
    if isinstance(source, str):
        if shipped := _SHIPPED.search(source):
            on_host = {"device": "cpu"}
            zero: dict[str, Any] = {"stage": int(shipped[1])}
            if shipped[2] in {"_offload", "_cpuoffload_all"}:
                zero["offload_optimizer"] = on_host
            if shipped[2] and zero["stage"] == 3:
                zero["offload_param"] = on_host
            engine = {"zero_optimization": zero}
        elif open_file is None:
            raise NotRead(field, source, "name a file that can be read")
        else:
            engine = document_for("deepspeed", open_file(source), source)
    return {"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": engine}}
