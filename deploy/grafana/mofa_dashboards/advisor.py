"""The operator's own health: does it keep up, does it get answers, does it write what it should."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from mofa_dashboards.parts import COUNT, SECONDS, SELF, board, choice, limit, lines, number, words

RATE = "$__rate_interval"


def advisor(parameters: dict[str, Any]) -> Dashboard:
    """The dashboard of the operator itself."""
    made = board(
        "Advisor",
        "mofa-advisor",
        "Health of the operator itself: queue, decisions, history, writes, and what it costs.",
        [
            choice("job", "Scrape job", "mofa_advisor_build_info", "job"),
            choice("instance", "Instance", 'mofa_advisor_build_info{job=~"$job"}', "instance"),
        ],
    )
    made = (
        made.with_row(Row("Now"))
        .with_panel(words("Version", "Version of the operator and of its model.",
                          f"max by (version, model_version) (mofa_advisor_build_info{{{SELF}}})", "{{version}}, model {{model_version}}"))
        .with_panel(number("Leaders", "Operators that may write; exactly one is right.", COUNT, f"sum(mofa_advisor_leader{{{SELF}}})"))
        .with_panel(number("Jobs", "Jobs that the operator advises.", COUNT,
                           f"sum(max by (cluster, training_kind) (mofa_advisor_jobs{{{SELF}}}))"))
        .with_panel(limit(number("Without series", "Jobs beyond the cap on series.", COUNT,
                                 f"sum(max by (cluster, training_kind) (mofa_advisor_jobs_without_series{{{SELF}}})) or vector(0)"), 1))
        .with_panel(number("Running for", "Time since the operator started.", SECONDS,
                           f"time() - max(process_start_time_seconds{{{SELF}}} and on (instance) mofa_advisor_build_info{{{SELF}}})"))
    )  # fmt: skip
    made = (
        made.with_row(Row("Keeping up"))
        .with_panel(limit(lines(
            "Since the last success", "Time since each loop last succeeded. Reconcile may rest when there is nothing to do; the others may not.",
            SECONDS, {"{{loop}}": f"time() - max by (loop) (mofa_advisor_last_success_timestamp_seconds{{{SELF}}})"}), 1800))
        .with_panel(limit(lines(
            "Age of the queue", "How long the object that is due longest has waited.",
            SECONDS, {"oldest": f"max(mofa_advisor_queue_oldest_age_seconds{{{SELF}}})"}), 600))
        .with_panel(lines("Queue", "Objects that wait.", COUNT, {"depth": f"max(mofa_advisor_queue_depth{{{SELF}}})"}))
        .with_panel(lines(
            "Watches", "Kinds that are watched (1), and kinds that are there and are not (0).",
            COUNT, {"{{kind}}": f"max by (kind) (mofa_advisor_watch_up{{{SELF}}})"}))
        .with_panel(lines(
            "Time of decisions", "From taking an object off the queue to the decision on it.",
            SECONDS, {
                "half are quicker than": _quantile(0.5, "mofa_advisor_recommendation_duration_seconds"),
                "99 % are quicker than": _quantile(0.99, "mofa_advisor_recommendation_duration_seconds"),
            }))
        .with_panel(limit(lines(
            "Wait at the gate", "How long jobs in mode Apply were held back; one in ten waited longer than the line.",
            SECONDS, {"90 % waited less than": _quantile(0.9, "mofa_advisor_gate_wait_seconds")}), parameters["gate_wait"]))
        .with_panel(lines(
            "Answers", "Answers given, by outcome and reason.",
            "suffix: per second", {
                "{{outcome}}, {{reason}}": _rate("mofa_advisor_recommendations_total", "outcome, reason"),
                "searched for": f"sum(rate(mofa_advisor_searches_total{{{SELF}}}[{RATE}]))",
                "before admission, {{state}}": _rate("mofa_advisor_admission_checks_total", "state"),
            }))
    )  # fmt: skip
    return (
        made.with_row(Row("Its surroundings"))
        .with_panel(lines(
            "Writes to the API server", "Writes by verb and outcome; when nothing changes there are none.",
            "suffix: per second", {"{{verb}}, {{outcome}}": _rate("mofa_advisor_api_writes_total", "verb, outcome")}))
        .with_panel(lines(
            "Requests to Prometheus", "Requests for history and throughput, by flavour and outcome.",
            "suffix: per second", {"{{flavour}}, {{outcome}}": _rate("mofa_advisor_history_requests_total", "flavour, outcome")}))
        .with_panel(lines(
            "Differences found by resync", "Objects that a full list showed otherwise than the watch had left them; watches that work leave none.",
            COUNT, {"objects": f"sum(increase(mofa_advisor_watch_resync_differences_total{{{SELF}}}[{RATE}]))"}))
        .with_panel(lines(
            "Jobs refused series", "Jobs that met the cap on series.",
            COUNT, {"jobs": f"sum(increase(mofa_advisor_series_dropped_total{{{SELF}}}[{RATE}]))"}))
        .with_panel(lines(
            "Events lost", "Events that found no room in the queue, or that the API server did not take.",
            COUNT, {"Events": f"sum(increase(mofa_advisor_events_dropped_total{{{SELF}}}[{RATE}]))"}))
        .with_panel(lines(
            "Memory", "Resident memory of the operator.",
            "bytes", {"{{instance}}": f"process_resident_memory_bytes{{{SELF}}} and on (instance) mofa_advisor_build_info{{{SELF}}}"}))
        .with_panel(lines(
            "Processor", "Processor time that the operator uses, in processors.",
            COUNT, {"{{instance}}": f"rate(process_cpu_seconds_total{{{SELF}}}[{RATE}]) and on (instance) mofa_advisor_build_info{{{SELF}}}"}))
    )  # fmt: skip


def _quantile(share: float, histogram: str) -> str:
    return f"histogram_quantile({share}, sum by (le) (rate({histogram}_bucket{{{SELF}}}[{RATE}])))"


def _rate(counter: str, labels: str) -> str:
    return f"sum by ({labels}) (rate({counter}{{{SELF}}}[{RATE}]))"
