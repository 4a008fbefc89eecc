"""Whole streams of manifests in, the same streams with annotations out.

Each object is asked what it is: a TrainingJob, an existing job that was opted in, or something else that passes through.
The answer comes from a function that is handed in, so that this room needs no search and a test needs no model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mofa_model.advice import Advice, Request
from mofa_model.annotations import (
    ASKED,
    INVALID,
    OUTPUTS,
    PREFIX,
    hash_of,
    is_whole,
    of_advice,
    of_bad_input,
    removal,
    settled,
)
from mofa_model.errors import InputError
from mofa_model.kinds import asked_of
from mofa_model.manifest import jobs
from mofa_model.manifest.asked import Asked, request_of, told
from mofa_model.manifest.documents import Documents, Item
from mofa_model.manifest.parsing import Profile, is_ours, training_job
from mofa_model.manifest.sizes import digest_of, sizes_of, table_of
from mofa_model.manifest.surroundings import Surroundings, refusal, surroundings

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
