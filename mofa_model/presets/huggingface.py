"""A model hub's config.json as a `Transformer`.

Which fields a family has and what they mean is in `families/`. Every field of the file is either asked for by the family or
known to be harmless; any other is refused by its name, because a field that nobody knows may change the cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mofa_model import files
from mofa_model.errors import BadFile, BadValue, UnknownName, shown
from mofa_model.presets.families import FAMILIES, REFUSED, Fields
from mofa_model.spec import Transformer

LARGEST_FILE: Final = 2**20
"""Bytes of the largest config.json that is read; the longest one published has about 0.2 MiB."""


def read_config(path: Path | str) -> Transformer:
    """The model that a config.json describes; a folder means the config.json in it."""
    file = path if str(path) == "-" else Path(path)
    if isinstance(file, Path) and file.is_dir():
        file = file / "config.json"
    config = files.from_json(files.read_text(file, largest=LARGEST_FILE), file)
    if not isinstance(config, dict):
        raise BadFile(file, f"is not a model configuration: it holds {shown(config)}")
    return from_config(config)


def from_config(config: Mapping[str, Any], *, name: str = "") -> Transformer:
    """The model that the fields of a config.json describe; `name` is what it shall be called.

    >>> from_config({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257}).layers
    12
    """
    fields, about = Fields(config), ""
    kind = str(config.get("model_type"))
    if kind not in {*FAMILIES, *REFUSED} and isinstance(config.get("text_config"), Mapping):
        # What stands around the text is of some other family, whose own fields say nothing about the text, but for the head.
        around = {
            name: config[name] for name in ("tie_word_embeddings",) if config.get(name) is not None
        }
        fields = Fields({**config["text_config"], **around}, "config.text_config")
        kind, about = str(fields.given.get("model_type")), f"{kind[:60]} (its text alone)"
    if kind in REFUSED:
        raise BadValue(f"{fields.path}.model_type", kind, f"{REFUSED[kind]} not modelled")
    if not fields.given.get("model_type"):
        right = 'a model hub\'s config.json names one, for example "model_type": "llama"'
        raise BadValue(f"{fields.path}.model_type", fields.given.get("model_type"), right)
    if kind not in FAMILIES:
        raise UnknownName(f"{fields.path}.model_type", fields.given.get("model_type"), FAMILIES)
    model = FAMILIES[kind](fields)
    fields.finish()
    return replace(model, name=name or about or model.name)
