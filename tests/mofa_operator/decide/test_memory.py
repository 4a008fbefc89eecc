"""Device memory that is seen beside what was predicted: in the status, as a condition, as limits of
an alert.
"""

import dataclasses

import pytest
from operator_objects import NOW, SETTINGS, World, key_of, profile, training_job

from mofa_model.units import GIB, Range
from mofa_operator.decide.answer import answer
from mofa_operator.decide.observation import limits, memory_found
from mofa_operator.decision import Answer
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB
from mofa_operator.objects import ObservedFigures
from mofa_operator.snapshot import Alive, Running

ROOM, DEVICE = 75 * GIB, 80 * GIB
JOB = key_of(TRAINING_JOB, training_job())


def told(low, target, high):
    """An answer with a prediction. [GiB]"""
    return Answer(
        digest="d", outcome="Recommended", explanation="", annotations={}, status={},
        predicted={"memory_bytes": Range(lower=low * GIB, target=target * GIB, upper=high * GIB)}, device_bytes=DEVICE, room_bytes=ROOM,
    )  # fmt: skip


WITHIN = told(50, 60, 68)


def shown(seen, source="Device"):
    """What a status shows. [GiB]"""
    return (
        ObservedFigures(memory_bytes=None, memory_source="")
        if seen is None
        else ObservedFigures.model_validate({"memoryBytes": seen * GIB, "memorySource": source})
    )


@pytest.mark.parametrize(
    "seen, given, state, reason, said",
    [
        (
            61,
            WITHIN,
            "True",
            "WithinBand",
            "61.0 GiB are in use, 60.0 GiB predicted (50.0 GiB to 68.0 GiB)",
        ),
        (69, WITHIN, "False", "OutsideBand", "69.0 GiB are in use"),
        (40, WITHIN, "False", "OutsideBand", "40.0 GiB are in use"),
        (72, WITHIN, "False", "ShortOfMemory", "slows a run before it fails"),
        (78, told(60, 76, 90), "False", "RunsAnyway", "it runs: the model is wrong here"),
        (None, told(60, 76, 90), "False", "RunsAnyway", "cannot fit in 75.0 GiB, and it runs"),
        (90, WITHIN, "False", "Implausible", "a device has 80.0 GiB; it teaches nothing"),
        (
            0,
            WITHIN,
            "False",
            "Implausible",
            "a device that trains holds something; it teaches nothing",
        ),
        (None, WITHIN, "Unknown", "NoObservation", "no series tells the device memory of its pods"),
        (
            60,
            dataclasses.replace(WITHIN, predicted={}),
            "Unknown",
            "Observed",
            "there is no prediction",
        ),
    ],
)
def test_what_is_seen_is_judged_in_plain_words(seen, given, state, reason, said):
    found = memory_found(shown(seen), given)
    assert (found.state, found.reason) == (state, reason)
    assert said in found.message


@pytest.mark.parametrize(
    "seen, reason", [(40, "WithinBand"), (69, "OutsideBand"), (72, "ShortOfMemory")]
)
def test_what_an_allocator_reserved_is_held_against_the_upper_ends_alone(seen, reason):
    found = memory_found(shown(seen, "Allocator"), WITHIN)
    assert found.reason == reason
    assert f"{seen:.1f} GiB are reserved by its allocator" in found.message


def test_the_limits_are_the_end_of_the_band_and_where_allocators_retry():
    found = limits(Running(source="mofa", memory_bytes=61 * GIB), WITHIN)
    assert found == {"prediction": 68 * GIB, "device": pytest.approx(0.93 * ROOM)}
    assert limits(None, WITHIN) == {}
    assert limits(Running(source="mofa"), WITHIN) == {}, "nobody sees its memory"
    assert limits(Running(source="mofa", memory_bytes=90 * GIB), WITHIN) == {}, "nor can it be"


def world(**spec):
    made = World()
    made.put(CLUSTER_PROFILE, profile())
    made.put(TRAINING_JOB, training_job(**spec))
    return made.rest()


def running(memory):
    return Running(
        source="mofa",
        tokens_per_second=115_000.0,
        since=NOW - 3600.0,
        memory_bytes=memory,
        whole_device=True,
    )


def look(made, seen):
    made.due |= made.store.set_running(
        JOB, seen, Alive(at=made.now, since=NOW - 3600.0, watched=True)
    )
    return made.rest()


def test_a_running_job_shows_its_memory_to_three_digits_beside_the_prediction():
    made = world()
    assert made.condition(JOB, "MemoryAccurate") == ("Unknown", "NotRunning")
    target = made.status(JOB)["recommendation"]["predicted"]["memoryBytes"]["target"]
    look(made, running(1.0123456 * target))
    status = made.status(JOB)
    assert status["observed"]["memoryBytes"] == pytest.approx(1.0123456 * target, rel=5e-3)
    assert len(str(status["observed"]["memoryBytes"]).rstrip("0")) <= 3
    assert status["observed"]["memorySource"] == "Device"
    assert made.condition(JOB, "MemoryAccurate") == ("True", "WithinBand")
    figures = made.decide(JOB).figures
    assert figures.running.memory_bytes == 1.0123456 * target
    assert figures.memory_limits.keys() == {"prediction", "device"}
    look(made, running(None))
    made.now += SETTINGS.quiet
    look(made, running(None))
    assert made.condition(JOB, "MemoryAccurate") == ("Unknown", "NoObservation")


def test_a_job_whose_devices_hold_more_than_they_have_is_not_called_healthy():
    """The page said Healthy above "85.3 GiB are in use … that cannot be: a device has 79.6"."""
    made = world()
    target = made.status(JOB)["recommendation"]["predicted"]["memoryBytes"]["target"]
    look(made, running(target))
    assert made.status(JOB)["health"] == "Healthy"
    made.now += SETTINGS.quiet
    look(made, running(85.3 * GIB))
    assert made.condition(JOB, "MemoryAccurate") == ("False", "Implausible")
    assert made.status(JOB)["health"] == "Drifting"


def test_a_layout_that_cannot_fit_and_runs_is_the_models_error():
    one = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "dp": 16, "mbs": 4}
    made = world(current={"strategy": ",".join(f"{name}={size}" for name, size in one.items())})
    (question,) = [made.store.snapshot(JOB, NOW).question]
    given = answer(question)
    assert "by the model it needs" in given.status["current"]["reason"]
    look(made, running(70 * GIB))
    assert made.condition(JOB, "MemoryAccurate") == ("False", "RunsAnyway")
    (found,) = [one for one in made.status(JOB)["conditions"] if one["type"] == "MemoryAccurate"]
    assert "70.0 GiB are in use" in found["message"]
    assert "the model is wrong here" in found["message"]
