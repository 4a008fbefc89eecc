"""Constants from several runs of one stack: each from the runs that can say it, pooled.

What differs between runs says more than any one of them: attention over several numbers of heads
and tokens gives its half size, matrix products of all shapes give one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Final

import numpy as np

from mofa_lab.traces.learn import Finding, findings, learned_cluster, overheads
from mofa_lab.traces.lines import fitted_line
from mofa_lab.traces.operators import Class
from mofa_lab.traces.predict import TracedRun
from mofa_lab.traces.prices import hop_inside, prices
from mofa_model.estimate.block_time import tokens_per_rank
from mofa_model.schedules.schedule import OperationKind as Work

HEAD_TOKENS: Final = 4096.0
"""The unit of attention's half size: tokens times heads over this. Source: `Calibration`. [1]"""


def pooled(sources: Sequence[TracedRun]) -> tuple[Finding, ...]:
    """One value for each constant that any run says: the median, with the scatter over runs
    and samples.
    """
    shared = (*_attention(sources), *_hops(sources))
    by_path: dict[str, list[Finding]] = {}
    every = tuple(step for source in sources for step in source.steps)
    for source in sources:
        base = replace(source.layout, cluster=learned_cluster(source.layout.cluster, shared))
        learned = findings(
            every, source.learned, base
        )  # products of all runs, the rest of this one
        shared_paths = {finding.path for finding in shared}
        learned += overheads(source.seconds, source.rebuilt)
        for finding in learned:
            if finding.path not in shared_paths:
                by_path.setdefault(finding.path, []).append(finding)
    for path in ("links.scale_up_efficiency", "links.scale_out_efficiency"):
        by_line = [
            finding for finding in by_path.get(path, []) if finding.line
        ]  # a start that was measured beats an assumed one
        by_path |= {path: by_line} if by_line else {}
    return (*shared, *(_merged(of_path) for _, of_path in sorted(by_path.items())))


def _merged(of_path: list[Finding]) -> Finding:
    values = [finding.value for finding in of_path]
    logs = np.log([v for v in values if v > 0] or [1.0])
    apart = float(np.std(logs)) if len(logs) > 1 else 0.0
    inside = max(finding.scatter for finding in of_path)
    return replace(
        of_path[0],
        value=median(values),
        scatter=float(np.hypot(apart, inside)),
        samples=sum(finding.samples for finding in of_path),
    )


def _attention(sources: Sequence[TracedRun]) -> tuple[Finding, ...]:
    """Efficiency and half size of attention: time over ideal time is a line in 4096 / (heads
    x tokens).
    """
    small, slow, count = [], [], 0
    for source in sources:
        layout, model = source.layout, source.layout.workload.model
        measured = sum(
            p.seconds for p in source.learned.layer[Work.FORWARD] if p.kind is Class.ATTENTION
        )
        cores = [core for block in model.blocks for core in block.cores()]
        if measured <= 0 or not cores:
            continue
        c = layout.cluster.calibration.compute
        tokens = float(tokens_per_rank(layout.workload, layout.strategy))
        narrow = HEAD_TOKENS / (float(cores[0].heads / layout.strategy.tp) * tokens)
        ideal = prices(layout).layer[Work.FORWARD, Class.ATTENTION] * float(c.attention_efficiency)
        small.append(narrow)
        slow.append(measured * (1.0 + float(c.attention_half) * narrow) / ideal)
        count += 1
    x, y = np.array(small), np.array(slow)
    if count < 2 or np.ptp(x) < 0.3 * x.mean():
        return ()
    (level, slope), *_ = np.linalg.lstsq(
        np.stack([1.0 / y, x / y], axis=1), np.ones(count), rcond=None
    )
    if level <= 0 or slope < 0:
        return ()
    left = float(np.std(np.log((level + slope * x) / y)))
    constants = {
        "compute.attention_efficiency": 1.0 / level,
        "compute.attention_half": slope / level,
    }
    return tuple(
        Finding(
            path=path, value=float(value), scatter=left, samples=count, where="device",
            what="fused attention over heads and tokens",
        )
        for path, value in constants.items()
    )  # fmt: skip


def _hops(sources: Sequence[TracedRun]) -> tuple[Finding, ...]:
    """Latency and efficiency of transfers between stages, where runs sent messages of several sizes
    over one tier.
    """
    for near in (True, False):
        least: dict[float, float] = {}
        for source in (run for run in sources if hop_inside(run.layout) is near):
            for op in source.learned.hops:
                if op.collective.size > 0:
                    least[op.collective.size] = min(
                        least.get(op.collective.size, np.inf), op.seconds
                    )
        cluster = sources[0].layout.cluster
        link = float((cluster.scale_up if near else cluster.scale_out).bandwidth)
        line = fitted_line([(size / link, seconds) for size, seconds in sorted(least.items())])
        if line is not None:
            constants = {"links.point_latency": line[0], "links.point_efficiency": 1.0 / line[1]}
            return tuple(
                Finding(
                    path=p,
                    value=v,
                    scatter=0.0,
                    samples=len(least),
                    where="stack",
                    what="fastest hops by size",
                )
                for p, v in constants.items()
            )
    return ()
