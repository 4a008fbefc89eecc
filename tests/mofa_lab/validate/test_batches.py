"""Cases of one kind become arrays, and nothing changes for any of them."""

import copy

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mofa_lab.validate.cases import case_of
from mofa_lab.validate.record import Record
from mofa_lab.validate.steps import calibrated, predict, shipped
from mofa_model import presets
from mofa_model.calibrate.cases import batches, kind_of, stacked


def cases_of(plain, *changes):
    made = []
    for index, change in enumerate(changes):
        record = {**copy.deepcopy(plain), "id": str(index)}
        for name, value in change.items():
            record[name] = {**record[name], **value}
        made.append(case_of(Record(record)))
    return made


def test_numbers_differ_inside_a_batch_and_categories_between_batches(plain):
    cases = cases_of(
        plain,
        {},
        {"strategy": {"tp": 2, "dp": 16}},
        {"strategy": {"sequence_parallel": True}},
        {"model": {"layers": 16}},
    )
    found = batches(cases, shipped)
    assert [batch.indices.tolist() for batch in found] == [[0, 1, 3], [2]]
    assert found[0].strategy.tp.tolist() == [4, 2, 4]
    assert found[0].workload.model.layers.tolist() == [32, 32, 16]
    assert found[0].workload.model.hidden == 4096  # equal in all: still a number


def test_stacks_share_a_batch_where_their_habits_are_equal(plain):
    same = cases_of(
        plain,
        {"normalized": {"software": "llm-foundry"}},
        {"normalized": {"software": "internevo"}},
    )
    other = cases_of(
        plain, {"normalized": {"software": "llm-foundry"}}, {"normalized": {"software": "nanotron"}}
    )
    assert len(batches(same, shipped)) == 1
    assert len(batches(other, shipped)) == 2


def test_constants_are_attached_row_by_row(plain):
    cases = cases_of(
        plain,
        {"normalized": {"software": "llm-foundry"}},
        {"normalized": {"software": "internevo"}},
    )
    (batch,) = batches(cases, shipped)
    ready = calibrated(batch, shipped)
    for row, key in enumerate(batch.keys):
        alone = shipped(key).compute.gemm_efficiency
        assert np.broadcast_to(ready.cluster.calibration.compute.gemm_efficiency, 2)[row] == alone


def test_names_do_not_make_a_kind_of_their_own():
    small, large = presets.model("llama3-8b"), presets.model("llama3-70b")
    assert kind_of(small) == kind_of(large)
    assert stacked([small, large]).name == "several"
    assert kind_of(small) != kind_of(presets.model("deepseek-v3"))


LAYOUTS = st.tuples(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2])
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(layouts=st.lists(LAYOUTS, min_size=2, max_size=8))
def test_a_case_gets_the_same_figures_alone_and_among_others(plain, layouts):
    changes = [
        {"strategy": {"tp": tp, "pp": pp, "mbs": mbs, "dp": 64 // (tp * pp), "gbs": 128}}
        for tp, pp, mbs in layouts
    ]
    cases = cases_of(plain, *changes)
    together = predict(cases)
    for index, case in enumerate(cases):
        alone = predict([case])
        for name, column in together.columns.items():
            assert column[index] == alone.columns[name][0], name
