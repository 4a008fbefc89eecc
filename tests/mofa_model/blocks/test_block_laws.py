"""The laws of the estimate on models of unlike layers: rows alone and together, other units, more
bandwidth, sharing.
"""

from dataclasses import replace

import numpy as np
import pytest
from dimensions import POWERS, rescaled, terms
from hybrids import HYBRIDS
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import ROWS, clusters, families, workloads

from mofa_model.estimate import estimate
from mofa_model.schedules import ONE_F_ONE_B
from mofa_model.strategy import Recompute

CLOSE = 1e-12
HYBRID = workloads(models=tuple(HYBRIDS))


@settings(max_examples=30)
@given(HYBRID, clusters(), families())
def test_a_row_is_the_same_alone_and_in_a_family(workload, cluster, family):
    together = estimate(workload, cluster, family)
    for index in range(ROWS):
        alone = estimate(workload, cluster, family.row(index))
        assert np.broadcast_to(together.step_time, ROWS)[index] == alone.step_time
        assert np.broadcast_to(together.footprint.peak, ROWS)[index] == alone.footprint.peak


@settings(max_examples=20)
@given(HYBRID, clusters(), families(rows=2))
def test_other_units_rescale_every_term_exactly(workload, cluster, family):
    units = {"time": 1024.0, "size": 0.5}
    ours = estimate(workload, cluster, family)
    theirs = estimate(rescaled(workload, **units), rescaled(cluster, **units), family)
    for (name, unit, here), (_, _, there) in zip(terms(ours), terms(theirs), strict=True):
        of_time, of_size = POWERS.get(unit, (0, 0))
        assert np.array_equal(np.asarray(here) * 1024.0**of_time * 0.5**of_size, there), name


@pytest.mark.parametrize("link", ["scale_up", "scale_out"])
@settings(max_examples=20)
@given(HYBRID, clusters(), families(schedules=[ONE_F_ONE_B]))
def test_a_faster_link_never_slows_a_step_and_hides_no_more_than_there_is(
    link, workload, cluster, family
):
    before = estimate(workload, cluster, family)
    faster = replace(getattr(cluster, link), bandwidth=4.0 * getattr(cluster, link).bandwidth)
    after = estimate(workload, replace(cluster, **{link: faster}), family)
    assert np.all(after.step_time <= before.step_time * (1 + 1e-9))
    for layer in before.layer_times:
        assert np.all(
            layer.tensor + layer.context + layer.expert <= layer.communication * (1 + CLOSE)
        )


@settings(max_examples=30)
@given(HYBRID, clusters(), families(), st.sampled_from(["tp", "dp"]))
def test_more_ranks_and_more_recomputation_hold_no_more(workload, cluster, family, degree):
    bare = replace(cluster.calibration.memory, bucket=0.0, partition=0.0)
    cluster = replace(cluster, calibration=replace(cluster.calibration, memory=bare))
    family = replace(
        family,
        sequence_parallel=True,
        tp=np.maximum(2.0, family.tp),
        shard=0.0,
        offload=frozenset(),
    )

    def peak(**changes):
        return estimate(workload, cluster, replace(family, **changes)).footprint.peak

    assert np.all(peak(**{degree: 2 * getattr(family, degree)}) <= peak() * (1 + CLOSE))
    full, none = (
        peak(recompute=Recompute.FULL, recompute_layers=0.0),
        peak(recompute=Recompute.NONE),
    )
    assert np.all(full <= none * (1 + CLOSE))
