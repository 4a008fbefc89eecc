"""A fold never sees what it is judged on."""

import numpy as np
import pytest

from mofa_lab.fitting.folds import KEYS, cross_validate, family, folds
from mofa_lab.fitting.sets import set_of
from mofa_model.calibrate.fit import fit, memories, times


@pytest.fixture(scope="module")
def everything(published, sweeps, entries):
    return times([*published, *sweeps], entries)


@pytest.mark.parametrize("by", KEYS)
def test_no_run_with_the_name_that_is_left_out_is_seen(everything, by):
    for fold in folds(everything.rows, by):
        assert np.all(fold.unseen[fold.judged])
        seen = {
            KEYS[by](row)
            for row, unseen in zip(everything.rows, fold.unseen, strict=True)
            if not unseen
        }
        assert fold.name not in seen


def test_every_run_is_judged_once(everything):
    judged = sum(fold.judged.astype(int) for fold in folds(everything.rows, "publisher"))
    assert np.all(judged == 1)


def test_releases_of_a_container_never_teach_each_other(everything):
    found = list(folds(everything.rows, "group", judged=lambda row: not row.case.group))
    assert len(found) > 20
    for fold in found:
        judged = [row for row, here in zip(everything.rows, fold.judged, strict=True) if here]
        pairs = {
            (row.case.publisher, family(row.case.workload.model.name), row.case.gpu)
            for row in judged
        }
        assert len(pairs) == 1
        seen = [
            row.case for row, left in zip(everything.rows, fold.unseen, strict=True) if not left
        ]
        assert not any((c.publisher, family(c.workload.model.name), c.gpu) in pairs for c in seen)


def test_a_group_is_left_out_with_the_sweep_whose_rows_it_repeats(everything):
    found = {
        fold.name: fold
        for fold in folds(everything.rows, "group", judged=lambda row: not row.case.group)
    }
    tables = next(fold for name, fold in found.items() if name.startswith("huggingface"))
    unseen = {row.case.id for row, left in zip(everything.rows, tables.unseen, strict=True) if left}
    assert all(row.case.id in unseen for row in everything.rows if set_of(row.case) == "nanotron")
    assert not any(row.case.id in unseen for row in everything.rows if set_of(row.case) == "vtrain")


def test_a_group_of_a_sweep_is_a_model_and_is_left_out_wherever_it_ran(everything):
    found = list(folds(everything.rows, "group", judged=lambda row: bool(row.case.group)))
    assert len(found) == 8
    for fold in found:
        models = {
            row.case.workload.model.layers
            for row, left in zip(everything.rows, fold.unseen, strict=True)
            if left
        }
        assert len(models) == 1


def test_what_a_left_out_run_measured_does_not_change_its_prediction(few, entries):
    plain = times(few, entries)
    changed = times(few, entries)
    names = [row.case.publisher == "moore-threads" for row in plain.rows]
    changed.measured = np.where(names, plain.measured + 1.0, plain.measured)
    answers = []
    for evidence in (plain, changed):
        start = fit(plain, plain.measured, weights=np.where(names, 0.0, plain.weights))
        out = cross_validate(
            evidence, start, "publisher", judged=lambda row: row.case.publisher == "moore-threads"
        )
        answers.append(out.values[names])
    assert np.all(np.isfinite(answers[0]))
    assert np.array_equal(*answers)


def test_a_composed_step_counts_a_fifth_and_a_run_out_of_memory_nothing(sweeps, entries):
    steps, memory = times(sweeps, entries), memories(sweeps, entries)
    assert {row.weight for row in steps.rows if row.case.composed} == {0.2}
    assert {row.weight for row in steps.rows if not row.case.composed} == {1.0}
    assert {row.weight for row in memory.rows if row.figure is None} == {0.0}


def test_runs_belong_to_three_sets(published, sweeps):
    assert {set_of(case) for case in published} == {"published"}
    assert {set_of(case) for case in sweeps} == {"nanotron", "vtrain"}
