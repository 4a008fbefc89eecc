"""Models: of a preset, of a model hub's config.json, or of whatever a person names.

    model("llama3-405b")                a preset
    read_config("config.json")          a file of a model hub, whose fields `families` reads
    model_named("org/name")             a preset, a file, or the hub's file of that id

The hub's endpoint, token, cache and offline mode are those of its library's own variables:
HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE. A file that was fetched once is read from the cache
from then on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from mofa_model import files
from mofa_model.blocks import BLOCKS, Embedding, Layer
from mofa_model.errors import (
    BadFile,
    BadValue,
    InputError,
    SourceUnreachable,
    UnknownName,
    install_of,
    shown,
)
from mofa_model.presets import entries
from mofa_model.spec import Run, Transformer

if TYPE_CHECKING:
    from pathlib import Path


def model(name: str) -> Transformer:
    """The shape of a model.

    >>> model("llama3-405b").layers
    126
    """
    return _model(entries.resolve("models", name))


@cache
def _model(name: str) -> Transformer:
    facts = entries.facts(entries.entry("models", name))
    if "config" not in facts:
        return network(name, facts)
    return from_config(facts["config"], name=name)


def network(name: str, facts: Mapping[str, Any]) -> Transformer:
    """A model from a table: `layers` lists runs, each a number of repeats and the blocks of each
    layer of its pattern; a block is a table of its own, of the kind that it says or is called by.
    """
    tables = {key: dict(value) for key, value in facts.items() if isinstance(value, Mapping)}
    embedding = Embedding(**tables.pop("embedding"))
    norms = tables.pop("norms", {})
    blocks = {key: BLOCKS[table.pop("kind", key)](**table) for key, table in tables.items()}
    ends = {
        key: value
        for key, value in facts.items()
        if key not in {*blocks, "embedding", "norms", "layers"}
    }
    runs = tuple(
        Run(
            tuple(Layer(tuple(blocks[word] for word in words), **norms) for words in pattern),
            repeats,
        )
        for repeats, *pattern in facts["layers"]
    )
    return Transformer(name=name, runs=runs, embedding=embedding, **ends)


LARGEST_FILE: Final = 2**20
"""Bytes of the largest config.json that is read; the longest one published has about 0.2 MiB."""


def read_config(path: Path | str) -> Transformer:
    """The model that a config.json describes; a folder means the config.json in it."""
    from pathlib import Path

    file = path if str(path) == "-" else Path(path)
    if isinstance(file, Path) and file.is_dir():
        file = file / "config.json"
    config = files.from_json(files.read_text(file, largest=LARGEST_FILE), file)
    if not isinstance(config, dict):
        raise BadFile(file, f"is not a model configuration: it holds {shown(config)}")
    return from_config(config)


def from_config(config: Mapping[str, Any], *, name: str = "") -> Transformer:
    """The model that the fields of a config.json describe; `name` is what it shall be called.

    >>> gpt2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12}
    >>> from_config({**gpt2, "vocab_size": 50257}).layers
    12
    """
    # The families are imported where they are needed: a preset that lists its layers has none.
    from mofa_model.presets.families import FAMILIES, REFUSED, Fields

    fields, about = Fields(config), ""
    kind = str(config.get("model_type"))
    if kind not in {*FAMILIES, *REFUSED} and isinstance(config.get("text_config"), Mapping):
        # What stands around the text is of some other family, whose own fields say nothing about
        # the text, but for the head.
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


ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
"""What an id looks like: who published the model, and its name."""

_FILE: Final = "config.json"
_INSTEAD: Final = "or give its file: --model config.json"


def config_file(name: str, *, field: str) -> Path | None:
    """The file of a model, from the cache or fetched into it; None where the hub shows no such
    model. `field` names it in errors.
    """
    import logging
    from pathlib import Path

    try:
        import huggingface_hub as hub
        from huggingface_hub import errors
    except ImportError:
        right = f"{install_of('hub')} to read it from the hub"
        raise InputError(
            f"{field}: {name!r} is no preset, and huggingface_hub is not installed; "
            f"{right}, {_INSTEAD}"
        ) from None
    logging.getLogger("huggingface_hub").setLevel(
        logging.CRITICAL
    )  # what matters is said in one line, here
    try:
        if isinstance(cached := hub.try_to_load_from_cache(name, _FILE), str):
            return Path(cached)
        # The download alone would try for half a minute before it says what is wrong.
        hub.get_hf_file_metadata(hub.hf_hub_url(name, _FILE))
        return Path(hub.hf_hub_download(name, _FILE))
    except errors.HFValidationError:
        raise BadValue(field, name, "a model's id on the hub is ORGANISATION/NAME") from None
    except errors.OfflineModeIsEnabled:
        why = "it is not in the cache, and HF_HUB_OFFLINE forbids to fetch it"
        raise SourceUnreachable(f"{field}: {name}: {why}; {_INSTEAD}") from None
    except errors.GatedRepoError:
        right = f"accept its terms there and set HF_TOKEN, {_INSTEAD}"
        raise InputError(
            f"{field}: {name}: the hub gives its files only to who accepts its terms; {right}"
        ) from None
    except errors.RepositoryNotFoundError:
        return None
    except errors.EntryNotFoundError:
        raise InputError(
            f"{field}: {name}: the hub has no {_FILE} for this model; "
            f"give another model, {_INSTEAD}"
        ) from None
    except Exception as error:  # noqa: BLE001 - whatever the library's own HTTP client raises
        why = str(error).partition("\n")[0][:160]
        raise SourceUnreachable(
            f"{field}: {name}: the hub did not answer: {why}; {_INSTEAD}"
        ) from None


_SHAPE: Final = (
    "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "top_k", "gated",
)  # fmt: skip
"""Fields of a shape in words."""


def shape_named(text: str, *, field: str = "--model") -> Transformer:
    """A decoder by its shape alone: with a gate as Llama's, with experts as Mixtral's, else as
    StarCoder 2's.

    >>> shape_named("layers=32,hidden=4096,heads=32,ffn=14336,vocab=128256,gated=true").layers
    32
    """
    values: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in _SHAPE:
            raise UnknownName(field, name, _SHAPE)
        values[name] = value
    sizes: dict[str, int] = {}
    for name in _SHAPE[:-1]:
        if name in values:
            if not values[name].isdecimal() or not 0 < int(values[name]) < 10**9:
                raise BadValue(field, f"{name}={values[name]}", "give a whole number above zero")
            sizes[name] = int(values[name])
    for name in ("layers", "hidden", "heads", "vocab"):
        if name not in sizes:
            raise BadValue(field, text, f"say {name}=… too")
    if sizes["hidden"] % sizes["heads"]:
        right = f"{sizes['heads']} heads must divide it"
        raise BadValue(field, f"hidden={sizes['hidden']}", right)
    gated = values.get("gated", "false").lower() in {"true", "1"} or "experts" in sizes
    config: dict[str, Any] = {
        "model_type": "mixtral" if "experts" in sizes else "llama" if gated else "starcoder2",
        "num_hidden_layers": sizes["layers"],
        "hidden_size": sizes["hidden"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes.get("kv_heads", sizes["heads"]),
        "intermediate_size": sizes.get("ffn", 4 * sizes["hidden"]),
        "vocab_size": sizes["vocab"],
        "max_position_embeddings": 2**20,
    }
    if "experts" in sizes:
        config |= {
            "num_local_experts": sizes["experts"],
            "num_experts_per_tok": sizes.get("top_k", 2),
        }
    return from_config(config, name=f"decoder-{sizes['layers']}x{sizes['hidden']}")


_WEIGHTS: Final = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf")
"""How files of weights end."""


def model_named(text: str) -> Transformer:
    """A preset; a model hub's config.json or the folder with it; or an id or an address on the hub.

    >>> model_named("meta-llama/Llama-3.1-8B").name
    'llama3-8b'
    """
    field = "--model"
    if text.startswith("layers="):
        return shape_named(text, field=field)
    on_hub = entries.model_id(text)
    if on_hub != text and not files.path_kind(text):
        text = on_hub
    also = "or give a model hub's file: --model config.json"
    presets_named = entries.meanings("models", text)
    if text.endswith(_WEIGHTS):
        raise BadFile(text, "is a file of weights; give the config.json that stands beside it")
    if (
        text.endswith(".json")
        or text.startswith(("./", "../", "/", "~"))
        or (not presets_named and files.path_kind(text) == "folder")
    ):
        return _read(text)
    if ID.fullmatch(text) and not presets_named:
        file = config_file(text, field=field)
        if file is not None:
            return _read(file)
        also = f"the hub has no such model, or does not show it without HF_TOKEN; {also}"
    return model(entries.resolve("models", text, field=field, also=also))


def _read(path: Path | str) -> Transformer:
    """A model hub's file; its readers are imported when one is given, and not for every preset."""
    return read_config(path)
