"""Sentences beside the numbers: why the winner wins, and what would change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from mofa_model import units
from mofa_model.advice.answer import Advice
from mofa_model.advice.predictions import PricedLayout, priced
from mofa_model.axes.frameworks import trainers
from mofa_model.estimate import estimate
from mofa_model.estimate.step import STEP_NAMES
from mofa_model.estimate.terms import host_memory_limit
from mofa_model.search import Candidate, Ranking, framework
from mofa_model.spec import Cluster
from mofa_model.strategy import AXES, Strategy, format_strategy
from mofa_model.units import GIB, Ratio, Seconds

WORTH: Final = 0.01
"""Gain below which a change is not worth a sentence. [1]"""
NEVER: Final = 1e-12
"""ETTR of a run that never finishes, so that two of them compare. [1]"""
LOST: Final = "failures and checkpoints"
"""What is lost beside the steps, as a sentence names it."""


def compared(other: PricedLayout, advised_layout: PricedLayout) -> dict[str, float]:
    """By how much each term of another strategy's step is longer than the best one's. [s]"""
    terms, advised = other.step_terms.terms(), advised_layout.step_terms.terms()
    return {name: terms[name] - advised[name] for name in terms}


def why_not(
    objective: str, other: PricedLayout, ettr: float, advised_layout: PricedLayout, best_ettr: float
) -> str:
    """One sentence on why an alternative is not the first choice.

    It names the terms that decide, each with its sign; time lost to failures and checkpoints is a
    term unless the objective is throughput.
    """
    ettr, best_ettr = max(ettr, NEVER), max(best_ettr, NEVER)
    if objective == "cost" and other.strategy.gpus != advised_layout.strategy.gpus:
        return _dearer(other, ettr, advised_layout, best_ettr)
    more = other.step_time - advised_layout.step_time
    lost = other.step_time * (1 / ettr - 1) - advised_layout.step_time * (1 / best_ettr - 1)
    lost = 0.0 if objective == "throughput" else lost
    if abs(more) < 1e-9 * advised_layout.step_time:
        same = "as fast a step, with more features switched on"
        return (
            same
            if lost < 1e-9 * advised_layout.step_time
            else f"as fast a step, but {LOST} {_seconds(lost)}"
        )
    terms = {STEP_NAMES[name]: value for name, value in compared(other, advised_layout).items()}
    if more + lost < 0:
        largest = _largest({**terms, LOST: lost}, more + lost, _seconds)
        return f"{units.format(-more, 's', 3)} faster a step: {largest}"
    if more < 0:
        largest = _largest(terms, more, _seconds)
        faster = units.format(-more, "s", 3)
        return f"{faster} faster a step ({largest}), but {LOST} {_seconds(lost)}"
    largest = _largest({**terms, LOST: lost}, more + lost, _seconds)
    return f"{units.format(more, 's', 3)} slower a step: {largest}"


def _dearer(other: PricedLayout, ettr: float, best: PricedLayout, best_ettr: float) -> str:
    """Why an alternative on another number of GPUs costs more or fewer GPU-hours, by its terms."""
    gpus, fewest = int(other.strategy.gpus), int(best.strategy.gpus)
    whole = fewest * best.step_time / best_ettr
    of_other, of_best = other.step_terms.terms(), best.step_terms.terms()
    terms = {
        STEP_NAMES[name]: (gpus * of_other[name] - fewest * of_best[name]) / whole
        for name in of_other
    }
    more = gpus * other.step_time / ettr / whole - 1.0
    terms[LOST] = more - sum(terms.values())
    slower = other.step_time - best.step_time
    pace = f"{units.format(abs(slower), 's', 3)} {'slower' if slower > 0 else 'faster'} a step"
    where = f"{pace} on {gpus} GPUs in place of {fewest}"
    if abs(more) < 1e-9:
        return f"{where}: as many GPU-hours"
    return f"{where}, {_percent(more)} GPU-hours: {_largest(terms, more, _percent)}"


def _largest(terms: Mapping[str, float], whole: float, text: Callable[[float], str]) -> str:
    """The three terms that count most, each of a tenth of the whole or more."""
    by_size = sorted(terms.items(), key=lambda item: (-abs(item[1]), item[0]))
    return ", ".join(
        f"{name} {text(value)}" for name, value in by_size[:3] if abs(value) >= 0.1 * abs(whole)
    )


def gained(advice: Advice) -> str:
    """The advice beside today's layout, in a few words: time, or GPU-hours if these are asked."""
    today = advice.current
    if (
        today is None
        or today.strategy is None
        or today.predicted is None
        or advice.predicted is None
    ):
        return ""
    time = 1.0 / (1.0 + float(today.gain))
    if advice.objective == "cost":
        hours = time * advice.gpus / float(today.strategy.gpus)
        word = "fewer" if hours <= 1.0 else "more"
        return f"{_share(hours)} {word} GPU-hours for the same work, in {time:.3g} times the time"
    if time > 1.0:
        return f"slower: {_share(time)} more time for the same work"
    return f"{1.0 / time:.3g} times as fast: {_share(time)} less time for the same work"


def _share(ratio: float) -> str:
    return f"{100 * abs(1.0 - ratio):.3g} %"


def _seconds(value: float) -> str:
    return f"{'+' if value >= 0 else '−'}{units.format(abs(value), 's', 3)}"


def _percent(value: float) -> str:
    return f"{'+' if value >= 0 else '−'}{100 * abs(value):.2g} %"


def nearest_constraints(
    advised_layout: PricedLayout, ranking: Ranking, limit: float
) -> tuple[str, ...]:
    """Gains of a little more memory, batch or bandwidth, one sentence each, largest first."""
    gains: list[tuple[Ratio, str]] = []
    if (
        ranking.near is not None
        and ranking.near.nodes * advised_layout.problem.cluster.gpus_per_node
        == advised_layout.strategy.gpus
    ):
        gains += _memory(advised_layout, ranking.near, limit)
    gains += _larger_batch(advised_layout)
    c = advised_layout.problem.cluster
    out = replace(c.scale_out, bandwidth=c.scale_out.bandwidth * 2.0)
    up = replace(c.scale_up, bandwidth=c.scale_up.bandwidth * 2.0)
    step = float(estimate(advised_layout.problem.workload, c, advised_layout.strategy).step_time)
    gains += _faster(
        advised_layout, step, replace(c, scale_out=out), "twice the bandwidth between nodes"
    )
    gains += _faster(
        advised_layout, step, replace(c, scale_up=up), "twice the bandwidth inside a node"
    )
    return tuple(text for _, text in sorted(gains, key=lambda item: (-item[0], item[1])))


def _memory(best: PricedLayout, near: Candidate, limit: float) -> list[tuple[Ratio, str]]:
    """The gain by a little more memory, with its sentence; empty where it is small."""
    gain = best.step_time / priced(near.problem, near.strategy).step_time - 1.0
    if gain < WORTH:
        return []
    missing = f"{(near.memory_bytes - limit) / GIB:.1f} GiB"
    layout = format_strategy(near.strategy)
    return [(gain, f"{missing} more device memory would allow {layout}, {gain:.0%} faster")]


def _larger_batch(best: PricedLayout) -> list[tuple[Ratio, str]]:
    """The gain by twice the global batch, with its sentence; empty where it is small."""
    workload = best.problem.workload
    batch = workload.training.global_batch * 2
    doubled = replace(workload, training=replace(workload.training, global_batch=batch))
    layout = priced(replace(best.problem, workload=doubled), best.strategy)
    gain = 2.0 * best.step_time / layout.step_time - 1.0
    if gain < WORTH:
        return []
    return [(gain, f"a global batch of {int(batch)} would give {gain:.0%} more tokens a second")]


def _faster(
    best: PricedLayout, step: Seconds, cluster: Cluster, what: str
) -> list[tuple[Ratio, str]]:
    """The gain of a step on another cluster, with its sentence; empty where it is small."""
    gain = step / float(estimate(best.problem.workload, cluster, best.strategy).step_time) - 1.0
    return [(gain, f"{what} would make the step {gain:.0%} faster")] if gain >= WORTH else []


def difference(features: tuple[str, ...], first: tuple[str, ...]) -> str:
    """Up to two features that a layout has beyond the first choice's, or else lacks."""
    more = [key for key in features if key not in first]
    less = [key for key in first if key not in features]
    return f"with {', '.join(more[:2])}" if more else f"without {', '.join(less[:2])}"


def why_nothing(ranking: Ranking, limit: float) -> str:
    """One sentence on what stands in the way where no strategy is left."""
    lean = ranking.leanest
    if lean is not None:
        nodes = lean.nodes
        return (
            f"nothing fits on {nodes} {'node' if nodes == 1 else 'nodes'}: the leanest strategy, "
            f"{format_strategy(lean.strategy)}, {_missing(lean, limit)}"
        )
    if ranking.stuck is None:
        return "no strategy is left: the trainer has none of the values that the constraints allow"
    axis, reason = ranking.stuck
    stuck = {searched.name: searched.stuck for searched in AXES}[axis]
    why = stuck or f"no value of {axis} is left"
    return f"no strategy is legal: {why} ({reason.value}: {reason.meaning})"


def unoffered(strategy: Strategy) -> str:
    """Values of a strategy that no trainer offers, as text; empty where some trainer has all."""
    offered = [framework(name) for name in trainers()]
    values = []
    for axis in AXES:
        value = getattr(strategy, axis.fields[0])
        if (
            not axis.assumed
            and value != axis.off
            and not any(axis.supported_by(t, value) for t in offered)
        ):
            values.append(f"{axis.words[0].key}={value}")
    return ", ".join(values)


def _missing(lean: Candidate, limit: float) -> str:
    """What the leanest strategy lacks: device memory, else main memory."""
    if lean.memory_bytes > limit:
        return (
            f"needs {lean.memory_bytes / GIB:.1f} GiB of the {limit / GIB:.1f} GiB that a device "
            "has; more nodes or devices with more memory would help"
        )
    problem = lean.problem
    host = float(estimate(problem.workload, problem.cluster, lean.strategy).footprint.host)
    return (
        f"parks {host / GIB:.1f} GiB in main memory, of which it may fill "
        f"{float(host_memory_limit(problem.cluster)) / GIB:.1f} GiB; "
        "more nodes or more main memory would help"
    )
