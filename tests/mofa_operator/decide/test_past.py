"""A year of a pool in its ledger: days while the window holds them, weeks before; each failure
once, and no restart matters.
"""

from datetime import UTC, datetime

from operator_objects import NOW, SETTINGS, applied, ledger_after, profile, profile_with

from mofa_model.manifest.failure_history import FailureLedgerStatus
from mofa_model.manifest.parsing import parse
from mofa_model.spec.evidence import FailureEvidence
from mofa_operator.decide.ledger import MOST_WEEKS, stored_evidence
from mofa_operator.decide.pool import profile as decide
from mofa_operator.evidence import PROMETHEUS, Day, date_of
from mofa_operator.snapshot import History, NodeCount, ProfileSnapshot

DAY, WINDOW = 86400.0, 30
CLASSES = ("process", "pod", "job")
MIDNIGHT = NOW // DAY * DAY
NEW = profile(ready=None), None


def lived(pool, counts, first, last, window=WINDOW, step=1):
    """A profile and its ledger after a look at the end of every day, or every `step` days; `counts`
    are failures of class pod by day, of 64 nodes.
    """
    body, book = pool
    for today in range(first, last, step):
        days = tuple(
            Day(
                date=date_of(MIDNIGHT + n * DAY),
                witness=PROMETHEUS,
                covered=DAY,
                classes={
                    name: FailureEvidence(node_days=64.0, failures=counts[n] * (name == "pod"))
                    for name in CLASSES
                },
            )
            for n in range(max(0, today - window + 1), today + 1)
        )
        seen = {
            name: FailureEvidence(
                node_days=64.0 * len(days), failures=sum(day.classes[name].failures for day in days)
            )
            for name in CLASSES
        }
        snapshot = ProfileSnapshot(
            profile=profile_with(body, book),
            node_count=NodeCount(total=64, ready=64, cordoned=0, gpus={8: 64}),
            history=History(
                classes=seen,
                node_days=64.0 * len(days),
                window=window * DAY,
                coverage=1.0,
                days=days,
            ),
            now=MIDNIGHT + (today + 1) * DAY - 60,
        )
        decision = decide(snapshot, SETTINGS)
        if decision.status is not None:
            body = applied(body, decision)
        if decision.ledger is not None:
            book = ledger_after(decision)
    return body, book


def counted(pool):
    """Failures in days and weeks together, and their days."""
    found = stored_evidence(profile_with(*pool))
    return sum(one.classes["pod"].failures for one in found), round(sum(one.days for one in found))


def verdict(pool):
    (pod,) = [row for row in pool[0]["status"]["failures"] if row["name"] == "pod"]
    return pod["verdict"], pod.get("changedDate")


def test_what_leaves_the_days_is_in_the_weeks_once():
    counts = [n % 3 == 0 for n in range(120)]
    pool = lived(NEW, counts, 0, 120)
    assert counted(pool) == (40, 120)
    assert len(pool[1]["status"]["days"]) <= WINDOW + 1
    assert all(
        datetime.fromisoformat(week["date"]).replace(tzinfo=UTC).weekday() == 0
        for week in pool[1]["status"]["weeks"]
    )
    assert parse(FailureLedgerStatus, pool[1]["status"], "status").weeks


def test_a_year_is_kept_and_no_more():
    pool = lived(NEW, [0] * 500, 9, 500, step=10)
    assert len(pool[1]["status"]["weeks"]) == MOST_WEEKS
    assert 52 * 7 <= counted(pool)[1] - WINDOW <= 53 * 7


def test_a_longer_window_counts_nothing_twice():
    counts = [1] * 140
    pool = lived(NEW, counts, 9, 120, step=10)
    pool[0]["spec"]["prometheus"] = {"windowSeconds": int(60 * DAY)}
    failures, days = counted(lived(pool, counts, 120, 130, window=60))
    assert failures == days
    assert 124 <= days <= 130  # at most the week in which the longer window begins is lost


def test_a_slow_doubling_of_a_small_pool_is_found_beyond_the_window_and_the_day_is_said():
    """64 nodes of which the profile assumes 0.19 pod failures a day: 0.5 from day 60 on is named
    within a hundred days, and in another hundred it is too long for a rate that comes back."""
    counts = [int(n % 5 == 0) for n in range(60)] + [n % 2 for n in range(200)]
    assert verdict(lived(NEW, counts, 9, 60, step=10))[0] == "Consistent"
    for day, expected in ((160, "Drifts"), (260, "HigherThanAssumed")):
        found, since = verdict(lived(NEW, counts, 9, day, step=10))
        assert found == expected
        off = datetime.fromisoformat(since).replace(tzinfo=UTC).timestamp() - (MIDNIGHT + 60 * DAY)
        assert abs(off) <= 15 * DAY


def test_a_changed_assumption_is_judged_at_once_by_the_whole_past():
    counts = [int(n % 5 == 0) for n in range(60)] + [n % 2 for n in range(100)]
    pool = lived(NEW, counts, 9, 160, step=10)
    pool[0]["spec"]["failures"] = profile(rates=("1.5", "7.8", "0.5"))["spec"]["failures"]
    assert verdict(lived(pool, [*counts, 1], 160, 161))[0] == "Consistent"
