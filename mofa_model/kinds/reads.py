"""Which container of a pod reads the launch arguments out of the pod's annotation.

Kubernetes gives a container its pod's annotation by the downward API: as a variable, or as a file.
In a variable the arguments are one text: a shell splits it, and no other program does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from mofa_model.errors import InputError
from mofa_model.kinds.patches import ARGUMENTS
from mofa_model.kinds.shape import at, items, part, text_of
from mofa_model.launch.shell import line_of

FIELD: Final = f"metadata.annotations['{ARGUMENTS}']"
"""The annotation as the downward API names it."""
_FIELDS: Final = frozenset({FIELD, FIELD.replace("'", '"'), "metadata.annotations"})
"""The same, and the file of all annotations."""
_SPLITS: Final = re.compile(r"\b(eval|xargs|read|envsubst)\b")
"""What takes a quoted text apart again."""


class ArgumentReader(NamedTuple):
    """A container that reads the arguments."""

    container: str
    """Where it stands."""
    by: str
    """The variable or the file by which it does."""
    trouble: str = ""
    """Why its program would not get them as words; empty where it does."""


def readers(template: object, where: str) -> Iterator[ArgumentReader]:
    """The containers of a pod template at `where` that read the arguments.

    >>> source = {"fieldRef": {"fieldPath": FIELD}}
    >>> one = {"args": ["$(ARGS)"], "env": [{"name": "ARGS", "valueFrom": source}]}
    >>> [found.by for found in readers({"spec": {"containers": [one]}}, "spec.template")]
    ['variable ARGS']
    """
    spec = part(template, "spec")
    files = dict(_files(spec.get("volumes")))
    for number, container in enumerate(items(spec.get("containers"))):
        place = f"{where}.spec.containers[{number}]"
        for row in items(container.get("env")):
            if at(row, "valueFrom", "fieldRef", "fieldPath") in _FIELDS:
                name = text_of(row.get("name"))
                yield ArgumentReader(place, f"variable {name}", _trouble(container, name))
        for mount in items(container.get("volumeMounts")):
            if (path := files.get(text_of(mount.get("name")))) is not None:
                folder = text_of(mount.get("mountPath")).rstrip("/")
                yield ArgumentReader(place, f"file {folder}/{path}")


def read_by(templates: Iterable[tuple[str, object]]) -> list[str]:
    """Where the pod templates stand whose containers read the arguments.

    An `InputError` says what is missing where none does, or where one gets them as a single word.
    """
    places, listed = list[str](), list(templates)
    for where, template in listed:
        reading = list(readers(template, where))
        for reader in reading:
            if reader.trouble:
                raise InputError(f"{reader.container}: {reader.trouble}")
        places += [where] if reading else []
    if not places:
        where = listed[0][0] if listed else "spec"
        raise InputError(
            f"{where}: no container reads the annotation {ARGUMENTS}, and its command cannot be "
            "changed any more; give the trainer's container a variable whose "
            f"valueFrom.fieldRef.fieldPath is {FIELD}, and its shell line that variable"
        )
    return places


def _files(volumes: object) -> Iterator[tuple[str, str]]:
    """Volumes of the downward API that hold the arguments: their names, and the file in each."""
    for volume in items(volumes):
        sources = [volume, *items(at(volume, "projected", "sources"))]
        for source in sources:
            for item in items(at(source, "downwardAPI", "items")):
                if at(item, "fieldRef", "fieldPath") in _FIELDS:
                    yield text_of(volume.get("name")), text_of(item.get("path"))


def _trouble(container: Mapping[str, Any], name: str) -> str:
    """Why a variable does not reach the program as words; empty where it does, or may."""
    words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
    line = line_of(words)
    for number, word in enumerate(words):
        if line is not None and number >= line:
            break
        if f"$({name})" in word:
            return (
                f"$({name}) hands all launch arguments over as one word, because no shell splits "
                f"them; start the program by a shell line that ends with ${name}"
            )
    if line is not None and line < len(words):
        text = words[line]
        if not _SPLITS.search(text) and re.search(rf'"\$(\{{{name}\}}|\({name}\)|{name}\b)"', text):
            return (
                f'"${name}" in quotes hands all launch arguments over as one word; leave the '
                "quotes out, or put eval before the command"
            )
    return ""
