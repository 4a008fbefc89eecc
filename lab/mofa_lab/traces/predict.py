"""The step time of a layout that never ran, from traces of one that did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mofa_lab.traces.events import Trace
from mofa_lab.traces.learn import Finding, findings, learned_cluster, overheads
from mofa_lab.traces.passes import StepPasses, step_of
from mofa_lab.traces.prices import Layout, model_parameters
from mofa_lab.traces.replay import critical_path, replay
from mofa_lab.traces.rewrite import Rewrite, order_for
from mofa_lab.traces.templates import StepTemplates, learned
from mofa_model.errors import InputError
from mofa_model.estimate.step import estimate
from mofa_model.strategy import DEGREES

BASE: Final = 0.03
"""Half width of the band where nothing changes. Ours. [1]"""
PER_DOUBLING: Final = 0.01
"""What each doubling of anything adds to it. Ours. [1]"""
UNSEEN: Final = 0.05
"""What each axis adds that the traced layout did not have: its collectives are priced by the model
alone. Ours. [1]
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedRun:
    """A traced run, read and understood."""

    layout: Layout
    """What ran, with the constants that its trace says."""
    steps: tuple[StepPasses, ...]
    """One step of each rank."""
    learned: StepTemplates
    """Templates."""
    findings: tuple[Finding, ...]
    """Constants."""
    seconds: float
    """Measured step time."""
    rebuilt: float
    """Step time as its own templates give it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """Step time of the layout that is asked for. [s]"""

    seconds: float
    """Predicted step time."""
    lower: float
    """Lower end of the band."""
    upper: float
    """Upper end."""
    analytical: float
    """Step time by the model, with the constants that the trace taught."""
    untaught: float
    """Step time by the model, with the constants that the layout came with."""
    path: dict[str, float]
    """Critical path."""


def source_of(traces: Sequence[Trace], layout: Layout) -> TracedRun:
    """Understand traces of `layout`; of a pipeline, those of its first and last stage must be
    among them.
    """
    _supported(layout)
    s, order = layout.strategy, order_for(layout)
    if any(trace.host_only for trace in traces):
        raise InputError(
            f"{traces[0].path}: has no device activity; profile with ProfilerActivity.CUDA as well"
        )
    stages = [_stage(trace, layout, len(traces), place) for place, trace in enumerate(traces)]
    missing = {0, int(s.pp) - 1} - set(stages)
    if missing:
        raise InputError(
            f"FILE: no trace of pipeline stage {min(missing)}; first and last stage are needed"
        )
    steps = tuple(
        step_of(trace, stage, [o for step in order[stage] for o in step])
        for trace, stage in zip(traces, stages, strict=True)
    )
    made = learned(steps, layout.chunk, layout.depth, tensor=int(s.tp), stride=int(s.tp))
    all_findings = findings(steps, made, layout)
    taught = replace(layout, cluster=learned_cluster(layout.cluster, all_findings))
    rebuilt = replay(Rewrite(learned=made, old=taught, new=taught).graph()).makespan
    seconds = max(step.seconds for step in steps)
    all_findings = (*all_findings, *overheads(seconds, rebuilt))
    return TracedRun(
        layout=taught,
        steps=steps,
        learned=made,
        findings=all_findings,
        seconds=seconds,
        rebuilt=rebuilt,
    )


def predict(source: TracedRun, new: Layout) -> Prediction:
    """Step time of another layout, its band, and the analytical model beside it."""
    _supported(new)
    taught = replace(new, cluster=learned_cluster(new.cluster, source.findings))
    ran = replay(Rewrite(learned=source.learned, old=source.layout, new=taught).graph())
    seconds = ran.makespan * source.seconds / source.rebuilt
    width = BASE + abs(source.seconds / source.rebuilt - 1.0) / 2.0
    width += PER_DOUBLING * doublings(source.layout, new) + UNSEEN * _unseen(source.layout, new)
    step_time = estimate(taught.workload, taught.cluster, taught.strategy).step_time
    bare = estimate(new.workload, new.cluster, new.strategy).step_time
    return Prediction(
        seconds=seconds,
        lower=seconds * (1.0 - width),
        upper=seconds * (1.0 + width),
        analytical=float(np.asarray(step_time)),
        untaught=float(np.asarray(bare)),
        path=dict(critical_path(ran)),
    )


def doublings(old: Layout, new: Layout) -> float:
    """How far two layouts are apart: the doublings of every degree, of the batch and of the model,
    added up. [1]
    """
    pairs = [(float(getattr(old.strategy, d)), float(getattr(new.strategy, d))) for d in DEGREES]
    pairs += [
        (old.micro_batches, new.micro_batches),
        (model_parameters(old), model_parameters(new)),
    ]
    pairs += [(float(old.cluster.device.peak_bf16), float(new.cluster.device.peak_bf16))]
    return sum(abs(float(np.log2(b / a))) for a, b in pairs if a > 0 and b > 0)


def _unseen(old: Layout, new: Layout) -> int:
    """Axes that the traced layout did not have."""
    pairs = (
        (float(getattr(old.strategy, d)), float(getattr(new.strategy, d)))
        for d in ("tp", "pp", "dp", "ep")
    )
    return sum(before == 1 < after for before, after in pairs)


def _stage(trace: Trace, layout: Layout, files: int, place: int) -> int:
    """Pipeline stage of a rank: ranks are numbered tensor first, then data, then pipeline."""
    s = layout.strategy
    world = int(s.gpus)
    if files == 1 and trace.world == 0 and int(s.pp) == 1:
        return 0
    rank = trace.rank if trace.world else place
    if rank >= world:
        raise InputError(f"{trace.path}: is of rank {rank}, but the layout has {world} ranks")
    return rank // (world // int(s.pp))


def _supported(layout: Layout) -> None:
    """Refuse what templates cannot say."""
    model = layout.workload.model
    if int(model.layers) % layout.depth:
        raise InputError(
            f"layers: {model.layers} do not divide over {layout.depth} virtual stages; predict "
            "needs equal ones"
        )
    if len(model.kinds) > 1:
        names = ", ".join(dict.fromkeys(kind.name for kind in model.kinds))
        raise InputError(
            f"layers: predict needs layers of one kind, this model has {names}; leave the others "
            "out"
        )
