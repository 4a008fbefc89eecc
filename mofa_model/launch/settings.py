"""A trainer's file of settings: names with dots are keys within keys, written and read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mofa_model.errors import BadValue
from mofa_model.launch.table import Arguments


def setting(name: str, values: tuple[object, ...]) -> list[str]:
    """One setting as a word: the form in which `Words` collects them."""
    (value,) = values
    return [f"{name}={json.dumps(value)}"]


def nested(settings: Sequence[str]) -> dict[str, Any]:
    """Settings as the file holds them.

    >>> nested(["bf16.enabled=true", "zero_optimization.stage=1"])
    {'bf16': {'enabled': True}, 'zero_optimization': {'stage': 1}}
    """
    tree: dict[str, Any] = {}
    for told in settings:
        path, _, value = told.partition("=")
        *above, last = path.split(".")
        place = tree
        for key in above:
            place = place.setdefault(key, {})
        place[last] = json.loads(value)
    return tree


_DEGREE: Final = re.compile(
    r"(?:^|[_-])(?:[tpcesd]p|etp|vpp|mp)(?:[_-](?:size|degree|shard|replicate))*$|parallel(?:ism)?(?:[_-](?:size|degree))?$"
)
"""Names of degrees of parallelism, whoever's they are."""


def refuse_degrees(known: Arguments, said: Settings) -> None:
    """Refuse a degree of parallelism that a file states and that nobody reads: without it the layout is another one.

    The model's own part of a file is left alone: `pretraining_tp` of a config.json says nothing about the training.
    """
    read = {name.rpartition(".")[2] for name in (*known.kinds, *known.older, *known.only)}
    for path, value in said.leaves().items():
        name = path.rpartition(".")[2]
        own = (
            path.startswith("model.model_config.")
            or name in read
            or known.is_unpriced(path)
            or known.is_unpriced(name)
        )
        several = not isinstance(value, bool) and isinstance(value, int) and value > 1
        if several and not own and _DEGREE.search(name):
            raise BadValue(path, value, "this degree is not read; write the layout as tp=8,pp=4,…")


@dataclass(frozen=True, slots=True)
class Settings:
    """A file of settings as it was read; what is missing, or left to others by "auto", is None."""

    document: Mapping[str, Any]
    """The file."""

    def value(self, path: str) -> Any:
        """What stands at a place."""
        place: Any = self.document
        for key in path.split("."):
            place = place.get(key) if isinstance(place, Mapping) else None
        return None if place == "auto" else place

    def number(self, path: str, least: int = 1) -> int | None:
        """A whole number."""
        value = self.value(path)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or value < least
        ):
            raise BadValue(path, value, f"give a whole number of {least} or more")
        return None if value is None else int(value)

    def truth(self, path: str, *, default: bool = False) -> bool:
        """A switch, also where it is written as a word."""
        value = self.value(path)
        return default if value is None else str(value).lower() in {"true", "yes", "on", "1"}

    def leaves(self) -> dict[str, Any]:
        """Everything that is said, by its path.

        >>> Settings({"bf16": {"enabled": True}, "x": "auto"}).leaves()
        {'bf16.enabled': True}
        """
        found, left = dict[str, Any](), list(self.document.items())
        while left:
            path, value = left.pop()
            if isinstance(value, Mapping):
                left += [(f"{path}.{key}", one) for key, one in value.items()]
            elif value != "auto":
                found[str(path)] = value
        return found
