"""The options that `ettr` and `simulate` share: a job, its failures, its checkpoints. Not a verb."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import Final

from mofa_model import units
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
from mofa_model.verbs import job_text

_OF_PROFILE: Final = ("rate", "failures", "node_days", "classes", "mttr", "domains", "queue", "spares")
"""Options that a profile replaces."""
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


def add_options(parser: ArgumentParser) -> None:
    """Add the job's options; `job_of` reads them."""
    job = parser.add_argument_group("job")
    job.add_argument("--nodes", type=float, required=True, metavar="N", help="nodes of the job")
    job.add_argument(
        "--step", required=True, metavar="TIME", help="step time without failures, for example '28 s'"
    )
    fail = parser.add_argument_group("failures")
    fail.add_argument(
        "--profile",
        metavar="NAME|FILE",
        help="failures, recoveries, spares and storage of a ClusterProfile: a bundled one or a manifest",
    )
    fail.add_argument(
        "--rate",
        type=float,
        metavar="R",
        help=f"assumed failures per node-day (default: {PAPER_RATE}, the paper's)",
    )
    fail.add_argument(
        "--prior-weight", type=float, default=PRIOR_WEIGHT, metavar="W",
        help=f"failures that the assumption is worth; inf = certain (default: {PRIOR_WEIGHT:g})",
    )  # fmt: skip
    fail.add_argument(
        "--failures", type=int, metavar="K", help="failures seen; with --node-days, in place of --rate"
    )
    fail.add_argument("--node-days", type=float, metavar="D", help="node-days in which they were seen")
    fail.add_argument(
        "--class", dest="classes", action="append", default=[], metavar="NAME:SHARE:MEAN[:LAW[:CV[:TIER]]]",
        help="a recovery class, its share of failures, its recovery time; may be repeated"
        f" (default: the paper's {', '.join(f'{c}:{c.share:g}:{c.seconds:g}s' for c in RecoveryClass if c.share)})",
    )  # fmt: skip
    fail.add_argument(
        "--mttr", metavar="TIME", help="one recovery time for all failures, in place of classes"
    )
    fail.add_argument(
        "--domain", dest="domains", action="append", default=[], metavar="NAME:NODES:RATE:MEAN[:TIER]",
        help="nodes that fail together; RATE per domain and day; may be repeated",
    )  # fmt: skip
    fail.add_argument(
        "--law", default="exponential", metavar="LAW",
        help="time between failures: exponential, weibull:SHAPE, mixture:SHARE:SHORT (short mean over mean)",
    )  # fmt: skip
    fail.add_argument(
        "--queue", metavar="MEAN[:LAW[:CV]]", help="queue that recoveries of pods and jobs wait in"
    )
    fail.add_argument(
        "--hang", metavar="TIMEOUT[:SHARE]",
        help="failures that end no process until this timeout, and their share of all (default: none; a share of 1)",
    )  # fmt: skip
    fail.add_argument("--idle-recovery", action="store_true", help="nothing fails while the job recovers")
    fail.add_argument(
        "--spares", type=int, metavar="N", help="spare nodes (default: a broken node is replaced at once)"
    )
    fail.add_argument(
        "--repair",
        default="24 h",
        metavar="TIME",
        help="repair time of a node, with --spares (default: 24 h)",
    )
    save = parser.add_argument_group("checkpoints; lists by commas, nearest tier first")
    save.add_argument("--save", metavar="TIME[,…]", help="blocking part of a save (default: 30 s)")
    save.add_argument(
        "--copy", metavar="TIME[,…]", help="background copy until a save is durable (default: 0 s)"
    )
    save.add_argument(
        "--slowdown",
        type=float,
        default=COPY_SLOWDOWN,
        metavar="X",
        help="slowdown of steps while copying, 0.02 = 2 %% (default: %(default)s, as measured)",
    )
    save.add_argument(
        "--storage", action="append", default=[], metavar="NAME:NODE_BW[:TOTAL_BW[:SNAPSHOT_BW]]",
        help="a tier by its bandwidths, in place of --save and --copy; with SNAPSHOT_BW its saves are asynchronous",
    )  # fmt: skip
    save.add_argument("--checkpoint-size", metavar="BYTES", help="size of a checkpoint, for --storage")
    save.add_argument(
        "--model",
        metavar="MODEL",
        help="preset or config.json whose size gives the checkpoint's, in place of --checkpoint-size",
    )
    save.add_argument(
        "--precision", default="bf16", metavar="P", help="training recipe of --model (default: bf16)"
    )
    save.add_argument(
        "--shards", type=int, metavar="N", help="ranks that write distinct shards (default: all GPUs)"
    )
    save.add_argument("--gpus-per-node", type=int, default=8, metavar="N", help="GPUs in a node (default: 8)")


def job_of(arguments: Namespace) -> Job:
    """The job that the options describe."""
    for name, (least, most) in _BOUNDS.items():
        job_text.within(getattr(arguments, name), f"--{name.replace('_', '-')}", least, most)
    if arguments.prior_weight != math.inf:
        job_text.within(arguments.prior_weight, "--prior-weight", 1e-6, 1e9)
    reliability = _profile(arguments) if arguments.profile else None
    storage = tuple(job_text.storage_of(text) for text in arguments.storage)
    if reliability is not None and not (storage or arguments.save):
        storage = reliability.tiers
    blocking, background = _storage_times(arguments, storage) if storage else _times(arguments)
    if reliability is None:
        reliability = _described(arguments, storage, len(blocking))
    else:
        reliability = _fitted(reliability, storage, len(blocking))
    if arguments.hang is not None:
        reliability = replace(reliability, hangs=job_text.hangs_of(arguments.hang))
    return Job(
        nodes=arguments.nodes,
        step_time=job_text.time_of(arguments.step, "--step", least=1e-9),
        blocking=blocking,
        background=background,
        reliability=reliability,
    )


def _described(arguments: Namespace, storage: tuple[CheckpointTier, ...], tiers: int) -> Reliability:
    """Reliability from the options alone."""
    return Reliability(
        classes=_classes(arguments, tiers),
        tiers=storage,
        slowdown=arguments.slowdown,
        law=job_text.law_of(arguments.law),
        failures_during_recovery=not arguments.idle_recovery,
        queue=job_text.recovery_of(arguments.queue.split(":"), "--queue") if arguments.queue else None,
        spares=arguments.spares,
        repair=job_text.time_of(arguments.repair, "--repair"),
        domains=tuple(job_text.domain_of(text, tiers) for text in arguments.domains),
    )


def _profile(arguments: Namespace) -> Reliability:
    """Reliability of a profile; options that would say the same twice are refused."""
    from mofa_model.verbs import job_profile

    twice = [name for name in _OF_PROFILE if getattr(arguments, name) not in (None, [])]
    if twice:
        raise BadValue(
            "--profile",
            arguments.profile,
            f"it states what --{twice[0].replace('_', '-')} would; give one of them",
        )
    return job_profile.reliability(arguments.profile, int(arguments.nodes))


def _fitted(reliability: Reliability, storage: tuple[CheckpointTier, ...], tiers: int) -> Reliability:
    """A profile's reliability on the tiers that the job saves to."""
    classes = tuple(replace(c, tier=min(c.tier, tiers - 1)) for c in reliability.classes)
    domains = tuple(replace(d, tier=min(d.tier, tiers - 1)) for d in reliability.domains)
    return replace(reliability, tiers=storage, classes=classes, domains=domains)


def rate_of(arguments: Namespace) -> FailureRate:
    """The total failure rate: counts if given, else the assumption."""
    if (arguments.failures is None) != (arguments.node_days is None):
        raise BadValue("--failures", arguments.failures, "give --failures and --node-days together")
    if arguments.failures is None:
        return FailureRate.assumed(
            PAPER_RATE if arguments.rate is None else arguments.rate, arguments.prior_weight
        )
    if arguments.rate is not None:
        raise BadValue("--rate", arguments.rate, "give --rate, or --failures and --node-days")
    return FailureRate(failures=arguments.failures + JEFFREYS, exposure=arguments.node_days * units.DAY)


def _classes(arguments: Namespace, tiers: int) -> tuple[FailureMode, ...]:
    total = rate_of(arguments)
    if arguments.mttr is not None and arguments.classes:
        raise BadValue("--mttr", arguments.mttr, "give --mttr or --class, not both")
    if arguments.mttr is not None:
        mean = job_text.time_of(arguments.mttr, "--mttr")
        given = [("all", 1.0, RecoveryTime(mean=mean, law="deterministic"), 0)]
    elif arguments.classes:
        given = [job_text.class_of(text) for text in arguments.classes]
    else:
        given = [
            (one.value, one.share, RecoveryTime(mean=one.seconds, law="deterministic"), min(i, tiers - 1))
            for i, one in enumerate(RecoveryClass)
        ]
    shares = [part for _, part, _, _ in given]
    if abs(sum(shares) - 1) > 1e-6:
        raise BadValue(
            "--class", ", ".join(f"{part:g}" for part in shares), "shares of the classes must add to one"
        )
    return tuple(
        FailureMode(
            name=name, rate=_part(total, part), recovery=recovery, tier=tier, queues=name not in _KEEPING
        )
        for name, part, recovery, tier in given
    )


def _part(total: FailureRate, part: float) -> FailureRate:
    """A class's share of the total rate; the parts' posteriors add to the total's."""
    if total.exactly is not None or part == 0:
        return FailureRate(failures=0.0, exposure=1.0, exactly=total.mean * part)
    return FailureRate(failures=total.failures * part, exposure=total.exposure)


def _times(arguments: Namespace) -> tuple[tuple[float, ...], tuple[float, ...]]:
    blocking = job_text.times_of(arguments.save or "30 s", "--save")
    background = job_text.times_of(arguments.copy, "--copy") if arguments.copy else (0.0,) * len(blocking)
    if len(blocking) != len(background):
        raise BadValue("--copy", arguments.copy, f"give {len(blocking)} times, as in --save")
    return blocking, background


def _storage_times(
    arguments: Namespace, tiers: tuple[CheckpointTier, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if arguments.save or arguments.copy:
        raise BadValue("--save", arguments.save or arguments.copy, "give --storage, or --save and --copy")
    size = _size(arguments)
    shards = arguments.shards or arguments.nodes * arguments.gpus_per_node
    node = checkpoint.bytes_per_node(size, shards, arguments.gpus_per_node)
    pairs = [checkpoint.save_times(tier, size, node) for tier in tiers]
    return tuple(float(b) for b, _ in pairs), tuple(float(b) for _, b in pairs)


def size_of(text: str) -> float:
    """The size of a checkpoint. [B]"""
    size = units.parse(text, "B", field="--checkpoint-size")
    if size <= 0:
        raise BadValue("--checkpoint-size", text, "give a size above zero")
    return size


def _size(arguments: Namespace) -> float:
    if (arguments.checkpoint_size is None) == (arguments.model is None):
        field, given = (
            ("--storage", arguments.storage[0]) if arguments.storage else ("--profile", arguments.profile)
        )
        raise BadValue(field, given, "give --checkpoint-size or --model with it")
    if arguments.checkpoint_size is not None:
        return size_of(arguments.checkpoint_size)
    from mofa_model import presets
    from mofa_model.equations.parameters import total_parameters

    name = presets.resolve("precisions", arguments.precision, field="--precision")
    recipe, count = presets.precision(name), total_parameters(presets.model_named(arguments.model))
    return float(checkpoint.checkpoint_bytes(count, recipe.weight, recipe.optimizer))
