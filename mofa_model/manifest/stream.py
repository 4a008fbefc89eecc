"""Streams of manifests in, the same streams with annotations out.

TrainingJobs and existing jobs that were opted in are answered; everything else passes through. The function that answers is a
parameter, so that a test needs no model. An elastic job gets a table of answers, one for each size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mofa_model.advice import Advice, Request
from mofa_model.annotations import (
    ASKED,
    INVALID,
    OUTPUTS,
    PREFIX,
    hash_of,
    inputs_hash,
    is_whole,
    of_advice,
    of_bad_input,
    removal,
    settled,
)
from mofa_model.errors import InputError
from mofa_model.kinds import asked_of
from mofa_model.manifest import jobs
from mofa_model.manifest.documents import Documents, Item
from mofa_model.manifest.jobs import Asked, request_of, told
from mofa_model.manifest.parsing import Profile, is_ours, training_job
from mofa_model.manifest.surroundings import Surroundings, refusal, surroundings
from mofa_model.strategy_text import format_strategy


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """A size that a job may have."""

    gpus: int
    """GPUs of all its pods. [1]"""
    request: Request | None
    """The question at this size; None where it cannot be asked."""
    why: str = ""
    """Why not."""


def sizes_of(found: Asked) -> tuple[Size, ...]:
    """The question at every size that the job may have; none where it has one size."""
    return tuple(_size(gpus, one) for gpus, one in found.sizes)


def _size(gpus: int, found: Asked | InputError) -> Size:
    if isinstance(found, InputError):
        return Size(gpus=gpus, request=None, why=str(found))
    try:
        return Size(gpus=gpus, request=request_of(found))
    except InputError as error:
        return Size(gpus=gpus, request=None, why=str(error))


def digest_of(request: Request, sizes: Sequence[Size], version: str) -> str:
    """Hash of a question, with all of its sizes."""
    digest = inputs_hash(request, version)
    if not sizes:
        return digest
    others = [
        one.why if one.request is None else inputs_hash(one.request, version) for one in sizes
    ]
    return hash_of([digest, others], version)


def table_of(
    sizes: Sequence[Size], answer: Callable[[Request], Advice], known: Mapping[Request, Advice]
) -> list[dict[str, Any]]:
    """A row for each size: layout, time of a step and steps between checkpoints, or why there is none. [s]

    `known` has the answer for the size that the job has. A row tells of no alternatives, so the others are answered without.
    """
    return [_row(one, answer, known) for one in sizes]


def _row(
    size: Size, answer: Callable[[Request], Advice], known: Mapping[Request, Advice]
) -> dict[str, Any]:
    if size.request is None:
        return {"gpus": size.gpus, "reason": size.why}
    advice = known.get(size.request) or answer(replace(size.request, top=0))
    if advice.strategy is None or advice.predicted is None:
        return {"gpus": size.gpus, "reason": advice.explanation[:200]}
    return {
        "gpus": size.gpus,
        "nodes": advice.nodes,
        "strategy": format_strategy(advice.strategy),
        "step_seconds": float(f"{advice.predicted.step_seconds.target:.4g}"),
        "checkpoint_steps": advice.checkpoint_interval_steps,
    }


Answer = Callable[[Request], Advice]
"""What answers a question."""
Words = Callable[[Request, Advice], Iterable[str]]
"""What gives an answer's launch arguments."""
Place = tuple[int, int]
"""Where an object is: number of its stream, number in the stream."""
_PAUSED: Final = PREFIX + "paused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one object."""

    item: Item
    """The object."""
    status: str
    """Value of the status annotation; empty where the annotations were removed."""
    explanation: str
    """Why, in one sentence."""
    changed: bool
    """Whether anything was written."""

    def line(self) -> str:
        """The outcome on one line."""
        return f"{self.item.kind} {self.item.namespace}/{self.item.name}: {self.status}: {self.explanation}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotator:
    """Annotates streams: what it needs to know beside them."""

    answer: Answer
    """What answers a question."""
    words: Words
    """What gives an answer's launch arguments."""
    model_version: str
    """Version of the engine."""
    now: str
    """The moment in UTC, for computed-at."""
    profiles: Sequence[Profile] = ()
    """Profiles that were given beside the streams."""

    def run(self, streams: Sequence[Documents]) -> tuple[list[str], list[Outcome]]:
        """The streams with annotations, and what became of each job in them."""
        around = surroundings(streams, self.profiles)
        places = [
            (at, index) for at, stream in enumerate(streams) for index in range(len(stream.items))
        ]
        items = {place: streams[place[0]].items[place[1]] for place in places}
        targets = {place: _targets(item, items) for place, item in items.items()}
        owned = {
            place for some in targets.values() for place in some
        }  # answered by their TrainingJob alone
        changes: list[dict[int, Mapping[str, str | None]]] = [{} for _ in streams]
        outcomes: list[Outcome] = []
        for place, item in items.items():
            if why := refusal(item):
                outcomes.append(Outcome(item=item, status=INVALID, explanation=why, changed=False))
            fresh = None if place in owned else self._fresh(item, around)
            if fresh is None:
                continue
            for at, index in (place, *targets[place]):
                here = items[at, index]
                try:
                    changes[at][index] = streams[at].checked(index, _change(here, fresh))
                except (
                    InputError
                ) as error:  # it cannot be edited: it stays as it is, and nothing else does
                    outcomes.append(
                        Outcome(item=here, status=INVALID, explanation=str(error), changed=False)
                    )
                    continue
                if (at, index) == place:
                    outcomes.append(_outcome(item, fresh, changed=bool(changes[at][index])))
        results = _results(outcomes)
        return [
            stream.annotated(changes[at], results=results) for at, stream in enumerate(streams)
        ], outcomes

    def _fresh(self, item: Item, around: Surroundings) -> dict[str, str] | None:
        """Annotations that an object should have: none at all where it is disabled, None where it is no job of ours."""
        try:
            mode = _mode(item, around)
            if mode is None or mode == "Disabled":
                return None if mode is None else {}
            return self._annotations(item, jobs.asked(item, around))
        except InputError as error:
            asked = {key: value for key, value in item.annotations.items() if key in ASKED}
            spec = asked_of(item.value.get("spec"))
            digest = hash_of({"spec": spec, "asked": asked}, self.model_version)
            message = str(error).removeprefix(f"{item.kind} {item.name}: ")
            return of_bad_input(message, digest, self.model_version, self.now)

    def _annotations(self, item: Item, found: Asked) -> dict[str, str]:
        question, sizes = request_of(found), sizes_of(found)
        digest = digest_of(question, sizes, self.model_version)
        if found.assumed:
            digest = hash_of([digest, found.assumed], self.model_version)
        previous = item.annotations
        if previous.get(PREFIX + "inputs-hash") == digest and is_whole(previous):
            return {key: value for key, value in previous.items() if key in OUTPUTS}
        answer = self.answer(question)
        advice = told(found, answer)
        rows = table_of(sizes, self.answer, {question: answer})
        return of_advice(advice, digest, self.now, self.words(question, advice), rows)


def _mode(item: Item, around: Surroundings) -> str | None:
    """Mode of an object: None where it is no job that asks, or one that is to be left alone."""
    if not is_ours(item.value):
        return jobs.mode_of(item, around)
    if not jobs.is_training_job(item) or item.annotations.get(_PAUSED, "").lower() == "true":
        return None
    return training_job(item.value).spec.mode


def _targets(item: Item, items: Mapping[Place, Item]) -> list[Place]:
    """Objects that a TrainingJob annotates as well."""
    spec = item.value.get("spec")
    ref = spec.get("targetRef") if is_ours(item.value) and isinstance(spec, dict) else None
    if not isinstance(ref, dict):
        return []
    wanted = (ref.get("apiVersion"), ref.get("kind"), ref.get("name"), item.namespace)
    return [
        place
        for place, other in items.items()
        if (other.api_version, other.kind, other.name, other.namespace) == wanted
    ]


def _change(item: Item, fresh: Mapping[str, str]) -> dict[str, str | None]:
    if fresh:
        return settled(item.annotations, fresh)
    return dict(removal(item.annotations))


def _outcome(item: Item, fresh: Mapping[str, str], *, changed: bool) -> Outcome:
    return Outcome(
        item=item,
        status=fresh.get(PREFIX + "status", ""),
        explanation=fresh.get(PREFIX + "explanation", ""),
        changed=changed,
    )


def _results(outcomes: Sequence[Outcome]) -> str:
    """What a KRM function reports: the outcomes that someone should look at."""
    lines = []
    for outcome in outcomes:
        if outcome.status in {INVALID, "NoRecommendation", "LowConfidence"}:
            reference = {
                "apiVersion": outcome.item.api_version,
                "kind": outcome.item.kind,
                "name": outcome.item.name,
                "namespace": outcome.item.namespace,
            }
            severity = "info" if outcome.status == "LowConfidence" else "warning"
            lines += [
                f"- message: {json.dumps(f'{outcome.status}: {outcome.explanation}')}",
                f"  severity: {severity}",
                f"  resourceRef: {json.dumps(reference)}",
            ]
    return "\n".join(lines) + "\n" if lines else ""
