"""Evidence adds up, and the recovery classes have one home."""

import math
from functools import reduce
from operator import add

from hypothesis import given
from hypothesis import strategies as st

from mofa_model.spec.evidence import FailureEvidence, together
from mofa_model.spec.recovery_classes import RecoveryClass, costlier
from mofa_model.spec.reliability import paper_classes

EXACT = st.integers(0, 2**40).map(lambda n: n / 1024)
"""Numbers whose sums are exact, as whole seconds are."""
EVIDENCE = st.builds(
    FailureEvidence,
    node_days=EXACT,
    failures=st.integers(0, 10**6),
    recoveries=st.integers(0, 10**6),
    recovery_seconds=EXACT,
)
BY_CLASS = st.dictionaries(st.sampled_from([one.value for one in RecoveryClass]), EVIDENCE)
NOTHING = FailureEvidence()


class TestMonoid:
    @given(EVIDENCE, EVIDENCE, EVIDENCE)
    def test_the_order_of_adding_does_not_matter(self, a, b, c):
        assert (a + b) + c == a + (b + c)
        assert a + b == b + a

    @given(EVIDENCE)
    def test_having_seen_nothing_adds_nothing(self, a):
        assert a + NOTHING == NOTHING + a == a

    @given(EVIDENCE, EVIDENCE)
    def test_what_came_on_top_is_what_was_added(self, a, b):
        assert (a + b) - a == b

    @given(BY_CLASS, BY_CLASS, BY_CLASS)
    def test_so_does_evidence_by_class_where_unknown_is_not_zero(self, a, b, c):
        assert together(together(a, b), c) == together(a, together(b, c))
        assert together(a, {}) == together({}, a) == a
        assert together(a, b).keys() == a.keys() | b.keys()

    @given(st.lists(EVIDENCE, min_size=1, max_size=20), st.integers(1, 7))
    def test_the_sum_of_days_is_the_whole_however_they_are_cut(self, days, size):
        weeks = [reduce(add, days[at : at + size]) for at in range(0, len(days), size)]
        whole = sum(weeks, NOTHING)
        assert whole == sum(days, NOTHING)
        assert whole.failures == sum(day.failures for day in days)
        timed = sum(day.recoveries for day in days)
        mean = sum(day.recovery_seconds for day in days) / timed if timed else None
        assert whole.mean_recovery == mean


class TestClasses:
    def test_shares_are_those_of_the_paper_and_add_to_one(self):
        assert math.isclose(sum(one.share for one in RecoveryClass), 1)
        assert [(one.value, one.share, one.seconds) for one in RecoveryClass] == [
            ("process", 0.3, 141), ("pod", 0.6, 262), ("job", 0.1, 307),
        ]  # fmt: skip
        assert [one.name for one in paper_classes()] == list(RecoveryClass)

    def test_the_costlier_of_two_restores_more(self):
        assert costlier(RecoveryClass.PROCESS, RecoveryClass.POD) is RecoveryClass.POD
        assert costlier(RecoveryClass.JOB, RecoveryClass.PROCESS) is RecoveryClass.JOB
