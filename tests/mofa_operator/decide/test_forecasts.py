"""Each day the ledger gets a forecast of the next seven, and seven days later what came."""

import random
from dataclasses import replace
from datetime import date as calendar
from datetime import timedelta

import pytest

from mofa_model.spec.account import NodeState, NodeTime
from mofa_model.spec.evidence import FailureEvidence
from mofa_operator.decide.forecasts import KEPT_DAYS, MOST_JOBS, forecasts, rows_of, trained_days
from mofa_operator.evidence import PROMETHEUS, Day, bands_held, date_of, forecasts_in, miscalibrated

DAY = 86400.0
FIRST = 20_000  # days since the epoch


def day(number, lost=0.2, stops=1, job="ml/x"):
    date = date_of((FIRST + number) * DAY)
    rows = [
        NodeTime(state=NodeState.KEPT, cause="", node_days=8 - lost, date=date, job=job),
        NodeTime(state=NodeState.IDLE, cause="no-job", node_days=2.0, date=date),
    ]
    if lost:
        made = NodeTime(
            state=NodeState.RENDEZVOUS, cause="reboot", node_days=lost, date=date, job=job
        )
        rows.append(made)
    classes = {"pod": FailureEvidence(node_days=10.0, failures=stops)}
    return Day(
        date=date,
        witness=PROMETHEUS,
        covered=DAY,
        classes=classes,
        account=tuple(rows),
        settled=True,
    )


def lived(days, until):
    """The forecasts of every morning."""
    kept = ()
    for number in range(14, until):
        kept = forecasts(kept, days[:number], (FIRST + number) * DAY + 3600)
    return kept


def test_nothing_is_forecast_before_a_fortnight_is_known():
    days = [day(number) for number in range(13)]
    assert forecasts((), days, (FIRST + 13) * DAY) == ()


def test_a_day_gets_one_forecast_of_pool_and_job_and_seven_days_later_what_came():
    days = [day(number, lost=0.2 + 0.1 * (number % 3)) for number in range(40)]
    kept = lived(days, 22)
    assert [(one.date, one.job) for one in kept[:2]] == [
        (date_of((FIRST + 14) * DAY), name) for name in ("", "ml/x")
    ]
    again = forecasts(kept, days[:21], (FIRST + 21) * DAY + 7200)
    assert again == kept  # of one day there is one, and it is never changed
    (first, *_) = kept
    week = days[14:21]
    assert first.came == pytest.approx(
        sum(row.node_days for one in week for row in one.account if row.state is NodeState.KEPT)
        / 56,
        abs=1e-4,
    )
    assert first.came_stops == 7.0
    assert kept[2].came is None  # its week is over tomorrow
    assert first.ettr.lower <= first.came <= first.ettr.upper


def test_what_is_written_is_read_back_and_scored_as_it_was():
    generator = random.Random(3)
    days = [
        day(number, lost=generator.uniform(0, 0.6), stops=generator.randint(0, 3))
        for number in range(60)
    ]
    kept = lived(days, 60)
    read = forecasts_in(rows_of(kept))
    assert rows_of(read) == rows_of(kept)
    assert bands_held(read) == bands_held(kept)
    assert bands_held(kept)["ettr"].bands == 2 * (60 - 14 - 7)


def test_a_pool_that_becomes_three_times_as_bad_is_said_to_be_miscalibrated_and_a_steady_one_is_not():
    generator = random.Random(5)
    steady = [day(number, lost=generator.uniform(0.1, 0.3)) for number in range(80)]
    assert miscalibrated(lived(steady, 70)) is None
    worse = [
        one if number < 35 else day(number, lost=0.3 + 0.07 * (number - 35))
        for number, one in enumerate(steady)
    ]
    told = miscalibrated(lived(worse, 70))
    assert told is not None
    assert told.endswith("too narrow")


def test_forecasts_of_sixty_days_and_of_ten_jobs_are_kept():
    def many(number):
        one = day(number)
        rows = tuple(
            replace(row, job=f"ml/{name:02}", node_days=row.node_days + name)
            for name in range(MOST_JOBS + 5)
            for row in one.account
            if row.job
        )
        return replace(one, account=rows)

    days = [many(number) for number in range(20)]
    kept = lived(days, 16)
    jobs = {one.job for one in kept} - {""}
    assert jobs == {f"ml/{name:02}" for name in range(5, MOST_JOBS + 5)}
    late = forecasts(kept, days, (FIRST + 15 + KEPT_DAYS + 1) * DAY)
    assert late == ()


def test_a_gap_in_the_days_begins_the_past_anew():
    days = [day(number) for number in range(40) if number != 30]
    assert forecasts((), days, (FIRST + 40) * DAY) == ()  # nine days on end are known


def test_a_pool_that_rests_has_days_in_which_nothing_was_held():
    resting = replace(
        day(3), account=(NodeTime(state=NodeState.IDLE, cause="no-job", node_days=10.0),)
    )
    later = (calendar.fromisoformat(resting.date) + timedelta(days=1)).isoformat()
    found = trained_days([resting], before=later)
    assert found[""][resting.date].held == 0.0
