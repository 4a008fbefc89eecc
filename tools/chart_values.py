"""The values of the chart as values.yaml documents them: their types and bounds as a JSON schema,
and a table of them.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

WORDS = {"text": "string", "map": "object"}
"""Our words for JSON's types; the others are the same."""
MARKS = {"enum": "enum", "pattern": "pattern", "least": "minimum", "most": "maximum"}
"""Marks that constrain, as the schema calls them."""
PLAIN, LINES = r"^[^\x00-\x1f\x7f]*$", r"^[^\x00-\x08\x0b-\x1f\x7f]*$"
"""What a text matches where nothing else is said: it stays in its line; in a map, where YAML quotes
it, in its lines.
"""
LINE = re.compile(r"^( *)([A-Za-z][A-Za-z0-9]*):")


@dataclass(frozen=True, kw_only=True)
class Value:
    """One documented key of values.yaml."""

    path: tuple[str, ...]
    """Names from the top of the file to the key."""
    default: Any
    """The default."""
    text: str
    """Its meaning."""
    marks: dict[str, str]
    """Constraints of its values."""

    @property
    def type(self) -> str:
        """Type in our words: as marked, else that of the default."""
        if "type" in self.marks:
            return self.marks["type"]
        return {bool: "boolean", int: "integer", float: "number", str: "text"}[type(self.default)]

    def schema(self) -> dict[str, Any]:
        """JSON schema of the value."""
        outer, _, inner = self.type.partition(" of ")
        bounds: dict[str, Any] = {}
        for mark, name in MARKS.items():
            if mark in self.marks:
                text = self.marks[mark]
                bounds[name] = {"enum": text.split(", "), "pattern": text}.get(mark) or json.loads(
                    text
                )
        if "text" in {outer, inner} and not bounds:
            bounds["pattern"] = LINES if outer == "map" else PLAIN
        if outer == "list":
            return {
                "type": "array",
                "description": self.text,
                "items": {"type": WORDS.get(inner, inner)} | bounds,
            }
        made = {"type": WORDS.get(outer, outer), "description": self.text}
        if outer != "map":
            return made | bounds
        keys = {"propertyNames": {"pattern": self.marks["keys"]}} if "keys" in self.marks else {}
        return (
            made
            | keys
            | (
                {"additionalProperties": {"type": WORDS.get(inner, inner)} | bounds}
                if inner
                else {}
            )
        )


def read(path: Path) -> list[Value]:
    """The documented keys in their order; a key that is neither documented nor a section is
    an error.
    """
    return list(_walk(YAML(typ="safe").load(path), _comments(path), ()))


def _comments(path: Path) -> dict[tuple[str, ...], str]:
    """The comment above each key that has one."""
    comments, above, key_path = {}, "", []
    for line in path.read_text("utf-8").splitlines():
        if line.lstrip().startswith("# -- "):
            above = line.lstrip()[5:]
        elif match := LINE.match(line):
            key_path = [*key_path[: len(match[1]) // 2], match[2]]
            if above:
                comments[tuple(key_path)] = above
            above = ""
    return comments


def _walk(
    values: dict[str, Any], comments: dict[tuple[str, ...], str], above: tuple[str, ...]
) -> Iterator[Value]:
    for key, default in values.items():
        path = (*above, key)
        if path in comments:
            text, *marks = re.split(r" @(?=[a-z]+ )", comments[path])
            yield Value(
                path=path,
                default=default,
                text=text,
                marks=dict(mark.strip().split(" ", 1) for mark in marks),
            )
        elif isinstance(default, dict) and default:
            yield from _walk(default, comments, path)
        else:
            raise SystemExit(f"values.yaml: {'.'.join(path)} has no comment `# -- …`")


def schema(values: list[Value]) -> str:
    """values.schema.json: a key that is not in values.yaml is refused."""
    top: dict[str, Any] = {"$schema": "http://json-schema.org/draft-07/schema#", **_section()}
    for value in values:
        place = top
        for key in value.path[:-1]:
            place = place["properties"].setdefault(key, _section())
        place["properties"][value.path[-1]] = value.schema()
    top["properties"]["global"]["additionalProperties"] = (
        True  # a parent chart gives its values to all
    )
    return json.dumps(top, indent=2, ensure_ascii=False) + "\n"


def _section() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def table(values: list[Value]) -> str:
    """The values as a table."""
    rows = ["| Key | Type | Default | What it says |", "|---|---|---|---|"]
    for value in values:
        shown = json.dumps(value.default, ensure_ascii=False).replace("|", "\\|")
        text = value.text.replace("|", "\\|")
        if "enum" in value.marks:
            text += (
                f" One of {value.marks['enum']}."
                if value.type == "text"
                else f" Of {value.marks['enum']}."
            )
        rows.append(f"| `{'.'.join(value.path)}` | {value.type} | `{shown}` | {text} |")
    return "\n".join(rows)
