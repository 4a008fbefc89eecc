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
        "disable_gradient_checkpointing": False, "save_strategy": "steps", "save_steps": 500, "deepspeed": None,
    },
    "torchtune": {
        "batch_size": None, "gradient_accumulation_steps": 1, "enable_activation_checkpointing": False,
        "enable_activation_offloading": False, "fsdp_reshard_after_forward": True,
    },
}  # fmt: skip
"""Keys of a file that say how ranks share their work and when is saved, with what holds where
nobody says them. All else in such a file is the user's own."""
ENGINE: Final = "ds_config.json"
"""Name of the file of DeepSpeed that a command names."""
_FILES: Final = (".yaml", ".yml", ".json")


def file_of(words: Sequence[str]) -> int | None:
    """Which word of a command is its file, or a configuration that the trainer has by that name.

    >>> file_of(["tune", "run", "full_finetune_distributed", "--config", "llama3/8B_full", "epochs=1"])
    4
    """
    if "--config" in words[:-1]:
        return words.index("--config") + 1
    starts = (at for at, word in enumerate(words) if word == "train" or word.endswith(".py"))
    at = next(starts, len(words)) + 1
    is_file = at < len(words) and not words[at].startswith("-")
    return at if is_file and (words[at].endswith(_FILES) or "$" in words[at]) else None


def over_file(launch: Launch, words: Sequence[str], said: Mapping[str, Any] | None) -> Launch:
    """A launch as words of a command, without what its file says already; `said` is None where that
    is not known.

    >>> launch = Launch(trainer="torchtune", release="", arguments=(), files={"x.yaml": "batch_size: 4"})
    >>> over_file(launch, ["tune", "run", "r", "--config", "c.yaml"], {"batch_size": 2}).arguments
    ('batch_size=4',)
    """
    usual = KEYS[launch.trainer]
    wanted = YAML(typ="safe").load(next(iter(launch.files.values())))
    is_open = file_of(words) is not None
    known = {**usual, **said} if said is not None else {} if is_open else dict(usual)
    told = {word.removeprefix("--").partition("=")[0] for word in words}
    made, files = list[str](), dict[str, str]()
    for key in usual:
        value = wanted.get(key, usual[key])
        if isinstance(value, Mapping):
            files[ENGINE] = json.dumps(value, indent=2) + "\n"
            value = ENGINE
        if key not in told and key in known and _text(value) == _text(known[key]):
            continue
        if is_open:
            made.append(f"{key}={_text(value)}")
        elif value is not None:
            made += [f"--{key}", _text(value)]
    return replace(launch, arguments=tuple(made), files=files)


def _text(value: object) -> str:
    """A value as YAML writes it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
