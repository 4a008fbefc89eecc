"""Launches as a review reads them: of a batch script, a shell script, or objects of a manifest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mofa_model import presets
from mofa_model.errors import InputError
from mofa_model.identity import Fact, LaunchFound, identify, model_preset, read_script
from mofa_model.identity.commands import ProgramCall
from mofa_model.identity.directives import DirectiveFault
from mofa_model.records import dataclass

_PATH: Final = re.compile(r"\bspec(?:[.\[][\w.\[\]-]*)?")
_UNKNOWN: Final = re.compile(r": unknown name '([^']+)'")


@dataclass(frozen=True, kw_only=True)
class ReviewedLaunch:
    """One launch; every place in it is `file:line`."""

    name: str
    """The file."""
    facts: Mapping[str, Fact]
    launch_found: LaunchFound | None
    program_calls: Sequence[ProgramCall] = ()
    faults: Sequence[DirectiveFault] = ()
    """Lines that Slurm or the advisor refuses before anything starts."""
    kind: str = ""
    """Kind and name of an object, which its older version has as well; empty in a script."""


def launches_in(text: str, name: str) -> list[ReviewedLaunch]:
    """The launches of a file: of a script one, of a manifest one for each object that trains."""
    if name.endswith((".yaml", ".yml", ".json")):
        return list(_of_manifest(text, name))
    script = read_script(text, name)
    return [
        ReviewedLaunch(
            name=name,
            facts=script.facts,
            launch_found=script.launch_found,
            program_calls=script.contents.program_calls,
            faults=script.faults,
        )
    ]


def _of_manifest(text: str, name: str) -> Iterator[ReviewedLaunch]:
    """The launches in a file of Kubernetes objects, each with the facts that its object states."""
    from mofa_model.manifest.documents import Documents
    from mofa_model.manifest.parsing import is_ours, training_job
    from mofa_model.manifest.surroundings import refusal

    for item in Documents.parse(text, name).items:
        lines = _Lines(item.node, name)
        kind = f"{item.kind} {item.name}"
        if is_ours(item.value):
            refused = refusal(item)
            try:
                if item.kind == "TrainingJob":
                    preset = training_job(item.value).spec.model.preset
                    if preset is not None and not model_preset(preset):
                        presets.model(preset)  # its error says what would be right
            except InputError as error:
                refused = str(error)
            faults = [DirectiveFault(lines.number(_field(refused)), refused)] if refused else []
            yield ReviewedLaunch(name=name, facts={}, launch_found=None, faults=faults, kind=kind)
            continue
        identified = identify(item.value)
        launch = identified.launch_found
        yield ReviewedLaunch(
            name=name,
            facts={
                key: Fact(fact.value, lines.place(fact.source))
                for key, fact in identified.facts.items()
            },
            launch_found=launch and launch._replace(where=lines.place(launch.where)),
            program_calls=[lines.placed(call) for call in identified.program_calls],
            kind=kind,
        )


def _field(refused: str) -> str:
    """The path of the field that an error's text names.

    >>> _field("ClusterProfile a: spec: unknown name 'gpus'; did you mean gpu?")
    'spec.gpus'
    """
    field = _PATH.search(refused)
    if field is None:
        return "spec.model.preset" if refused.startswith("model:") else ""
    unknown = _UNKNOWN.match(refused, field.end())
    return f"{field[0]}.{unknown[1]}" if unknown else field[0]


class _Lines:
    """The lines of an object's fields in its file."""

    def __init__(self, node: Any, name: str) -> None:
        self._node, self._name = node, name

    def number(self, path: str) -> int:
        """The line of a field, as of `spec.jobs[0].image`; of the nearest one above it. [1]"""
        node, rest = self._node, path
        line = int(node.start_mark.line)
        while rest and (child := _child(node, rest)) is not None:
            node, rest, line = child
        return 1 + line

    def place(self, path: str) -> str:
        """File and line of a field, as `job.yaml:12`."""
        return f"{self._name}:{self.number(path)}"

    def placed(self, call: ProgramCall) -> ProgramCall:
        """A command whose words have lines of the file as their places."""
        words = tuple(word._replace(where=self.place(word.where)) for word in call.words)
        return ProgramCall(words=words, where=self.place(call.where))


def _child(node: Any, path: str) -> tuple[Any, str, int] | None:
    """The child of a YAML node that a path begins with, the rest of the path, the child's line."""
    if isinstance(node.value, str):
        return None
    if path.startswith("["):
        number, _, rest = path[1:].partition("]")
        index = int(number) if number.isdigit() else -1
        if not 0 <= index < len(node.value) or isinstance(node.value[index], tuple):
            return None
        return node.value[index], rest.lstrip("."), int(node.value[index].start_mark.line)
    pairs = [
        (key, value)
        for key, value in (pair for pair in node.value if isinstance(pair, tuple))
        if path == key.value or (path.startswith(key.value) and path[len(key.value)] in ".[ ")
    ]
    if not pairs:
        return None
    # A key may have dots, as nvidia.com/gpu.product has: the longest one is meant.
    key, value = max(pairs, key=lambda pair: len(pair[0].value))
    return value, path[len(key.value) :].lstrip("."), int(key.start_mark.line)
