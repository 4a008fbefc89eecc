"""A history day by day: whatever the stretches are, the days add up to the whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_operator.evidence import date_of
from mofa_operator.observe.days import days, node_failures, shares
from mofa_operator.observe.facts import StretchFacts
from mofa_operator.observe.stretches import Stretch

DAY = 86400.0
START = 1_700_000_000.0 // DAY * DAY


def facts(start, end, covered=None, failures=None, **more):
    return StretchFacts(
        stretch=Stretch(start, end),
        covered=end - start if covered is None else covered,
        nodes=frozenset({"a"}),
        present={},
        ready={},
        failures=failures or {},
        pods={},
        restarted={},
        sampled=60.0,
        **more,
    )


class TestLaw:
    @given(
        st.lists(st.floats(0.5, 200.0), min_size=1, max_size=6),
        st.lists(st.floats(0.0, 1.0), min_size=6, max_size=6),
        st.dictionaries(st.sampled_from(("process", "pod", "job")), st.integers(0, 20), min_size=1),
        st.lists(st.floats(-5.0, 30.0), max_size=20),
    )
    def test_counts_exposure_and_covered_time_of_the_days_are_those_of_the_whole(
        self, hours, covered, counts, at
    ):
        """Stretches of half an hour to eight days, each covered in part; failures of which some moments are known."""
        found, start = [], START + 7200.0
        for span, share in zip(hours, covered, strict=False):
            found.append(facts(start, start + 3600 * span, covered=share * 3600 * span))
            start += 3600 * span
        exposures = [3.0 * one.covered for one in found]
        known = [START + DAY * one for one in at]
        failed = {name: [*known[:count], *[None] * (count - len(known))] for name, count in counts.items()}
        recovered = {name: [(START + DAY * one, 60.0) for one in at] for name in counts}
        made = days(found, exposures, failed, recovered)
        if not any(one.covered for one in found):
            assert made == ()
            return
        assert sum(one.covered for one in made) == pytest.approx(sum(one.covered for one in found))
        assert [one.date for one in made] == sorted({one.date for one in made})
        for name, count in counts.items():
            assert sum(one.classes[name].failures for one in made) == count
            exposure = sum(one.classes[name].node_days for one in made)
            assert exposure == pytest.approx(sum(exposures) / DAY)
            assert sum(one.classes[name].recoveries for one in made) == len(at)
            assert sum(one.classes[name].recovery_seconds for one in made) == pytest.approx(60.0 * len(at))


def test_a_count_goes_to_the_day_of_its_moment_and_one_without_to_the_last():
    made = days([facts(START, START + 3 * DAY)], [6 * DAY], {"pod": [START + 5.0, None, None]}, {})
    assert [one.classes["pod"].failures for one in made] == [1, 0, 2]
    assert [one.classes["pod"].node_days for one in made] == [2.0, 2.0, 2.0]


def test_exposure_lies_on_the_days_that_were_covered():
    """Of a week of which the server has forgotten four days, the last three have it all."""
    known = {date_of(START + n * DAY): DAY for n in (4, 5, 6)}
    one = facts(START, START + 7 * DAY, covered=3 * DAY, covered_on=known)
    assert shares(one) == dict.fromkeys(known, pytest.approx(1 / 3))
    made = days([one], [9 * DAY], {"pod": []}, {})
    assert [(day.date, day.covered, day.classes["pod"].node_days) for day in made] == [
        (date, pytest.approx(DAY), pytest.approx(3.0)) for date in known
    ]


def test_failures_of_nodes_have_their_days_where_these_were_asked():
    """Three in a week: one on the second day, one on the fifth, and one that no day knows, which is the last day's."""
    told = {date_of(START + n * DAY): 1 for n in (1, 4)}
    one = facts(START, START + 7 * DAY, failures={"a": 3}, failures_on=told)
    assert [date_of(at) for at in node_failures([one])] == [*told, date_of(START + 6 * DAY)]
