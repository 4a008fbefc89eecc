"""Manifests as text that is edited in place: every byte that is not ours stays as it was.

A stream is read twice over: once as YAML nodes with their positions, once as plain values. An edit replaces spans of the
text, so comments, order, quotes and indentation need no care, and a stream without changes comes back as the same text.

    stream = Documents.parse(text, "job.yaml")
    for item in stream.items:              # objects, also those inside List kinds and a KRM ResourceList
        item.value                         # plain mappings, lists, text and numbers
    stream.annotated({0: {"advisor.mofa.dev/status": "Recommended"}})     # None in place of text removes a key
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mofa_model.errors import BadFile
from mofa_model.kinds.shape import part, text_of
from mofa_model.manifest import edits
from mofa_model.yaml_text import StreamReader

LARGEST: Final = 2 * 2**20
"""Characters of a stream: more than a thousand jobs, and a few seconds of parsing."""
_LISTS: Final = ("List", "ResourceList")


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
        """A change of an item's annotations that can be made; one that cannot is refused in one line."""
        edits.annotate(self.text, self.items[index].node, change, self.name)
        return change

    def annotated(self, changes: Mapping[int, Mapping[str, str | None]], results: str = "") -> str:
        """The text with annotations set, by the index of the item; a None removes its key.

        `results` is YAML text that is put under `results` of a ResourceList.
        """
        spans = [
            span
            for index, change in changes.items()
            for span in edits.annotate(self.text, self.items[index].node, change, self.name)
        ]
        if results and self.resource_list is not None:
            spans += edits.append_section(self.text, self.resource_list.node, "results", results)
        return edits.apply(self.text, spans)


def joined(texts: list[str]) -> str:
    """Several streams as one, with a line between documents where a stream does not bring its own."""
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
    node = edits.child(document.node, "items")
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
            "holds something else than objects: a manifest is a mapping with apiVersion and kind",
        )
    return value
