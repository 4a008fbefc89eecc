"""What is undone is put back at once; a fight costs fewer and fewer writes, and news never wait."""

import dataclasses
import itertools

from mofa_model.kinds import JOB_SET
from mofa_operator.act.retries import RewriteBackoff
from mofa_operator.decision import Decision, Note, Release
from mofa_operator.keys import TRAINING_JOB, Key

JOB = Key(TRAINING_JOB, "ns", "a")
SET = Key(JOB_SET, "ns", "js")
RIGHT = {
    "advisor.mofa.dev/strategy": "tp=8",
    "advisor.mofa.dev/computed-at": "2026-01-01T00:00:00Z",
}


def decided(hold=RIGHT, status=None, **more):
    return Decision(key=JOB, uid="1", hold=hold, status=status, **more)


def fought(undone, seconds, decision=None, step=0.01):
    """When it is written, where somebody undoes it at once for so long."""
    times, now = [], 0.0
    while now < seconds:
        if undone.wait(decision or decided(), now) == 0:
            undone.wrote(decision or decided(), now)
            times.append(now)
        now += step
    return times


def test_what_is_undone_for_the_first_time_is_put_back_at_once():
    undone = RewriteBackoff(1.0, 300.0)
    assert undone.wait(decided(), 0.0) == 0.0
    undone.wrote(decided(), 0.0)
    assert undone.wait(decided(), 0.001) == 0.0


def test_a_fight_costs_writes_at_distances_that_double():
    times = fought(RewriteBackoff(1.0, 300.0), 40.0)
    assert [round(at) for at in times] == [0, 0, 1, 3, 7, 15, 31]


def test_a_fight_for_a_day_costs_a_write_in_five_minutes():
    times = fought(RewriteBackoff(1.0, 300.0), 86400.0, step=1.0)
    assert len(times) < 86400 / 300 + 12
    assert max(after - before for before, after in itertools.pairwise(times)) <= 301


def test_what_stood_for_long_is_put_back_at_once_again():
    undone = RewriteBackoff(1.0, 300.0)
    last = fought(undone, 100.0)[-1]
    assert undone.wait(decided(), last + 10.0) > 0
    undone.wrote(decided(), last + 601.0)
    assert undone.wait(decided(), last + 602.0) == 0.0


def test_news_never_wait():
    undone = RewriteBackoff(1.0, 300.0)
    fought(undone, 20.0)
    assert undone.wait(decided(), 20.0) > 0
    assert undone.wait(decided({**RIGHT, "advisor.mofa.dev/strategy": "tp=4"}), 20.0) == 0.0
    assert undone.wait(decided(RIGHT, {"health": "Drifting"}), 20.0) == 0.0
    assert undone.wait(dataclasses.replace(decided(), key=SET), 20.0) == 0.0
    later = Decision(key=JOB, uid="2", hold=RIGHT)
    assert undone.wait(later, 20.0) == 0.0, "another object of the same name"


def test_a_job_that_waits_at_our_gate_never_waits_for_this():
    undone = RewriteBackoff(1.0, 300.0)
    fought(undone, 20.0)
    release = Release(key=JOB, uid="1", note=Note(reason="GateReleased", message=""))
    assert undone.wait(decided(release=release), 20.0) == 0.0


def test_moments_make_nothing_new():
    undone, now = RewriteBackoff(1.0, 300.0), 0.0
    for second in range(8):
        moment = f"2026-01-01T00:00:0{second}Z"
        told = {
            "conditions": [{"type": "Ready", "lastTransitionTime": moment}],
            "computedTime": moment,
        }
        status = decided({**RIGHT, "advisor.mofa.dev/computed-at": moment}, told)
        now += undone.wait(status, now)
        undone.wrote(status, now)
    assert now == 1 + 2 + 4 + 8 + 16 + 32


def test_removals_that_are_undone_wait_as_well():
    times = fought(RewriteBackoff(1.0, 300.0), 40.0, decided({}))
    assert len(times) == 7


def test_who_is_gone_is_forgotten():
    undone = RewriteBackoff(1.0, 300.0)
    fought(undone, 20.0)
    undone.forget(JOB)
    assert undone.wait(decided(), 20.0) == 0.0
