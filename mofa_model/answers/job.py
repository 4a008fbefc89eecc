"""What `ettr` and `simulate` ask about: a job, its failures, its checkpoints; and what that means."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from mofa_model import units
from mofa_model.answers import job_text
from mofa_model.answers.question import Names, Real, Text, Whole, WordedQuestion
from mofa_model.errors import BadValue
from mofa_model.reliability import checkpoint
from mofa_model.reliability.model import Job
from mofa_model.reliability.rates import JEFFREYS
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.spec.reliability import (
    COPY_SLOWDOWN,
    PAPER_RATE,
    PRIOR_WEIGHT,
    CheckpointTier,
    FailureMode,
    FailureRate,
    RecoveryTime,
    Reliability,
)

_OF_PROFILE: Final = (
    "rate",
    "failures",
    "node_days",
    "classes",
    "mttr",
    "domains",
    "queue",
    "spares",
)
"""What a profile replaces."""
_BOUNDS: Final = {
    "nodes": (1, 1e7),
    "rate": (0, job_text.MOST_RATE),
    "failures": (0, 1e12),
    "node_days": (1e-6, 1e15),
    "slowdown": (0, 1e3),
    "spares": (0, 1e7),
    "shards": (1, 1e9),
    "gpus_per_node": (1, 1e6),
}
_KEEPING: Final = {one.value for one in RecoveryClass if one.keeps_pods}
"""Classes that wait in no queue."""


@dataclass(frozen=True, kw_only=True)
class JobWords(WordedQuestion):
    """A job on nodes that fail, and how it saves."""

    nodes: Real
    """Nodes of the job."""
    step: Text
    """Step time without failures, for example "28 s"."""
    profile: Text | None = None
    """Failures, recoveries, spares and storage of a ClusterProfile: a bundled one or a manifest."""
    rate: Real | None = None
    """Assumed failures per node-day; without it 0.005, the paper's."""
    prior_weight: Real = PRIOR_WEIGHT
    """Failures that the assumption is worth; infinity = certain."""
    failures: Whole | None = None
    """Failures seen; with `node_days`, in place of `rate`."""
    node_days: Real | None = None
    """Node-days in which they were seen."""
    classes: Names = ()
    """Recovery classes, each NAME:SHARE:MEAN[:LAW[:CV[:TIER]]]; without them the paper's."""
    mttr: Text | None = None
    """One recovery time for all failures, in place of classes."""
    domains: Names = ()
    """Nodes that fail together, each NAME:NODES:RATE:MEAN[:TIER]; RATE per domain and day."""
    law: Text = "exponential"
    """Time between failures: exponential, weibull:SHAPE, mixture:SHARE:SHORT."""
    queue: Text | None = None
    """Queue that recoveries of pods and jobs wait in: MEAN[:LAW[:CV]]."""
    hang: Text | None = None
    """Failures that end no process until this timeout, and their share of all: "15min:0.3"."""
    idle_recovery: bool = False
    """Whether nothing fails while the job recovers."""
    spares: Whole | None = None
    """Spare nodes; without them a broken node is replaced at once."""
    repair: Text = "24 h"
    """Repair time of a node, with `spares`."""
    save: Text | None = None
    """Blocking part of a save, nearest tier first: "0.2s,1s,2s"; without it 30 s."""
    copy: Text | None = None
    """Background copy until a save is durable, as many as in `save`; without it 0 s."""
    slowdown: Real = COPY_SLOWDOWN
    """Slowdown of steps while copying, 0.02 = 2 %."""
    storage: Names = ()
    """Tiers by their bandwidths, each NAME:NODE_BW[:TOTAL_BW[:SNAPSHOT_BW]], in place of `save` and `copy`."""
    checkpoint_size: Text | None = None
    """Size of a checkpoint, for `storage`."""
    model: Text | None = None
    """Preset or `config.json` whose size gives the checkpoint's, in place of `checkpoint_size`."""
    precision: Text = "bf16"
    """Training recipe of `model`."""
    shards: Whole | None = None
    """Ranks that write distinct shards; without it all GPUs."""
    gpus_per_node: Whole = 8
    """GPUs in a node."""


def job_of(asked: JobWords) -> Job:
    """The job that the words describe."""
    for name, (least, most) in _BOUNDS.items():
        job_text.within(getattr(asked, name), f"--{name.replace('_', '-')}", least, most)
    if asked.prior_weight != math.inf:
        job_text.within(asked.prior_weight, "--prior-weight", 1e-6, 1e9)
    reliability = _profile(asked) if asked.profile else None
    storage = tuple(job_text.storage_of(text) for text in asked.storage)
    if reliability is not None and not (storage or asked.save):
        storage = reliability.tiers
    blocking, background = _storage_times(asked, storage) if storage else _times(asked)
    if reliability is None:
        reliability = _described(asked, storage, len(blocking))
    else:
        reliability = _fitted(reliability, storage, len(blocking))
    if asked.hang is not None:
        reliability = replace(reliability, hangs=job_text.hangs_of(asked.hang))
    return Job(
        nodes=asked.nodes,
        step_time=job_text.time_of(asked.step, "--step", least=1e-9),
        blocking=blocking,
        background=background,
        reliability=reliability,
    )


def _described(asked: JobWords, storage: tuple[CheckpointTier, ...], tiers: int) -> Reliability:
    """Reliability from the words alone."""
    return Reliability(
        classes=_classes(asked, tiers),
        tiers=storage,
        slowdown=asked.slowdown,
        law=job_text.law_of(asked.law),
        failures_during_recovery=not asked.idle_recovery,
        queue=job_text.recovery_of(asked.queue.split(":"), "--queue") if asked.queue else None,
        spares=asked.spares,
        repair=job_text.time_of(asked.repair, "--repair"),
        domains=tuple(job_text.domain_of(text, tiers) for text in asked.domains),
    )


def _profile(asked: JobWords) -> Reliability:
    """Reliability of a profile; options that would say the same twice are refused."""
    from mofa_model.answers import job_profile

    twice = [name for name in _OF_PROFILE if getattr(asked, name) not in (None, ())]
    if twice:
        raise BadValue(
            "--profile",
            asked.profile,
            f"it states what --{twice[0].replace('_', '-')} would; give one of them",
        )
    return job_profile.reliability(str(asked.profile), int(asked.nodes))


def _fitted(
    reliability: Reliability, storage: tuple[CheckpointTier, ...], tiers: int
) -> Reliability:
    """A profile's reliability on the tiers that the job saves to."""
    classes = tuple(replace(c, tier=min(c.tier, tiers - 1)) for c in reliability.classes)
    domains = tuple(replace(d, tier=min(d.tier, tiers - 1)) for d in reliability.domains)
    return replace(reliability, tiers=storage, classes=classes, domains=domains)


def rate_of(asked: JobWords) -> FailureRate:
    """The total failure rate: counts if given, else the assumption."""
    if (asked.failures is None) != (asked.node_days is None):
        raise BadValue("--failures", asked.failures, "give --failures and --node-days together")
    if asked.failures is None:
        return FailureRate.assumed(
            PAPER_RATE if asked.rate is None else asked.rate, asked.prior_weight
        )
    if asked.rate is not None:
        raise BadValue("--rate", asked.rate, "give --rate, or --failures and --node-days")
    return FailureRate(
        failures=asked.failures + JEFFREYS, exposure=float(asked.node_days or 0) * units.DAY
    )


def _classes(asked: JobWords, tiers: int) -> tuple[FailureMode, ...]:
    total = rate_of(asked)
    if asked.mttr is not None and asked.classes:
        raise BadValue("--mttr", asked.mttr, "give --mttr or --class, not both")
    if asked.mttr is not None:
        mean = job_text.time_of(asked.mttr, "--mttr")
        given = [("all", 1.0, RecoveryTime(mean=mean, law="deterministic"), 0)]
    elif asked.classes:
        given = [job_text.class_of(text) for text in asked.classes]
    else:
        given = [
            (
                one.value,
                one.share,
                RecoveryTime(mean=one.seconds, law="deterministic"),
                min(i, tiers - 1),
            )
            for i, one in enumerate(RecoveryClass)
        ]
    shares = [part for _, part, _, _ in given]
    if abs(sum(shares) - 1) > 1e-6:
        raise BadValue(
            "--class",
            ", ".join(f"{part:g}" for part in shares),
            "shares of the classes must add to one",
        )
    return tuple(
        FailureMode(
            name=name,
            rate=_part(total, part),
            recovery=recovery,
            tier=tier,
            queues=name not in _KEEPING,
        )
        for name, part, recovery, tier in given
    )


def _part(total: FailureRate, part: float) -> FailureRate:
    """A class's share of the total rate; the parts' posteriors add to the total's."""
    if total.exactly is not None or part == 0:
        return FailureRate(failures=0.0, exposure=1.0, exactly=total.mean * part)
    return FailureRate(failures=total.failures * part, exposure=total.exposure)


def _times(asked: JobWords) -> tuple[tuple[float, ...], tuple[float, ...]]:
    blocking = job_text.times_of(asked.save or "30 s", "--save")
    background = job_text.times_of(asked.copy, "--copy") if asked.copy else (0.0,) * len(blocking)
    if len(blocking) != len(background):
        raise BadValue("--copy", asked.copy, f"give {len(blocking)} times, as in --save")
    return blocking, background


def _storage_times(
    asked: JobWords, tiers: tuple[CheckpointTier, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if asked.save or asked.copy:
        raise BadValue("--save", asked.save or asked.copy, "give --storage, or --save and --copy")
    size = _size(asked)
    shards = asked.shards or asked.nodes * asked.gpus_per_node
    node = checkpoint.bytes_per_node(size, shards, asked.gpus_per_node)
    pairs = [checkpoint.save_times(tier, size, node) for tier in tiers]
    return tuple(float(b) for b, _ in pairs), tuple(float(b) for _, b in pairs)


def size_of(text: str) -> float:
    """The size of a checkpoint. [B]"""
    size = units.parse(text, "B", field="--checkpoint-size")
    if size <= 0:
        raise BadValue("--checkpoint-size", text, "give a size above zero")
    return size


def _size(asked: JobWords) -> float:
    if (asked.checkpoint_size is None) == (asked.model is None):
        field, given = (
            ("--storage", asked.storage[0]) if asked.storage else ("--profile", asked.profile)
        )
        raise BadValue(field, given, "give --checkpoint-size or --model with it")
    if asked.checkpoint_size is not None:
        return size_of(asked.checkpoint_size)
    from mofa_model import presets
    from mofa_model.equations.parameters import total_parameters

    name = presets.resolve("precisions", asked.precision, field="--precision")
    recipe, count = presets.precision(name), total_parameters(presets.model_named(str(asked.model)))
    return float(checkpoint.checkpoint_bytes(count, recipe.weight, recipe.optimizer))
