"""What stands in a profile's status is remembered, also where an older version wrote it."""

import json
from pathlib import Path

import pytest

from mofa_operator.decide.ledger import failures, history_of, remembered, written
from mofa_operator.keys import CLUSTER_PROFILE
from mofa_operator.objects import live

STATUS = json.loads(
    (Path(__file__).parents[2] / "data" / "profile-status-0.1.0.json").read_text("utf-8")
)
"""As the operator of version 0.1.0 wrote it, with four of its days."""
EAST = live(CLUSTER_PROFILE, {"metadata": {"name": "east"}, "status": STATUS})


def test_a_status_of_version_0_1_0_is_remembered():
    found, rows = remembered(EAST), STATUS["failures"]
    assert {name: one.failures for name, one in found.classes.items()} == {
        row["name"]: row["failures"] for row in rows
    }
    assert {name: one.mean_recovery for name, one in found.classes.items()} == {
        row["name"]: row["recoverySeconds"] for row in rows
    }
    first = rows[0]
    assert (found.window, found.coverage) == (
        first["windowSeconds"],
        first["coveragePercent"] / 100,
    )


def test_its_days_are_the_ledger_and_are_written_as_they_were():
    days = EAST.days
    assert written(days) == STATUS["days"]
    rows = [row for day in STATUS["days"] for row in day["classes"]]
    whole = history_of(days, 2_592_000.0)
    assert failures(whole.classes) == sum(row["failures"] for row in rows)
    exposed = sum(float(row["exposureNodeDays"]) for row in rows if row["name"] == "pod")
    assert whole.classes["pod"].node_days == pytest.approx(exposed, abs=0.05)
