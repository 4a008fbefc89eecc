"""Records after_observations from look to look: steps as samples show them, pods as kube-state-metrics does,
and a restart in between.
"""

import pytest
from timed import recoveries

from mofa_model.annotations import RECORD
from mofa_model.kinds import JOB_SET, TRAIN_JOB
from mofa_operator.keys import TRAINING_JOB
from mofa_operator.objects import live
from mofa_operator.observe.jobs.pods import Pod, gang
from mofa_operator.observe.jobs.run_record import ettr, from_text, interruptions, lost
from mofa_operator.observe.progress.run_records import RunRecords, after_observations
from mofa_operator.observe.progress.telemetry import FinishedStep, Telemetry, path_of
from mofa_operator.snapshot import Running

JOB = ("ml", "llama")
STEP, SCRAPE, SAVE = 2.0, 5.0, 10
DAY = {"metadata": {"namespace": "ml", "name": "llama", "uid": "1"}}
LLAMA = live(TRAINING_JOB, DAY)


def pod(slot, created, *, attempt="0", restarts=0, **more):
    return Pod(
        job_name=JOB,
        attempt=attempt,
        slot=str(slot),
        node=f"n{slot}",
        created=created,
        restarts=restarts,
        **more,
    )


class Training:
    """Steps of 2 s, a checkpoint every 10; an interruption falls back to the last one."""

    def __init__(self, *stops):
        self.stops = stops

    def step(self, now):
        base, since = 0, 0.0
        for at, seconds in self.stops:
            if now < at:
                break
            reached = base + int((at - since) / STEP)
            if now < at + seconds:
                return reached
            base, since = reached - reached % SAVE, at + seconds
        return base + int((now - since) / STEP)

    def path(self, start, end, look=1.0):
        grid = [start + look * n for n in range(int((end - start) / look) + 1)]
        sampled = [(at, SCRAPE * (at // SCRAPE)) for at in grid]
        return path_of([(at, float(self.step(moment))) for at, moment in sampled], sampled)


def follow(training, pods_at, end, every=15.0):
    """Looks every so often; what pods say is known a scrape later."""
    life, now = None, every
    while now <= end:
        pods, ends = pods_at(SCRAPE * (now // SCRAPE))
        told = gang(pods, ends).observation
        life = after_observations(
            life, [told], training.path(max(0.0, now - 60.0), now), now, step_seconds=STEP
        )
        now += every
    return life


TRUTH = {
    "process": lambda at, now: ({"a": pod(0, 0.0, restarts=int(now > at)), "b": pod(1, 0.0)}, {"a": at} if now > at else {}),
    "pod": lambda at, now: ({"a": pod(0, 0.0), "b": pod(1, 0.0)} | ({"c": pod(1, at + 2.0)} if now > at + 2 else {}), {}),
    "job": lambda at, now: (
        {"a": pod(0, 0.0)} | ({"c": pod(0, at + 2.0, attempt="1")} if now > at + 2 else {}), {}),
}  # fmt: skip


@pytest.mark.parametrize("level", TRUTH)
def test_one_interruption_of_each_class_is_counted_once_and_timed_to_the_distance_of_samples(level):
    at, took = 203.0, 40.0
    life = follow(Training((at, took)), lambda now: TRUTH[level](at, now), 600.0)
    assert interruptions(life) == {(level, "failure"): 1}
    number, seconds = recoveries(life)[level]
    redone = (at // STEP % SAVE) * STEP
    assert number == 1
    assert seconds == pytest.approx(took, abs=SCRAPE + STEP)
    assert sum(lost(life, 600.0).values()) == pytest.approx(took + redone, abs=2 * SCRAPE + STEP)
    assert ettr(life, 600.0) == pytest.approx((600 - took - redone) / 600, abs=0.03)


@pytest.mark.parametrize(
    ("made_room", "cause"),
    [({"preempted": True, "made_room": True}, "preemption"), ({"made_room": True}, "eviction")],
)
def test_a_pod_that_made_room_gives_its_cause_to_what_replaces_it(made_room, cause):
    told = gang({"a": pod(0, 0.0, **made_room), "b": pod(0, 100.0)}, {}).observation
    assert [(sign.at, sign.recovery_class, sign.cause) for sign in told.signs] == [
        (100.0, "pod", cause)
    ]


def test_only_what_ended_an_attempt_gives_its_cause_to_the_next_one():
    pods = {
        "a": pod(0, 0.0, preempted=True, made_room=True),
        "b": pod(0, 50.0),
        "c": pod(0, 100.0, attempt="1"),
    }
    assert [
        (sign.at, sign.recovery_class, sign.cause) for sign in gang(pods, {}).observation.signs
    ] == [
        (50.0, "pod", "preemption"),
        (100.0, "job", ""),
    ]
    del pods["b"]
    assert [sign.cause for sign in gang(pods, {}).observation.signs] == ["preemption"]


def test_a_node_that_is_lost_is_a_failure_that_a_new_pod_recovers():
    training, life = Training((203.0, 60.0)), None
    for now in range(15, 601, 15):
        pods = {"a": pod(0, 0.0)} | ({"b": pod(0, 240.0)} if now > 240 else {})
        lost_at = (205.0,) if 205 < now < 500 else ()
        life = after_observations(life, [gang(pods, {}).observation], training.path(max(0.0, now - 60.0), float(now)), now,
                       step_seconds=STEP, nodes_lost=lost_at)  # fmt: skip
    assert interruptions(life) == {("pod", "failure"): 1}


def test_restarts_that_nobody_dates_are_counted_between_two_looks():
    assert gang({"a": pod(0, 0.0, restarts=2)}, {}).observation.counters["Pod.restarts"].value == 2
    assert not gang({"a": pod(0, 0.0, restarts=2)}, {"a": 50.0}).observation.counters.keys() & {
        "Pod.restarts"
    }


@pytest.mark.parametrize("version", ["this", "0.1.0"])
def test_after_a_restart_of_the_operator_a_life_goes_on_from_what_stands_on_its_job(version):
    training = Training((203.0, 40.0))

    def after(lives, body, now):
        pods, ends = TRUTH["pod"](203.0, now)
        look = Telemetry(
            running=Running(source="mofa", step_seconds=STEP),
            finished_steps=training.path(max(0.0, now - 60.0), now),
            gang=gang(pods, ends),
        )
        return lives.after(live(TRAINING_JOB, body), None, look, now)

    lives, told = RunRecords(lambda _: ""), None
    for now in range(15, 301, 15):
        told = after(lives, DAY, float(now))
    again = RunRecords(lambda _: "")
    body = (
        DAY | {"status": {"observed": {"life": told.record}}}
        if version == "0.1.0"
        else {"metadata": DAY["metadata"] | {"annotations": {RECORD: told.record}}}
    )
    for now in range(315, 601, 15):
        told = after(again, body, float(now))
    assert told.interruptions == {("pod", "failure"): 1}
    assert from_text(told.record).since < 15.0
    assert told.ettr == pytest.approx((600 - 42) / 600, abs=0.03)


def test_a_first_look_that_is_coarser_than_the_next_ones_makes_no_interruption():
    training, lives = Training(), RunRecords(lambda _: "")
    for now in range(300, 361, 5):
        path = training.path(
            0.0 if now == 300 else now - 60.0, float(now), 20.0 if now == 300 else 1.0
        )
        told = lives.after(
            LLAMA,
            None,
            Telemetry(running=Running(source="mofa", step_seconds=STEP), finished_steps=path),
            float(now),
        )
    assert told.interruptions == {}
    assert told.step == training.step(360.0)


def test_a_job_that_ran_before_us_brings_the_time_that_its_series_still_know():
    told = Running(source="mofa", step_seconds=STEP, step=5000, ettr=0.9, since=1000.0)
    life = from_text(
        RunRecords(lambda _: "")
        .after(
            LLAMA,
            None,
            Telemetry(running=told, finished_steps=(FinishedStep(9990.0, 5000, 9995.0),)),
            11_000.0,
        )
        .record
    )
    assert (life.since, life.effective, life.step) == (1000.0, 9000.0, 5000)
    assert interruptions(life) == {}


def test_what_a_train_jobs_trainer_reports_needs_no_prometheus():
    metrics = [{"name": "tokens_per_second", "value": "1000"}, {"name": "step", "value": "7"}]
    trainer = {"lastUpdatedTime": "1970-01-01T00:01:40Z", "metrics": metrics}
    target = live(TRAIN_JOB, {"status": {"trainerStatus": trainer}})
    lives = RunRecords(lambda _: "")
    found = lives.after(LLAMA, target, Telemetry(), 110.0)
    assert (found.source, found.tokens_per_second, found.step) == ("TrainJobStatus", 1000.0, 7)
    assert lives.after(LLAMA, target, Telemetry(), 5000.0) is None, "it has long been silent"


def test_the_ratio_is_of_the_time_in_which_a_job_neither_waited_nor_was_suspended():
    """Half an hour in the queue, ten minutes of training, half an hour suspended, ten minutes of
    training: of twenty, all.
    """
    training, lives = Training((2400.0, 1800.0)), RunRecords(lambda _: "")
    runs = [(1800.0, 2400.0), (4200.0, 4800.0)]
    for now in range(15, 4801, 15):
        is_up = any(a < now <= b for a, b in runs)
        since = "1970-01-01T00:00:00Z" if now <= 1800 else "1970-01-01T00:40:00Z"
        told = (
            [] if is_up else [{"type": "Suspended", "status": "True", "lastTransitionTime": since}]
        )
        target = live(JOB_SET, {"status": {"conditions": told}})
        path = training.path(max(1800.0, now - 60.0), float(now)) if is_up else ()
        seen = (
            Telemetry(running=Running(source="mofa", step_seconds=STEP), finished_steps=path)
            if is_up
            else Telemetry()
        )
        found = lives.after(LLAMA, target, seen, float(now))
        lives.alive(LLAMA, target, seen, found, float(now))
    assert found.ettr == pytest.approx(1.0, abs=0.04)
    assert from_text(found.record).waited == pytest.approx(3600.0, abs=60.0)


def test_what_ran_under_the_same_name_before_the_job_was_made_is_not_of_its_time():
    """Series since 0 s tell of a job that was deleted; the object of this one was made at 7,000 s,
    and so its time begins with it.
    """
    told = Telemetry(
        running=Running(source="mofa", since=0.0, ettr=0.5, step=100, step_seconds=2.0)
    )
    for made, since in (("1970-01-01T01:56:40Z", 7200.0), ("1970-01-01T00:00:00Z", 0.0)):
        records = RunRecords(lambda _: "")
        body = {
            "metadata": {"namespace": "ml", "name": "llama", "uid": "2", "creationTimestamp": made}
        }
        found = records.after(LLAMA, live(JOB_SET, body), told, 7200.0)
        assert from_text(found.record).since == since, made
