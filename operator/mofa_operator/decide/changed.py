"""A job's question with something different in it, as somebody asks who looks at the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from mofa_model import units
from mofa_model.errors import MofaError
from mofa_model.manifest.jobs import Asked
from mofa_model.manifest.parsing import parse
from mofa_model.manifest.training_job import TrainingJobSpec


def _count(text: str) -> int:
    return units.count(text)


PLACES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[str], Any]]]] = {
    "nodes": (("cluster", "nodes"), _count),
    "sequence_length": (("training", "sequenceLength"), _count),
    "global_batch_size": (("training", "globalBatchSize"), _count),
    "tokens": (("training", "tokens"), str),
    "precision": (("training", "precision"), str),
    "framework": (("training", "framework"), str),
    "objective": (("objective",), str.capitalize),
    "current": (("current",), lambda text: {"strategy": text}),
}
"""Where a parameter stands in a TrainingJob's spec, and how its text is read."""


class Unanswerable(Exception):
    """What somebody asks cannot be answered: why, by parameter; what concerns none of them under an empty name."""

    def __init__(self, why: Mapping[str, str]) -> None:
        super().__init__(dict(why))
        self.why = why


def changed(found: Asked, changes: Mapping[str, str]) -> Asked:
    """The question with these values in place of the job's own."""
    spec = found.spec.model_dump(by_alias=True, exclude_unset=True)
    for name, text in changes.items():
        (*parts, last), read = PLACES[name]
        try:
            value = read(text)
        except MofaError as error:
            raise Unanswerable({name: str(error).partition(": ")[2]}) from None
        inner = spec
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
    if "nodes" in changes:
        spec["cluster"].pop("maxNodes", None)
    try:
        return replace(found, spec=parse(TrainingJobSpec, spec, "spec"), path="spec")
    except MofaError as error:
        raise Unanswerable(by_parameter(error)) from None


def by_parameter(error: MofaError) -> dict[str, str]:
    """Why something cannot be right, by the parameter that it speaks of."""
    said = str(error)
    for name, (parts, _) in PLACES.items():
        for root in ("spec", "job"):
            where = ".".join((root, *parts))
            if said.startswith((f"{where}:", f"{where}.")):
                return {name: said.partition(": ")[2]}
    return {"": said}
