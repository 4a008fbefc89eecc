"""A question has the same answer alone and among others, to the last bit; and terms are finite and
add up.
"""

from dataclasses import replace

import numpy as np
from dimensions import terms
from hypothesis import given, settings
from shapes import deeper, ends
from strategies import ROWS, clusters, families, layouts, workloads

from mofa_model.estimate import estimate


@settings(max_examples=40)
@given(workloads(), clusters(), layouts())
def test_a_batch_of_questions_has_the_answers_of_each_alone(workload, cluster, strategy):
    """Calibration asks about many runs at once: then sequence, batch, bandwidth, GPUs and layers
    are arrays.
    """
    rows = np.arange(1.0, ROWS + 1.0)

    def question(n):
        training = replace(workload.training, sequence=1024.0 * n, global_batch=1024.0 * n)
        model = ends(deeper(workload.model, np.round(8.0 * n)), vocabulary=np.round(32000.0 * n))
        asked = replace(workload, model=model, training=training)
        fabric = replace(cluster.scale_out, bandwidth=1e10 * n)
        return asked, replace(cluster, gpus=8.0 * n, scale_out=fabric)

    together = estimate(*question(rows), strategy)
    for index, n in enumerate(rows.tolist()):
        alone = estimate(*question(n), strategy)
        assert np.broadcast_to(together.step_time, ROWS)[index] == alone.step_time
        assert np.broadcast_to(together.footprint.peak, ROWS)[index] == alone.footprint.peak


@settings(max_examples=60)
@given(workloads(), clusters(), families())
def test_every_term_is_finite_and_no_part_of_a_layer_is_negative(workload, cluster, family):
    found = estimate(workload, cluster, family)
    for name, _, value in terms(found):
        assert np.all(np.isfinite(value)), name
        if name != "step_terms.bubble":  # below zero where overlapped pairs gain more
            assert np.all(np.asarray(value) >= 0), name
    assert np.all(np.asarray(found.step_time) > 0)


@settings(max_examples=40)
@given(workloads(), clusters(), families())
def test_the_parts_of_a_step_add_up_to_it(workload, cluster, family):
    found = estimate(workload, cluster, family)
    parts = [value for name, _, value in terms(found.step_terms)]
    assert np.allclose(
        sum(np.broadcast_to(part, ROWS) for part in parts), found.step_time, rtol=1e-12
    )
