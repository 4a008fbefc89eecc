"""How a running job does, in one word: told by when its next step is due, the first
one included.
"""

import pytest
from operator_objects import NOW, World, job_set, profile, training_job

from mofa_model.kinds import JOB_SET
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import Alive, Running

JOB = Key(TRAINING_JOB, "ns", "a")
LOOP = LoopSettings()
START = LOOP.start_least + LOOP.stuck_least


@pytest.fixture
def world():
    made = World()
    made.put(CLUSTER_PROFILE, profile())
    made.put(TRAINING_JOB, training_job())
    made.rest()
    return made


def see(world, running=None, key=JOB, **alive):
    """One look; `alive` is what it showed of a job that is there, relative to the beginning."""
    told = None
    if alive:
        moments = {
            name: NOW + value for name, value in alive.items() if name in {"at", "since", "step_at"}
        }
        told = Alive(
            watched=alive.get("watched", True), step_seconds=alive.get("step_seconds"), **moments
        )
        world.now = NOW + alive["at"]
    world.due |= world.store.set_running(key, running, told)
    world.rest()
    return world.status(key).get("health", "")


def seen(world, share=1.0, **more):
    """Throughput as a share of what is predicted."""
    tokens = world.decide(JOB).figures.predicted["tokens_per_second"].target
    return Running(source="mofa", tokens_per_second=share * tokens, step=7, **more)


def test_a_job_that_does_not_run_has_no_health(world):
    assert see(world) == ""
    assert world.condition(JOB, "PredictionAccurate") == ("Unknown", "NotRunning")
    assert world.decide(JOB).figures.step_due is None


def test_a_job_without_a_first_step_starts_and_then_is_stuck_for_as_long_as_that_lasts(world):
    assert see(world, at=60, since=0) == ""
    assert world.condition(JOB, "PredictionAccurate") == ("Unknown", "Starting")
    assert world.decide(JOB).figures.step_due == NOW + START
    assert see(world, at=START, since=0) == ""
    assert see(world, at=START + 1, since=0) == "Stuck"
    assert world.condition(JOB, "PredictionAccurate") == ("False", "Stuck")
    assert world.condition(JOB, "Ready")[0] == "True", "the advice is as good as before"
    writes = world.writes
    assert see(world, at=16 * 3600, since=0) == "Stuck"
    assert world.writes == writes, "that it lasts is no news"


def test_a_job_whose_trainer_nobody_sees_is_not_called_stuck(world):
    assert see(world, at=START, since=0, watched=False) == ""
    assert see(world, at=START + 1, since=0, watched=False) == "NotSeen"
    assert world.condition(JOB, "ObservationAvailable") == ("False", "NotSeen")
    assert world.decide(JOB).figures.step_due is None, "no alert can rest on what nobody sees"


def test_steps_that_advance_are_healthy_and_off_the_band_drifting(world):
    assert see(world, seen(world), at=10, since=0, step_at=9) == "Healthy"
    assert world.decide(JOB).figures.step_due == NOW + 9 + LOOP.stuck_least
    assert see(world, seen(world, 0.5), at=700, since=0, step_at=699) == "Drifting"
    assert (
        see(world, Running(source="mofa", step=9), at=1400, since=0, step_at=1399) == "Healthy"
    ), "at an unknown speed"


def test_a_job_that_stands_still_is_stuck_while_it_still_counts_as_seen_and_after(world):
    running = seen(world)
    assert see(world, running, at=10, since=0, step_at=10) == "Healthy"
    assert see(world, running, at=10 + LOOP.stuck_least, since=0, step_at=10) == "Healthy"
    assert see(world, running, at=11 + LOOP.stuck_least, since=0, step_at=10) == "Stuck"
    assert world.status(JOB)["observed"]["tokensPerSecond"], "what it did, stands"
    assert see(world, None, at=3600, since=0, step_at=10) == "Stuck"
    assert see(world, seen(world), at=4000, since=0, step_at=3999) == "Healthy"


def test_five_steps_as_predicted_or_as_observed_whichever_is_longer(world):
    slow = seen(world, step_seconds=200.0)
    assert see(world, slow, at=1000, since=0, step_at=0, step_seconds=200.0) == "Healthy"
    assert see(world, slow, at=1001, since=0, step_at=0, step_seconds=200.0) == "Stuck"


def test_a_job_that_was_resumed_has_the_time_of_a_start_again(world):
    assert see(world, at=5000, since=4900, step_at=1000) == ""
    assert see(world, at=4900 + START + 1, since=4900, step_at=1000) == "Stuck"


def test_a_trainer_that_counts_no_steps_is_awaited_once_and_then_trains_while_it_has_a_speed(world):
    tokens_only = Running(source="megatron", tokens_per_second=seen(world).tokens_per_second)
    assert see(world, tokens_only, at=90000, since=0) == "Healthy"
    assert world.decide(JOB).figures.step_due is None
    assert see(world, at=90060, since=0) == "Stuck"


def test_while_nobody_looks_no_step_is_missed(world):
    see(world, seen(world), at=10, since=0, step_at=10)
    world.now = NOW + 7200
    assert world.decide(JOB).is_silent
    assert world.status(JOB)["health"] == "Healthy"


def test_a_long_recovery_of_the_whole_job_makes_for_a_long_start(world):
    slow = profile()
    slow["spec"]["failures"]["classes"][2]["recoverySeconds"] = 1800
    world.put(CLUSTER_PROFILE, slow)
    world.rest()
    assert see(world, at=3 * 1800 + 300, since=0) == ""
    assert see(world, at=3 * 1800 + 301, since=0) == "Stuck"


def test_what_a_training_job_is_about_does_as_it_does(world):
    about = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js"}
    world.put(JOB_SET, job_set("js"))
    world.put(TRAINING_JOB, training_job(targetRef=about))
    world.rest()
    see(world, at=START + 1, since=0)
    figures = world.decide(JOB).figures
    assert (figures.health, figures.target) == ("Stuck", Key(JOB_SET, "ns", "js"))
