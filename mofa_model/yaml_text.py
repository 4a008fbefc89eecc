"""YAML read with limits on its size and depth, and plain values written as YAML."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from mofa_model.errors import BadFile
from mofa_model.terminal import is_harmless

MOST_VALUES: Final = 200_000
"""Values of a stream with every alias followed: what a small file can grow to ends here."""
DEEPEST: Final = 64
"""Levels of nesting; the deepest kinds of Kubernetes have about twenty."""
_TEMPLATE: Final = (
    "is a template with {{ … }}, and no manifest yet; give what `helm template` makes of it"
)
_STRING: Final = "tag:yaml.org,2002:str"


def as_yaml(data: Any) -> str:
    """Plain values as YAML that every reader takes for the same values.

    Readers of YAML 1.1, as in most Python programs and Kubernetes, take a bare NO for false, 017
    for 15, 1:30 for 90, and the number 1e-05 for text. So such text is quoted, and such a number
    gets a point.

    >>> given = {"distributed_type": "NO", "lr": 1e-05, "on": "017", "name": "plain"}
    >>> print(as_yaml(given), end="")
    distributed_type: 'NO'
    lr: 1.0e-05
    'on': '017'
    name: plain
    """
    from ruamel.yaml import YAML

    text, writer = io.StringIO(), YAML()
    writer.Representer = _representer()
    writer.representer.ignore_aliases = lambda _: True  # a value that stands twice is written twice
    writer.default_flow_style = False
    writer.width = 4096
    writer.dump(data, text)
    if not is_harmless(text.getvalue()):  # what steers a terminal is written by its code
        text, writer.allow_unicode = io.StringIO(), False
        writer.dump(data, text)
    return text.getvalue()


@cache
def _representer() -> Any:
    """What writes text and numbers for readers of both versions of YAML."""
    from ruamel.yaml.nodes import ScalarNode
    from ruamel.yaml.representer import RoundTripRepresenter
    from ruamel.yaml.resolver import VersionedResolver

    before = VersionedResolver(version=(1, 1))

    class Representer(RoundTripRepresenter):
        """Quotes what either version reads as something else."""

    def text(self: Any, data: str) -> Any:
        plain = before.resolve(ScalarNode, data, (True, False)) == _STRING
        return self.represent_scalar(_STRING, data, style=None if plain else "'")

    def number(self: Any, data: float) -> Any:
        node = self.represent_float(data)
        if "e" in node.value and "." not in node.value:
            node.value = node.value.replace("e", ".0e")
        return node

    Representer.add_representer(str, text)
    Representer.add_representer(float, number)
    return Representer


class StreamReader:
    """Reads one stream; counts what it has read."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._left = MOST_VALUES

    def documents(self, text: str) -> Iterator[Any]:
        """The root node of each document that is not empty."""
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        try:
            for node in YAML(typ="safe", pure=True).compose_all(text):
                if node is not None and not _is_null(node):
                    yield node
        except YAMLError as error:
            raise BadFile(
                self._name, _TEMPLATE if "{{" in text else f"is not YAML: {_where(error)}"
            ) from None
        except RecursionError:
            raise BadFile(
                self._name, f"is nested too deeply; give at most {DEEPEST} levels"
            ) from None
        except (
            ValueError,
            UnicodeError,
            KeyError,
            IndexError,
            AttributeError,
            AssertionError,
        ) as error:
            # The parser itself fails on some broken texts.
            raise BadFile(
                self._name, f"is not YAML: {' '.join(str(error).split())[:120]}"
            ) from None

    def value(self, node: Any, depth: int = 0) -> Any:
        """A node as mappings, lists, text, numbers, truths and None."""
        from ruamel.yaml.nodes import MappingNode, SequenceNode

        self._left -= 1
        if self._left < 0:
            raise BadFile(
                self._name, f"has more than {MOST_VALUES} values once its aliases are followed"
            )
        if depth > DEEPEST:
            raise BadFile(self._name, f"is nested too deeply; give at most {DEEPEST} levels")
        if isinstance(node, MappingNode):
            return self._mapping(node, depth)
        if isinstance(node, SequenceNode):
            return [self.value(item, depth + 1) for item in node.value]
        return self._scalar(node)

    def _mapping(self, node: Any, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if str(key_node.tag).endswith(":merge"):
                inner = self.value(value_node, depth + 1)
                for source in reversed(inner if isinstance(inner, list) else [inner]):
                    if not isinstance(source, dict):
                        raise self._at(key_node, "<< takes a mapping")
                    merged |= source
                continue
            key = self.value(key_node, depth + 1)
            if not isinstance(key, str):
                of_template = isinstance(key, dict) and not value_node.value
                raise self._at(
                    key_node,
                    _TEMPLATE if of_template else f"the key {key!r} is not text; put it in quotes",
                )
            if key in own:
                raise self._at(key_node, f"the key {key!r} is given twice")
            own[key] = self.value(value_node, depth + 1)
        return merged | own

    def _scalar(self, node: Any) -> Any:
        kind, text = str(node.tag).rpartition(":")[2], _joined(node.value)
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() in {"true", "yes", "on"}
        try:
            if kind == "int":
                return (
                    int(text.replace("_", ""), 0) if text[:2].lower() in {"0x", "0o"} else int(text)
                )
            if kind == "float":
                return float(
                    text.replace("_", "")
                    .replace(".inf", "inf")
                    .replace(".nan", "nan")
                    .replace(".NaN", "nan")
                )
        except (ValueError, OverflowError):
            return text
        return text  # timestamps too: no field of ours is one, and JSON has none

    def _at(self, node: Any, why: str) -> BadFile:
        return BadFile(self._name, f"line {node.start_mark.line + 1}: {why}")


def _joined(text: str) -> str:
    """Text whose halves of a surrogate pair, as JSON escapes them, are one character again."""
    if text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _is_null(node: Any) -> bool:
    return str(node.tag).endswith(":null")


def _where(error: Any) -> str:
    """Line and problem of a parser's error."""
    mark = getattr(error, "problem_mark", None)
    problem = " ".join(str(getattr(error, "problem", None) or error).split())[:160]
    return f"line {mark.line + 1}: {problem}" if mark is not None else problem
