"""One job: what was predicted, what is observed, and what came between."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders.dashboard import AnnotationQuery, Dashboard, Row

from mofa_dashboards.parts import (
    COUNT,
    SECONDS,
    SHARE,
    SOURCE,
    THIS_JOB,
    TOKENS,
    band,
    bars,
    board,
    choice,
    limit,
    lines,
    number,
    other_axis,
    words,
)  # fmt: skip

AXES = ("tp", "pp", "cp", "ep", "dp", "vpp", "mbs")


def job(parameters: dict[str, Any]) -> Dashboard:
    """The dashboard of one job."""
    short, long, slow = (
        parameters[name] for name in ("burn_fast_short", "burn_fast_long", "burn_slow_long")
    )
    interruptions = f"sum by (class, cause) (increase(mofa_job_interruptions_total{{{THIS_JOB}}}[$__rate_interval]))"
    made = board(
        "One job",
        "mofa-job",
        "One training job: predicted band against observed throughput, interruptions and lost time, checkpoint interval.",
        [
            choice("training_namespace", "Namespace", "mofa_job_strategy_info", "training_namespace", single=True),
            choice("training_job", "Job", 'mofa_job_strategy_info{training_namespace="$training_namespace"}', "training_job", single=True),
        ],
    ).annotation(
        AnnotationQuery().name("Interruptions").datasource(SOURCE).enable(True).icon_color("red").expr(f"{interruptions} > 0")
    )  # fmt: skip
    made = (
        made.with_row(Row("Now"))
        .with_panel(words("Advised strategy", "Parallel sizes of the advised strategy, and the pool that it is for.",
                          f"max by (pool, {', '.join(AXES)}) (mofa_job_strategy_info{{{THIS_JOB}}})",
                          " ".join(f"{axis}={{{{{axis}}}}}" for axis in AXES) + " on {{pool}}", span=9))
        .with_panel(limit(number("Since the last step", "Time since a step finished; empty where the job is not seen running.",
                                 SECONDS, f"time() - max(mofa_job_last_step_timestamp_seconds{{{THIS_JOB}}})", span=3), 300))
        .with_panel(number("Last step", "Last finished optimizer step.", COUNT, f"max(mofa_job_observed_step{{{THIS_JOB}}})", span=3))
        .with_panel(number("MFU predicted", "Model FLOPs utilisation that the advice expects.", SHARE,
                           f'max(mofa_job_predicted_mfu_ratio{{{THIS_JOB}, bound="target"}})', span=3))
        .with_panel(number("Memory predicted", "Peak device memory of the fullest stage that the advice expects.", "bytes",
                           f'max(mofa_job_predicted_memory_bytes{{{THIS_JOB}, bound="target"}})', span=3))
        .with_panel(number("Chance to fit", "Chance by measured runs that the devices hold the advised strategy.", SHARE,
                           f'min(mofa_job_odds_ratio{{{THIS_JOB}, outcome="fits"}})', span=3))
    )  # fmt: skip
    made = (
        made.with_row(Row("Throughput"))
        .with_panel(band(lines(
            "Throughput against the prediction", "Tokens per second of the whole job, and the band in which they were predicted.",
            TOKENS, _bounds("mofa_job_predicted_tokens_per_second")
            | {"observed": f"max(mofa_job_observed_tokens_per_second{{{THIS_JOB}}})"}, span=16)))
        .with_panel(limit(lines(
            "Residual", "Observed over predicted throughput, minus one; alerts start at the line, either way.",
            SHARE, {"residual": f"max(mofa_job_throughput_residual_ratio{{{THIS_JOB}}})"}, span=8), parameters["drift"]))
        .with_panel(band(lines(
            "Step time", "Time of an optimizer step, and the band in which it was predicted.",
            SECONDS, _bounds("mofa_job_predicted_step_seconds")
            | {"observed": f"max(mofa_job_observed_step_seconds{{{THIS_JOB}}})"}, span=16)))
        .with_panel(lines(
            "Steps", "Last finished step; where it falls, the job went back to a checkpoint.",
            COUNT, {"step": f"max(mofa_job_observed_step{{{THIS_JOB}}})"}, span=8))
    )  # fmt: skip
    made = made.with_panel(band(lines(
        "Device memory", "Most device memory in use on one of the job's devices, the band predicted of the advised strategy, and the limits above "
        "which the alert starts: of the band of what runs, and of the device, where an allocator that runs short slows it.",
        "bytes", _bounds("mofa_job_predicted_memory_bytes")
        | {"observed": f"max(mofa_job_observed_memory_bytes{{{THIS_JOB}}})",
           "limit of the {{limit}}": f"max by (limit) (mofa_job_memory_limit_bytes{{{THIS_JOB}}})"}, span=24)))  # fmt: skip
    lost = f"sum by (cause) (rate(mofa_job_lost_seconds_total{{{THIS_JOB}}}[$__rate_interval]))"
    made = (
        made.with_row(Row("Interruptions and lost time"))
        .with_panel(other_axis(bars(lines(
            "Interruptions and lost time", "Interruptions by recovery class and cause as bars; share of time lost, by cause, as lines on the right.",
            COUNT, {"{{class}}, {{cause}}": interruptions, "lost to {{cause}}": lost}, span=16),
            "^(?!lost).*"), "^lost.*", SHARE, "time lost"))
        .with_panel(lines(
            "Recovery time", "Mean time of the recoveries that finished in each interval, by recovery class.",
            SECONDS, {"{{class}}": (
                f"sum by (class) (increase(mofa_job_recovery_seconds_sum{{{THIS_JOB}}}[$__rate_interval]))"
                f" / (sum by (class) (increase(mofa_job_recovery_seconds_count{{{THIS_JOB}}}[$__rate_interval])) > 0)"
            )}, span=8))
        .with_panel(lines(
            "As pods show it", "Restarts of the last day from pod series: lower takes a job's pods as one, upper each for itself.",
            COUNT, {
                "processes, at least": f"max(mofa:job_process_restarts:lower{{{THIS_JOB}}})",
                "processes, at most": f"max(mofa:job_process_restarts:upper{{{THIS_JOB}}})",
                "pods, at least": f"max(mofa:job_pod_replacements:lower{{{THIS_JOB}}})",
                "pods, at most": f"max(mofa:job_pod_replacements:upper{{{THIS_JOB}}})",
                "job": f"max(mofa:job_restarts:count{{{THIS_JOB}}})",
            }))
        .with_panel(lines(
            "Checkpoint interval", "Time between checkpoints: recommended, and as it is really used.",
            SECONDS, {"{{source}}": f"max by (source) (mofa_job_checkpoint_interval_seconds{{{THIS_JOB}}})"}))
    )  # fmt: skip
    return (
        made.with_row(Row("Effective time"))
        .with_panel(band(lines(
            "Effective training time ratio", "Predicted band, observed since the start and over a window, and the objective.",
            SHARE, _bounds("mofa_job_predicted_ettr_ratio") | {
                "observed": f"max(mofa_job_observed_ettr_ratio{{{THIS_JOB}}})",
                f"last {long}": f"max(mofa:job_ettr:ratio_{long}{{{THIS_JOB}}})",
                "objective": f"max(mofa_job_ettr_objective_ratio{{{THIS_JOB}}})",
            })))
        .with_panel(limit(lines(
            "Burn", "Lost share of a window over the share that the objective leaves; the line is where the fast alert starts. "
            "A window is shown once the job has run for twice its length.",
            COUNT, {f"over {window}": f"max(mofa:job_ettr_burn:ratio_{window}{{{THIS_JOB}}})" for window in (short, long, slow)}
            | {"since the start": (
                f"(1 - max(mofa_job_observed_ettr_ratio{{{THIS_JOB}}}))"
                f" / clamp_min(1 - max(mofa_job_ettr_objective_ratio{{{THIS_JOB}}}), 0.001)"
            )}),
            parameters["burn_fast"]))
    )  # fmt: skip


def _bounds(metric: str) -> dict[str, str]:
    """Lower, target and upper of a prediction, as lines."""
    shown = {"lower": "lower", "predicted": "target", "upper": "upper"}
    return {name: f'max({metric}{{{THIS_JOB}, bound="{bound}"}})' for name, bound in shown.items()}
