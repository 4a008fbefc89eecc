"""Failure rates, recoveries and checkpoint storage of a job: assumptions blended with counts."""

from __future__ import annotations

import math
from typing import Final

from mofa_model import units
from mofa_model.errors import BadValue
from mofa_model.manifest.cluster_profile import (
    ClusterProfileSpec,
    FailureClass,
    Failures,
    StorageTier,
)
from mofa_model.manifest.training_job import ClassAssumption, FailureAssumptions
from mofa_model.reliability.rates import JEFFREYS
from mofa_model.spec import Cluster
from mofa_model.spec.evidence import ByClass, FailureEvidence
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.spec.reliability import (
    PAPER_RATE,
    CheckpointTier,
    Domain,
    FailureMode,
    FailureRate,
    Hangs,
    RecoveryTime,
    Reliability,
)
from mofa_model.units import DAY

SHARED_STORAGE: Final = StorageTier.model_validate({"name": "Remote", "nodeBandwidth": "2 GB/s"})
"""Storage of a profile that names none. Ours: a shared file system, 25 Gbit/s a node."""


def reliability_of(
    assumptions: FailureAssumptions,
    profile: ClusterProfileSpec,
    evidence: ByClass,
    *,
    cluster: Cluster,
    asynchronous: bool,
    path: str,
) -> Reliability:
    """All that the answer uses of failures, recoveries and storage."""
    given = profile.failures
    stored = profile.checkpoint_storage
    tiers = tuple(_tier(tier, cluster, asynchronous) for tier in stored.tiers or [SHARED_STORAGE])
    names = [tier.name for tier in tiers]
    return Reliability(
        classes=tuple(
            _class(base, assumptions, given, evidence, names, path) for base in classes_of(given)
        ),
        tiers=tiers,
        slowdown=stored.slowdown_percent / 100,
        queue=RecoveryTime(mean=float(given.queue_seconds)) if given.queue_seconds else None,
        spares=given.spare_nodes,
        repair=float(given.repair_seconds),
        domains=tuple(
            Domain(
                name=domain.name,
                nodes=domain.nodes,
                rate=float(domain.failures_per_thousand_days) / 1000 / DAY,
                recovery=RecoveryTime(mean=float(domain.recovery_seconds)),
                tier=len(tiers) - 1,
            )
            for domain in given.domains
        ),
        start=float(given.start_seconds),
        hangs=_hangs(given),
    )


def _hangs(given: Failures) -> Hangs | None:
    stated = given.hangs
    if stated is None:
        return None
    return Hangs(timeout=float(stated.timeout_seconds), share=stated.share_percent / 100)


def classes_of(failure_part: Failures) -> list[FailureClass]:
    """The profile's classes; a missing one is assumed as in section 3.4 of the paper."""
    named = {item.name: item for item in failure_part.classes}
    paper = [
        FailureClass.model_validate(
            {
                "name": one.value,
                "failuresPerThousandNodeDays": f"{one.share * 1000 * PAPER_RATE:g}",
                "recoverySeconds": round(one.seconds),
                "recoveryLaw": "Deterministic",
            }
        )
        for one in RecoveryClass
    ]
    return [named.get(item.name, item) for item in paper]


def assumed_rates(failure_part: Failures) -> dict[str, float]:
    """How often a node fails in a day by the profile's assumption, for each class of failure."""
    return {
        str(one.name): float(one.failures_per_thousand_node_days) / 1000
        for one in classes_of(failure_part)
    }


def _class(
    base: FailureClass,
    assumed: FailureAssumptions,
    given: Failures,
    seen: ByClass,
    tiers: list[str],
    path: str,
) -> FailureMode:
    """A class of failures with the rate and recovery that are assumed, counted, or a blend
    of both.
    """
    own: ClassAssumption = getattr(assumed.per_class, base.name) or ClassAssumption()
    rate = float(own.failures_per_thousand_node_days or base.failures_per_thousand_node_days)
    counted = seen.get(base.name) if assumed.source != "Assumed" else None
    if assumed.source == "Live" and counted is None:
        raise BadValue(
            f"{path}.source",
            "Live",
            f"the profile has no history of class {base.name}; write Blend or Assumed",
        )
    recovery = float(
        base.recovery_seconds if own.recovery_seconds is None else own.recovery_seconds
    )
    if counted is not None and counted.mean_recovery is not None:
        waited = 0.0 if (hangs := _hangs(given)) is None else hangs.share * float(hangs.timeout)
        recovery = max(
            0.0, _two_digits(counted.mean_recovery) - waited
        )  # what is counted begins with the wait
    return FailureMode(
        name=base.name,
        rate=_rate(rate, counted, _weight(base, given), blend=assumed.source == "Blend"),
        recovery=RecoveryTime(
            mean=recovery, law=base.recovery_law.lower(), cv=float(base.recovery_spread)
        ),
        tier=_tier_index(base, tiers),
        queues=base.queues,
    )


def _weight(base: FailureClass, given: Failures) -> float:
    """Failures that a class's assumption is worth: the prior's weight, shared out by rate. [1]"""
    weight = float(given.prior_weight)
    total = sum(float(item.failures_per_thousand_node_days) for item in classes_of(given))
    return weight * float(base.failures_per_thousand_node_days) / total if total > 0 else weight


def _rate(
    per_thousand: float, seen: FailureEvidence | None, weight: float, *, blend: bool
) -> FailureRate:
    """A Gamma posterior; its mean in a node-day has two significant digits."""
    per_node_second = per_thousand / 1000 / DAY
    exposed = 0.0 if seen is None else seen.node_days * DAY
    if seen is None or exposed <= 0:
        if per_node_second == 0 or weight == 0:
            return FailureRate.assumed(0.0)
        failures, exposure = weight, weight / per_node_second
    elif blend and per_node_second > 0 and weight > 0:
        failures, exposure = weight + seen.interruptions, weight / per_node_second + exposed
    else:
        failures, exposure = JEFFREYS + seen.interruptions, exposed
    rounded = _two_digits(failures / exposure * DAY) / DAY
    return FailureRate(failures=failures, exposure=failures / rounded)


def _two_digits(value: float) -> float:
    return float(f"{value:.1e}")


def _tier_index(base: FailureClass, tiers: list[str]) -> int:
    """The nearest tier that survives: by default the nearest where pods stay, else the farthest."""
    if base.tier is not None and base.tier in tiers:
        return tiers.index(base.tier)
    return 0 if RecoveryClass(base.name).keeps_pods else len(tiers) - 1


def _tier(given: StorageTier, cluster: Cluster, asynchronous: bool) -> CheckpointTier:
    """A storage tier of a profile in SI units; what is not stated is no limit, or the
    devices' links.
    """
    links = float(cluster.gpus_per_node) * float(cluster.host.link.bandwidth)
    return CheckpointTier(
        name=given.name,
        node_bandwidth=units.parse(given.node_bandwidth, "B/s", field="nodeBandwidth"),
        total_bandwidth=units.parse(given.total_bandwidth, "B/s", field="totalBandwidth")
        if given.total_bandwidth
        else math.inf,
        snapshot_bandwidth=units.parse(given.snapshot_bandwidth, "B/s", field="snapshotBandwidth")
        if given.snapshot_bandwidth
        else links,
        latency=float(given.latency_seconds),
        stall=float(given.stall_seconds),
        asynchronous=asynchronous,
        every=given.every,
    )
