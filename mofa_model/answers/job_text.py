"""Job options that are text with colons and commas, as values."""

from __future__ import annotations

import math
from typing import Final

from mofa_model import units
from mofa_model.errors import BadValue
from mofa_model.spec.reliability import CheckpointTier, Domain, FailureLaw, Hangs, RecoveryTime

MOST_RATE: Final = 1e4
"""Failures per node-day beyond which an assumption is a slip of the pen. [1/d]"""


def class_of(text: str) -> tuple[str, float, RecoveryTime, int]:
    """A recovery class: name, share, recovery time, tier."""
    name, *rest = text.split(":")
    if len(rest) not in {2, 3, 4, 5}:
        raise BadValue(
            "--class",
            text,
            "write NAME:SHARE:MEAN[:LAW[:CV[:TIER]]], for example pod:0.6:262s:lognormal:1:1",
        )
    tier = int(number_of(rest[4], "--class")) if len(rest) == 5 else 0
    share = number_of(rest[0], "--class")
    if not 0 <= share <= 1:
        raise BadValue("--class", text, "the share of a class is between 0 and 1")
    return name, share, recovery_of(rest[1:4], "--class"), tier


def recovery_of(parts: list[str], field: str) -> RecoveryTime:
    """A recovery time from its parts: mean, law, spread."""
    mean = time_of(parts[0], field)
    if len(parts) == 1:
        return RecoveryTime(mean=mean, law="deterministic")
    return RecoveryTime(
        mean=mean, law=parts[1], cv=number_of(parts[2], field) if len(parts) > 2 else 1.0
    )


def domain_of(text: str, tiers: int) -> Domain:
    """Nodes that fail together, in a job of `tiers` checkpoint tiers."""
    parts = text.split(":")
    if len(parts) not in {4, 5}:
        raise BadValue(
            "--domain", text, "write NAME:NODES:RATE:MEAN[:TIER], for example rack:16:0.001:1h"
        )
    return Domain(
        name=parts[0],
        nodes=units.count(parts[1], field="--domain"),
        rate=number_of(parts[2], "--domain") / units.DAY,
        recovery=recovery_of(parts[3:4], "--domain"),
        tier=int(number_of(parts[4], "--domain")) if len(parts) == 5 else tiers - 1,
    )


def law_of(text: str) -> FailureLaw:
    """The law of the time between failures."""
    kind, *numbers = text.split(":")
    values = [number_of(number, "--law") for number in numbers]
    if kind == "weibull" and len(values) == 1:
        return FailureLaw(kind=kind, shape=values[0])
    if kind == "mixture" and len(values) == 2:
        return FailureLaw(kind=kind, short_share=values[0], short_mean=values[1])
    if kind == "exponential" and not values:
        return FailureLaw()
    raise BadValue("--law", text, "write exponential, weibull:0.7 or mixture:0.5:0.17")


def hangs_of(text: str) -> Hangs:
    """Failures that have to be noticed first: after what time, and which share of all."""
    timeout, _, share = text.partition(":")
    found = number_of(share, "--hang") if share else 1.0
    if not 0 <= found <= 1:
        raise BadValue(
            "--hang",
            text,
            "write TIMEOUT[:SHARE] with a share between 0 and 1, for example 15min:0.3",
        )
    return Hangs(timeout=time_of(timeout, "--hang"), share=found)


def times_of(text: str, field: str) -> tuple[float, ...]:
    """Times separated by commas. [s]"""
    return tuple(time_of(part.strip(), field) for part in text.split(","))


def time_of(text: str, field: str, *, least: float = 0.0) -> float:
    """A time of `least` or more. [s]"""
    value = units.parse(text, "s", field=field)
    if value < least:
        raise BadValue(
            field, text, "give a time of zero or more" if least == 0 else "give a time above zero"
        )
    return value


def within(value: float | None, field: str, least: float, most: float) -> None:
    """Refuse a number outside its bounds; None is one that was not given."""
    if value is not None and not least <= value <= most:
        raise BadValue(field, value, f"give a number from {least:g} to {most:g}")


def storage_of(text: str) -> CheckpointTier:
    """A checkpoint tier by its bandwidths."""
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


def number_of(text: str, field: str) -> float:
    """A finite number that is zero or more."""
    try:
        value = float(text)
    except ValueError:
        raise BadValue(field, text, "give a number") from None
    if not math.isfinite(value) or value < 0:
        raise BadValue(field, text, "give a finite number that is zero or more")
    return value
