"""The ledger of failures: of each day one witness counts, nothing is counted twice, and no server
takes away what was known.

A pool of 40 nodes is busy all the time; what it lived through is a list of moments, and a server
that knows it since a moment says of each day what it still knows.
"""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_objects import (
    NOW,
    SETTINGS,
    World,
    applied,
    counted,
    ledger_after,
    profile,
    profile_with,
)

from mofa_model.manifest.parsing import cluster_profile
from mofa_model.spec.evidence import FailureEvidence
from mofa_operator.decide import ledger
from mofa_operator.decide.history import assessed
from mofa_operator.decide.ledger import remembered
from mofa_operator.decide.pool import profile as decide
from mofa_operator.decide.status import moment
from mofa_operator.evidence import Day, date_of, days_in
from mofa_operator.keys import CLUSTER_PROFILE, Key, ledger_of
from mofa_operator.snapshot import History, NodeCount, NoHistory, ProfileSnapshot

DAY, NODES, WINDOW = 86400.0, 40, 30 * 86400.0
MIDNIGHT = NOW // DAY * DAY
CLASSES = ("process", "pod", "job")
OUTAGE = NoHistory(
    reason="HistoryUnavailable", message="http://prometheus:9090 does not answer: timed out"
)
ALONE = NoHistory(reason="NotConfigured", message="no Prometheus is configured")


def day(at, covered=DAY, witness="Prometheus", nodes=NODES, **failures):
    """A day with its covered time and failures by class; without any, all three classes
    were calm.
    """
    failures = failures or dict.fromkeys(CLASSES, 0)
    return Day(
        date=date_of(at),
        witness=witness,
        covered=covered,
        classes={
            name: FailureEvidence(node_days=nodes * covered / DAY, failures=count)
            for name, count in failures.items()
        },
    )


def told(moments, since, until, witness="Prometheus"):
    """What a server says that knows all between two moments; `moments` are pairs of moment
    and class.
    """
    found, start = [], since // DAY * DAY
    while start < until:
        a, b = max(start, since), min(start + DAY, until)
        counts = {
            name: sum(a <= at < b and kind == name for at, kind in moments) for name in CLASSES
        }
        found.append(day(start, b - a, witness, **counts))
        start += DAY
    return tuple(found)


def failures(days, window=WINDOW):
    memory = ledger.history_of(days, window)
    return {} if memory is None else {name: one.failures for name, one in memory.classes.items()}


pasts = st.lists(
    st.tuples(st.floats(MIDNIGHT - 20 * DAY, MIDNIGHT - 1), st.sampled_from(CLASSES)), max_size=30
)
known_since = st.lists(st.floats(MIDNIGHT - 20 * DAY, MIDNIGHT - 60), min_size=1, max_size=6)


class TestLaws:
    @given(pasts, known_since, st.randoms(use_true_random=False))
    def test_the_order_and_the_repetition_of_readings_change_nothing(self, past, since, random):
        readings = [told(past, at, MIDNIGHT) for at in since]
        one: tuple[Day, ...] = ()
        for reading in readings:
            one = ledger.merged(one, reading, (), WINDOW, MIDNIGHT)
        other: tuple[Day, ...] = ()
        shuffled = [*readings, *readings]
        random.shuffle(shuffled)
        for reading in shuffled:
            other = ledger.merged(other, reading, (), WINDOW, MIDNIGHT)
        assert one == other

    @given(pasts, known_since)
    def test_the_longest_memory_of_all_readings_is_what_is_kept(self, past, since):
        """The union of what was ever said: the failures since the earliest moment that any
        reading knew.
        """
        kept: tuple[Day, ...] = ()
        for at in since:
            kept = ledger.merged(kept, told(past, at, MIDNIGHT), (), WINDOW, MIDNIGHT)
        assert sum(failures(kept).values()) == sum(at >= min(since) for at, _ in past)

    @given(pasts, pasts, st.floats(0.0, 1.0))
    def test_there_are_never_more_failures_than_one_witness_saw_of_a_class_on_a_day(
        self, past, other, share
    ):
        start = MIDNIGHT - 20 * DAY
        server = told(past, start, MIDNIGHT)
        watch = told(other, MIDNIGHT - 20 * DAY * share, MIDNIGHT, "Watch")
        both = ledger.merged((), server, watch, WINDOW, MIDNIGHT)
        for one in both:
            here = [entry for entry in both if entry.date == one.date]
            for name in CLASSES:
                count = failures(here)[name]
                assert count in [entry.classes[name].failures for entry in here]
                assert count <= max(entry.classes[name].failures for entry in here)

    @given(pasts, known_since)
    def test_an_outage_loses_nothing(self, past, since):
        kept = ledger.merged((), told(past, since[0], MIDNIGHT), (), WINDOW, MIDNIGHT)
        assert ledger.merged(kept, (), (), WINDOW, MIDNIGHT) == kept

    @given(pasts, known_since)
    def test_what_is_written_is_read_back_and_trimming_changes_no_figure(self, past, since):
        server = told(past, min(since), MIDNIGHT + 3600)
        watch = told(past, max(since), MIDNIGHT + 3600, "Watch")
        kept = ledger.merged((), server, watch, WINDOW, MIDNIGHT + 3600)
        trimmed = ledger.trimmed(kept, MIDNIGHT + 3600)
        assert ledger.history_of(trimmed, WINDOW) == ledger.history_of(kept, WINDOW)
        assert days_in(ledger.written(trimmed)) == trimmed
        assert ledger.trimmed(trimmed, MIDNIGHT + 3600) == trimmed


class TestRetention:
    def test_a_server_that_forgets_hour_by_hour_leaves_the_whole_window(self):
        """Fifteen days of retention, thirty of window, two failures a day: sixty stay, and no more
        than 31 days' worth.
        """
        past = [(MIDNIGHT + 43200.0 * n + 7200, "pod") for n in range(-60, 2 * 60)]
        kept: tuple[Day, ...] = ()
        for hour in range(24 * 45):
            now = MIDNIGHT + 3600.0 * hour
            kept = ledger.trimmed(
                ledger.merged(kept, told(past, now - 15 * DAY, now), (), WINDOW, now), now
            )
        memory = ledger.history_of(kept, WINDOW)
        assert {name: one.failures for name, one in memory.classes.items()} == {
            "process": 0,
            "pod": 2 * 31,
            "job": 0,
        }
        assert memory.classes["pod"].node_days == pytest.approx(31 * NODES, rel=0.002)
        assert memory.coverage == 1.0

    def test_without_the_ledger_half_of_that_would_be_gone(self):
        past = [(MIDNIGHT + 43200.0 * n + 7200, "pod") for n in range(-60, 0)]
        assert failures(told(past, MIDNIGHT - 15 * DAY, MIDNIGHT))["pod"] == 30

    def test_what_is_filled_in_late_comes_in(self):
        kept = ledger.merged(
            (), (day(MIDNIGHT - DAY, pod=1, process=0, job=0),), (), WINDOW, MIDNIGHT
        )
        kept = ledger.merged(
            kept, (day(MIDNIGHT - DAY, pod=4, process=0, job=0),), (), WINDOW, MIDNIGHT
        )
        assert failures(kept)["pod"] == 4

    def test_a_day_that_lost_a_series_keeps_what_was_counted(self):
        kept = ledger.merged(
            (), (day(MIDNIGHT - DAY, pod=1, process=2, job=0),), (), WINDOW, MIDNIGHT
        )
        kept = ledger.merged(kept, (day(MIDNIGHT - DAY, pod=1),), (), WINDOW, MIDNIGHT)
        assert failures(kept) == {"process": 2, "pod": 1, "job": 0}

    def test_days_before_the_window_are_dropped(self):
        old = day(MIDNIGHT - 40 * DAY, pod=9)
        assert ledger.merged((old,), (), (), WINDOW, MIDNIGHT) == ()


class TestWitnesses:
    def test_a_tie_is_the_servers_which_sees_pods(self):
        """The watch dates job starts and ends a little otherwise: less than twice the exposure
        decides nothing.
        """
        server, watch = day(0.0, DAY / 1.9, pod=1, job=0), day(0.0, witness="Watch", pod=3, job=0)
        assert ledger.counting_entry((server, watch), "pod") is server

    def test_who_saw_more_than_twice_as_much_counts(self):
        server, watch = day(0.0, DAY / 2.1, pod=1, job=0), day(0.0, witness="Watch", pod=3, job=0)
        assert ledger.counting_entry((server, watch), "pod") is watch

    def test_who_saw_jobs_counts_before_who_saw_nodes_alone(self):
        """Four busy nodes of forty: the pods of the four say more than the forty that stayed up."""
        server = day(0.0, nodes=4, process=0, pod=2, job=0)
        nodes_alone = day(0.0, witness="Watch", pod=0)
        assert ledger.counting_entry((server, nodes_alone), "pod") is server

    def test_a_class_that_one_witness_cannot_see_is_the_others(self):
        server, watch = day(0.0, pod=1), day(0.0, witness="Watch", pod=2, job=3)
        assert failures((server, watch)) == {"pod": 2, "job": 3}
        assert ledger.counting_entry((server, watch), "process") is None


class Pool:
    """A profile whose decisions are done, look after look."""

    def __init__(self, body=None):
        self.body, self.now, self.writes, self.notes = body or profile(ready=None), NOW, 0, []
        self.ledger = None

    def look(self, history, watched=(), after=0.0):
        self.now += after
        decision = decide(self._snapshot(history, watched), SETTINGS)
        if decision.status is not None:
            self.writes += 1
            self.body = applied(self.body, decision)
        if decision.ledger is not None:
            self.ledger = ledger_after(decision)
        self.notes += decision.notes
        assert decide(self._snapshot(history, watched), SETTINGS).is_silent, (
            "a second look wants to write"
        )
        assert decide(self._snapshot(history, ()), SETTINGS).is_silent or watched, (
            "a restart wants to write"
        )
        return decision

    def _snapshot(self, history, watched):
        nodes = NodeCount(total=NODES, ready=NODES, gpus={8: NODES}, names=("a",))
        return ProfileSnapshot(
            profile=self.stands,
            node_count=nodes,
            history=history,
            watched=tuple(watched),
            now=self.now,
        )

    @property
    def stands(self):
        return profile_with(self.body, self.ledger)

    @property
    def status(self):
        return self.body["status"]

    @property
    def rows(self):
        return {row["name"]: row for row in self.status.get("failures", [])}

    @property
    def said(self):
        return next(one for one in self.status["conditions"] if one["type"] == "HistoryComplete")


def history(days, **more):
    """A reading whose days add up to it."""
    counts = {name: sum(one.classes[name].failures for one in days) for name in days[0].classes}
    exposure = sum(next(iter(one.classes.values())).node_days for one in days)
    return History(
        classes={
            name: FailureEvidence(node_days=exposure, failures=count)
            for name, count in counts.items()
        },
        node_days=exposure,
        window=WINDOW,
        coverage=min(1.0, sum(one.covered for one in days) / WINDOW),
        days=days,
        **more,
    )


PAST = [(NOW - 86400.0 * n - 40000, CLASSES[n % 3]) for n in range(29)]


class TestProfile:
    def test_a_server_that_only_knows_three_days_takes_nothing_away(self):
        pool = Pool()
        pool.look(history(told(PAST, NOW - WINDOW, NOW)))
        before = pool.rows
        assert sum(row["failures"] for row in before.values()) == 29
        pool.look(history(told(PAST, NOW - 3 * DAY, NOW)), after=3600)
        assert pool.rows == before
        assert pool.said["reason"] == "Complete", (
            "the ledger covers the window, whatever the server knows"
        )
        pool.look(history(told(PAST, NOW - WINDOW, NOW)), after=3600)
        assert pool.rows == before, "and what comes back is counted once"

    def test_a_complete_day_is_written_without_the_jobs_hearing_of_it(self):
        """A thirtieth of the window is less than what counts as material: rows stay, the day
        is kept.
        """
        pool = Pool()
        pool.look(history(told(PAST, NOW - WINDOW, NOW)))
        rows, writes = pool.rows, pool.writes
        pool.look(history(told(PAST, NOW + DAY - WINDOW, NOW + DAY)), after=DAY)
        assert pool.rows == rows
        assert pool.writes == writes + 1
        assert date_of(NOW) in [
            one["date"] for one in pool.ledger["status"]["days"] if one["coveredSeconds"] == DAY
        ]
        pool.look(history(told(PAST, NOW + DAY - WINDOW, NOW + DAY + 900)), after=900)
        assert pool.writes == writes + 1

    def test_what_an_older_version_learned_stands_until_the_ledger_holds_half_of_it(self):
        pool = Pool(profile(failures=counted()))
        assert remembered(pool.stands).classes["pod"].failures == 85
        exposure = remembered(pool.stands).node_days
        pool.look(history(told([], NOW - DAY, NOW)))
        assert pool.rows["pod"]["failures"] == 85
        assert pool.said["reason"] == "HistoryIncomplete"
        assert exposure > 2 * 20 * NODES
        whole = told([], NOW - WINDOW, NOW)
        pool.look(history(whole), after=3600)
        assert pool.rows["pod"]["failures"] == 0, "a window that is covered is believed"

    def test_without_a_server_the_watch_has_a_history_of_its_own_and_says_so(self):
        pool = Pool()
        pool.look(ALONE, [day(NOW, 3600.0, "Watch", pod=0, job=0)])
        assert (pool.rows, pool.said["reason"]) == ({}, "NotConfigured"), (
            "an hour without failures is no news"
        )
        pool.look(ALONE, [day(NOW, 7200.0, "Watch", pod=0, job=2)], after=3600)
        assert pool.rows["job"]["failures"] == 2
        assert float(pool.rows["job"]["exposureNodeDays"]) == pytest.approx(NODES / 12, abs=1e-4)
        assert "process" not in pool.rows, "what nobody can see is unknown"
        assert pool.said["reason"] == "HistoryIncomplete"
        assert (
            f"seen by the watch alone since {date_of(NOW)}: class pod, job" in pool.said["message"]
        )

    def test_in_an_outage_the_watch_goes_on_and_the_condition_is_the_outages(self):
        pool = Pool()
        start = NOW - 3 * DAY
        pool.look(history(told([], start, NOW)))
        first = pool.rows
        pool.look(OUTAGE, after=60)
        assert (pool.rows, pool.said["reason"]) == (first, "HistoryUnavailable")
        failed = [(NOW + 5000, "job"), (NOW + 6000, "job")]
        pool.look(OUTAGE, told(failed, NOW - 3600, NOW + 7200, "Watch"), after=7140)
        assert pool.rows["job"]["failures"] == 0, (
            "of a day that the server saw for longer, the server counts"
        )
        pool.look(
            OUTAGE, told([(NOW + 1.4 * DAY, "job")], NOW, NOW + 1.5 * DAY, "Watch"), after=1.4 * DAY
        )
        assert pool.rows["job"]["failures"] == 1
        assert pool.said["reason"] == "HistoryUnavailable"
        assert [note.reason for note in pool.notes] == ["HistoryIncomplete", "HistoryUnavailable"]

    def test_failures_without_exposure_are_kept_and_judge_nothing(self):
        """Two seconds of one node are less than what a status can write: a rate over that would
        be none.
        """
        pool = Pool()
        classes = {
            "pod": FailureEvidence(node_days=0.4),
            "job": FailureEvidence(node_days=2 / 86400, failures=2),
        }
        pool.look(ALONE, [Day(date=date_of(NOW), witness="Watch", covered=2.0, classes=classes)])
        row = pool.rows["job"]
        assert (row["failures"], float(row["exposureNodeDays"])) == (2, 0.0)
        assert (row["verdict"], row["priorWeightPercent"]) == ("InsufficientData", 100)
        assert pool.status["total"]["observed"] == "0"
        (holds,) = [one for one in pool.status["conditions"] if one["type"] == "AssumptionsHold"]
        assert holds["status"] == "Unknown"
        assert "0 of class pod, job were seen" in holds["message"]

    def test_a_day_that_has_not_come_is_no_day(self):
        assert ledger.merged((day(NOW + 9 * DAY, pod=1),), (), (), WINDOW, NOW) == ()

    def test_nonsense_in_a_day_changes_nothing(self):
        pool = Pool()
        days = told(PAST, NOW - WINDOW, NOW)
        pool.look(history(days))
        before = pool.rows
        pool.look(history((*days[:-1], replace(days[-1], covered=float("nan")))), after=3600)
        assert pool.rows == before
        assert pool.said["reason"] == "HistoryUnavailable"

    def test_classes_with_different_exposure_are_each_judged_by_their_own(self):
        """Assumed are 1.5, 3 and 0.5 in a thousand node-days; the total expects what the classes
        expect together.
        """
        classes = {
            "process": FailureEvidence(node_days=1000.0, failures=3),
            "pod": FailureEvidence(node_days=2000.0, failures=6),
            "job": FailureEvidence(node_days=4000.0, failures=1),
        }
        days = ledger.written(
            [Day(date=date_of(NOW), witness="Watch", covered=DAY, classes=classes)]
        )
        memory = ledger.history_of(days_in(days), WINDOW)
        spec = cluster_profile({k: v for k, v in profile(ready=None).items() if k != "status"}).spec
        found = {one.name: one for one in assessed(spec, memory)}
        assert found["pod"].expected == pytest.approx(6.0)
        assert found["total"].expected == pytest.approx(1.5 + 6.0 + 2.0)
        assert found["total"].failures == 10


def test_thirty_days_of_two_witnesses_stay_under_sixteen_kibibytes():
    """The worst: every class of every day failed and recovered, and the classes of a day are shared
    between the witnesses.
    """
    full = {
        name: FailureEvidence(
            node_days=1234.5678, failures=12, recoveries=11, recovery_seconds=123456.0
        )
        for name in CLASSES
    }
    some = {name: full[name] for name in ("process", "pod")}
    days = [
        Day(date=date_of(NOW - n * DAY), witness=witness, covered=DAY, classes=classes)
        for n in range(31)
        for witness, classes in (("Prometheus", some), ("Watch", full))
    ]
    kept = ledger.trimmed(ledger.merged((), days, (), WINDOW, NOW), NOW)
    assert len(kept) == 62
    assert len(json.dumps(ledger.written(kept), separators=(",", ":"))) < 16 * 1024


class TestMove:
    """Days that version 0.1.0 kept in a profile's status move to its FailureLedger."""

    DAYS = told(PAST, NOW - WINDOW, NOW)

    def old(self, days=None, at=NOW - 3600):
        """A pool whose profile an operator of version 0.1.0 wrote."""
        pool = Pool()
        pool.look(history(days or self.DAYS))
        status = pool.status | {"days": pool.ledger["status"]["days"], "historyTime": moment(at)}
        return Pool(pool.body | {"status": status})

    def decided(self, pool, told=OUTAGE, *, refused=False):
        decision = decide(pool._snapshot(told, ()), SETTINGS)
        if decision.ledger is not None and not refused:
            pool.ledger = ledger_after(decision)
        if decision.status is not None:
            pool.body = applied(pool.body, decision)
        pool.now += 1000.0
        return decision

    def test_the_ledger_is_written_first_and_the_days_leave_the_status_when_it_stands(self):
        pool = self.old()
        before, rows = pool.stands.days, pool.rows
        decision = self.decided(pool)
        assert pool.ledger["status"]["days"] == decision.status["days"], "both stand for a moment"
        assert decision.requeue_after <= 2.0
        assert "days" not in self.decided(pool).status
        assert (pool.stands.days, pool.rows) == (before, rows)
        assert decide(pool._snapshot(OUTAGE, ()), SETTINGS).is_silent

    def test_days_stay_where_they_are_while_no_ledger_can_be_written(self):
        pool = self.old()
        before = pool.stands.days
        for _ in range(3):
            assert self.decided(pool, refused=True).ledger is not None
        assert (pool.stands.days, len(pool.status["days"])) == (before, len(before))

    def test_what_an_older_operator_writes_beside_the_ledger_is_added_each_day_once(self):
        """A rollback for three days: it begins anew with what its server knows, and newer days are
        its own.
        """
        pool = self.old()
        self.decided(pool)
        self.decided(pool)
        later = told([(NOW + DAY, "pod")], NOW - 2 * DAY, NOW + 3 * DAY)
        pool.body["status"] |= {"days": ledger.written(later), "historyTime": moment(NOW + 3 * DAY)}
        pool.now = NOW + 3 * DAY + 1000
        since = sum(at >= NOW + 3 * DAY - WINDOW - DAY for at, _ in PAST)
        for _ in range(2):
            self.decided(pool)
        assert "days" not in pool.status
        assert sum(failures(pool.stands.days, WINDOW).values()) == pytest.approx(since + 1, abs=1)
        assert len({(one.date, one.witness) for one in pool.stands.days}) == len(pool.stands.days)

    def test_the_ledger_of_an_earlier_profile_of_the_name_is_not_its_own(self):
        pool = Pool()
        pool.look(history(self.DAYS))
        pool.ledger["metadata"]["ownerReferences"] = [{"uid": "another"}]
        assert pool.stands.days == ()

    def test_a_node_that_goes_and_comes_writes_no_ledger(self):
        pool = Pool()
        pool.look(history(self.DAYS))
        fewer = replace(
            pool._snapshot(history(self.DAYS), ()),
            node_count=NodeCount(total=NODES, ready=NODES - 1),
        )
        decision = decide(fewer, SETTINGS)
        assert decision.status is not None
        assert decision.ledger is None
        assert len(json.dumps(decision.status)) < 4096 < len(json.dumps(pool.ledger["status"]))


def test_a_new_operator_knows_the_days_and_a_ledger_that_somebody_deletes_is_written_again():
    world = World()
    world.put(CLUSTER_PROFILE, profile(ready=None))
    key, book = Key(CLUSTER_PROFILE, "", "east"), ledger_of("east")
    world.due |= world.store.set_history("east", history(told(PAST, NOW - WINDOW, NOW)))
    world.rest()
    days = world.store.profile("east").days
    assert len(days) == 31
    assert world.restarted().profile("east").days == days
    assert world.restarted().snapshot(key, NOW).profile.days == days
    world.now += SETTINGS.quiet
    world.drop(book)
    assert world.due == {key}
    assert world.store.profile("east").days == ()
    world.rest()
    assert world.store.profile("east").days == days
