"""The edge of evidence: what a status says is read as it was written, by this version and
by 0.1.0.
"""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mofa_model.manifest.failure_history import as_written, evidence_in, row_of
from mofa_model.manifest.failures import _rate
from mofa_model.manifest.parsing import cluster_profile
from mofa_model.reliability.observed import ObservedFailures, assess
from mofa_model.spec.evidence import FailureEvidence

STATUS = json.loads(
    (Path(__file__).parents[2] / "data" / "profile-status-0.1.0.json").read_text("utf-8")
)
"""As the operator of version 0.1.0 wrote it."""
PROFILE = {
    "apiVersion": "mofa.dev/v1alpha1",
    "kind": "ClusterProfile",
    "metadata": {"name": "east"},
    "spec": {"gpu": "h100"},
}
JUNK = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)


@given(st.floats(0, 1e6), st.integers(0, 10**6), st.integers(0, 100), st.floats(0, 1e7))
def test_what_is_read_is_what_was_written(node_days, failures, recoveries, seconds):
    told = FailureEvidence(
        node_days=node_days, failures=failures, recoveries=recoveries, recovery_seconds=seconds
    )
    rows = json.loads(json.dumps([row_of("pod", told)]))
    assert evidence_in(rows) == {"pod": as_written(told)}
    assert as_written(as_written(told)) == as_written(told)


def test_interruptions_that_are_no_faults_are_in_the_rate_of_advice_and_not_in_the_check():
    """10 faults and 30 preemptions in 1,000 node-days: advice counts 40, the check 10."""
    told = FailureEvidence(node_days=1000.0, failures=10, others=30)
    rows = json.loads(json.dumps([row_of("pod", told)]))
    assert evidence_in(rows)["pod"] == as_written(told)
    assert evidence_in(rows)["pod"].interruptions == 40
    rate = _rate(0.0, told, 0.0, blend=False)
    assert rate.failures == 40.5
    assert assess(ObservedFailures(classes={"pod": told}), {"pod": 0.01}).rates[0].failures == 10


@given(
    JUNK
    | st.lists(
        JUNK | st.dictionaries(st.sampled_from(["name", "failures", "recoverySeconds"]), JUNK)
    )
)
def test_what_cannot_be_read_says_nothing(rows):
    assert all(
        one == FailureEvidence() or one.failures or one.recoveries
        for one in evidence_in(rows).values()
    )


def test_a_status_of_version_0_1_0_says_what_it_said():
    told = cluster_profile(PROFILE | {"status": STATUS}).status.evidence()
    assert told == evidence_in(STATUS["failures"]), "the desk and the operator read it alike"
    assert {
        name: (one.node_days, one.failures, one.mean_recovery) for name, one in told.items()
    } == {
        row["name"]: (float(row["exposureNodeDays"]), row["failures"], row.get("recoverySeconds"))
        for row in STATUS["failures"]
    }
