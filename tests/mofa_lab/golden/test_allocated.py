"""What Megatron's own tests say that its allocator counts on the last rank; each of ten small
models weighs as one run.
"""

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np

from mofa_lab.validate.cases import load
from mofa_lab.validate.steps import predict, scored

MIB = 2**20
CASES = Path(__file__).parents[3] / "lab" / "data" / "cases" / "megatron.json"


@cache
def found():
    """Rows of both quantities, and whether each run fits."""
    cases, refused = load(CASES)
    assert not refused
    priced = predict(cases)
    return scored(cases, priced), priced.oversized()


def of(quantity):
    rows = [row for row in found()[0] if row.figure.quantity == quantity]
    models = Counter(row.case.workload.model.name for row in rows)
    return rows, [1.0 / models[row.case.workload.model.name] for row in rows]


def spread(sizes, weights):
    return np.quantile(sizes, (0.5, 0.9), weights=weights, method="inverted_cdf")


def test_every_run_is_priced_and_fits():
    rows, _ = of("allocated_gib")
    assert len(rows) == 118
    assert not found()[1].any()


def test_bytes_between_steps_are_met_within_two_percent_or_64_mib_and_four_or_128():
    rows, weights = of("allocated_static_gib")
    sizes = [abs(row.predicted - row.figure.value) for row in rows]
    for at, share, least in ((0, 0.02, 64 * MIB), (1, 0.04, 128 * MIB)):
        allowed = [max(share * row.figure.value, least) for row in rows]
        assert spread(np.divide(sizes, allowed), weights)[at] <= 1.0


def test_peaks_are_met_within_four_percent_and_fifteen():
    rows, weights = of("allocated_gib")
    median, most = spread([abs(row.error) for row in rows], weights)
    assert median <= 0.04
    assert most <= 0.15


def test_the_only_runs_of_a_real_width_are_met_one_by_one_within_three_percent():
    """4,096 wide: 54 GiB, of which dropout masks are 4, logits 3 and the parameters with their
    states 19.
    """
    wide = [row for row in of("allocated_gib")[0] if row.case.workload.model.hidden >= 4096]
    assert len(wide) == 3
    assert all(abs(row.error) <= 0.03 for row in wide)
