"""A layout that ran out of memory: it is no answer, and what needs as much of a device does not
fit either.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from mofa_model.advice.candidates import cannot_run, problem_of, space_of
from mofa_model.advice.predictions import priced
from mofa_model.advice.request import Request, Unplaced
from mofa_model.bands.odds import ShortRun, odds_of
from mofa_model.strategy import Strategy
from mofa_model.units import GIB, Bytes, Ratio

_HOST: Final = (
    "its node ran out of main memory, of which other layouts need as much where nothing is "
    "offloaded: give its processes more"
)
DOUBTED: Final = 1.5
"""Times the memory that a layout needs by the model from which one that ran out of it is in doubt.
Ours. [1]
"""


def with_failed(request: Request, layout: Strategy | Unplaced, *, of_host: bool = False) -> Request:
    """The request after a layout ran out of memory: it is no answer, and all layouts are taken to
    need more memory than estimated. `of_host`: the node's main memory ran out, so devices need
    no more.
    """
    request = replace(request, current=layout, current_runs=False)
    if isinstance(layout, Unplaced) or cannot_run(problem := problem_of(request, layout), layout):
        return request
    priced_layout = priced(problem, layout)
    run = ShortRun(
        strategy=layout,
        precision=problem.workload.training.precision.name,
        fitted=False,
        coordinates=priced_layout.coordinates,
        errors={},
    )
    request = replace(request, tried=(*request.tried, run))
    if of_host:
        return replace(request, caveats=(*request.caveats, _HOST))
    peak, space = float(priced_layout.footprint.peak), space_of(problem)
    scale = float(odds_of(request.runs, (priced_layout.coordinates,)).memory_scale[0])
    learned = request.learned_memory
    ratio = max(learned.ratio, float(ratio_of(peak, space, scale)))
    doubts = () if space <= DOUBTED * peak else (_doubt(peak, space),)
    return replace(
        request,
        learned_memory=replace(learned, ratio=ratio),
        caveats=(*request.caveats, *doubts),
    )


def ratio_of(peak: Bytes, space: Bytes, scale: float) -> Ratio:
    """Factor on all memory estimates after a layout failed: it needed more than the `space`, by
    about one scale of the band; 1 where the estimate was far above the space. Ours. [1]

    >>> round(ratio_of(60.0, 75.0, 0.05), 3), ratio_of(150.0, 75.0, 0.05)
    (1.314, 1.0)
    """
    return math.exp(max(0.0, math.log(space / peak) + scale))


def _doubt(peak: Bytes, space: Bytes) -> str:
    needs, limit = (f"{size / GIB:.0f} GiB" for size in (peak, space))
    return (
        f"the layout that ran out of memory needs {needs} of {limit} by the model: something else "
        "held memory, or not all of the run is told"
    )
