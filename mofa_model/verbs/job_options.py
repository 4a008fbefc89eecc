"""The options that `ettr` and `simulate` share: a job, its failures, its checkpoints. Not a verb."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model import units
from mofa_model.errors import BadValue
from mofa_model.reliability import checkpoint
from mofa_model.reliability.model import Job
from mofa_model.spec.reliability import (
    PAPER_SHARES,
    PRIOR_WEIGHT,
    CheckpointTier,
    Domain,
    FailureLaw,
    FailureRate,
    RecoveryClass,
    RecoveryTime,
    Reliability,
)

RATE: Final = 0.005
"""Failures per node-day when none is given: the paper's assumption. [1/d]"""
JEFFREYS: Final = 0.5
"""Failures that Jeffreys' prior adds to counts. [1]"""


def add_options(parser: ArgumentParser) -> None:
    """Add the job's options; `job_of` reads them."""
    job = parser.add_argument_group("job")
    job.add_argument("--nodes", type=float, required=True, metavar="N", help="nodes of the job")
    job.add_argument(
        "--step", required=True, metavar="TIME", help="step time without failures, for example '28 s'"
    )
    fail = parser.add_argument_group("failures")
    fail.add_argument(
        "--rate",
        type=float,
        metavar="R",
        help=f"assumed failures per node-day (default: {RATE}, the paper's)",
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
        " (default: the paper's process:0.3:141s, pod:0.6:262s, job:0.1:307s)",
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
        default=0.0,
        metavar="X",
        help="slowdown of steps while copying, 0.02 = 2 %%",
    )
    save.add_argument(
        "--storage", action="append", default=[], metavar="NAME:NODE_BW[:TOTAL_BW[:SNAPSHOT_BW]]",
        help="a tier by its bandwidths, in place of --save and --copy; with SNAPSHOT_BW its saves are asynchronous",
    )  # fmt: skip
    save.add_argument("--checkpoint-size", metavar="BYTES", help="size of a checkpoint, for --storage")
    save.add_argument(
        "--model",
        metavar="MODEL",
        help="preset whose size gives the checkpoint's, in place of --checkpoint-size",
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
    if not (math.isfinite(arguments.nodes) and arguments.nodes >= 1):
        raise BadValue("--nodes", arguments.nodes, "give a number of nodes, one or more")
    storage = tuple(_storage(text) for text in arguments.storage)
    blocking, background = _storage_times(arguments, storage) if storage else _times(arguments)
    reliability = Reliability(
        classes=_classes(arguments, len(blocking)),
        tiers=storage,
        slowdown=arguments.slowdown,
        law=_law(arguments.law),
        failures_during_recovery=not arguments.idle_recovery,
        queue=_recovery(arguments.queue.split(":"), "--queue") if arguments.queue else None,
        spares=arguments.spares,
        repair=units.parse(arguments.repair, "s", field="--repair"),
        domains=tuple(_domain(text, len(blocking)) for text in arguments.domains),
    )
    return Job(
        nodes=arguments.nodes,
        step_time=units.parse(arguments.step, "s", field="--step"),
        blocking=blocking,
        background=background,
        reliability=reliability,
    )


def rate_of(arguments: Namespace) -> FailureRate:
    """The total failure rate: counts if given, else the assumption."""
    if (arguments.failures is None) != (arguments.node_days is None):
        raise BadValue("--failures", arguments.failures, "give --failures and --node-days together")
    if arguments.failures is None:
        return FailureRate.assumed(RATE if arguments.rate is None else arguments.rate, arguments.prior_weight)
    if arguments.rate is not None:
        raise BadValue("--rate", arguments.rate, "give --rate, or --failures and --node-days")
    return FailureRate(failures=arguments.failures + JEFFREYS, exposure=arguments.node_days * units.DAY)


def _classes(arguments: Namespace, tiers: int) -> tuple[RecoveryClass, ...]:
    total = rate_of(arguments)
    if arguments.mttr is not None and arguments.classes:
        raise BadValue("--mttr", arguments.mttr, "give --mttr or --class, not both")
    if arguments.mttr is not None:
        mean = units.parse(arguments.mttr, "s", field="--mttr")
        given = [("all", 1.0, RecoveryTime(mean=mean, law="deterministic"), 0)]
    elif arguments.classes:
        given = [_class(text) for text in arguments.classes]
    else:
        given = [
            (name, part, RecoveryTime(mean=mean, law="deterministic"), min(i, tiers - 1))
            for i, (name, part, mean) in enumerate(PAPER_SHARES)
        ]
    shares = [part for _, part, _, _ in given]
    if abs(sum(shares) - 1) > 1e-6:
        raise BadValue(
            "--class", ", ".join(f"{part:g}" for part in shares), "shares of the classes must add to one"
        )
    return tuple(
        RecoveryClass(
            name=name, rate=_part(total, part), recovery=recovery, tier=tier, queues=name != "process"
        )
        for name, part, recovery, tier in given
    )


def _part(total: FailureRate, part: float) -> FailureRate:
    """A class's share of the total rate; the parts' posteriors add to the total's."""
    if total.exactly is not None or part == 0:
        return FailureRate(failures=0.0, exposure=1.0, exactly=total.mean * part)
    return FailureRate(failures=total.failures * part, exposure=total.exposure)


def _class(text: str) -> tuple[str, float, RecoveryTime, int]:
    name, *rest = text.split(":")
    if len(rest) not in {2, 3, 4, 5}:
        raise BadValue(
            "--class", text, "write NAME:SHARE:MEAN[:LAW[:CV[:TIER]]], for example pod:0.6:262s:lognormal:1:1"
        )
    tier = int(_number(rest[4], "--class")) if len(rest) == 5 else 0
    share = _number(rest[0], "--class")
    if not 0 <= share <= 1:
        raise BadValue("--class", text, "the share of a class is between 0 and 1")
    return name, share, _recovery(rest[1:4], "--class"), tier


def _recovery(parts: list[str], field: str) -> RecoveryTime:
    mean = units.parse(parts[0], "s", field=field)
    if len(parts) == 1:
        return RecoveryTime(mean=mean, law="deterministic")
    return RecoveryTime(mean=mean, law=parts[1], cv=_number(parts[2], field) if len(parts) > 2 else 1.0)


def _domain(text: str, tiers: int) -> Domain:
    parts = text.split(":")
    if len(parts) not in {4, 5}:
        raise BadValue("--domain", text, "write NAME:NODES:RATE:MEAN[:TIER], for example rack:16:0.001:1h")
    return Domain(
        name=parts[0],
        nodes=units.count(parts[1], field="--domain"),
        rate=_number(parts[2], "--domain") / units.DAY,
        recovery=_recovery(parts[3:4], "--domain"),
        tier=int(_number(parts[4], "--domain")) if len(parts) == 5 else tiers - 1,
    )


def _law(text: str) -> FailureLaw:
    kind, *numbers = text.split(":")
    values = [_number(number, "--law") for number in numbers]
    if kind == "weibull" and len(values) == 1:
        return FailureLaw(kind=kind, shape=values[0])
    if kind == "mixture" and len(values) == 2:
        return FailureLaw(kind=kind, short_share=values[0], short_mean=values[1])
    if kind == "exponential" and not values:
        return FailureLaw()
    raise BadValue("--law", text, "write exponential, weibull:0.7 or mixture:0.5:0.17")


def _times(arguments: Namespace) -> tuple[tuple[float, ...], tuple[float, ...]]:
    blocking = _list(arguments.save or "30 s", "--save")
    background = _list(arguments.copy, "--copy") if arguments.copy else (0.0,) * len(blocking)
    if len(blocking) != len(background):
        raise BadValue("--copy", arguments.copy, f"give {len(blocking)} times, as in --save")
    return blocking, background


def _list(text: str, field: str) -> tuple[float, ...]:
    return tuple(units.parse(part.strip(), "s", field=field) for part in text.split(","))


def _storage(text: str) -> CheckpointTier:
    name, *rates = text.split(":")
    if not 1 <= len(rates) <= 3:
        raise BadValue(
            "--storage",
            text,
            "write NAME:NODE_BW[:TOTAL_BW[:SNAPSHOT_BW]], for example 'remote:2 GB/s:200 GB/s'",
        )
    node, total, snapshot = (
        [units.parse(r, "B/s", field="--storage") for r in rates] + [math.inf, math.inf]
    )[:3]
    return CheckpointTier(
        name=name,
        node_bandwidth=node,
        total_bandwidth=total,
        snapshot_bandwidth=snapshot,
        asynchronous=len(rates) == 3,
    )


def _storage_times(
    arguments: Namespace, tiers: tuple[CheckpointTier, ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if arguments.save or arguments.copy:
        raise BadValue("--save", arguments.save or arguments.copy, "give --storage, or --save and --copy")
    size = _size(arguments)
    shards = arguments.shards or arguments.nodes * arguments.gpus_per_node
    if shards < 1 or arguments.gpus_per_node < 1:
        raise BadValue("--shards", shards, "give one or more")
    node = checkpoint.bytes_per_node(size, shards, arguments.gpus_per_node)
    pairs = [checkpoint.save_times(tier, size, node) for tier in tiers]
    return tuple(float(b) for b, _ in pairs), tuple(float(b) for _, b in pairs)


def _size(arguments: Namespace) -> float:
    if (arguments.checkpoint_size is None) == (arguments.model is None):
        raise BadValue("--storage", arguments.storage[0], "give --checkpoint-size or --model with it")
    if arguments.checkpoint_size is not None:
        return units.parse(arguments.checkpoint_size, "B", field="--checkpoint-size")
    from mofa_model import presets
    from mofa_model.equations.parameters import total_parameters

    recipe = presets.precision(arguments.precision)
    count = total_parameters(presets.model(arguments.model))
    return float(checkpoint.checkpoint_bytes(count, recipe.weight, recipe.optimizer))


def _number(text: str, field: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BadValue(field, text, "give a number") from None
    if not math.isfinite(value) or value < 0:
        raise BadValue(field, text, "give a finite number that is zero or more")
    return value
