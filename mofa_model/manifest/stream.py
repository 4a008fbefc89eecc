"""Streams of manifests in, the same streams with annotations out.

TrainingJobs and existing jobs that were opted in are answered; everything else passes through. The
function that answers is a parameter, so that a test needs no model. An elastic job gets a table of
answers, one for each size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from mofa_model.advice import Advice, Request
from mofa_model.annotations import (
    ASKED,
    OUTPUTS,
    PREFIX,
    QUIET,
    UNANSWERED,
    hash_of,
    inputs_hash,
    is_whole,
    of_advice,
    of_bad_input,
    of_batches,
    removal,
    settled,
)
from mofa_model.errors import InputError
from mofa_model.kinds import without_suspension
from mofa_model.manifest import jobs
from mofa_model.manifest.documents import Documents, Item
from mofa_model.manifest.draft import BatchMissing
from mofa_model.manifest.jobs import JobQuestion, request_of, with_assumption
from mofa_model.manifest.parsing import Profile, is_ours, training_job
from mofa_model.manifest.sizing import at_best_size, at_every_size
from mofa_model.manifest.surroundings import Surroundings, refusal, surroundings
from mofa_model.records import dataclass
from mofa_model.strategy import format_strategy

Answer: TypeAlias = Callable[[Request], Advice]
"""What answers a question."""
Sizes: TypeAlias = Mapping[int, Request | str]
"""The questions of an elastic job by its GPUs [1], fewest first; a text says why there is none."""
Place: TypeAlias = tuple[int, int]
"""Where an object is: number of its stream, number in the stream."""
_PAUSED: Final = PREFIX + "paused"


def sizes_of(question: JobQuestion) -> dict[int, Request | str]:
    """The question at every size that a job may have; none where it has one size."""
    sizes: dict[int, Request | str] = {}
    for gpus, asked in question.size_questions:
        try:
            sizes[gpus] = str(asked) if isinstance(asked, InputError) else request_of(asked)
        except InputError as error:
            sizes[gpus] = str(error)
    return sizes


def digest_of(
    request: Request, size_requests: Sizes, version: str, options: Sequence[Request] = ()
) -> str:
    """Hash of a question, with all of its sizes, or of all sizes that it may get."""
    digest = inputs_hash(request, version)
    if options:
        return hash_of([inputs_hash(option, version) for option in options], version)
    if not size_requests:
        return digest
    return hash_of([digest, _digests(size_requests, version)], version)


def _digests(requests: Mapping[int, Request | str], version: str) -> list[str]:
    """Hash of each question; the reason where there is none."""
    return [
        request if isinstance(request, str) else inputs_hash(request, version)
        for request in requests.values()
    ]


def table_of(
    size_requests: Sizes, answer: Answer, answered: tuple[Request, Advice]
) -> list[dict[str, Any]]:
    """A row for each size: layout, seconds of a step and steps between checkpoints, or a reason.

    `answered` is the question of the job's present size with its answer. Rows show no alternatives.
    """
    rows: list[dict[str, Any]] = []
    for gpus, request in size_requests.items():
        if isinstance(request, str):
            rows.append({"gpus": gpus, "reason": request})
            continue
        is_present = request == answered[0]
        advice = answered[1] if is_present else answer(replace(request, top=0))
        if advice.strategy is None or advice.predicted is None:
            rows.append({"gpus": gpus, "reason": advice.explanation[:200]})
            continue
        rows.append(
            {
                "gpus": gpus,
                "nodes": advice.nodes,
                "strategy": format_strategy(advice.strategy),
                "step_seconds": float(f"{advice.predicted.step_seconds.target:.4g}"),
                "checkpoint_steps": advice.checkpoint_interval_steps,
            }
        )
    return rows


def batch_rows(requests: Mapping[int, Request | str], answer: Answer) -> list[dict[str, Any]]:
    """A row for each batch that was tried: layout, seconds of a step, memory, or a reason."""
    rows: list[dict[str, Any]] = []
    for batch, request in requests.items():
        advice = None if isinstance(request, str) else answer(replace(request, top=0))
        if advice is None or advice.strategy is None or advice.predicted is None:
            why = str(request) if advice is None else advice.explanation
            rows.append({"global_batch": batch, "reason": why[:200]})
            continue
        rows.append(
            {
                "global_batch": batch,
                "strategy": format_strategy(advice.strategy),
                "step_seconds": float(f"{advice.predicted.step_seconds.target:.4g}"),
                "memory_bytes": int(float(f"{advice.predicted.memory_bytes.target:.4g}")),
            }
        )
    return rows


def batches_digest(base: str, requests: Mapping[int, Request | str], version: str) -> str:
    """Hash of a question that leaves the batch open, and of its request for each batch."""
    return hash_of([base, _digests(requests, version)], version)


@dataclass(frozen=True, kw_only=True)
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
        name = f"{self.item.kind} {self.item.namespace}/{self.item.name}"
        return f"{name}: {self.status}: {self.explanation}"


@dataclass(frozen=True, kw_only=True)
class Annotator:
    """Annotates streams."""

    answer: Answer
    words: Callable[[Request, Advice], Iterable[str]]
    """What gives an answer's launch arguments."""
    model_version: str
    now: str
    """The moment in UTC, for computed-at."""
    profiles: Sequence[Profile] = ()
    """Profiles that were given beside the streams."""

    def run(self, streams: Sequence[Documents]) -> tuple[list[str], list[Outcome]]:
        """The streams with annotations, and what became of each job in them."""
        around = surroundings(streams, self.profiles)
        items = {
            (number, index): item
            for number, stream in enumerate(streams)
            for index, item in enumerate(stream.items)
        }
        targets = {place: _targets(item, items) for place, item in items.items()}
        # The target of a TrainingJob is answered by that alone.
        owned = {place for places in targets.values() for place in places}
        changes: list[dict[int, Mapping[str, str | None]]] = [{} for _ in streams]
        outcomes: list[Outcome] = []

        def refuse(item: Item, why: str) -> None:
            outcomes.append(
                Outcome(item=item, status=InputError.status, explanation=why, changed=False)
            )

        for place, item in items.items():
            if why := refusal(item):
                refuse(item, why)
            fresh = None if place in owned else self._fresh(item, around)
            if fresh is None:
                continue
            for number, index in (place, *targets[place]):
                target = items[number, index]
                old = target.annotations
                change = settled(old, fresh) if fresh else removal(old)
                try:
                    changes[number][index] = streams[number].checked(index, change)
                except InputError as error:  # it stays as it is, and nothing else does
                    refuse(target, str(error))
                    continue
                if (number, index) == place:
                    outcomes.append(
                        Outcome(
                            item=item,
                            status=fresh.get(PREFIX + "status", ""),
                            explanation=fresh.get(PREFIX + "explanation", ""),
                            changed=bool(changes[number][index]),
                        )
                    )
        results = _results(outcomes)
        texts = [
            stream.annotated(change, results=results)
            for stream, change in zip(streams, changes, strict=True)
        ]
        return texts, outcomes

    def _fresh(self, item: Item, around: Surroundings) -> dict[str, str] | None:
        """Annotations for an object: none where it is disabled, None where it does not ask."""
        try:
            mode = _mode(item, around)
            if mode is None or mode == "Disabled":
                return None if mode is None else {}
            return self._annotations(item, jobs.job_question(item, around))
        except InputError as error:
            annotations = {key: value for key, value in item.annotations.items() if key in ASKED}
            spec = without_suspension(item.value.get("spec"))
            digest = hash_of({"spec": spec, "asked": annotations}, self.model_version)
            message = str(error).removeprefix(f"{item.kind} {item.name}: ")
            if isinstance(error, BatchMissing):
                requests = jobs.requests_by_batch(item, around, error)
                digest = batches_digest(digest, requests, self.model_version)
                rows = batch_rows(requests, self.answer)
                return of_batches(message, digest, self.model_version, self.now, rows)
            return of_bad_input(message, digest, self.model_version, self.now, error.status)

    def _annotations(self, item: Item, job: JobQuestion) -> dict[str, str]:
        choices = [request_of(option) for option in at_every_size(job)]
        question, sizes = choices[0] if choices else request_of(job), sizes_of(job)
        digest = digest_of(question, sizes, self.model_version, choices)
        if job.assumed:
            digest = hash_of([digest, job.assumed], self.model_version)
        previous = item.annotations
        if previous.get(PREFIX + "inputs-hash") == digest and is_whole(previous):
            return {key: value for key, value in previous.items() if key in OUTPUTS}
        if choices:
            job = at_best_size(job)
            question = request_of(job)
        answer = self.answer(question)
        advice = with_assumption(job, answer)
        rows = table_of(sizes, self.answer, (question, answer))
        return of_advice(advice, digest, self.now, self.words(question, advice), rows)


def _mode(item: Item, around: Surroundings) -> str | None:
    """Mode of an object; None where it does not ask, or is paused."""
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
    target = (ref.get("apiVersion"), ref.get("kind"), ref.get("name"), item.namespace)
    return [
        place
        for place, candidate in items.items()
        if (candidate.api_version, candidate.kind, candidate.name, candidate.namespace) == target
    ]


def _results(outcomes: Sequence[Outcome]) -> str:
    """What a KRM function reports: the outcomes that need attention."""
    lines = []
    for outcome in outcomes:
        if outcome.status in {*UNANSWERED, "NoRecommendation", "LowConfidence"} - QUIET:
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
