"""A launch that is a file, as words of a command that has a file of its own, or none.

LLaMA-Factory takes `key=value` behind its file, and `--key value` where there is no file; torchtune
takes `key=value`. Source: llamafactory 0.9.5, hparams/parser.py: read_args; torchtune 0.6.1,
config/_parse.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ruamel.yaml import YAML

from mofa_model.launch.answer import Launch

KEYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama-factory": {
        "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1,
        "disable_gradient_checkpointing": False, "save_strategy": "steps", "save_steps": 500,
        "deepspeed": None,
    },
    "torchtune": {
        "batch_size": None, "gradient_accumulation_steps": 1,
        "enable_activation_checkpointing": False, "enable_activation_offloading": False,
        "fsdp_reshard_after_forward": True,
    },
}  # fmt: skip
"""Keys of a file that say how ranks share their work and when is saved, with what holds where
nobody says them. All else in such a file is the user's own."""
ENGINE: Final = "ds_config.json"
"""Name of the file of DeepSpeed that a command names."""
_FILES: Final = (".yaml", ".yml", ".json")


def file_of(words: Sequence[str]) -> int | None:
    """Which word of a command is its file, or a configuration that the trainer has by that name.

    >>> file_of(["tune", "run", "lora_finetune_distributed", "--config", "llama3/8B_lora"])
    4
    """
    if "--config" in words[:-1]:
        return words.index("--config") + 1
    starts = (index for index, word in enumerate(words) if word == "train" or word.endswith(".py"))
    position = next(starts, len(words)) + 1
    is_file = position < len(words) and not words[position].startswith("-")
    return (
        position
        if is_file and (words[position].endswith(_FILES) or "$" in words[position])
        else None
    )


def over_file(
    launch: Launch, words: Sequence[str], file_values: Mapping[str, Any] | None
) -> Launch:
    """A launch as words of a command, without what its file says already; `said` is None where that
    is not known.

    >>> files = {"x.yaml": "batch_size: 4"}
    >>> launch = Launch(trainer="torchtune", release="", arguments=(), files=files)
    >>> over_file(launch, ["tune", "run", "r", "--config", "c.yaml"], {"batch_size": 2}).arguments
    ('batch_size=4',)
    """
    usual = KEYS[launch.trainer]
    layout_values = YAML(typ="safe").load(next(iter(launch.files.values())))
    is_open = file_of(words) is not None
    settled = {} if is_open and file_values is None else {**usual, **(file_values or {})}
    named = {word.removeprefix("--").partition("=")[0] for word in words}
    arguments, files = list[str](), dict[str, str]()
    for key in usual:
        value = layout_values.get(key, usual[key])
        if isinstance(value, Mapping):
            files[ENGINE] = json.dumps(value, indent=2) + "\n"
            value = ENGINE
        if key not in named and key in settled and _text(value) == _text(settled[key]):
            continue
        if is_open:
            arguments.append(f"{key}={_text(value)}")
        elif value is not None:
            arguments += [f"--{key}", _text(value)]
    return replace(launch, arguments=tuple(arguments), files=files)


def _text(value: object) -> str:
    """A value as YAML writes it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
