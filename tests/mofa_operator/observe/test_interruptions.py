"""A job's life: one incident counts once, whatever shows of it, in whatever order, and a restart of
ours forgets nothing.
"""

import json
from collections import Counter as Counted
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timed import recoveries

from mofa_model.kinds.kind import Counter, Observation, Sign
from mofa_operator.observe.jobs.interruptions import KEPT, after_look
from mofa_operator.observe.jobs.run_record import (
    LARGEST,
    ettr,
    from_text,
    interruptions,
    lost,
    open_since,
    to_text,
)

STEP = 10.0
"""Time of a step. [s]"""


def live(*looks):
    """A life after looks: pairs of moment and observation."""
    life = None
    for now, observation in looks:
        life = after_look(life, observation, now)
    return life


def steps(step, at):
    return at, Observation(step=step, step_at=at, step_seconds=STEP)


def restarts(n, *, level="job", name="JobSet.restarts", **told):
    return Observation(counters={name: Counter(value=n, recovery_class=level)}, **told)


def sign(at, level, cause="", *, seen_at=None):
    return (at if seen_at is None else seen_at), Observation(
        signs=(Sign(at=at, recovery_class=level, cause=cause),)
    )


def test_a_node_loss_that_shows_at_every_level_is_one_interruption_of_the_class_that_recovered_it():
    life = live(
        (0, restarts(0)),
        steps(100, 1000),
        (1010, Observation(nodes_lost=(1003.0,))),
        sign(1303, "pod", "failure"),
        sign(1304, "process", "failure"),
        sign(1310, "process", "failure"),
        (1312, restarts(1)),
        steps(96, 1500),  # from the checkpoint of step 90: steps 91 to 100 again
    )
    assert interruptions(life) == {("job", "failure"): 1}
    assert recoveries(life) == {"job": (1, 500.0)}
    assert lost(life, 1500) == {"failure": 500.0 + 4 * STEP}


@pytest.mark.parametrize(
    "evidence, expected",
    [
        ([sign(1005, "process", "failure")], ("process", "failure")),
        ([sign(1005, "pod", "preemption")], ("pod", "preemption")),
        ([sign(1005, "pod", "eviction")], ("pod", "eviction")),
        ([sign(1005, "pod", "preemption"), (1008, restarts(1))], ("job", "preemption")),
        ([(1008, restarts(1))], ("job", "failure")),
        ([(1008, Observation(suspended=1006.0))], ("job", "eviction")),
        ([], ("process", "failure")),  # steps go back, and nothing else is seen
    ],
)
def test_each_class_and_cause_is_counted_with_its_recovery(evidence, expected):
    life = live(
        (0, restarts(0)),
        steps(99, 990),
        steps(100, 1000),
        *evidence,
        steps(98, 1141),
        steps(105, 1211),
    )
    assert interruptions(life) == {expected: 1}
    assert recoveries(life) == {expected[0]: (1, 141.0)}
    assert lost(life, 1211) == {expected[1]: 141.0 + 2 * STEP}


def test_the_last_step_before_an_incident_may_be_noticed_after_it_and_ends_nothing():
    life = live(
        steps(99, 990),
        sign(1002, "process", "failure"),
        steps(100, 1001),  # a sample later
        sign(1002, "process", "failure", seen_at=1010),
        steps(95, 1101),
        sign(1002, "process", "failure", seen_at=1120),
    )
    assert interruptions(life) == {("process", "failure"): 1}
    assert recoveries(life) == {"process": (1, 100.0)}, (
        "from step 100, at 1001, to the first one after it"
    )


def test_a_step_of_the_second_in_which_a_container_ended_ends_nothing():
    life = live(
        (0, restarts(0)),
        steps(100, 1010),
        sign(1020, "process", "failure"),  # at 1020.7, as Kubernetes dates it
        steps(101, 1020.2),
        steps(97, 1030.2),
    )
    assert interruptions(life) == {("process", "failure"): 1}
    assert recoveries(life) == {"process": (1, pytest.approx(10.0))}


def test_incidents_with_progress_between_them_are_two():
    life = live(
        steps(1, 10),
        sign(12, "pod", "failure"),
        steps(2, 100),
        sign(105, "process", "failure"),
        steps(3, 150),
    )
    assert interruptions(life) == {("pod", "failure"): 1, ("process", "failure"): 1}
    assert recoveries(life) == {"pod": (1, 80.0), "process": (1, 40.0)}


def test_what_an_objects_own_counter_counts_is_exact_even_after_a_long_absence():
    life = live(
        (0, restarts(2)),
        (10, Observation()),
        sign(7200, "pod", "preemption", seen_at=18000),
        sign(14400, "pod", "failure", seen_at=18000),
        (18000, restarts(5)),
    )
    assert interruptions(life) == {("job", "preemption"): 1, ("job", "failure"): 2}
    assert life.earlier == {"job": 2}


def test_signs_that_come_after_the_counter_find_its_incidents():
    late = live(
        (0, restarts(0)), (18000, restarts(2)), sign(7200, "pod", "preemption", seen_at=18001)
    )
    late = after_look(
        late, Observation(signs=(Sign(at=14400.0, recovery_class="pod", cause="failure"),)), 18002
    )
    assert interruptions(late) == {("job", "preemption"): 1, ("job", "failure"): 1}


def test_a_count_over_pods_is_one_incident_for_many_pods():
    def look(n):
        return Observation(
            counters={"JobSet.jobRestarts": Counter(value=n, recovery_class="pod", exact=False)}
        )

    assert interruptions(live((0, look(0)), (60, look(8)), (61, look(16)))) == {
        ("pod", "failure"): 1
    }


def test_without_steps_readiness_ends_a_recovery():
    life = live(
        (0, restarts(0, ready=True)),
        sign(100, "pod", "failure"),
        (101, restarts(0, ready=False)),
        (103, restarts(1, ready=False)),
        (900, restarts(1, ready=False)),
    )
    assert open_since(life) == 100
    life = after_look(life, restarts(1, ready=True), 1000)
    assert interruptions(life) == {("job", "failure"): 1}
    assert recoveries(life) == {"job": (1, 900.0)}
    assert open_since(life) is None


def test_a_loss_of_readiness_counts_only_where_the_kind_has_no_counter():
    flap = [(0, True), (100, False), (160, True)]
    silent = live(*((at, restarts(0, ready=ready)) for at, ready in flap))
    told = live(*((at, Observation(ready=ready, drop="pod")) for at, ready in flap))
    assert interruptions(silent) == {}
    assert interruptions(told) == {("pod", "failure"): 1}
    assert recoveries(told) == {"pod": (1, 60.0)}


def test_a_lost_node_that_costs_nothing_is_no_interruption():
    looks = [
        (at, Observation(step=at // 10, step_at=float(at), nodes_lost=(100.0,)))
        for at in range(0, 900, 60)
    ]
    assert interruptions(live(*looks)) == {}


def test_a_suspended_job_that_never_ran_was_not_interrupted():
    assert (
        interruptions(live((0, Observation(suspended=0.0)), (60, Observation(suspended=0.0)))) == {}
    )


def test_pods_that_fail_after_the_job_was_done_do_not_count():
    life = live(steps(1, 10), (20, Observation(ended=15.0)), sign(18, "pod", "failure", seen_at=21))
    assert interruptions(life) == {}


def test_effective_time_counts_every_step_once():
    # 100 steps of 10 s, 300 s of recovery, 20 steps again: 1000 / 1500
    life = live(steps(0, 0), steps(60, 600), (610, restarts(0)), steps(41, 911), steps(100, 1500))
    assert ettr(life, 1500) == pytest.approx(1000 / 1500)
    assert lost(life, 1500)["failure"] == pytest.approx(311 + 19 * STEP)


def test_a_job_that_was_joined_late_has_a_lower_bound_and_no_history():
    life = live((5000, restarts(3)), steps(400, 5100), steps(410, 5200))
    assert interruptions(life) == {}
    assert life.earlier == {"job": 3}
    assert ettr(life, 5200) == pytest.approx(100 / 200)


def test_nothing_is_known_of_a_job_that_shows_nothing():
    life = live((0, Observation()), (60, Observation()))
    assert ettr(life, 60) is None
    assert lost(life, 60) == {}
    assert interruptions(life) == {}


LEVELS = ("process", "pod", "job")


@st.composite
def stories(draw):
    """What truly happened, and all that was seen of it: a run with interruptions of every class,
    cause and appearance.
    """
    looks, truth, at, step, n = [(0.0, restarts(0)), steps(0, 1.0)], [], 1.0, 0, 0
    for _ in range(draw(st.integers(0, 5))):
        for _ in range(draw(st.integers(2, 4))):
            at, step = at + STEP, step + 1
            looks += [steps(step, at), (at, restarts(n))]
        level = draw(st.sampled_from(LEVELS))
        cause = draw(st.sampled_from(("failure", "preemption", "eviction")))
        began = at + draw(st.integers(3, 9))
        shown = [(began, level)]
        shown += [
            (began + draw(st.integers(0, 250)), low)
            for low in LEVELS[: LEVELS.index(level) + 1]
            for _ in range(draw(st.integers(0, 2)))
        ]
        for moment, low in shown:
            looks.append(sign(moment, low, cause, seen_at=moment + draw(st.integers(0, 5))))
        if level == "job":
            n += 1
            looks.append((began + draw(st.integers(0, 250)), restarts(n)))
        at, step = began + draw(st.integers(260, 600)), step - draw(st.integers(0, min(step, 2)))
        looks += [steps(step, at), (at, restarts(n))]
        truth.append((level, cause, began))
    return sorted(looks, key=lambda look: look[0]), truth


def counted(truth):
    return dict(Counted((level, cause) for level, cause, _ in truth))


@given(stories())
def test_the_count_is_the_truth(story):
    looks, truth = story
    assert interruptions(live(*looks)) == counted(truth)


@given(stories(), st.data())
def test_looks_that_come_twice_change_nothing(story, data):
    looks, truth = story
    again = list(looks)
    for _ in range(data.draw(st.integers(1, 10))):
        index = data.draw(st.integers(0, len(again) - 1))
        again.insert(data.draw(st.integers(index + 1, len(again))), again[index])
    assert interruptions(live(*again)) == counted(truth)


@given(stories(), st.randoms(use_true_random=False))
def test_the_looks_at_an_incident_may_come_in_any_order(story, random):
    looks, truth = story
    groups = {}
    for look in looks:
        groups.setdefault(sum(began <= look[0] for *_, began in truth), []).append(look)
    for group in groups.values():
        random.shuffle(group)
    life = live(*(look for _, group in sorted(groups.items()) for look in group))
    assert sum(interruptions(life).values()) == len(truth)


@given(stories(), st.data())
def test_looks_that_come_a_little_late_change_no_count(story, data):
    looks, truth = story
    late = sorted(
        looks[1:], key=lambda look: look[0] + (data.draw(st.integers(0, 8)) if look[1].signs else 0)
    )
    assert sum(interruptions(live(looks[0], *late)).values()) == len(truth)


@given(stories(), st.data())
def test_a_restart_of_ours_at_any_point_changes_nothing(story, data):
    looks, _ = story
    cut = data.draw(st.integers(1, len(looks)))
    kept = from_text(to_text(live(*looks[:cut])))
    assert kept == live(*looks[:cut])
    life = kept
    for now, observation in looks[cut:]:
        life = after_look(life, observation, now)
    assert life == live(*looks)
    assert len(to_text(life)) < LARGEST / 2


@given(stories())
def test_time_is_effective_or_lost_and_never_both(story):
    looks, _ = story
    life, end = live(*looks), looks[-1][0]
    whole = ettr(life, end)
    assert whole is None or 0 <= whole <= 1
    assert life.effective + sum(lost(life, end).values()) <= end + 2 * STEP * len(looks)


@given(st.one_of(st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(("v", "since", "marks", "incidents", "earlier", "lost")), inner))
    .map(json.dumps)))  # fmt: skip
def test_a_text_that_is_not_ours_is_no_life(text):
    life = from_text(text)
    assert life is None or from_text(to_text(life)) == life


def test_a_text_from_another_version_is_no_life():
    told = json.loads(to_text(live(steps(1, 10))))
    assert from_text(json.dumps(told)) is not None
    assert from_text(json.dumps({**told, "v": 2})) is None
    assert from_text(json.dumps({**told, "incidents": [{"low": 1, "level": "galaxy"}]})) is None


def test_many_incidents_are_kept_as_sums():
    life = live((0, restarts(0)), steps(0, 1))
    for n in range(1, 101):
        life = after_look(life, restarts(n), 100.0 * n)
        life = after_look(
            life, Observation(step=n, step_at=100.0 * n + 50, step_seconds=STEP), 100.0 * n + 50
        )
    assert interruptions(life) == {("job", "failure"): 100}
    assert recoveries(life)["job"][0] == 100
    assert len(life.incidents) == KEPT
    assert replace(life, incidents=()).older.counts == {("job", "failure"): 100 - KEPT}
