"""A model hub's config.json as a `Transformer`.

What each field means is in families.toml. Every field of the file is either used, known to be harmless, or known to have
its neutral value; any other is refused by its name, because a field that nobody knows may change the cost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn

from mofa_model import files
from mofa_model.blocks import Block, Embedding, Experts, FeedForward, LatentAttention, Layer, SoftmaxAttention
from mofa_model.errors import BadFile, BadValue, UnknownName, shown
from mofa_model.presets import entries
from mofa_model.spec import Run, Transformer

LARGEST_FILE: Final = 2**20
"""Bytes of the largest config.json that is read; the longest one published has about 0.2 MiB."""

_LARGEST: Final = 2**24
"""No width or count of a model comes near this."""

_WINDOWED: Final = "sliding_attention"
_WHOLE: Final = "full_attention"


def read_config(path: Path | str) -> Transformer:
    """The model that a config.json describes; a folder means the config.json in it."""
    file = path if str(path) == "-" else Path(path)
    if isinstance(file, Path) and file.is_dir():
        file = file / "config.json"
    text = files.read_text(file, largest=LARGEST_FILE)
    try:
        config = json.loads(text, parse_constant=_not_a_number)
    except json.JSONDecodeError as error:
        raise BadFile(
            file, f"is not JSON: {error.msg} in line {error.lineno}, column {error.colno}"
        ) from None
    except (RecursionError, ValueError) as error:
        raise BadFile(file, f"is not JSON that can be read: {error}") from None
    if not isinstance(config, dict):
        raise BadFile(file, f"is not a model configuration: it holds {shown(config)}")
    return from_config(config)


def from_config(config: Mapping[str, Any], *, name: str = "") -> Transformer:
    """The model that the fields of a config.json describe; `name` is what it shall be called.

    >>> from_config({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257}).layers
    12
    """
    family = _family(config)
    given = {f"{outer}.{inner}": value for outer in family.nested for inner, value in _inner(config, outer)}
    given |= {key: value for key, value in config.items() if key not in family.nested}
    _refuse_unknown(given, family)
    fields = _Fields(given, family.names)
    layers, hidden = fields.number("layers"), fields.number("hidden")
    if fields.number("embedding", hidden) != hidden:
        raise BadValue(
            fields.called("embedding"), fields.value("embedding"), f"only hidden_size ({hidden}) is modelled"
        )
    ffn = fields.number("ffn", hidden * fields.number("expansion", 4))
    experts = _experts(fields, family)
    sparse = _dense_layers(fields, layers) if experts is not None else layers
    mixers = (
        _latent(fields, layers) if "kv_rank" in family.names else _attention(fields, family, layers, hidden)
    )
    dense = FeedForward(width=ffn, gated=family.gated)
    every = [
        Layer((mixer, dense if experts is None or at < sparse else experts))
        for at, mixer in enumerate(mixers)
    ]
    return Transformer(
        name=name or str(given.get("_name_or_path") or given["model_type"])[:200],
        hidden=hidden,
        runs=Run.of(every),
        embedding=Embedding(
            vocabulary=fields.number("vocabulary"),
            tied=_truth(given, "tie_word_embeddings", default=family.tied),
        ),
        prediction_modules=fields.number("prediction_modules", 0, least=0),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Family:
    """One table of families.toml, with what is common to all."""

    names: Mapping[str, tuple[str, ...]]
    gated: bool
    tied: bool
    window: str
    neutral: Mapping[str, list[Any]]
    harmless: frozenset[str]

    @property
    def nested(self) -> tuple[str, ...]:
        """Objects inside the file whose fields are named with a dot."""
        known = [*self.harmless, *self.neutral, *(name for names in self.names.values() for name in names)]
        return tuple(dict.fromkeys(name.partition(".")[0] for name in known if "." in name))


@cache
def _families() -> Mapping[str, _Family]:
    """Families by model_type."""
    common = entries.table("families")["common"]
    found: dict[str, _Family] = {}
    for name, table in entries.table("families").items():
        if name == "common":
            continue
        family = _Family(
            names={fact: (n,) if isinstance(n, str) else tuple(n) for fact, n in table["fields"].items()},
            gated=table["gated"],
            tied=table["tied"],
            window=table.get("window", "all"),
            neutral=common["neutral"] | table.get("neutral", {}),
            harmless=frozenset([*common["harmless"], *table.get("harmless", ())]),
        )
        found |= dict.fromkeys(table["model_types"], family)
    return found


class _Fields:
    """The fields of a file, asked for by what they mean."""

    def __init__(self, given: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> None:
        self._given = given
        self._names = names

    def called(self, fact: str) -> str:
        """What the file calls a fact."""
        names = self._names.get(fact, (fact,))
        return "config." + next((name for name in names if self._given.get(name) is not None), names[0])

    def value(self, fact: str) -> Any:
        """What the file says; None where it says nothing."""
        return self._given.get(self.called(fact).removeprefix("config."))

    def number(self, fact: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number; one that is missing and has no default is refused."""
        value = self.value(fact)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
            right = f"the file must give a whole number between {least} and {_LARGEST}"
            raise BadValue(self.called(fact), value, right)
        return value


def _family(config: Mapping[str, Any]) -> _Family:
    if "text_config" in config:
        raise BadValue("config.text_config", "{…}", "give that part alone: other modalities are not modelled")
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in _families():
        raise UnknownName("config.model_type", kind, _families())
    return _families()[kind]


def _inner(config: Mapping[str, Any], outer: str) -> list[tuple[str, Any]]:
    value = config.get(outer)
    if value is not None and not isinstance(value, Mapping):
        raise BadValue(f"config.{outer}", value, "the file must give an object")
    return list((value or {}).items())


def _refuse_unknown(given: Mapping[str, Any], family: _Family) -> None:
    used = {name for names in family.names.values() for name in names}
    used |= {"layer_types", "tie_word_embeddings", *family.harmless}
    for name, value in given.items():
        if name in family.neutral:
            allowed = family.neutral[name]
            if value is not None and value not in allowed:
                right = f"only {' or '.join(str(item).lower() for item in allowed)} is modelled"
                raise BadValue(f"config.{name}", value, right)
        elif name not in used and not str(name).startswith("_"):
            right = "no such field is known for this family, so its cost is not; leave it out if it has none"
            raise BadValue(f"config.{name}", value, right)


def _attention(fields: _Fields, family: _Family, layers: int, hidden: int) -> list[Block]:
    """The attention of every layer."""
    heads = fields.number("heads")
    if fields.value("head_dim") is None and hidden % heads:
        right = f"it must divide {fields.called('hidden').removeprefix('config.')} ({hidden})"
        raise BadValue(fields.called("heads"), heads, right)
    whole = SoftmaxAttention(
        heads=heads,
        kv_heads=fields.number("kv_heads", heads),
        head_dim=fields.number("head_dim", hidden // heads),
    )
    windowed = _windowed(fields, family, layers)
    if not any(windowed):
        return [whole] * layers
    narrow = replace(whole, window=fields.number("window"))
    return [narrow if one else whole for one in windowed]


def _windowed(fields: _Fields, family: _Family, layers: int) -> list[bool]:
    """Which layers have a window."""
    listed = fields.value("layer_types")
    words = (_WINDOWED, _WHOLE)
    if listed is not None and not (
        isinstance(listed, list) and len(listed) == layers and all(word in words for word in listed)
    ):
        right = f"a list of {layers} words, each {' or '.join(words)}"
        raise BadValue(fields.called("layer_types"), listed, right)
    if not fields.value("window") or fields.value("windows_used") is False:
        return [False] * layers
    if listed is not None:
        return [word == _WINDOWED for word in listed]
    if family.window == "alternate":
        return [at % 2 == 0 for at in range(layers)]
    if family.window == "pattern":
        period = fields.number("pattern", 6)
        return [(at + 1) % period != 0 for at in range(layers)]
    if family.window == "upper":
        # A file that does not say whether windows are used has none.
        first = fields.number("first_windowed", 0, least=0)
        return [fields.value("windows_used") is True and at >= first for at in range(layers)]
    return [True] * layers


def _latent(fields: _Fields, layers: int) -> list[Block]:
    one = LatentAttention(
        heads=fields.number("heads"),
        query_rank=fields.number("query_rank", 0) or None,
        kv_rank=fields.number("kv_rank"),
        nope_dim=fields.number("nope_dim"),
        rope_dim=fields.number("rope_dim"),
        value_dim=fields.number("value_dim"),
    )
    return [one] * layers


def _experts(fields: _Fields, family: _Family) -> Experts | None:
    if fields.value("experts") is None:
        return None
    width = fields.number("expert_width")
    groups, top_groups = fields.number("groups", 1), fields.number("top_groups", 1)
    return Experts(
        count=fields.number("experts"),
        top_k=fields.number("top_k"),
        width=width,
        gated=family.gated,
        shared_width=fields.number("shared_width", width * fields.number("shared_count", 0, least=0), least=0)
        or None,
        node_limit=top_groups if top_groups < groups else 0,
    )


def _dense_layers(fields: _Fields, layers: int) -> int:
    """Leading layers without experts."""
    listed = fields.value("dense_list")
    if listed is None:
        return fields.number("dense_layers", 0, least=0)
    if listed != list(range(len(listed) if isinstance(listed, list) else 0)) or len(listed) > layers:
        raise BadValue(
            fields.called("dense_list"), listed, "only leading layers without experts are modelled"
        )
    return len(listed)


def _truth(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = given.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadValue(f"config.{name}", value, "true or false")
    return value


def _not_a_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")
