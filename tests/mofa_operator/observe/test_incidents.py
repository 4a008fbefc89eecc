"""Incidents are counted once, in one class, and planned ones not at all: the traps of counting pods, one by one."""

from itertools import pairwise

import pytest

from mofa_operator.observe.facts import Pod, StretchFacts
from mofa_operator.observe.incidents import incidents
from mofa_operator.observe.stalls import Edges, timed
from mofa_operator.observe.stretches import Stretch, stretches
from mofa_operator.recent import Recent

JOB = ("research", "llama")
START, DAY = 1_000_000.0, 86400.0
NODES = frozenset({"a", "b", "c"})


def pod(slot=0, attempt=0, at=START - DAY, node="a", first=0, restarts=0, **more):
    return Pod(
        job=JOB, attempt=str(attempt), slot=str(slot), node=node, created=at, first=first, restarts=restarts, **more
    )  # fmt: skip


def count(*pods, restarted=(), sampled=60.0):
    stretch = StretchFacts(
        stretch=Stretch(START, START + DAY),
        covered=DAY,
        nodes=NODES,
        present={},
        ready={},
        failures={},
        pods={f"uid-{number}": one for number, one in enumerate(pods)},
        restarted={JOB: tuple(restarted)} if restarted else {},
        sampled=sampled,
    )
    return incidents([stretch], NODES)


def counts(found):
    return {name: len(one) for name, one in found.by_class.items()}


def test_a_gang_that_restarts_three_times_had_three_incidents_not_six():
    gang = [pod(slot=n, restarts=3) for n in range(2)]
    found = count(*gang, restarted=[START + at for at in (3000, 3300, 20000, 20300, 50000)])
    assert counts(found) == {"process": 3, "pod": 0, "job": 0}


def test_a_counter_that_was_born_above_zero_counts_its_first_restart():
    gang = [pod(slot=n, at=START + 600, first=1, restarts=3) for n in range(2)]
    assert counts(count(*gang, restarted=[START + 20000, START + 50000]))["process"] == 3


def test_restarts_before_the_window_are_not_of_the_window():
    assert counts(count(pod(first=7, restarts=7)))["process"] == 0
    assert counts(count(pod(first=7, restarts=8), restarted=[START + 9000]))["process"] == 1


def test_a_crash_loop_within_ten_minutes_is_one_incident():
    assert (
        counts(count(pod(restarts=5), restarted=[START + 9000, START + 9300, START + 9600]))["process"] == 1
    )


def test_with_samples_too_far_apart_the_busiest_slot_counts():
    found = count(pod(slot=0, restarts=4), pod(slot=1, restarts=2), sampled=3600.0)
    assert counts(found)["process"] == 4


def test_without_restart_counters_the_class_is_unknown():
    assert set(counts(count(pod(first=None, restarts=None)))) == {"pod", "job"}


def test_a_replaced_pod_is_one_incident_of_class_pod():
    found = count(pod(slot=0), pod(slot=1), pod(slot=1, at=START + 5000))
    assert counts(found) == {"process": 0, "pod": 1, "job": 0}
    assert found.by_class["pod"] == ((JOB, START + 5000),)


def test_pods_that_are_replaced_together_are_one_incident_and_apart_two():
    def replaced(later):
        return count(
            *(pod(slot=n) for n in range(3)),
            pod(slot=0, at=START + 5000),
            pod(slot=1, at=START + 5000 + later),
        )

    together, apart = replaced(30), replaced(3600)
    assert counts(together)["pod"] == 1
    assert counts(apart)["pod"] == 2


def test_others_that_restart_while_a_pod_is_replaced_are_not_counted_again():
    found = count(
        pod(slot=0, restarts=1),
        pod(slot=1),
        pod(slot=1, at=START + 5000),
        restarted=[START + 5100, START + 5400],
    )
    assert counts(found) == {"process": 0, "pod": 1, "job": 0}


def test_a_new_attempt_is_one_incident_of_class_job_however_many_pods():
    found = count(*(pod(slot=n, attempt=k, at=START + 20000 * k) for n in range(3) for k in range(3)))
    assert counts(found) == {"process": 0, "pod": 0, "job": 2}


def test_an_attempt_too_short_to_be_sampled_still_counts():
    assert counts(count(pod(attempt=3), pod(attempt=5, at=START + 9000)))["job"] == 2


def test_a_kind_without_attempts_that_replaces_all_its_pods_at_once_was_restarted_as_a_job():
    def of_kind(slot, at):
        return Pod(job=JOB, attempt="", slot=str(slot), node="a", created=at, first=0, restarts=0)

    old = [of_kind(n, START) for n in range(3)]
    assert counts(count(*old, *(of_kind(n, START + 9000 + n) for n in range(3)))) == {
        "process": 0, "pod": 0, "job": 1,
    }  # fmt: skip
    assert counts(count(*old, of_kind(1, START + 9000)))["pod"] == 1


def test_what_made_room_did_not_fail():
    assert counts(count(pod(made_room=True), pod(at=START + 9000)))["pod"] == 0
    assert counts(count(pod(made_room=True), pod(attempt=1, at=START + 9000)))["job"] == 0


def test_pods_on_nodes_of_another_pool_are_not_ours():
    found = count(pod(), pod(at=START + 9000, node="elsewhere"))
    assert (counts(found)["pod"], found.pods) == (0, 1)


def test_pods_whose_nodes_nobody_knows_cannot_be_placed():
    assert not count(pod(node="")).placed


def test_a_stall_belongs_to_the_incident_beside_it_even_over_a_seam():
    found = count(pod(slot=0), pod(slot=0, at=START + 5001))
    edges = [
        Edges(job=JOB, stopped=(START + 1000, START + 5000), resumed=(START + 1400,), step=20.0),
        Edges(job=JOB, stopped=(), resumed=(START + 5300,), step=20.0),
    ]
    assert {name: [took for _, took in every] for name, every in timed(found, edges).items()} == {
        "pod": [290.0]
    }


@pytest.mark.parametrize("window", [3600, 86400, 30 * 86400, 120 * 86400])
@pytest.mark.parametrize("nodes", [1, 256, 20_000])
def test_stretches_cover_the_window_once_and_their_seams_stand_still(window, nodes):
    now = 1_795_000_123.0
    found = stretches(now, window, nodes, 7 * DAY)
    assert now - 300 < found[-1].end <= now
    assert window <= found[-1].end - found[0].start + 300 <= 1.03 * window + 900
    assert all(a.end == b.start for a, b in pairwise(found))
    assert all(one.span <= (7 * DAY if nodes <= 256 else DAY) for one in found)
    later = stretches(now + 60, window, nodes, 7 * DAY)
    assert set(found[1:-1]) <= set(later)


def test_what_is_unused_longest_is_forgotten():
    recent = Recent(most=2)
    recent["a"], recent["b"] = 1, 2
    assert recent["a"] == 1
    recent["c"] = 3
    assert ("a" in recent, "b" in recent, "c" in recent) == (True, False, True)
