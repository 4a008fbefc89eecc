"""The model that a person names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mofa_model import files
from mofa_model.errors import BadFile
from mofa_model.presets import catalogue, entries, hub
from mofa_model.spec import Transformer

_WEIGHTS: Final = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf")
"""How files of weights end."""


def model_named(text: str, *, field: str = "--model") -> Transformer:
    """A preset; a model hub's config.json or the folder with it; or an id or an address on the hub. `field` is what an error calls
    it.

    >>> model_named("meta-llama/Llama-3.1-8B").name
    'llama3-8b'
    """
    text = text if files.found(text) else entries.model_id(text)
    also = "or give a model hub's file: --model config.json"
    known = entries.meanings("models", text)
    if text.endswith(_WEIGHTS):
        raise BadFile(text, "is a file of weights; give the config.json that stands beside it")
    if (
        text.endswith(".json")
        or text.startswith(("./", "../", "/", "~"))
        or (not known and files.found(text) == "folder")
    ):
        return _read(text)
    if hub.ID.fullmatch(text) and not known:
        file = hub.config_file(text, field=field)
        if file is not None:
            return _read(file)
        also = f"the hub has no such model, or does not show it without HF_TOKEN; {also}"
    return catalogue.model(entries.resolve("models", text, field=field, also=also))


def _read(path: Path | str) -> Transformer:
    """A model hub's file; its readers are imported when one is given, and not for every preset."""
    from mofa_model.presets.huggingface import read_config

    return read_config(path)
