"""One pool: what its profile assumes of failures and recoveries, what history says, and how far to
trust it.
"""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from mofa_dashboards.parts import (
    COUNT,
    PER_DAY,
    SECONDS,
    SHARE,
    THIS_POOL,
    band,
    board,
    choice,
    limit,
    lines,
    number,
    rows,
    states,
)  # fmt: skip
from mofa_model.spec.recovery_classes import RecoveryClass


def assumptions(parameters: dict[str, Any]) -> Dashboard:
    """The dashboard of one pool's assumptions."""
    made = board(
        "Assumptions",
        "mofa-assumptions",
        "What a ClusterProfile assumes of failures and recoveries, against what the history of its nodes says.",
        [choice("pool", "Pool", "mofa_pool_nodes", "pool", single=True)],
        since="now-30d",
    )
    rate, by = f"mofa_pool_failures_per_node_day{{{THIS_POOL}", "max by (class)"
    made = (
        made.with_row(Row("Stated and learned"))
        .with_panel(number("Nodes", "Nodes of the pool.", COUNT, f"max(mofa_pool_nodes{{{THIS_POOL}}})", span=3))
        .with_panel(number("Exposure", "Node-days of history in which a failure would have been seen.", "suffix: node-days",
                           f"max(mofa_pool_exposure_node_days{{{THIS_POOL}}})"))
        .with_panel(number("Coverage", "Share of the history window for which there is data.", SHARE,
                           f"max(mofa_pool_history_coverage_ratio{{{THIS_POOL}}})", span=3))
        .with_panel(number("Calibration", "Observed over predicted step time that running jobs of the pool taught.", COUNT,
                           f"max(mofa_pool_calibration_ratio{{{THIS_POOL}}})", span=3))
        .with_panel(number("Memory calibration", "Observed over predicted device memory that running jobs of the pool taught.", COUNT,
                           f"max(mofa_pool_memory_calibration_ratio{{{THIS_POOL}}})", span=3))
        .with_panel(number("Nodes gone", "Nodes that vanished within the last day; autoscaling looks the same, so they are no failures.",
                           COUNT, f"max(mofa:pool_nodes_gone:count{{{THIS_POOL}}})"))
        .with_panel(number("GPU faults", "Episodes of fatal health events in the window, where a health agent counts them.",
                           COUNT, f"max(mofa:pool_gpu_faults:count{{{THIS_POOL}}})"))
        .with_panel(rows(
            "By recovery class", "The stated rate, the learned one with its interval, how much of it is still assumption, and recovery times.",
            {
                "Assumed": (f"{by} (mofa_pool_assumed_failures_per_node_day{{{THIS_POOL}}})", PER_DAY),
                "Lower": (f'{by} ({rate}, bound="lower"}})', PER_DAY),
                "Learned": (f'{by} ({rate}, bound="mean"}})', PER_DAY),
                "Upper": (f'{by} ({rate}, bound="upper"}})', PER_DAY),
                "Still assumption": (f"{by} (mofa_pool_prior_weight_ratio{{{THIS_POOL}}})", SHARE),
                "Recovery": (f'{by} (mofa_pool_recovery_seconds{{{THIS_POOL}, bound="mean"}})', SECONDS),
                "Verdict": (f"max by (class, verdict) (mofa_pool_verdict{{{THIS_POOL}}})", COUNT),
            }, hide=["Value #G"]))  # of the verdict only the name says something
    )  # fmt: skip
    made = made.with_row(Row("Failures per node and day"))
    for name in RecoveryClass:
        of = f'{THIS_POOL}, class="{name}"'
        made = made.with_panel(band(lines(
            f"Class {name}", f"Learned rate of class {name} with its interval, and what the profile assumes.",
            PER_DAY, {
                "lower": f'max(mofa_pool_failures_per_node_day{{{of}, bound="lower"}})',
                "learned": f'max(mofa_pool_failures_per_node_day{{{of}, bound="mean"}})',
                "upper": f'max(mofa_pool_failures_per_node_day{{{of}, bound="upper"}})',
                "assumed": f"max(mofa_pool_assumed_failures_per_node_day{{{of}}})",
            }, span=8)))  # fmt: skip
    made = (
        made.with_panel(states(
            "Verdicts", "Which verdict history gave on each assumption, and when.",
            f"max by (class, verdict) (mofa_pool_verdict{{{THIS_POOL}}})", "{{class}}: {{verdict}}"))
        .with_panel(limit(lines(
            "Evidence against the assumption", "By class and of their total; at 1 a verdict turns, which is wrong in one pool of twenty a year.",
            COUNT, {"{{class}}": f"{by} (mofa_pool_contradiction_ratio{{{THIS_POOL}}})"}), 1, "transparent"))
        .with_panel(lines(
            "Recovery time", "Mean recovery time by class, as learned, and the mean time that failed nodes were down.",
            SECONDS, {
                "{{class}}": f'{by} (mofa_pool_recovery_seconds{{{THIS_POOL}, bound="mean"}})',
                "nodes": f"max(mofa:pool_node_recovery:mean_seconds{{{THIS_POOL}}})",
                "repair by the health agent": 'max(mofa:gpu_remediation:mean_seconds{cluster=~"$cluster"})',
            }))
    )  # fmt: skip
    made = (
        made.with_row(Row("What failures cost"))
        .with_panel(lines(
            "Where the node-time went", "Node-days of the days in the ledger, by what the nodes were good for; they add up to the capacity.",
            "suffix: node-days", {"{{state}}": f"max by (state) (mofa_pool_node_days{{{THIS_POOL}}})"}))
        .with_panel(lines(
            "Lost time by cause", "Node-days of these that were neither kept nor idle, by the cause of the incident.",
            "suffix: node-days", {"{{cause}}": f"max by (cause) (mofa_pool_lost_node_days{{{THIS_POOL}}})"}))
        .with_panel(number("Effective", "Node-time of the days in the ledger that trained and was kept, of all that was paid: one number of the fleet.", SHARE,
                           f"max(mofa_pool_effective_ratio{{{THIS_POOL}}})"))
        .with_panel(lines(
            "ETTR of the next seven days", "Share of the time held that will be kept, by each day's forecast: once in ten times it is below the lowest line, once above the highest.",
            SHARE, {"{{percentile}}": f"max by (percentile) (mofa_pool_forecast_ettr_ratio{{{THIS_POOL}}})"}).span(10))
        .with_panel(lines(
            "Forecasts that held", "Share of the bands of 80 % of the last sixty days that held, of ETTR and of interruptions; it should be about 0.8.",
            SHARE, {"{{of}}": f"max by (of) (mofa_pool_forecast_held_ratio{{{THIS_POOL}}})"}).span(10))
        .with_panel(lines(
            "Phases of a recovery", "Median time to notice, to replace pods, to start them and to load, where it was seen.",
            SECONDS, {"{{phase}}": f"max by (phase) (mofa_pool_recovery_phase_seconds{{{THIS_POOL}}})"}))
        .with_panel(rows(
            "What would have helped", "GPU-hours that one change alone would have gained in the window, by the last daily replay of the pool's own account; "
            "the profile's status has each as a sentence.",
            {
                "At least": (f'max by (change) (mofa_pool_would_help_gpu_hours{{{THIS_POOL}, bound="lower"}})', "suffix: GPU-hours"),
                "Gained": (f'max by (change) (mofa_pool_would_help_gpu_hours{{{THIS_POOL}, bound="target"}})', "suffix: GPU-hours"),
                "At most": (f'max by (change) (mofa_pool_would_help_gpu_hours{{{THIS_POOL}, bound="upper"}})', "suffix: GPU-hours"),
            }, span=12))
    )  # fmt: skip
    worst = f"mofa:node_unplanned_up:bool{{{THIS_POOL}}}"
    return (
        made.with_row(Row("What it rests on"))
        .with_panel(limit(lines(
            "Coverage", "Share of the window with data, as the operator counts it for the pool and as scraping shows it for the cluster.",
            SHARE, {
                "of the pool": f"max(mofa_pool_history_coverage_ratio{{{THIS_POOL}}})",
                "of the cluster": 'max(mofa:history_coverage:ratio{cluster=~"$cluster"})',
            }), parameters["coverage"], "transparent"))
        .with_panel(lines(
            "Node failures", "Unplanned node failures per node and day in the window, counted by rules, beside the learned sum over classes.",
            PER_DAY, {
                "counted nodes": f"max(mofa:pool_failures_per_node_day:ratio{{{THIS_POOL}}})",
                "learned, all classes": f'sum({by} ({rate}, bound="mean"}}))',
            }))
        .with_panel(rows(
            "Worst nodes", "Nodes with most unplanned failures in the time shown.",
            {"Failures": (f"topk(10, sum by (node) (resets({worst}[$__range])) > 0)", COUNT)}, span=8))
        .with_panel(rows(
            "Longest down", "Nodes that were down unplanned for the largest share of the time shown.",
            {"Down": (f"topk(10, avg by (node) (avg_over_time((1 - {worst})[$__range:5m])) > 0)", SHARE)}, span=8))
        .with_panel(rows(
            "Reboots", "Targets of the node exporter that rebooted within the last day.",
            {"Reboots": ('topk(10, mofa:instance_reboots:count{cluster=~"$cluster"} > 0)', COUNT)}, hide=["__name__", "cluster"], span=8))
    )  # fmt: skip
