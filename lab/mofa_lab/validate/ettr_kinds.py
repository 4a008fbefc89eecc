"""What each kind of ETTR case asks, answered by `reliability`; what the model never asks for stands
in `forms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from mofa_lab.validate import aging, exposure, forms
from mofa_lab.validate.record import Record
from mofa_model.errors import BadValue
from mofa_model.reliability import interval, laws, model, paper, rates, renewal
from mofa_model.reliability.assumption import Verdict
from mofa_model.spec.reliability import (
    COPY_SLOWDOWN,
    FailureLaw,
    FailureMode,
    FailureRate,
    RecoveryTime,
    Reliability,
)
from mofa_model.units import DAY, HOUR, MINUTE

LAWS: Final = {"det": "deterministic", "deterministic": "deterministic", "exp": "exponential"}
"""Short names of recovery laws in case files."""
GPU_CAUSES: Final = ("faulty_gpu", "hbm3", "sram", "gpu_sys_proc", "sdc", "thermal")
"""Rows of the Llama 3 table of interruptions that are the GPU's."""
THREADS: Final = 1.22
"""Slowdown of steps while threads of the trainer itself copy. Source: as `COPY_SLOWDOWN`, 315 of
700 tokens/s. [1]
"""
FLAG_RATIO: Final = 1.5
"""Ratio of rates, without counts, from which an assumption is contradicted: Young's interval then
costs 2 % more.
"""
_WORDS: Final = {
    Verdict.HIGHER: "assumed rate too low",
    Verdict.LOWER: "assumed rate too high",
    Verdict.CONSISTENT: "consistent",
}


def _nodes(case: Record) -> float:
    nodes = case.number("nodes", 0.0) or case.number("n_gpu", 0.0) / case.number(
        "gpus_per_node", 8.0
    )
    if not nodes:
        raise BadValue("nodes", nodes, "give nodes, or n_gpu and gpus_per_node")
    return nodes


def _job_rate(case: Record) -> float:
    """Failures of the job. [1/s]"""
    if case.get("job_failure_rate_per_s") is not None:
        return case.number("job_failure_rate_per_s")
    return _nodes(case) * case.number("failure_rate_per_node_day") / DAY


def _paper_numbers(case: Record) -> dict[str, float]:
    return dict(
        rate=_job_rate(case),
        step_time=case.number("step_s"),
        save=case.number("ckpt_save_s"),
        recovery=case.number("mttr_s"),
    )


def _paper_ettr(case: Record) -> Any:
    start = case.number("t_init_s", 0.0)
    share = start / (case.number("total_steps") * case.number("step_s")) if start else 0.0
    return paper.ettr(
        interval=case.number("ckpt_interval_steps"), start_share=share, **_paper_numbers(case)
    )


def _paper_total(case: Record) -> Any:
    return forms.total_time(
        steps=case.number("total_steps"),
        interval=case.number("ckpt_interval_steps"),
        start=case.number("t_init_s", 0.0),
        **_paper_numbers(case),
    )


def _paper_interval(case: Record) -> Any:
    return int(paper.best_interval(most=interval.MOST_STEPS, **_paper_numbers(case)))


def _paper_ettr_at_optimum(case: Record) -> Any:
    numbers = _paper_numbers(case)
    return paper.ettr(interval=paper.best_interval(most=interval.MOST_STEPS, **numbers), **numbers)


def _law(words: Any, rate: float) -> FailureLaw:
    name, *numbers = words or ["exponential"]
    if name in {"exponential", "exp", "poisson"}:
        return FailureLaw()
    if name == "weibull":
        return FailureLaw(kind="weibull", shape=float(numbers[0]))
    if len(numbers) == 2 and name in {"mixture", "hyperexp", "hyperexponential", "mix", "lemon"}:
        return FailureLaw(
            kind="mixture", short_share=float(numbers[0]), short_mean=float(numbers[1]) * rate
        )
    raise BadValue(
        "interfailure",
        words,
        'give ["exponential"], ["weibull", shape] or ["mixture", share, mean_s]',
    )


def _recovery(case: Record) -> RecoveryTime:
    law = case.text("law")
    return RecoveryTime(
        mean=case.number("mean_s"), law=LAWS.get(law, law), cv=case.number("cv", 1.0)
    )


def _simulated_job(case: Record) -> model.Job:
    rate = _job_rate(case)
    classes = tuple(
        FailureMode(
            name=f"class-{i}",
            rate=FailureRate.assumed(fields.number("p") * rate * DAY, float("inf")),
            recovery=_recovery(fields.inner("recovery")),
            tier=fields.count("tier"),
        )
        for i, fields in enumerate(Record(c) for c in case.get("classes"))
    )
    return model.Job(
        nodes=1.0,
        step_time=case.number("step_s"),
        blocking=tuple(case.get("ckpt_block_s")),
        background=tuple(case.get("ckpt_background_s")),
        reliability=Reliability(
            classes=classes,
            slowdown=case.number("background_slowdown", 0.0),
            law=_law(case.get("interfailure"), rate),
            failures_during_recovery=case.flag("failures_during_recovery", default=True),
        ),
    )


def _ettr(case: Record) -> Any:
    if case.get("classes") is not None:
        every = tuple(case.get("tier_multiple") or (1,))
        return model.ettr(_simulated_job(case), case.number("interval_steps"), every)
    work = case.number("interval_s", 0.0) or case.number("interval_steps") * case.number("step_s")
    cv = case.number("mttr_cv", 0.0)
    back = RecoveryTime(
        mean=case.number("mttr_s"), law="lognormal" if cv else "deterministic", cv=cv
    )
    saves = (
        work,
        case.number("ckpt_save_s"),
        case.number("ckpt_background_s", 0.0),
        case.number("background_slowdown", 0.0),
    )
    if case.get("node_weibull_shape") is not None:
        shape, mean = case.number("node_weibull_shape"), case.number("node_mtbf_days") * DAY
        return aging.fresh_ettr(_nodes(case), shape, mean, case.number("days") * DAY, back, *saves)
    rate = _job_rate(case)
    return renewal.ettr(rate, laws.laplace_of(back, rate), *saves)


def _copied(case: Record) -> Mapping[str, float]:
    """Predictions for an asynchronous save with measured times: pace of steps beside it, and
    its cost.
    """
    slowdown = THREADS if "thread" in case.text("checkpointer") else COPY_SLOWDOWN
    normal = case.number("tokens_per_s_per_gpu_normal")
    blocked, copied = case.number("blocked_s"), case.number("background_s")
    return {
        "tokens_per_s_per_gpu_at_worst": normal / (1 + slowdown),
        "throughput_ratio_at_worst": 1 / (1 + slowdown),
        "slowdown_at_worst": 1 + slowdown,
        "work_lost_upper_bound_s": float(renewal.time_between_saves(DAY, blocked, copied, slowdown))
        - DAY,
    }


def _ettr_sd(case: Record) -> Any:
    rate = _job_rate(case)
    cv = case.number("mttr_cv", 0.0)
    back = RecoveryTime(
        mean=case.number("mttr_s"), law="lognormal" if cv else "deterministic", cv=cv
    )
    return renewal.deviation(
        rate,
        laws.laplace_of(back, rate),
        laws.laplace_slope(back, rate),
        case.number("interval_s"),
        case.number("ckpt_save_s"),
        case.number("ckpt_background_s", 0.0),
        case.number("background_slowdown", 0.0),
        case.number("days") * DAY,
    )


def _rate_check(case: Record) -> Any:
    assumed = case.number("assumed_rate_per_node_day")
    implied = DAY / HOUR / case.number("observed_mttf_hours") / _nodes(case)
    ratio = implied / assumed
    outside = Verdict.HIGHER if ratio > 1 else Verdict.LOWER
    verdict = outside if max(ratio, 1 / ratio) >= FLAG_RATIO else Verdict.CONSISTENT
    return {"implied_rate_per_node_day": implied, "ratio": ratio, "verdict": _WORDS[verdict]}


def _posterior(case: Record) -> rates.Posterior:
    days = case.number("node_days", 0.0) or case.number("days") * _nodes(case)
    return rates.posterior(case.number("failures"), days)


def _shares(case: Record) -> Mapping[str, float]:
    counts = {name: case.number(name) for name in case.values}
    total = sum(counts.values())
    shares = {name: count / total for name, count in counts.items()}
    return shares | {"gpu_total": sum(shares.get(name, 0.0) for name in GPU_CAUSES)}


def _exposure(case: Record) -> Mapping[str, Any]:
    samples = [
        exposure.ScrapeSample(time=t, up=bool(up), boot=boot) for t, up, boot in case.get("samples")
    ]
    watched = exposure.exposure_of(
        samples, scrape=case.number("scrape_s"), stale=case.number("stale_s")
    )
    return {
        "exposure_s": watched.seconds,
        "exact_failures": watched.failures,
        "censored_gaps_s": watched.gaps,
    }


def _availability(case: Record) -> Any:
    load = _job_rate(case) * case.number("repair_h") * HOUR
    return model.spares_availability(load, case.count("spares"))


def _save_overhead(case: Record) -> Any:
    if case.get("interval_s") is not None:
        return forms.save_overhead(1, case.number("interval_s"), case.number("ckpt_save_s"))
    return forms.save_overhead(
        case.number("interval_steps"), case.number("step_s"), case.number("ckpt_save_s")
    )


def _minimax(case: Record) -> Any:
    middle = interval.minimax_rate(1 / case.number("mtbf_s_hi"), 1 / case.number("mtbf_s_lo"))
    return forms.young_interval(case.number("ckpt_save_s"), middle)


def _interval_of(case: Record) -> Any:
    return rates.credible_interval(_posterior(case), case.number("level", rates.LEVEL))


def _garwood(case: Record) -> Any:
    posterior = _posterior(case)
    return rates.garwood_interval(
        posterior.failures, posterior.exposure, case.number("level", rates.LEVEL)
    )


KINDS: Final[dict[str, Callable[[Record], Any]]] = {
    "mofa_total_seconds": _paper_total,
    "mofa_ettr": _paper_ettr,
    "mofa_optimal_steps": _paper_interval,
    "mofa_ettr_at_optimum": _paper_ettr_at_optimum,
    "total_steps": lambda c: int(
        forms.total_steps(c.number("tokens"), c.number("global_batch"), c.number("seq_len"))
    ),
    "mixture_mttr": lambda c: forms.mean_recovery(
        np.array(c.get("p")), np.array(c.get("recovery_s"))
    ),
    "job_mttf_hours": lambda c: 1 / _job_rate(c) / HOUR,
    "job_mtbf_hours": lambda c: c.number("days") * DAY / HOUR / c.number("failures"),
    "rate_per_node_day": lambda c: c.number("failures") / (c.number("days") * _nodes(c)),
    "rate_check": _rate_check,
    "rate_credible_interval": _interval_of,
    "garwood_interval": _garwood,
    "rate_check_p": lambda c: forms.mid_p(c.number("failures"), c.number("expected")),
    "e_value_gamma11": lambda c: forms.e_value(c.number("failures"), c.number("expected")),
    "p_fail_one_day": lambda c: forms.chance_of_failure(
        c.number("rate_per_gpu_day") * c.number("n_gpu")
    ),
    "class_share": _shares,
    "ettr": _ettr,
    "ettr_at_least": _ettr,
    "ettr_sd": _ettr_sd,
    "async_checkpoint": _copied,
    "ettr_measured": lambda c: forms.ettr_of_times(
        c.number("productive_days"), c.number("elapsed_days") - c.number("productive_days")
    ),
    "ettr_first_order": lambda c: forms.first_order_ettr(
        1 / (c.number("mtbf_min") * MINUTE), c.number("stall_min") * MINUTE
    ),
    "max_mean_loss_per_failure_s": lambda c: forms.affordable_loss(
        1 / (c.number("mtbf_hours") * HOUR), c.number("ettr_min")
    ),
    "ckpt_overhead": _save_overhead,
    "optimal_work_s_sync_poisson": lambda c: renewal.best_work(
        1 / c.number("mtbf_s"), c.number("ckpt_save_s")
    ),
    "excess_overhead_of_young": lambda c: forms.excess_of_wrong_rate(c.number("assumed_over_true")),
    "minimax_work_s": _minimax,
    "exposure": _exposure,
    "p_recoverable": lambda c: forms.groups_survive(
        c.count("nodes"), c.count("group"), c.count("killed")
    ),
    "spares_availability": _availability,
}
"""How each kind of case is answered."""
