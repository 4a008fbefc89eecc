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
    failures = profile.failures
    stored = profile.checkpoint_storage
    tiers = tuple(_tier(tier, cluster, asynchronous) for tier in stored.tiers or [SHARED_STORAGE])
    names = [tier.name for tier in tiers]
    return Reliability(
        classes=tuple(
            _class(base, assumptions, failures, evidence, names, path)
            for base in classes_of(failures)
        ),
        tiers=tiers,
        slowdown=stored.slowdown_percent / 100,
        queue=RecoveryTime(mean=float(failures.queue_seconds)) if failures.queue_seconds else None,
        spares=failures.spare_nodes,
        repair=float(failures.repair_seconds),
        domains=tuple(
            Domain(
                name=domain.name,
                nodes=domain.nodes,
                rate=float(domain.failures_per_thousand_days) / 1000 / DAY,
                recovery=RecoveryTime(mean=float(domain.recovery_seconds)),
                tier=len(tiers) - 1,
            )
            for domain in failures.domains
        ),
        start=float(failures.start_seconds),
        hangs=_hangs(failures),
    )


def _hangs(failures: Failures) -> Hangs | None:
    hangs = failures.hangs
    if hangs is None:
        return None
    return Hangs(timeout=float(hangs.timeout_seconds), share=hangs.share_percent / 100)


def classes_of(failure_part: Failures) -> list[FailureClass]:
    """The profile's classes; a missing one is assumed as in section 3.4 of the paper."""
    named = {item.name: item for item in failure_part.classes}
    paper = [
        FailureClass.model_validate(
            {
                "name": recovery_class.value,
                "failuresPerThousandNodeDays": f"{recovery_class.share * 1000 * PAPER_RATE:g}",
                "recoverySeconds": round(recovery_class.seconds),
                "recoveryLaw": "Deterministic",
            }
        )
        for recovery_class in RecoveryClass
    ]
    return [named.get(item.name, item) for item in paper]


def assumed_rates(failure_part: Failures) -> dict[str, float]:
    """How often a node fails in a day by the profile's assumption, for each class of failure."""
    return {
        str(failure_class.name): float(failure_class.failures_per_thousand_node_days) / 1000
        for failure_class in classes_of(failure_part)
    }


def _class(
    base: FailureClass,
    assumed: FailureAssumptions,
    failures: Failures,
    seen: ByClass,
    tiers: list[str],
    path: str,
) -> FailureMode:
    """A class of failures with the rate and recovery that are assumed, counted, or a blend
    of both.
    """
    override: ClassAssumption = getattr(assumed.per_class, base.name) or ClassAssumption()
    rate = float(override.failures_per_thousand_node_days or base.failures_per_thousand_node_days)
    counted = seen.get(base.name) if assumed.source != "Assumed" else None
    if assumed.source == "Live" and counted is None:
        raise BadValue(
            f"{path}.source",
            "Live",
            f"the profile has no history of class {base.name}; write Blend or Assumed",
        )
    recovery = float(
        base.recovery_seconds if override.recovery_seconds is None else override.recovery_seconds
    )
    if counted is not None and counted.mean_recovery is not None:
        waited = 0.0 if (hangs := _hangs(failures)) is None else hangs.share * float(hangs.timeout)
        # A status has whole seconds, so a server's time is rounded to them first: 145.04 s would
        # be 150 s, where 145 s is 140 s. A counted recovery begins with the wait for a hang.
        recovery = max(0.0, _two_digits(round(counted.mean_recovery)) - waited)
    return FailureMode(
        name=base.name,
        rate=_rate(rate, counted, _weight(base, failures), blend=assumed.source == "Blend"),
        recovery=RecoveryTime(
            mean=recovery, law=base.recovery_law.lower(), cv=float(base.recovery_spread)
        ),
        tier=_tier_index(base, tiers),
        queues=base.queues,
    )


def _weight(base: FailureClass, failures: Failures) -> float:
    """Failures that a class's assumption is worth: the prior's weight, shared out by rate. [1]"""
    weight = float(failures.prior_weight)
    total = sum(float(item.failures_per_thousand_node_days) for item in classes_of(failures))
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


def _tier(tier: StorageTier, cluster: Cluster, asynchronous: bool) -> CheckpointTier:
    """A storage tier of a profile in SI units; what is not stated is no limit, or the
    devices' links.
    """
    links = float(cluster.gpus_per_node) * float(cluster.host.link.bandwidth)
    return CheckpointTier(
        name=tier.name,
        node_bandwidth=units.parse(tier.node_bandwidth, "B/s", field="nodeBandwidth"),
        total_bandwidth=units.parse(tier.total_bandwidth, "B/s", field="totalBandwidth")
        if tier.total_bandwidth
        else math.inf,
        snapshot_bandwidth=units.parse(tier.snapshot_bandwidth, "B/s", field="snapshotBandwidth")
        if tier.snapshot_bandwidth
        else links,
        latency=float(tier.latency_seconds),
        stall=float(tier.stall_seconds),
        asynchronous=asynchronous,
        every=tier.every,
    )
