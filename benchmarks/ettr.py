"""What the reliability model costs, against its promises.

exact without tiers     at most 5 times the paper's closed form, for 100,000 pairs of strategy and
                        interval
three tiers, exact      at most 8 times `python -c "import numpy"` for one evaluation
best interval           of 100,000 strategies, for a search

Ratios in one run are compared, never times: the best of several repetitions each.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from time import perf_counter, process_time

import numpy as np

from mofa_model.reliability import paper
from mofa_model.reliability.interval import best_ettr
from mofa_model.reliability.model import Job, ettr, failure_rate, mean_recovery
from mofa_model.spec.reliability import FailureMode, Reliability, paper_classes


def best_of(
    work: Callable[[], object], repeats: int = 30, clock: Callable[[], float] = process_time
) -> float:
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def spread(classes: tuple[FailureMode, ...]) -> tuple[FailureMode, ...]:
    from dataclasses import replace

    return tuple(replace(kind, tier=tier) for tier, kind in enumerate(classes))


def pairs() -> tuple[float, float]:
    """Times of 1,000 strategies x 100 intervals by the exact model and by the paper's form. [s]"""
    generator = np.random.default_rng(1)
    nodes = generator.integers(8, 4096, (1000, 1)).astype(float)
    step, save = generator.uniform(1, 30, (1000, 1)), generator.uniform(0.5, 60, (1000, 1))
    steps = np.unique(np.round(np.geomspace(1, 1e5, 130)))[None, :100]
    reliability = Reliability(classes=paper_classes())
    job = Job(
        nodes=nodes, step_time=step, blocking=(save,), background=(0.0,), reliability=reliability
    )
    assert np.size(ettr(job, steps)) == 100_000

    def closed() -> object:
        return paper.ettr(failure_rate(job), steps, step, save, mean_recovery(job))

    return best_of(lambda: ettr(job, steps)), best_of(closed)


def main() -> int:
    exact, closed = pairs()
    print(
        f"exact, 100,000 pairs      {1e3 * exact:8.2f} ms  {exact / closed:5.2f} x the closed form "
        "(at most 5)"
    )
    reliability = Reliability(classes=spread(paper_classes()))
    tiers = Job(
        nodes=2048,
        step_time=10.0,
        blocking=(0.2, 1.0, 2.0),
        background=(0.0, 20.0, 240.0),
        reliability=reliability,
    )
    chain = best_of(lambda: ettr(tiers, 6, (1, 5, 60)))
    start = best_of(
        lambda: subprocess.run([sys.executable, "-c", "import numpy"], check=True), 5, perf_counter
    )
    print(
        f"three tiers, one point    {1e3 * chain:8.2f} ms  {chain / start:5.2f} x import numpy (at "
        "most 8)"
    )
    generator = np.random.default_rng(2)
    many = [
        generator.uniform(low, high, 100_000)
        for low, high in ((8, 4096), (1, 30), (0.5, 60), (0, 300))
    ]
    plain = Reliability(classes=paper_classes())
    ranked = best_of(
        lambda: best_ettr(
            Job(
                nodes=many[0],
                step_time=many[1],
                blocking=(many[2],),
                background=(many[3],),
                reliability=plain,
            )
        ),
        3,
    )
    print(f"best interval, 100,000    {1e3 * ranked:8.2f} ms")
    return int(exact > 5 * closed or chain > 8 * start)


if __name__ == "__main__":
    sys.exit(main())
