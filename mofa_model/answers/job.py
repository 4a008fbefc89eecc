"""The job that a question on reliability describes: its failures, recoveries and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mofa_model import units
from mofa_model.answers.given import live_evidence, live_profile, modes_of_ledger, with_layout
from mofa_model.answers.questions import ReliabilityQuestion
from mofa_model.errors import BadValue
from mofa_model.reliability import checkpoint
from mofa_model.reliability.interval import MOST_STEPS
from mofa_model.reliability.model import Job
from mofa_model.reliability.rates import JEFFREYS
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.spec.reliability import (
    COPY_SLOWDOWN,
    PAPER_RATE,
    PRIOR_WEIGHT,
    CheckpointTier,
    Domain,
    FailureLaw,
    FailureMode,
    FailureRate,
    Hangs,
    RecoveryTime,
    Reliability,
)

_OF_LEDGER: Final = ("rate", "failures", "node_days", "classes", "mttr")
"""Fields that a FailureLedger states, which are refused beside it."""
_OF_PROFILE: Final = (*_OF_LEDGER, "domains", "queue", "spares", "ledger")
"""Fields that a profile states."""
_CERTAIN: Final = 1e9
"""Prior failures from which an assumed rate counts as certain: more would lose its digits. [1]"""
_KEEPING_PODS: Final = {
    recovery_class.value for recovery_class in RecoveryClass if recovery_class.keeps_pods
}
"""Classes whose recoveries wait in no queue."""


def job_of(question: ReliabilityQuestion) -> Job:
    """The job that the options, or the layout that they name, describe."""
    question = with_layout(question)
    if question.prometheus is not None and not question.profile:
        right = "name the pool's profile with it (--profile)"
        raise BadValue("--prometheus", question.prometheus, right)
    nodes, step = float(question.nodes or 0), str(question.step)
    reliability = _profile(question) if question.profile else None
    storage = tuple(_storage_of(text) for text in question.storage)
    if reliability is not None and not (storage or question.save):
        storage = reliability.tiers
    blocking, background = _storage_times(question, storage) if storage else _times(question)
    if reliability is None:
        reliability = _described(question, storage, len(blocking))
    else:
        reliability = _fitted(reliability, storage, len(blocking))
    if question.hang is not None:
        reliability = replace(reliability, hangs=hangs_of(question.hang))
    job = Job(
        nodes=nodes,
        step_time=time_of(step, "--step", least=1e-9),
        blocking=blocking,
        background=background,
        reliability=reliability,
    )
    return _planned(question, job) if question.recovery else job


def _planned(question: ReliabilityQuestion, job: Job) -> Job:
    """The job under the recovery plan that is worth most of those that are asked for."""
    from mofa_model.reliability.recovery import best_outcome, is_possible
    from mofa_model.spec.recovery_plans import Replicas, plans_of

    plans, state = plans_of(tuple(question.recovery)), 0.0
    if any(plan.peers for plan in plans):
        if question.checkpoint_size is None and question.model is None:
            right = "give --checkpoint-size or --model with it: copies on peers have its size"
            raise BadValue("--recovery", ",".join(question.recovery), right)
        shards = job.nodes * question.gpus_per_node / question.replicas
        state = float(checkpoint.bytes_per_node(_size(question), shards, question.gpus_per_node))
    job = replace(job, redundancy=(layout := Replicas(count=question.replicas, state=state)))
    possible = [plan for plan in plans if is_possible(plan, layout, float(job.nodes))]
    if not possible:
        right = "give --replicas 2 or more: no replica can go on, nor a job shrink, with one"
        raise BadValue("--recovery", ",".join(question.recovery), right)
    return replace(job, plan=best_outcome(job, possible, int(MOST_STEPS)).plan)


def _described(
    question: ReliabilityQuestion, storage: tuple[CheckpointTier, ...], tiers: int
) -> Reliability:
    """Reliability from the options alone, without a profile."""
    return Reliability(
        classes=_classes(question, tiers) if question.ledger is None else _counted(question, tiers),
        tiers=storage,
        slowdown=COPY_SLOWDOWN if question.slowdown is None else question.slowdown,
        law=_law_of(question.law),
        failures_during_recovery=not question.idle_recovery,
        queue=_recovery_of(question.queue.split(":"), "--queue") if question.queue else None,
        spares=question.spares,
        repair=time_of(question.repair, "--repair"),
        domains=tuple(_domain_of(text, tiers) for text in question.domains),
    )


def _counted(question: ReliabilityQuestion, tiers: int) -> tuple[FailureMode, ...]:
    """Failure classes that a FailureLedger counted; options of the same facts are refused."""
    _refuse_twice(question, "ledger", _OF_LEDGER)
    return modes_of_ledger(str(question.ledger), tiers - 1)


def _refuse_twice(question: ReliabilityQuestion, source: str, names: Sequence[str]) -> None:
    """Refuse a source of failures, such as a profile, beside options that state the same facts."""
    if flags := [
        question.options[name].flag for name in names if name in question.changed_fields()
    ]:
        right = f"it states what {flags[0]} would; give one of them"
        raise BadValue(question.options[source].flag, getattr(question, source), right)


def _profile(question: ReliabilityQuestion) -> Reliability:
    """Reliability of a profile: its assumptions blended with the history in its status."""
    from mofa_model.manifest.failures import reliability_of
    from mofa_model.manifest.inputs import cluster_of
    from mofa_model.manifest.surroundings import named_profile
    from mofa_model.manifest.training_job import FailureAssumptions

    name, url = str(question.profile), question.prometheus
    _refuse_twice(question, "profile", _OF_PROFILE)
    profile = named_profile(name) if url is None else live_profile(name)
    return reliability_of(
        FailureAssumptions(),
        profile.spec,
        profile.status.evidence() if url is None else live_evidence(url, profile, name),
        cluster=cluster_of(profile.spec, int(question.nodes or 0)),
        asynchronous=True,
        path="profile",
    )


def _fitted(
    reliability: Reliability, storage: tuple[CheckpointTier, ...], tiers: int
) -> Reliability:
    """A profile's reliability on the tiers that the job saves to."""
    classes = tuple(replace(c, tier=min(c.tier, tiers - 1)) for c in reliability.classes)
    domains = tuple(replace(d, tier=min(d.tier, tiers - 1)) for d in reliability.domains)
    return replace(reliability, tiers=storage, classes=classes, domains=domains)


def _rate_of(question: ReliabilityQuestion) -> FailureRate:
    """The total failure rate: counts if given, else the assumption."""
    if (question.failures is None) != (question.node_days is None):
        raise BadValue("--failures", question.failures, "give --failures and --node-days together")
    if question.failures is None:
        rate = PAPER_RATE if question.rate is None else question.rate
        weight = PRIOR_WEIGHT if question.prior_weight is None else question.prior_weight
        return FailureRate.assumed(rate, math.inf if weight > _CERTAIN else weight)
    if question.rate is not None:
        raise BadValue("--rate", question.rate, "give --rate, or --failures and --node-days")
    return FailureRate(
        failures=question.failures + JEFFREYS, exposure=float(question.node_days or 0) * units.DAY
    )


def _classes(question: ReliabilityQuestion, tiers: int) -> tuple[FailureMode, ...]:
    total = _rate_of(question)
    if question.mttr is not None and question.classes:
        raise BadValue("--mttr", question.mttr, "give --mttr or --class, not both")
    if question.mttr is not None:
        mean = time_of(question.mttr, "--mttr")
        classes = [("all", 1.0, RecoveryTime(mean=mean, law="deterministic"), 0)]
    elif question.classes:
        classes = [_class_of(text) for text in question.classes]
    else:
        classes = [
            (
                recovery_class.value,
                recovery_class.share,
                RecoveryTime(mean=recovery_class.seconds, law="deterministic"),
                min(i, tiers - 1),
            )
            for i, recovery_class in enumerate(RecoveryClass)
        ]
    shares = [part for _, part, _, _ in classes]
    if abs(sum(shares) - 1) > 1e-6:
        text = ", ".join(f"{part:g}" for part in shares)
        raise BadValue("--class", text, "shares of the classes must add to one")
    return tuple(
        FailureMode(
            name=name,
            rate=total.scaled(part),
            recovery=recovery,
            tier=tier,
            queues=name not in _KEEPING_PODS,
        )
        for name, part, recovery, tier in classes
    )


def _times(question: ReliabilityQuestion) -> tuple[tuple[float, ...], tuple[float, ...]]:
    blocking = _times_of(question.save or "30 s", "--save")
    background = _times_of(question.copy, "--copy") if question.copy else (0.0,) * len(blocking)
    if len(blocking) != len(background):
        raise BadValue("--copy", question.copy, f"give {len(blocking)} times, as in --save")
    return blocking, background


def _storage_times(
    question: ReliabilityQuestion, tiers: tuple[CheckpointTier, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if question.save or question.copy:
        raise BadValue(
            "--save", question.save or question.copy, "give --storage, or --save and --copy"
        )
    size = _size(question)
    shards = question.shards or float(question.nodes or 0) * question.gpus_per_node
    node = checkpoint.bytes_per_node(size, shards, question.gpus_per_node)
    return (
        tuple(float(checkpoint.blocking_time(tier, size, node)) for tier in tiers),
        tuple(float(checkpoint.background_time(tier, size, node)) for tier in tiers),
    )


def every_of(text: str | None, count: int) -> tuple[int, ...] | None:
    """For each checkpoint tier, saves of the nearest tier per own save: with `1,10` the second tier
    gets every tenth.
    """
    if text is None:
        return None
    numbers = tuple(units.count(part, field="--every") for part in text.split(","))
    if len(numbers) != count or min(numbers) < 1:
        right = f"give one whole number of 1 or more for each of the {count} checkpoint tiers"
        raise BadValue("--every", text, right)
    return numbers


def size_of(text: str) -> float:
    """The size of a checkpoint. [B]"""
    size = units.parse(text, "B", field="--checkpoint-size")
    if size <= 0:
        raise BadValue("--checkpoint-size", text, "give a size above zero")
    return size


def _size(question: ReliabilityQuestion) -> float:
    if (question.checkpoint_size is None) == (question.model is None):
        right = "give --checkpoint-size or --model with it"
        if question.storage:
            raise BadValue("--storage", question.storage[0], right)
        raise BadValue("--profile", question.profile, right)
    if question.checkpoint_size is not None:
        return size_of(question.checkpoint_size)
    from mofa_model import presets
    from mofa_model.equations.parameters import total_parameters

    name = presets.resolve("precisions", question.precision, field="--precision")
    recipe, count = (
        presets.precision(name),
        total_parameters(presets.model_named(str(question.model))),
    )
    return float(checkpoint.checkpoint_bytes(count, recipe.weight, recipe.optimizer))


def _class_of(text: str) -> tuple[str, float, RecoveryTime, int]:
    """A recovery class: name, share, recovery time, tier."""
    name, *rest = text.split(":")
    if len(rest) not in {2, 3, 4, 5}:
        right = "write NAME:SHARE:MEAN[:LAW[:CV[:TIER]]], for example pod:0.6:262s:lognormal:1:1"
        raise BadValue("--class", text, right)
    tier = int(_number_of(rest[4], "--class")) if len(rest) == 5 else 0
    share = _number_of(rest[0], "--class")
    if not 0 <= share <= 1:
        raise BadValue("--class", text, "its share, the second part, must be between 0 and 1")
    return name, share, _recovery_of(rest[1:4], "--class"), tier


def _recovery_of(parts: list[str], field: str) -> RecoveryTime:
    """A recovery time from its parts: mean, law, spread."""
    mean = time_of(parts[0], field)
    if len(parts) == 1:
        return RecoveryTime(mean=mean, law="deterministic")
    cv = _number_of(parts[2], field) if len(parts) > 2 else 1.0
    return RecoveryTime(mean=mean, law=parts[1], cv=cv)


def _domain_of(text: str, tiers: int) -> Domain:
    """Nodes that fail together, in a job of `tiers` checkpoint tiers."""
    parts = text.split(":")
    if len(parts) not in {4, 5}:
        right = "write NAME:NODES:RATE:MEAN[:TIER], for example rack:16:0.001:1h"
        raise BadValue("--domain", text, right)
    return Domain(
        name=parts[0],
        nodes=units.count(parts[1], field="--domain"),
        rate=_number_of(parts[2], "--domain") / units.DAY,
        recovery=_recovery_of(parts[3:4], "--domain"),
        tier=int(_number_of(parts[4], "--domain")) if len(parts) == 5 else tiers - 1,
    )


def _law_of(text: str) -> FailureLaw:
    """The law of the time between failures."""
    kind, *numbers = text.split(":")
    values = [_number_of(number, "--law") for number in numbers]
    if kind == "weibull" and len(values) == 1:
        return FailureLaw(kind=kind, shape=values[0])
    if kind == "mixture" and len(values) == 2:
        return FailureLaw(kind=kind, short_share=values[0], short_mean=values[1])
    if kind == "exponential" and not values:
        return FailureLaw()
    raise BadValue("--law", text, "write exponential, weibull:0.7 or mixture:0.5:0.17")


def hangs_of(text: str) -> Hangs:
    """Failures that end no process until a timeout: the timeout, their share of all failures, and
    pauses of a healthy job that a watchdog takes for a hang.
    """
    timeout, share_text, *pauses = [*text.split(":"), ""][: max(2, text.count(":") + 1)]
    share = _number_of(share_text, "--hang") if share_text else 1.0
    if not 0 <= share <= 1 or len(pauses) not in {0, 2, 3, 4}:
        right = (
            "write TIMEOUT[:SHARE[:PAUSES:MEAN[:LAW[:CV]]]] with a share between 0 and 1 and pauses"
            " a day, for example 15min:0.3 or 15min:0.3:24:5min:lognormal:1"
        )
        raise BadValue("--hang", text, right)
    hangs = Hangs(timeout=time_of(timeout, "--hang"), share=share)
    if not pauses:
        return hangs
    rate = _number_of(pauses[0], "--hang") / units.DAY
    return replace(hangs, pauses=rate, pause=_recovery_of(pauses[1:], "--hang"))


def _times_of(text: str, field: str) -> tuple[float, ...]:
    """Times separated by commas. [s]"""
    return tuple(time_of(part.strip(), field) for part in text.split(","))


def time_of(text: str, field: str, *, least: float = 0.0) -> float:
    """A time of `least` or more. [s]"""
    value = units.parse(text, "s", field=field)
    if value < least:
        right = "give a time of zero or more" if least == 0 else "give a time above zero"
        raise BadValue(field, text, right)
    return value


def _storage_of(text: str) -> CheckpointTier:
    """A checkpoint tier by its bandwidths."""
    name, *rates = text.split(":")
    if not 1 <= len(rates) <= 3:
        right = "write NAME:NODE_BW[:TOTAL_BW[:SNAPSHOT_BW]], for example 'remote:2 GB/s:200 GB/s'"
        raise BadValue("--storage", text, right)
    bandwidths = [units.parse(rate, "B/s", field="--storage") for rate in rates]
    node, total, snapshot = [*bandwidths, math.inf, math.inf][:3]
    return CheckpointTier(
        name=name,
        node_bandwidth=node,
        total_bandwidth=total,
        snapshot_bandwidth=snapshot,
        asynchronous=len(rates) == 3,
    )


def _number_of(text: str, field: str) -> float:
    """A finite number that is zero or more."""
    try:
        value = float(text)
    except ValueError:
        raise BadValue(field, text, "give a number") from None
    if not math.isfinite(value) or value < 0:
        raise BadValue(field, text, "give a finite number that is zero or more")
    return value
