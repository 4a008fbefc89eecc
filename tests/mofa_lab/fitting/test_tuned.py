"""Fine-tuning runs in the table of measured runs."""

import numpy as np
import pytest

from mofa_lab.fitting import spreads, tuned
from mofa_lab.fitting.sizes import TUNED
from mofa_lab.validate.tuning import runs_of
from mofa_model.bands.table import COLUMNS, measured_runs
from mofa_model.bands.variance import shipped


def test_every_fine_tuning_run_with_a_step_is_a_row_where_it_stands():
    """191 rows: place by place as the runs say, and no memory."""
    runs = measured_runs()
    at = {name: index for index, name in enumerate(runs.names)}
    told = [run for run in runs_of(TUNED)[0] if "step" in run.row["use"]]
    assert len(told) == 194
    for run in told:
        index = at[run.row["id"]]
        one = tuned.Tuned(run, tuned.place_of(run), 0.0)
        assert runs.groups[index] == one.group
        assert runs.at(index) == one.place
        assert np.isfinite(runs.errors["step"][index])
        assert np.isnan(runs.errors["memory"][index])


@pytest.mark.soak
def test_the_shipped_rows_are_what_is_said_without_each_submitter():
    """The table is written anew, to the byte; bands with each publisher left out hold 80 % of all,
    72 % of 21 full fine-tunes.
    """
    found = tuned.tuned_runs()
    lines = dict(zip(measured_runs().names, measured_runs().lines, strict=True))
    assert {one.run.row["id"]: "\t".join(one.row[name] for name in COLUMNS) for one in found} == {
        one.run.row["id"]: lines[one.run.row["id"]] for one in found
    }
    groups = list(tuned.groups_left_out(found))
    assert len(groups) == 50
    assert spreads.held_share(groups, shipped()) == pytest.approx(0.8, abs=0.02)
    full = [one for one in found if one.place.method == "full"]
    assert spreads.held_share(list(tuned.groups_left_out(full)), shipped()) >= 0.7
