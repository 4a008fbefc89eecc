"""Manifests as text that is edited in place: every byte that is not ours stays as it was.

A stream is read twice: as YAML nodes with their positions, and as plain values. An edit replaces
spans of the text, so that comments, order, quotes and indentation stay, and a stream without
changes comes back as the same text.

    stream = Documents.parse(text, "job.yaml")
    for item in stream.items:       # objects, also those inside List kinds and a KRM ResourceList
        item.value                  # plain mappings, lists, text and numbers
    stream.annotated({0: {"advisor.mofa.dev/status": "Recommended"}})     # None removes a key
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mofa_model.errors import BadFile
from mofa_model.kinds.shape import part, text_of
from mofa_model.launch.edits import Edit, applied
from mofa_model.records import dataclass
from mofa_model.yaml_text import StreamReader

LARGEST: Final = 2 * 2**20
"""Characters of a stream: more than a thousand jobs, and a few seconds of parsing."""
_LISTS: Final = ("List", "ResourceList")


@dataclass(frozen=True)
class Item:
    """One object of a stream."""

    value: Mapping[str, Any]
    """The object as plain values."""
    node: Any
    """The same as a YAML node with its position in the text."""

    @property
    def kind(self) -> str:
        """The object's kind, or nothing."""
        return text_of(self.value.get("kind"))

    @property
    def api_version(self) -> str:
        """The object's apiVersion, or nothing."""
        return text_of(self.value.get("apiVersion"))

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The object's metadata; empty where there is none."""
        return part(self.value, "metadata")

    @property
    def name(self) -> str:
        """The object's name, or nothing."""
        return text_of(self.metadata.get("name"))

    @property
    def namespace(self) -> str:
        """The object's namespace; `default` where it states none."""
        return text_of(self.metadata.get("namespace")) or "default"

    @property
    def annotations(self) -> dict[str, str]:
        """The object's annotations, those that are text."""
        return {k: v for k, v in part(self.metadata, "annotations").items() if isinstance(v, str)}


@dataclass(frozen=True)
class Documents:
    """A stream of manifests: its text and the objects in it."""

    text: str
    """As it was read."""
    name: str
    """What errors call it: a file name."""
    items: tuple[Item, ...]
    """The objects in order; those of lists in the place of the list."""
    resource_list: Item | None
    """The KRM ResourceList around them, where there is one."""

    @classmethod
    def parse(cls, text: str, name: str) -> Documents:
        """Read a stream of YAML or JSON; what cannot be read is refused in one line."""
        if len(text) > LARGEST:
            raise BadFile(name, f"has more than {LARGEST} characters; give a smaller file")
        reader = StreamReader(name)
        items: list[Item] = []
        around: Item | None = None
        for node in reader.documents(text):
            document = Item(_mapping(reader.value(node), name), node)
            if document.kind == "ResourceList":
                around = document
            items += _objects(document, name)
        return cls(text, name, tuple(items), around)

    def checked(self, index: int, change: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """A change of an item's annotations, as given; raises where the text cannot take it."""
        _annotate(self.text, self.items[index].node, change, self.name)
        return change

    def annotated(self, changes: Mapping[int, Mapping[str, str | None]], results: str = "") -> str:
        """The text with annotations set, by the index of the item; a None removes its key.

        `results` is YAML text that is put under `results` of a ResourceList.
        """
        edits = [
            edit
            for index, change in changes.items()
            for edit in _annotate(self.text, self.items[index].node, change, self.name)
        ]
        if results and self.resource_list is not None:
            edits += _append_section(self.text, self.resource_list.node, "results", results)
        # Edits at one place keep their order.
        return applied(self.text, sorted(edits, key=lambda edit: (edit.start, edit.end)))


def joined(texts: list[str]) -> str:
    """Several streams as one, with a line between documents where there is none."""
    stream = ""
    for text in texts:
        if not text.strip():
            continue
        if stream and not _first_line(text).startswith(("---", "%")):
            stream += "---\n"
        stream += text if text.endswith("\n") else text + "\n"
    return stream


def _first_line(text: str) -> str:
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return next(lines, "")


def _objects(document: Item, name: str) -> Iterator[Item]:
    """The object, or the objects of a list kind."""
    if not document.value:
        return
    items = document.value.get("items")
    if document.kind not in _LISTS and not (
        document.kind.endswith("List") and isinstance(items, list)
    ):
        yield document
        return
    node = _child(document.node, "items")
    if node is None or items is None:
        return
    if not isinstance(items, list):
        raise BadFile(
            name, f"items of a {document.kind} cannot be {type(items).__name__}; give a list"
        )
    for value, inner in zip(items, node.value, strict=True):
        yield from _objects(Item(_mapping(value, name), inner), name)


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadFile(
            name,
            "one of its documents is not a Kubernetes object; "
            "write a mapping with apiVersion and kind",
        )
    return value


_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*(?:[ =+,][A-Za-z0-9_./=+-]+)*")
"""Text that YAML reads as text without quotes, whatever its version."""
_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def _child(node: Any, key: str) -> Any:
    """The value node of a key of a mapping; None where there is none."""
    pair = _pair(node, key)
    return None if pair is None else pair[1]


def _annotate(text: str, node: Any, change: Mapping[str, str | None], name: str) -> list[Edit]:
    """The edits that set and remove annotations of an object."""
    metadata = _child(node, "metadata")
    if metadata is None or not _is_mapping(metadata):
        raise BadFile(
            name, f"line {node.start_mark.line + 1}: an object needs metadata to be annotated"
        )
    pair = _pair(metadata, "annotations")
    fresh = {key: value for key, value in change.items() if value is not None}
    if pair is None or not _is_mapping(pair[1]) or not pair[1].value:
        return _new_section(text, metadata, pair, fresh)
    annotations = pair[1]
    if annotations.anchor or annotations.start_mark.index < pair[0].end_mark.index:
        line = pair[0].start_mark.line + 1
        raise BadFile(
            name,
            f"line {line}: annotations that objects share by a YAML anchor cannot be edited; "
            "write them out for each object",
        )
    if annotations.flow_style:
        return _flow(text, annotations, change)
    return _block(text, metadata, pair, change)


def _append_section(text: str, node: Any, key: str, block: str) -> list[Edit]:
    """The edit that adds a section at the end of a top-level mapping; an existing one stays."""
    if _child(node, key) is not None or node.flow_style:
        return []
    return [_insert(text, _end_of(text, *node.value[-1]), f"{key}:\n{block}")]


def _new_section(text: str, metadata: Any, pair: Any, fresh: Mapping[str, str]) -> list[Edit]:
    """Annotations where there are none, or where the key has no mapping."""
    if not fresh:
        return []
    flow = "{" + ", ".join(_entry(key, value) for key, value in fresh.items()) + "}"
    if pair is not None:  # `annotations:` with nothing, null, ~ or {}
        value = pair[1]
        start = text.index(":", pair[0].end_mark.index) + 1
        end = max(value.end_mark.index, start) if value.value or _is_mapping(value) else start
        lines = [f"\n{line}" for line in _lines(fresh, _column(pair[0]) + 2)]
        return [Edit(start, end, f" {flow}" if metadata.flow_style else "".join(lines))]
    if metadata.flow_style:
        entry = f'{_comma(text, metadata)}"annotations": {flow}'
        return [Edit(*_before_brace(text, metadata), entry)]
    column = _column(metadata.value[0][0])
    block = "\n".join([" " * column + "annotations:", *_lines(fresh, column + 2)])
    return [_insert(text, _end_of(text, *metadata.value[-1]), block + "\n")]


def _block(text: str, metadata: Any, pair: Any, change: Mapping[str, str | None]) -> list[Edit]:
    """Text edits that remove, replace and add annotations, which the manifest writes one a line."""
    annotations = pair[1]
    column = _column(annotations.value[0][0])
    present = {key.value for key, _ in annotations.value}
    edits = []
    remaining = 0
    for key, value in annotations.value:
        new = change.get(key.value, value.value)
        if new is None:
            start = _line_start(text, key.start_mark.index)
            edits.append(Edit(start, _end_of(text, key, value), ""))
            continue
        remaining += 1
        if key.value in change and _is_empty(value):
            colon_end = text.index(":", key.end_mark.index) + 1
            edits.append(Edit(colon_end, colon_end, f" {_scalar(new)}"))
        elif new != value.value:
            start = value.start_mark.index
            edits.append(Edit(start, start + _length(text, value), _scalar(new)))
    fresh = {
        key: value for key, value in change.items() if value is not None and key not in present
    }
    end = _end_of(text, *annotations.value[-1])
    if fresh:
        edits.append(_insert(text, end, "\n".join(_lines(fresh, column)) + "\n"))
    elif not remaining:  # the section is empty now: it goes too, with its heading
        if len(metadata.value) > 1:
            return [Edit(_line_start(text, pair[0].start_mark.index), end, "")]
        return [Edit(annotations.start_mark.index, end, "{}\n")]
    return edits


def _flow(text: str, annotations: Any, change: Mapping[str, str | None]) -> list[Edit]:
    """A mapping in braces is written anew, on as many lines as it had."""
    unchanged = {
        key.value: text[key.start_mark.index : value.end_mark.index]
        for key, value in annotations.value
        if key.value not in change
        or (change[key.value] is not None and change[key.value] == value.value)
    }
    if len(unchanged) == len(annotations.value) and all(
        key in unchanged for key, new in change.items() if new is not None
    ):
        return []
    entries = []
    for key, _ in annotations.value:
        if key.value in unchanged:
            entries.append(unchanged[key.value])
        elif change[key.value] is not None:
            entries.append(_entry(key.value, str(change[key.value])))
    present = {key.value for key, _ in annotations.value}
    entries += [
        _entry(key, new) for key, new in change.items() if new is not None and key not in present
    ]
    start, end = annotations.start_mark.index, annotations.end_mark.index
    several = "\n" in text[start:end] and annotations.value
    if several and entries:
        indent = "\n" + " " * annotations.value[0][0].start_mark.column
        close = "\n" + " " * (_column_of(text, end - 1))
        return [Edit(start, end, "{" + indent + f",{indent}".join(entries) + close + "}")]
    return [Edit(start, end, "{" + ", ".join(entries) + "}")]


def _entry(key: str, value: str) -> str:
    return f"{_quoted(key)}: {_quoted(value)}"


def _lines(fresh: Mapping[str, str], column: int) -> list[str]:
    return [f"{' ' * column}{key}: {_scalar(value)}" for key, value in fresh.items()]


def _scalar(value: str) -> str:
    """Text as a YAML scalar on one line: plain where that is safe, else quoted."""
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if '"' in value and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return _quoted(value)


def _quoted(value: str) -> str:
    """Text in double quotes, which JSON and YAML read alike; what cannot be printed is escaped."""
    return "".join(
        c if c.isprintable() or ord(c) > 0xFFFF else f"\\u{ord(c):04x}"
        for c in json.dumps(value, ensure_ascii=False)
    )


def _pair(node: Any, key: str) -> tuple[Any, Any] | None:
    if not _is_mapping(node):
        return None
    return next(((k, v) for k, v in node.value if k.value == key), None)


def _is_mapping(node: Any) -> bool:
    return str(node.tag).endswith(":map") and isinstance(node.value, list)


def _column(node: Any) -> int:
    return int(node.start_mark.column)


def _column_of(text: str, index: int) -> int:
    return index - _line_start(text, index)


def _line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def _line_end(text: str, index: int) -> int:
    """The index after the line's end."""
    newline = text.find("\n", index)
    return len(text) if newline < 0 else newline + 1


def _length(text: str, node: Any) -> int:
    """Characters of a scalar, without what the parser counts to it behind its last one."""
    return len(text[node.start_mark.index : node.end_mark.index].rstrip())


def _end_of(text: str, key: Any, value: Any) -> int:
    """The index after the last line of a key's value, with all that is below it."""
    # The parser puts a value that is not there at the next word, wherever that is.
    if _is_empty(value):
        return _line_end(text, key.end_mark.index)
    if not isinstance(value.value, list) or not value.value or value.flow_style:
        return _end_of_leaf(text, value)
    last = value.value[-1]
    if isinstance(last, tuple):
        return _end_of(text, *last)
    if _is_empty(last):
        return _line_end(text, text.rindex("-", 0, last.start_mark.index))
    return _end_of(text, last, last)


def _is_empty(node: Any) -> bool:
    """Whether a value is missing: nothing stands behind its colon or dash."""
    return bool(node.start_mark.index == node.end_mark.index and not node.value)


def _end_of_leaf(text: str, node: Any) -> int:
    """The index after a text, a number or a value in braces."""
    start = node.start_mark.index
    if getattr(node, "style", None) in {"|", ">"} and "+" in text[start : _line_end(text, start)]:
        return _line_start(text, node.end_mark.index)  # its blank lines are part of the text
    return _line_end(text, start + max(_length(text, node), 0))


def _insert(text: str, index: int, block: str) -> Edit:
    """New lines at the start of a line; a last line without an end gets one."""
    opened = "" if index == 0 or text[index - 1] == "\n" else "\n"
    return Edit(index, index, opened + block)


def _before_brace(text: str, node: Any) -> tuple[int, int]:
    """The place before a closing brace, without the space that stands there."""
    brace = node.end_mark.index - 1
    start = len(text[:brace].rstrip())
    return (start, start) if "\n" in text[start:brace] else (start, brace)


def _comma(text: str, node: Any) -> str:
    start, _ = _before_brace(text, node)
    return " " if text[start - 1] == "," else ", " if node.value else ""
