"""A past is replayed through alternatives: each gain can be computed by hand, and what is nothing
is said to be nothing.
"""

from dataclasses import replace

import numpy as np
import pytest

from mofa_model.reliability.lemon_nodes import clustering, lemons
from mofa_model.reliability.remedies import (
    Hit,
    RemedySettings,
    waits_for_nodes,
    what_would_help,
)
from mofa_model.spec.account import NodeState, NodeTime
from mofa_model.spec.recovery_plans import plans_of
from mofa_model.spec.standstills import NodeOutage, PoolPast, Standstill

DAY, HOUR, MINUTE = 86400.0, 3600.0, 60.0
STOP = Standstill(
    job="ml/x",
    at=10 * DAY,
    cause="hang",
    holds=4,
    trained=5 * HOUR,
    unnoticed=2 * HOUR,
    ending=60.0,
    queued=20.0,
    starting=100.0,
    loading=220.0,
    lost_work=30 * MINUTE,
)


def past(stops, outages=(), days=70):
    kept, stood = 5 * days * 0.8, 5 * days * 0.2
    return PoolPast(
        begin=0.0,
        end=days * DAY,
        account=(
            NodeTime(state=NodeState.KEPT, cause="", node_days=kept, job="ml/x"),
            NodeTime(state=NodeState.RESTARTING, cause="hang", node_days=stood, job="ml/x"),
            NodeTime(state=NodeState.IDLE, cause="no-job", node_days=days),
        ),
        standstills=tuple(stops),
        outages=tuple(outages),
        watched={f"n{number}": float(days) for number in range(6)},
    )


def gains(found):
    return {one.name: one.gain.target for one in found.remedies}


ONE = RemedySettings(gpus_per_node=1)


def test_a_watchdog_of_five_minutes_gains_115_minutes_of_four_nodes_at_four_fifths():
    found = gains(what_would_help(past([STOP]), ONE))
    assert found["a watchdog of 5 min"] == pytest.approx(115 / 60 * 4 * 0.8)
    assert found["a watchdog of 30 min"] == pytest.approx(90 / 60 * 4 * 0.8)


def test_an_interval_of_ten_minutes_after_five_hours_loses_nothing_and_gains_half_an_hour_of_four_nodes():
    found = gains(what_would_help(past([STOP]), ONE))
    assert found["a save every 10 min"] == pytest.approx(2.0)
    again = gains(what_would_help(past([replace(STOP, trained=5 * HOUR + 420)]), ONE))
    assert again["a save every 10 min"] == pytest.approx(4 * (30 - 7) / 60)


def test_more_saves_cost_what_a_save_stops_training_for():
    """2 x 30 min is the interval now: 280 node-days kept, 24 saves a day of 20 s become 144."""
    free = what_would_help(past([STOP]), ONE)
    paid = what_would_help(past([STOP]), replace(ONE, save=20.0))
    name = "a save every 10 min"
    assert gains(free)[name] - gains(paid)[name] == pytest.approx(280 * 24 * 20 / 3600 * 5)


def test_a_restart_in_place_helps_a_crash_and_not_a_hang():
    crash = replace(STOP, cause="process-crash", unnoticed=2.0)
    for hang in (STOP, replace(STOP, faulty=("n1",))):  # whose node broke while it hung
        assert gains(what_would_help(past([hang]), ONE))["restart in place"] == 0.0
    found = gains(what_would_help(past([crash]), ONE))["restart in place"]
    assert found == pytest.approx((20 + 100 - 12) / 3600 * 4 * 0.8)


def test_a_broken_node_keeps_its_pod_until_it_is_cordoned_so_a_restart_in_place_loses():
    broken = replace(STOP, cause="nic", unnoticed=600.0, faulty=("n1",))
    outage = NodeOutage(node="n1", at=10 * DAY, seconds=4 * HOUR, cause="nic", in_use=1500.0)
    found = gains(what_would_help(past([broken], [outage]), ONE))["restart in place"]
    assert found == pytest.approx((600 + 60 + 20 - 1500) / 3600 * 4 * 0.8)


def test_replicas_gain_only_what_machines_did():
    sure = replace(STOP, cause="process-crash", unnoticed=0.0)
    doubtful = replace(sure, machines=0.5)
    name = "recovery replica by replica, 2 a job"
    whole, half = (gains(what_would_help(past([one]), ONE))[name] for one in (sure, doubtful))
    assert whole == pytest.approx(((400 - 20) * 0.8 / 2 + 1800) / 3600 * 4)
    assert half == pytest.approx(whole / 2)


def test_one_standstill_is_not_told_apart_from_nothing_and_forty_are():
    one = what_would_help(past([STOP]), ONE)
    name = "a watchdog of 5 min"
    assert not next(each for each in one.remedies if each.name == name).excludes_zero
    many = [replace(STOP, at=(1 + number * 1.7) * DAY) for number in range(40)]
    found = next(each for each in what_would_help(past(many), ONE).remedies if each.name == name)
    assert found.excludes_zero
    assert 0.6 < found.gain.lower / found.gain.target < 0.9


def test_effective_gpu_hours_are_280_of_420_node_days():
    found = what_would_help(past([STOP]), ONE)
    assert (found.paid, found.effective) == (pytest.approx(420 * 24), pytest.approx(280 * 24))
    assert found.effective_share == pytest.approx(2 / 3)


def test_a_job_that_misses_two_nodes_waits_once():
    outages = [
        NodeOutage(node="a", at=0.0, seconds=HOUR, cause="reboot"),
        NodeOutage(node="b", at=600.0, seconds=HOUR, cause="reboot"),
    ]
    hits = [Hit(outage=one, job="x", missed_by=4) for one in outages]
    assert sum(waits_for_nodes(hits, 0)) == 4 * (HOUR + 600)
    assert sum(waits_for_nodes(hits, 1)) == 4 * (HOUR - 600)
    assert sum(waits_for_nodes(hits, 2)) == 0


def test_failures_that_come_in_clusters_make_no_lemon():
    """Six failures of one node in one fortnight are one bad repair; one every fortnight is
    a lemon.
    """
    steady, clustered = np.zeros((20, 10)), np.zeros((20, 10))
    steady[3], clustered[3, 4] = 1.0, 10.0
    for number in (5, 7, 9):
        steady[number, number] = clustered[number, number] = 1.0
    days = np.full(20, 140.0)
    assert lemons(steady.sum(axis=1), days) == [3]
    spread = clustering(clustered)
    assert spread == pytest.approx(10.0)
    assert lemons(clustered.sum(axis=1) / spread, days / spread) == []


def test_an_empty_past_gains_nothing():
    found = what_would_help(past([]), ONE)
    assert all(one.gain.target == 0 for one in found.remedies)
    assert not any(one.excludes_zero for one in found.remedies)


def test_two_plans_together_gain_less_than_each_alone_where_they_shorten_the_same_time():
    """A node breaks after two hours unnoticed: the watchdog saves 110 minutes, the spare 380 s
    of 400.
    """
    broken = replace(STOP, cause="nic", faulty=("n1",))
    both = gains(
        what_would_help(
            past([broken]), replace(ONE, plans=plans_of(("stand-in+classes:watchdog=10min",)))
        )
    )["a watchdog of 10 min + 2 nodes standing by, taking over in 20 s"]
    assert both == pytest.approx((110 * 60 + 380) / 3600 * 4 * 0.8)


def test_one_spare_takes_over_once_until_it_is_refilled():
    first = replace(STOP, cause="nic", unnoticed=0.0, faulty=("n1",), at=DAY)
    soon, later = (replace(first, at=DAY + hours * HOUR) for hours in (2, 5))
    found = what_would_help(
        past([first, soon, later]), replace(ONE, plans=plans_of(("stand-in:spares=1:refill=4h",)))
    )
    told = next(one for one in found.remedies if "standing by" in one.name)
    assert told.gain.target == pytest.approx(2 * 380 / 3600 * 4 * 0.8)
    assert told.standstills == 2
    assert told.paid == pytest.approx(70 * 24)


def test_a_stated_time_of_a_restart_in_place_stands_before_the_pool_s_own():
    crash = replace(STOP, cause="process-crash", unnoticed=0.0)
    found = what_would_help(past([crash]), replace(ONE, plans=plans_of(("in-place:attempt=100s",))))
    assert gains(found)["restart in place"] == pytest.approx((340 - 100) / 3600 * 4 * 0.8)
