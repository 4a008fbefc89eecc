"""YAML text to nodes, and nodes to plain values, with a limit on everything that a stranger can make large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mofa_model.errors import BadFile

MOST_VALUES: Final = 200_000
"""Values of a stream with every alias followed: what a small file can grow to ends here."""
DEEPEST: Final = 64
"""Levels of nesting; the deepest kinds of Kubernetes have about twenty."""
_TEMPLATE: Final = "is a template with {{ … }}, and no manifest yet; give what `helm template` makes of it"
_STRING: Final = "tag:yaml.org,2002:str"


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
            raise BadFile(self._name, f"is nested too deeply; {DEEPEST} levels are read") from None
        except (ValueError, UnicodeError, KeyError, IndexError, AttributeError, AssertionError) as error:
            # The parser itself fails on some broken texts.
            raise BadFile(self._name, f"is not YAML: {' '.join(str(error).split())[:120]}") from None

    def value(self, node: Any, depth: int = 0) -> Any:
        """A node as mappings, lists, text, numbers, truths and None."""
        from ruamel.yaml.nodes import MappingNode, SequenceNode

        self._left -= 1
        if self._left < 0:
            raise BadFile(self._name, f"has more than {MOST_VALUES} values once its aliases are followed")
        if depth > DEEPEST:
            raise BadFile(self._name, f"is nested too deeply; {DEEPEST} levels are read")
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
                    key_node, _TEMPLATE if of_template else f"the key {key!r} is not text; put it in quotes"
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
                return int(text.replace("_", ""), 0) if text[:2].lower() in {"0x", "0o"} else int(text)
            if kind == "float":
                return float(
                    text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan").replace(".NaN", "nan")
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
