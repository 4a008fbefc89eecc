"""Pods of running jobs, as they are just now and were a little while ago: one cheap look, made every minute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from mofa_model.kinds import PodLabels
from mofa_operator.observe.answers import QueryResult, Sample
from mofa_operator.observe.asking import Asking, in_turns, together
from mofa_operator.observe.prometheus import Prometheus
from mofa_operator.observe.queries import FACTS, POD_LABELS, UID, Pool

Job: TypeAlias = tuple[str, str]
"""Namespace and name of a job."""
_FEW: Final = 2000
"""Pods up to which everything about them comes in one answer. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pod:
    """A pod of a training job, as far as it was seen."""

    job: Job
    """Whose."""
    attempt: str
    """Restart attempt of its job; empty for kinds that do not say."""
    slot: str
    """Which place in the job it fills: the same for the pod that replaces it."""
    node: str = ""
    """Its node; empty = not known."""
    created: float | None = None
    """When it was created, in seconds of the epoch. [s]"""
    first: int | None = None
    """Restarts at its first sample; None = not known. [1]"""
    restarts: int | None = None
    """Restarts at its last sample. [1]"""
    made_room: bool = False
    """Whether it was evicted or preempted."""
    preempted: bool = False
    """Whether it was preempted."""


async def pods_of(prometheus: Prometheus, pool: Pool, at: float, span: float) -> dict[str, Pod]:
    """Pods of training jobs that lived at some time, by namespace, name and uid: a uid alone is but a label, and anybody's."""
    ask = Asking(prometheus, at)
    pods = await ask(pool.pods(span))
    return await _pods(ask, pool, span, pods) if pods.samples else {}


async def _pods(ask: Asking, pool: Pool, span: float, pods: QueryResult) -> dict[str, Pod]:
    """The same, given which they are."""
    few = (
        len(pods.samples) <= _FEW
    )  # together the pods are looked up once, apart the answers are smaller
    parts = [FACTS] if few else [(fact,) for fact in FACTS]
    answers = await together(*(ask(pool.pod_facts(span, part)) for part in parts))
    more: defaultdict[str, dict[str, Sample]] = defaultdict(dict)
    async for sample in in_turns(sample for answer in answers for sample in answer.samples):
        more[named(sample)][sample.label("fact")] = sample
    found: dict[str, Pod] = {}
    async for sample in in_turns(pods.samples):
        pod = named(sample)
        known = more[pod]
        value = {fact: one.value for fact, one in known.items()}
        labels = next((one for one in POD_LABELS if sample.label(one.job)), POD_LABELS[0])
        found[pod] = Pod(
            job=(sample.label("namespace"), sample.label(labels.job)),
            attempt=sample.label(labels.attempt),
            slot=_slot(sample, labels),
            node=known["node"].label("node") if "node" in known else "",
            created=value.get("created"),
            first=None if "first" not in value else round(value["first"]),
            restarts=None if "last" not in value else round(value["last"]),
            made_room="evicted" in value or "preempted" in value,
            preempted="preempted" in value,
        )
    return found


def last_of_slots(pods: Iterable[Pod]) -> list[Pod]:
    """The pods of an attempt that nothing replaced within it: they say how it ended."""
    last: dict[str, Pod] = {}
    for pod in sorted(pods, key=lambda pod: pod.created or 0.0):
        last[pod.slot] = pod
    return list(last.values())


def named(sample: Sample) -> str:
    """Which pod a series is of."""
    return "/".join(sample.label(name) for name in UID)


def _slot(sample: Sample, labels: PodLabels) -> str:
    """The place that a pod fills: a JobSet's indices; else its name, which is stable or ends in five random letters."""
    indices = [sample.label(label) for label in labels.slot]
    if indices and all(indices):
        return "/".join(indices)
    stem, _, last = sample.label("pod").rpartition("-")
    return stem if len(last) == 5 and not last.isdigit() else sample.label("pod")
