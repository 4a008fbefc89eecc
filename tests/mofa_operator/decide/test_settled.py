"""What stands needs no search: an answer is read back from its object, and what running jobs teach
is taken over where it matters.
"""

from __future__ import annotations

import copy

import pytest
from operator_objects import (
    QUICK,
    SETTINGS,
    World,
    counted,
    job_set,
    node,
    policy,
    profile,
    ref,
    training_job,
)

from mofa_model.annotations import PREFIX
from mofa_model.kinds import JOB_SET
from mofa_operator.decide.answer import answer, unsearched
from mofa_operator.decide.stored_answer import as_answered, matters, read_answer
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, NODE, TRAINING_JOB, Key

EAST = Key(CLUSTER_PROFILE, "", "east")
BAD = {"training": {"tokens": "1T", "sequenceLength": 0, "globalBatchSize": 64}}
TIGHT = {"constraints": {**QUICK, "tp": {"values": [1]}}, "model": {"preset": "llama3.1-405b"}}
JOBS = {
    "plain": {},
    "of a trainer": {"training": {"tokens": "1T", "sequenceLength": 4096, "globalBatchSize": 64, "framework": "megatron"}},
    "beside today's": {"current": {"strategy": "tp=8,dp=2"}},
    "without room": TIGHT,
    "not understood": BAD,
    "with an objective": {"slo": {"ettr": "0.9"}},
    "in mode Apply": {"mode": "Apply"},
}  # fmt: skip
"""TrainingJobs of every outcome."""


def pool(*names):
    """A pool with nodes, and some of the jobs, each settled."""
    made = World()
    for name in "mnop":
        made.put(NODE, node(name))
    made.put(CLUSTER_PROFILE, profile(failures=counted()))
    for name in names:
        body = training_job(name.replace(" ", "-").replace("'", ""), **copy.deepcopy(JOBS[name]))
        made.put(TRAINING_JOB, body)
    return made.rest()


def world():
    """The same with jobs of every outcome, and JobSets that are advised by themselves and by
    a TrainingJob.
    """
    made = pool(*JOBS)
    made.put(JOB_SET, job_set("told"))
    made.put(
        TRAINING_JOB, training_job("about", targetRef=ref(made.bodies[Key(JOB_SET, "ns", "told")]))
    )
    made.put(ADVISOR_POLICY, policy(profile="east"))
    made.put(JOB_SET, job_set("own"))
    return made.rest()


def jobs_of(made):
    return [key for key in made.bodies if key.kind in (TRAINING_JOB, JOB_SET)]


def anew(made):
    """What an operator that starts now decides of every job; how many searches that took."""
    store, before = made.restarted(), made.model.searches
    decisions = {key: made.decide(key, store) for key in jobs_of(made)}
    return decisions, made.model.searches - before


def test_a_restart_with_settled_jobs_of_every_outcome_searches_and_writes_nothing():
    made = world()
    decisions, searches = anew(made)
    assert len(decisions) == len(JOBS) + 3
    assert {str(key): one for key, one in decisions.items() if not one.is_silent} == {}
    assert searches == 0


def test_what_is_read_back_decides_as_a_search_does():
    made = world()
    before = {key: made.decide(key) for key in jobs_of(made)}
    made.model.known = answer
    for key in jobs_of(made):
        fresh, read = made.decide(key), before[key]
        assert fresh.is_silent, key
        assert (read.outcome, read.digest) == (fresh.outcome, fresh.digest)
        if fresh.figures is None:
            continue
        assert read.figures.strategy == fresh.figures.strategy
        assert read.figures.profile == fresh.figures.profile
        assert read.figures.checkpoint_interval == fresh.figures.checkpoint_interval
        of_status = key.kind == TRAINING_JOB  # the annotation of an existing job has four digits
        for one, other in (
            *(
                (getattr(read.figures.predicted[name], end), getattr(band, end))
                for name, band in fresh.figures.predicted.items()
                for end in ("lower", "target", "upper")
            ),
            (read.figures.chances.fits, fresh.figures.chances.fits),
        ):
            assert one == (other if of_status or other is None else pytest.approx(other, rel=2e-3))


def test_an_answer_that_is_read_back_has_what_a_launch_needs():
    made = world()
    key = Key(TRAINING_JOB, "ns", "of-a-trainer")
    snapshot = made.store.snapshot(key, made.now)
    read, fresh = read_answer(snapshot, unsearched(snapshot.question)), answer(snapshot.question)
    assert read.arguments == fresh.arguments != ()
    assert (read.trainer, read.framework_version, read.caveats) == (
        fresh.trainer,
        fresh.framework_version,
        ("; ".join(fresh.caveats),),
    )
    assert read.annotations == fresh.annotations
    assert read.status == fresh.status


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body["metadata"]["annotations"].pop(f"{PREFIX}strategy"),
        lambda body: body["metadata"]["annotations"].pop(f"{PREFIX}probability-of-fitting"),
        lambda body: body["metadata"]["annotations"].update({f"{PREFIX}inputs-hash": "other"}),
        lambda body: body["metadata"]["annotations"].update({f"{PREFIX}recommendation": "{"}),
        lambda body: body["metadata"]["managedFields"][0].update({"manager": "kubectl-edit"}),
        lambda body: body["metadata"]["managedFields"].append(
            {"manager": "k", "fieldsV1": {"f:status": {}}}
        ),
        lambda body: body["status"]["recommendation"]["predicted"].pop("memoryBytes"),
        lambda body: body["status"].update({"inputsHash": "other"}),
        lambda body: body["status"]["conditions"].pop(0),
        lambda body: body["spec"]["training"].update({"globalBatchSize": 128}),
    ],
)
def test_what_is_not_whole_or_of_another_hand_or_another_question_is_searched_for_and_put_right(
    damage,
):
    made = pool("plain")
    key = Key(TRAINING_JOB, "ns", "plain")
    was = made.model.searches
    damage(made.bodies[key])
    store = made.restarted()
    assert not made.decide(key, store).is_silent or made.model.searches > was
    assert made.model.searches == was + 1


def test_a_job_set_that_somebody_touched_is_searched_for():
    made = world()
    key = Key(JOB_SET, "ns", "own")
    was = made.model.searches
    del made.bodies[key]["metadata"]["annotations"][f"{PREFIX}predicted-ettr"]
    (write,) = made.decide(key, made.restarted()).annotate
    assert f"{PREFIX}predicted-ettr" in write.hold
    assert made.model.searches == was + 1


def taught(made, **calibration):
    """The profile's status says that running jobs taught something."""
    made.edit(EAST, lambda body: body["status"].update(calibration={"jobs": 3, **calibration}))


def test_a_small_move_of_what_jobs_teach_writes_the_profile_alone_and_is_asked_once():
    made = world()
    before = made.writes, made.model.searches
    taught(made, stepTimeRatio="1.02", memoryRatio="1.01", memorySpread="0.30")
    made.rest()
    assert made.writes == before[0] + 1, "the profile says that every job was asked"
    assert made.bodies[EAST]["status"]["calibration"]["asked"] == "1.02 1.01 0.30"
    assert made.model.searches > before[1], "it was asked"
    decisions, searches = anew(made)
    assert {str(key): one for key, one in decisions.items() if not one.is_silent} == {}
    assert searches == 0, "and a restart does not ask again"


def test_before_every_job_was_asked_a_restart_asks_the_rest():
    made = world()
    taught(made, stepTimeRatio="1.02")
    decisions, searches = anew(made)
    assert searches > 0
    assert all(one.is_silent for one in decisions.values())


def test_small_moves_add_up_until_the_interval_has_moved_and_then_the_job_takes_them_over():
    made = pool("plain")
    key, steps = Key(TRAINING_JOB, "ns", "plain"), f"{PREFIX}checkpoint-interval-steps"
    first, moves = int(made.bodies[key]["metadata"]["annotations"][steps]), 0
    for percent in range(2, 22, 2):
        taught(made, stepTimeRatio=f"1.{percent:02}")
        made.rest()
        now = int(made.bodies[key]["metadata"]["annotations"][steps])
        moves += now != first
        assert now == first or abs(now - first) >= SETTINGS.material * first
        if now != first:
            assert made.bodies[key]["status"]["inputs"]["learned"] == f"1.{percent:02}"
        first = now
    assert 1 <= moves <= 4, "five percent and more at a time"


def test_a_new_job_is_asked_with_what_is_known_now():
    made = pool("plain")
    taught(made, stepTimeRatio="1.02", asked="1.02")
    made.rest()
    made.put(TRAINING_JOB, training_job("new"))
    made.rest()
    assert made.bodies[Key(TRAINING_JOB, "ns", "new")]["status"]["inputs"]["learned"] == "1.02"
    assert "learned" not in made.bodies[Key(TRAINING_JOB, "ns", "plain")]["status"]["inputs"]
    assert anew(made)[1] == 0


def test_an_existing_job_says_with_what_it_was_answered():
    made = world()
    taught(made, stepTimeRatio="1.30", memoryRatio="1.10", memorySpread="0.30")
    made.rest()
    job = made.store.live(Key(JOB_SET, "ns", "own"))
    assert (
        '"learned":{"step":1.3,"memory":1.1,"spread":0.3}'
        in job.annotations[f"{PREFIX}recommendation"]
    )
    snapshot = made.store.snapshot(job.key, made.now)
    assert (
        unsearched(as_answered(snapshot.question, job)).digest
        == job.annotations[f"{PREFIX}inputs-hash"]
    )
    assert anew(made)[1] == 0


def test_another_strategy_matters_however_little_else_moves():
    made = pool("plain", "without room")
    key = Key(TRAINING_JOB, "ns", "plain")
    known = answer(made.store.snapshot(key, made.now).question)
    other = answer(made.store.snapshot(Key(TRAINING_JOB, "ns", "without-room"), made.now).question)
    assert not matters(known, known, SETTINGS.material)
    assert matters(known, other, SETTINGS.material)
