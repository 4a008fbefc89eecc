"""All jobs and pools: who misses an objective, who runs otherwise than predicted, which
pool fails.
"""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from mofa_dashboards.parts import (
    BY_JOB,
    COUNT,
    JOB,
    LOCAL,
    NAMED,
    PER_DAY,
    POOL,
    SHARE,
    TOKENS,
    bars,
    board,
    choice,
    limit,
    lines,
    linked,
    number,
    rows,
)  # fmt: skip


def fleet(parameters: dict[str, Any]) -> Dashboard:
    """The dashboard of all jobs and pools."""
    long, slow = parameters["burn_fast_long"], parameters["burn_slow_long"]
    burn, slow_burn = (
        f"mofa:job_ettr_burn:ratio_{long}{{{JOB}}}",
        f"mofa:job_ettr_burn:ratio_{slow}{{{JOB}}}",
    )
    effective = f"mofa:job_ettr:ratio_{long}{{{JOB}}}"
    residual = f"max by ({BY_JOB}) (mofa_job_throughput_residual_ratio{{{JOB}}})"
    memory = (
        f"max by ({BY_JOB}) (mofa_job_observed_memory_bytes{{{JOB}}})"
        f" / on ({BY_JOB}) min by ({BY_JOB}) (mofa_job_memory_limit_bytes{{{JOB}}})"
    )
    observed = f"max by ({BY_JOB}) (mofa_job_observed_tokens_per_second{{{JOB}}})"
    to_job = "/d/mofa-job?var-training_namespace=${__data.fields.training_namespace}&var-training_job=${__value.raw}"

    made = board(
        "Fleet",
        "mofa-fleet",
        "Effective time of all training jobs against their objectives, throughput against predictions, and the pools.",
        [
            choice("pool", "Pool", "mofa_pool_nodes", "pool"),
            choice(
                "training_namespace", "Namespace", "mofa_job_strategy_info", "training_namespace"
            ),
            choice(
                "training_job",
                "Job",
                'mofa_job_strategy_info{training_namespace=~"$training_namespace"}',
                "training_job",
            ),
        ],
    )
    made = (
        made.with_row(Row("Now"))
        .with_panel(number("Jobs advised", "Jobs that the operator advises, of all kinds.", COUNT,
                           f"sum(max by (cluster, training_kind) (mofa_advisor_jobs{{{LOCAL}}}))"))
        .with_panel(number("Jobs seen running", "Jobs whose throughput is observed.", COUNT, f"count({observed})"))
        .with_panel(number("Throughput", "Tokens per second of all jobs that are seen running.", TOKENS, f"sum({observed})"))
        .with_panel(number("Median effective time", "Median over jobs of the observed effective training time ratio.", SHARE,
                           f"quantile(0.5, max by ({BY_JOB}) (mofa_job_observed_ettr_ratio{{{JOB}}}))"))
        .with_panel(limit(number("Jobs that burn", f"Jobs that lost more of the last {long} than their objective leaves.", COUNT,
                                 f"count({burn} > 1) or vector(0)"), 1))
        .with_panel(limit(number("Drifting jobs", "Jobs whose throughput is off the prediction by more than the alert's threshold.",
                                 COUNT, f"count(abs({residual}) > {parameters['drift']}) or vector(0)"), 1))
    )  # fmt: skip
    made = (
        made.with_row(Row("Effective time"))
        .with_panel(limit(lines(
            f"Burn over {long}", "Lost share of the window over the share that the objective leaves: the ten highest. "
            "Above one the job uses up more than it may; the line is where the fast alert starts.",
            COUNT, {NAMED: f"topk(10, {burn})"}), parameters["burn_fast"]))
        .with_panel(lines(
            f"Effective time over {long}", "Share of the window that went into steps that count: the ten lowest.",
            SHARE, {NAMED: f"bottomk(10, {effective})"}))
        .with_panel(linked(rows(
            "Jobs", "Every job with what is promised, predicted and observed. A name leads to the job's own page.",
            {
                "Objective": (f"max by ({BY_JOB}) (mofa_job_ettr_objective_ratio{{{JOB}}})", SHARE),
                "ETTR predicted": (f'max by ({BY_JOB}) (mofa_job_predicted_ettr_ratio{{{JOB}, bound="target"}})', SHARE),
                "ETTR observed": (f"max by ({BY_JOB}) (mofa_job_observed_ettr_ratio{{{JOB}}})", SHARE),
                f"Burn {long}": (f"max by ({BY_JOB}) ({burn})", COUNT),
                f"Burn {slow}": (f"max by ({BY_JOB}) ({slow_burn})", COUNT),
                "Predicted": (f'max by ({BY_JOB}) (mofa_job_predicted_tokens_per_second{{{JOB}, bound="target"}})', TOKENS),
                "Observed": (observed, TOKENS),
                "Residual": (residual, SHARE),
                "Memory of its limit": (memory, SHARE),
                "Fits": (f'min by ({BY_JOB}) (mofa_job_odds_ratio{{{JOB}, outcome="fits"}})', SHARE),
            }), "training_job", "This job", to_job))
    )  # fmt: skip
    made = (
        made.with_row(Row("Throughput"))
        .with_panel(lines(
            "Largest residuals", "Observed over predicted throughput, minus one: the ten that are farthest off, either way.",
            SHARE, {NAMED: f"{residual} and topk(10, abs({residual}))"}))
        .with_panel(bars(lines(
            "Interruptions", "Interruptions of the jobs chosen, by recovery class and cause.",
            COUNT, {"{{class}}, {{cause}}": f"sum by (class, cause) (increase(mofa_job_interruptions_total{{{JOB}}}[$__rate_interval]))"}), ".*"))
    )  # fmt: skip
    classes = "max by (cluster, pool, class)"
    return (
        made.with_row(Row("Pools"))
        .with_panel(linked(rows(
            "Pools", "Every pool with its nodes and its failure rate, summed over recovery classes. A name leads to its assumptions.",
            {
                "Nodes": (f"max by (cluster, pool) (mofa_pool_nodes{{{POOL}}})", COUNT),
                "Ready": (f"max by (cluster, pool) (mofa_pool_ready_nodes{{{POOL}}})", COUNT),
                "Assumed": (f"sum by (cluster, pool) ({classes} (mofa_pool_assumed_failures_per_node_day{{{POOL}}}))", PER_DAY),
                "Learned": (f'sum by (cluster, pool) ({classes} (mofa_pool_failures_per_node_day{{{POOL}, bound="mean"}}))', PER_DAY),
                "Effective": (f"max by (cluster, pool) (mofa_pool_effective_ratio{{{POOL}}})", SHARE),
                "Coverage": (f"max by (cluster, pool) (mofa_pool_history_coverage_ratio{{{POOL}}})", SHARE),
            }), "pool", "This pool", "/d/mofa-assumptions?var-pool=${__value.raw}"))
        .with_panel(lines(
            "Nodes", "Nodes that are ready and not cordoned, as the operator counts them, and all nodes of the pool.",
            COUNT, {
                "{{pool}} ready": f"max by (cluster, pool) (mofa_pool_ready_nodes{{{POOL}}})",
                "{{pool}} all": f"max by (cluster, pool) (mofa_pool_nodes{{{POOL}}})",
            }))
        .with_panel(bars(lines(
            "Node failures", "Nodes that went down unplanned, and episodes of fatal GPU health events where a health agent counts them.",
            COUNT, {
                "{{pool}} nodes": f"sum_over_time(mofa:pool_node_failures:new{{{POOL}}}[$__interval])",
                "{{pool}} GPU faults": f"sum_over_time(mofa:pool_gpu_faults:new{{{POOL}}}[$__interval])",
            }).interval("5m"), ".*"))
    )  # fmt: skip
