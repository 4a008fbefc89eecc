"""Decisions about jobs: explicit outcomes, written once, at most one Event, and nothing where
nothing changed.
"""

import copy
import json

import pytest
from operator_objects import (
    NOW,
    SETTINGS,
    World,
    job_set,
    key_of,
    policy,
    profile,
    ref,
    remembered,
    training_job,
    why_ready,
)

from mofa_model.annotations import OUTPUTS, PREFIX
from mofa_model.kinds import JOB_SET
from mofa_operator.decide.answer import FOUND, answer
from mofa_operator.decide.job import failed, job, refused
from mofa_operator.decide.policy import needs_answer
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.snapshot import Running
from mofa_operator.words import OF_JOBS

EAST = Key(CLUSTER_PROFILE, "", "east")
JOB = Key(TRAINING_JOB, "ns", "a")
SET = Key(JOB_SET, "ns", "js")
COUNTED = [
    {"name": "pod", "failures": 40, "exposureNodeDays": "8000", "verdict": "HigherThanAssumed"}
]
HISTORY = {
    "type": "HistoryComplete",
    "status": "True",
    "reason": "Complete",
    "message": "97 % of 30 days",
}


@pytest.fixture
def world():
    """A profile with history, as it stands after a while; its own decisions are another test's."""
    made = World()
    pool = profile(failures=COUNTED)
    pool["status"]["conditions"] = [HISTORY]
    made.put(CLUSTER_PROFILE, pool)
    made.due.clear()
    return made


def advised(world, *bodies):
    """Put jobs, and do what is decided about them."""
    for body in bodies:
        world.put(JOB_SET if body["kind"] == "JobSet" else TRAINING_JOB, body)
    world.due = {key for key in world.due if key.kind != CLUSTER_PROFILE}
    return world.rest()


class TestFirstAdvice:
    def test_it_costs_two_writes_and_one_event(self, world):
        advised(world, training_job())
        assert world.writes == 1  # one object, annotations and status together here
        decision = World.decide(world, JOB)
        assert decision.is_silent
        assert [note.reason for note in world.notes] == ["Recommended"]
        assert set(world.ours(JOB)) == {name.removeprefix(PREFIX) for name in OUTPUTS}

    def test_all_six_conditions_are_set_on_the_first_visit(self, world):
        advised(world, training_job())
        found = world.status(JOB)["conditions"]
        assert [one["type"] for one in found] == list(OF_JOBS)
        assert {one["observedGeneration"] for one in found} == {1}
        assert world.condition(JOB, "Ready") == ("True", "Recommended")
        assert world.condition(JOB, "ModelValid") == ("True", "Understood")
        assert world.condition(JOB, "ConfidenceSufficient") == ("True", "Sufficient")
        assert world.condition(JOB, "ObservationAvailable") == ("Unknown", "NotRunning")
        assert world.condition(JOB, "PredictionAccurate") == ("Unknown", "NotRunning")

    def test_columns_and_inputs_are_filled(self, world):
        advised(world, training_job())
        status = world.status(JOB)
        assert why_ready(status) == "Recommended"
        assert status["inputs"]["nodes"] == 2
        assert status["observedGeneration"] == 1
        verdicts = {row["name"]: row.get("verdict") for row in status["inputs"]["failure"]}
        assert verdicts == {"process": None, "pod": "HigherThanAssumed", "job": None}

    def test_figures_are_exported(self, world):
        advised(world, training_job(slo={"ettr": "0.90"}))
        figures = world.decide(JOB).figures
        assert (figures.profile, figures.objective_ettr) == ("east", 0.9)
        assert figures.predicted["ettr"].target > 0.9

    def test_status_and_annotations_tell_the_same_moment(self, world):
        advised(world, training_job())
        assert (
            world.status(JOB)["computedTime"]
            == world.ours(JOB)["computed-at"]
            == "2023-11-14T22:13:20Z"
        )


class TestHistoryCondition:
    def test_it_mirrors_the_profile(self, world):
        advised(world, training_job())
        assert world.condition(JOB, "HistoryComplete") == ("True", "Complete")
        outage = HISTORY | {
            "status": "False",
            "reason": "HistoryUnavailable",
            "message": "no route to host",
        }
        before = copy.deepcopy(world.bodies[JOB])
        world.now += 60
        world.edit(EAST, lambda body: body["status"].update(conditions=[outage]))
        world.due.discard(EAST)
        world.rest()
        assert world.condition(JOB, "HistoryComplete") == ("False", "HistoryUnavailable")
        after = world.bodies[JOB]
        assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
        for name in ("recommendation", "inputsHash", "computedTime"):
            assert after["status"][name] == before["status"][name]
        assert [note.reason for note in world.notes] == ["Recommended"]

    def test_a_profile_that_was_never_read_is_unknown(self, world):
        world.edit(EAST, lambda body: body["status"].pop("conditions"))
        advised(world, training_job())
        assert world.condition(JOB, "HistoryComplete") == ("Unknown", "HistoryUnavailable")


class TestOutcomes:
    @pytest.mark.parametrize(
        "spec, status, reason, ready, event",
        [
            (
                {"model": {"preset": "llama-99"}},
                "InvalidInput",
                "InvalidInput",
                "False",
                "InvalidInput",
            ),
            (
                {"cluster": {"profile": "no"}},
                "InvalidInput",
                "ProfileMissing",
                "False",
                "ProfileProposed",
            ),
            (
                {"model": {"preset": "llama3.1-405b"}},
                "NoRecommendation",
                "NoFeasibleLayout",
                "False",
                "NoFeasibleLayout",
            ),
            (
                {"cluster": {"profile": "east", "nodes": 8}},
                "LowConfidence",
                "LowConfidence",
                "True",
                "LowConfidence",
            ),
        ],
    )
    def test_every_job_has_an_explicit_outcome(self, world, spec, status, reason, ready, event):
        advised(world, training_job(**spec))
        assert world.ours(JOB)["status"] == status
        assert world.condition(JOB, "Ready") == (ready, reason)
        assert why_ready(world.status(JOB)) == reason
        assert [note.reason for note in world.notes] == [event]

    def test_an_invalid_model_is_said_where_it_is(self, world):
        advised(world, training_job(model={"preset": "llama-99"}))
        assert world.condition(JOB, "ModelValid") == ("False", "InvalidInput")
        assert world.condition(JOB, "ConfidenceSufficient") == ("Unknown", "InvalidInput")
        assert "recommendation" not in world.status(JOB)

    def test_fewer_ready_nodes_say_so_in_ready_and_confidence(self, world):
        advised(world, training_job(nodes=8))
        for one in world.status(JOB)["conditions"]:
            if one["type"] in {"Ready", "ConfidenceSufficient"}:
                assert "fewer nodes are ready than are asked for" in one["message"]

    def test_mostly_assumed_rates_are_advised_and_marked(self, world):
        world.edit(EAST, lambda body: body["status"].update(failures=[]))
        advised(world, training_job())
        assert world.condition(JOB, "Ready") == ("True", "PriorDominated")
        assert world.condition(JOB, "ConfidenceSufficient") == ("False", "PriorDominated")

    def test_a_job_that_comes_before_its_profile_is_advised_when_that_comes(self):
        world = World()
        advised(world, training_job())
        assert world.condition(JOB, "Ready") == ("False", "ProfileMissing")
        world.put(CLUSTER_PROFILE, profile())
        world.due.discard(EAST)
        world.rest()
        assert world.ours(JOB)["status"] == "Recommended"
        assert [note.reason for note in world.notes] == ["ProfileProposed", "Recommended"]


class TestChange:
    def test_another_question_is_answered_anew_and_the_change_is_told(self, world):
        advised(world, training_job())
        before = world.ours(JOB)
        world.now += 3600
        world.edit(JOB, lambda body: body["spec"]["cluster"].update(nodes=4))
        world.rest()
        after = world.ours(JOB)
        assert after["inputs-hash"] != before["inputs-hash"]
        assert after["computed-at"] == "2023-11-14T23:13:20Z"
        note = world.notes[-1]
        assert note.reason == "RecommendationChanged"
        assert f"from {before['strategy']} to {after['strategy']}" in note.message

    def test_a_new_hash_with_the_same_advice_is_written_but_is_no_event(self, world):
        """A percent of headroom where much is free: another question, the same answer."""
        advised(world, training_job())
        before = world.ours(JOB)
        world.edit(JOB, lambda body: body["spec"]["constraints"].update(memoryHeadroomPercent=1))
        world.rest()
        after = world.ours(JOB)
        assert after["inputs-hash"] != before["inputs-hash"]
        assert after["strategy"] == before["strategy"]
        assert [note.reason for note in world.notes] == ["Recommended"]

    def test_where_nothing_ever_fails_an_interval_without_end_is_no_change(self):
        """The status holds ten years at most, the annotation all of it."""
        world = World()
        world.put(CLUSTER_PROFILE, profile(rates=("0", "0", "0")))
        advised(world, training_job())
        assert world.status(JOB)["recommendation"]["checkpointIntervalSeconds"] == 10 * 365 * 86400
        world.edit(JOB, lambda body: body["spec"]["constraints"].update(memoryHeadroomPercent=1))
        world.rest()
        assert [note.reason for note in world.notes if note.reason != "HistoryUnavailable"] == [
            "Recommended"
        ]

    def test_times_of_conditions_stay_while_their_status_does(self, world):
        advised(world, training_job())
        world.now += 3600
        world.edit(JOB, lambda body: body["spec"]["cluster"].update(nodes=4))
        world.rest()
        assert {one["lastTransitionTime"] for one in world.status(JOB)["conditions"]} == {
            "2023-11-14T22:13:20Z"
        }


class TestForeignAnnotations:
    def test_a_pre_annotated_job_with_the_same_hash_keeps_its_annotations(self, world):
        advised(world, training_job("b"))
        other = world.bodies[Key(TRAINING_JOB, "ns", "b")]["metadata"]["annotations"]
        stands = {**other, PREFIX + "computed-at": "2023-01-01T00:00:00Z"}
        advised(world, training_job("a", annotations=stands))
        assert world.ours(JOB)["computed-at"] == "2023-01-01T00:00:00Z"
        assert world.status(JOB)["computedTime"] == "2023-01-01T00:00:00Z"

    @pytest.mark.parametrize("name", ["inputs-hash", "strategy", "computed-at"])
    def test_one_that_is_stale_or_incomplete_is_taken_over(self, world, name):
        advised(world, training_job())
        before = world.ours(JOB)
        world.edit(JOB, lambda body: body["metadata"]["annotations"].pop(PREFIX + name))
        world.rest()
        assert world.ours(JOB) == before

    def test_keys_of_other_versions_go_when_the_answer_is_written(self, world):
        stale = {PREFIX + "inputs-hash": "old", PREFIX + "layout": "x", "team": "y"}
        advised(world, training_job(annotations=stale))
        assert "layout" not in world.ours(JOB)
        assert world.bodies[JOB]["metadata"]["annotations"]["team"] == "y"

    def test_a_tampered_status_is_put_right(self, world):
        advised(world, training_job())
        before = world.status(JOB)
        world.edit(JOB, lambda body: body["status"].update(inputsHash="mine", recommendation={}))
        world.rest()
        assert world.status(JOB)["recommendation"] == before["recommendation"]


class TestOverwritten:
    def overwrite(self, world, name, value="wrong", key=JOB):
        world.edit(key, lambda body: body["metadata"]["annotations"].update({PREFIX + name: value}))

    @pytest.mark.parametrize("name", [name.removeprefix(PREFIX) for name in OUTPUTS])
    def test_a_value_that_somebody_changed_is_put_back_and_said_once(self, world, name):
        advised(world, training_job())
        right = world.ours(JOB)
        self.overwrite(world, name)
        world.rest()
        assert world.ours(JOB) == right
        assert [note.reason for note in world.notes] == ["Recommended", "Overwritten"]
        assert f"were changed by kubectl-annotate: {name};" in world.notes[1].message

    def test_a_value_that_somebody_took_away_is_put_back_and_said(self, world):
        advised(world, training_job())
        right = world.ours(JOB)
        world.edit(JOB, lambda body: body["metadata"]["annotations"].pop(PREFIX + "strategy"))
        world.rest()
        assert world.ours(JOB) == right
        assert "were changed: strategy;" in world.notes[1].message

    def test_equal_changes_are_one_event_and_others_are_another(self, world):
        advised(world, training_job())
        for value in ("tp=1", "tp=1", "tp=2"):
            self.overwrite(world, "strategy", value)
            world.rest()
        self.overwrite(world, "status", "Fine")
        world.rest()
        episodes = [note.episode for note in world.notes if note.reason == "Overwritten"]
        assert len(episodes) == 4
        assert len(set(episodes)) == 2

    def test_on_the_target_of_a_job_it_is_put_back_as_well(self, world):
        target = job_set()
        advised(world, target, training_job(targetRef=ref(target)))
        right = world.ours(SET)
        self.overwrite(world, "strategy", key=SET)
        world.rest()
        assert world.ours(SET) == right == world.ours(JOB)
        assert world.notes[-1].reason == "Overwritten"

    def test_on_an_existing_job_it_is_put_back_as_well(self, world):
        world.put(ADVISOR_POLICY, policy())
        advised(world, job_set(annotations={PREFIX + "model": "llama3.1-8b"}))
        right = world.ours(SET)
        self.overwrite(world, "predicted-ettr", key=SET)
        world.rest()
        assert world.ours(SET) == right
        assert world.notes[-1].reason == "Overwritten"

    def test_what_we_wrote_stands_though_more_exposure_would_narrow_the_bands(self, world):
        """The hash does not cover how long a pool was watched, and while it is equal nothing
        is written.
        """
        few, many = (
            [COUNTED[0] | {"failures": failures, "exposureNodeDays": days}]
            for failures, days in ((10, "2000"), (376, "80000"))
        )
        world.edit(EAST, lambda body: body["status"].update(failures=few))
        advised(world, training_job())
        before = world.ours(JOB)
        world.edit(EAST, lambda body: body["status"].update(failures=many))
        world.due.discard(EAST)
        FOUND.clear()
        fresh = remembered(world.store.snapshot(JOB, world.now).question)
        assert fresh.digest == before["inputs-hash"]
        assert fresh.annotations[PREFIX + "recommendation"] != before["recommendation"]
        assert world.decide(JOB).annotate == ()


class TestRefused:
    WHY = "annotations are refused: PATCH x: ValidatingAdmissionPolicy 'p' denied request: no (422)"

    def test_the_status_has_the_answer_and_ready_says_who_refused(self, world):
        world.put(TRAINING_JOB, training_job())
        snapshot = world.store.snapshot(JOB, NOW)
        told = answer(snapshot.question)
        decision = refused(snapshot, told, SETTINGS, self.WHY)
        assert why_ready(decision.status) == decision.outcome == "AnnotationsRefused"
        ready = decision.status["conditions"][0]
        assert (ready["type"], ready["status"]) == ("Ready", "False")
        assert "ValidatingAdmissionPolicy 'p'" in ready["message"]
        assert decision.status["recommendation"]
        assert [(note.reason, note.warning) for note in decision.notes] == [
            ("AnnotationsRefused", True)
        ]
        assert decision.annotate == ()

    def test_it_is_written_and_said_once_and_the_answer_is_told_when_it_ends(self, world):
        world.put(TRAINING_JOB, training_job())
        snapshot = world.store.snapshot(JOB, NOW)
        told = answer(snapshot.question)
        status = dict(refused(snapshot, told, SETTINGS, self.WHY).status)
        world.edit(JOB, lambda body: body.update(status=status))
        again = refused(world.store.snapshot(JOB, NOW + 300), told, SETTINGS, self.WHY)
        assert again.is_silent
        world.due = {JOB}
        world.rest()  # nobody refuses any more
        assert world.condition(JOB, "Ready") == ("True", "Recommended")
        assert world.ours(JOB)["status"] == "Recommended"
        assert [note.reason for note in world.notes] == ["Recommended"]

    def test_an_existing_job_has_no_status_and_says_it_in_an_event(self, world):
        world.put(JOB_SET, job_set(annotations={PREFIX + "model": "llama3.1-8b"}))
        world.put(ADVISOR_POLICY, policy())
        snapshot = world.store.snapshot(SET, NOW)
        decision = refused(snapshot, answer(snapshot.question), SETTINGS, self.WHY)
        assert decision.status is None
        assert [note.reason for note in decision.notes] == ["AnnotationsRefused"]


class TestUnready:
    def unready(
        self, world, reason="NodesDiffer", message="nodes offer 4 GPUs; spec.gpusPerNode is 8"
    ):
        told = {"type": "Ready", "status": "False", "reason": reason, "message": message}
        world.edit(EAST, lambda body: body["status"].update(conditions=[HISTORY, told]))
        world.due.discard(EAST)

    def test_a_job_on_a_profile_that_is_not_ready_is_low_confidence_and_says_which_and_why(
        self, world
    ):
        self.unready(world)
        advised(world, training_job())
        assert world.condition(JOB, "Ready") == ("True", "LowConfidence")
        assert world.ours(JOB)["status"] == "LowConfidence"
        for one in world.status(JOB)["conditions"]:
            if one["type"] in {"Ready", "ConfidenceSufficient"}:
                assert (
                    "ClusterProfile east is not ready: NodesDiffer: nodes offer 4 GPUs"
                    in one["message"]
                )

    def test_an_advised_job_follows_its_profile_there_and_back(self, world):
        advised(world, training_job())
        before = world.ours(JOB)
        self.unready(world)
        assert JOB in world.due
        world.rest()
        assert world.condition(JOB, "Ready") == ("True", "LowConfidence")
        world.edit(EAST, lambda body: body["status"].update(conditions=[HISTORY]))
        world.due.discard(EAST)
        world.rest()
        assert world.ours(JOB) == before

    def test_when_a_profile_ceased_to_be_ready_is_no_part_of_the_question(self, world):
        self.unready(world)
        advised(world, training_job())
        told = {"type": "Ready", "status": "False", "reason": "NodesDiffer"}
        told |= {
            "message": "nodes offer 4 GPUs; spec.gpusPerNode is 8",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        world.edit(EAST, lambda body: body["status"].update(conditions=[HISTORY, told]))
        assert JOB not in world.due

    def test_an_existing_job_is_low_confidence_as_well(self, world):
        self.unready(world)
        world.put(ADVISOR_POLICY, policy())
        advised(world, job_set(annotations={PREFIX + "model": "llama3.1-8b"}))
        assert world.ours(SET)["status"] == "LowConfidence"


class TestLayoutOfAnotherSize:
    def test_it_costs_the_comparison_and_not_the_advice(self, world):
        advised(world, training_job(current={"strategy": "tp=8,pp=3"}))
        assert world.condition(JOB, "Ready") == ("True", "Recommended")
        today = world.status(JOB)["current"]
        assert today["reason"] == "tp x pp x cp = 24: it must divide the 16 devices"
        assert (today["strategy"], today["gain"], "predicted" in today) == (
            "tp=8,pp=3",
            "0.000",
            False,
        )
        assert json.loads(world.ours(JOB)["recommendation"])["current"]["reason"] == today["reason"]

    def test_a_job_that_was_made_smaller_is_advised_for_its_new_size(self, world):
        current = {
            "arguments": [
                "--tensor-model-parallel-size",
                "8",
                "--pipeline-model-parallel-size",
                "2",
            ]
        }
        advised(world, training_job(current=current))
        assert world.status(JOB)["current"]["predicted"]
        world.edit(
            JOB,
            lambda body: (
                body["spec"]["cluster"].update(nodes=1),
                body["metadata"].update(generation=2),
            ),
        )
        world.rest()
        assert world.status(JOB)["recommendation"]["summary"].startswith("tp8")
        assert "must divide the 8 devices" in world.status(JOB)["current"]["reason"]


class TestLayoutThatTodaysBeats:
    def test_condition_and_event_say_keep_what_you_run_and_neither_says_recommended(self, world):
        advised(world, training_job(current={"strategy": "tp=1,pp=1,mbs=1,optimizer=zero3"}))
        said = "keep what you run: the first choice is better with a probability of "
        assert world.condition(JOB, "Ready") == ("True", "LowConfidence")
        conditions = {one["type"]: one["message"] for one in world.status(JOB)["conditions"]}
        assert conditions["Ready"].startswith(said)
        assert conditions["Ready"].count("keep what you run") == 1
        assert conditions["ConfidenceSufficient"].startswith(said)
        (note,) = world.notes
        assert note.reason == "LowConfidence"
        assert note.message.startswith(said)
        assert float(world.status(JOB)["recommendation"]["odds"]["beats"]) < 0.5


class TestLeaving:
    def test_disabled_removes_everything_but_the_reason(self, world):
        advised(world, training_job())
        world.edit(JOB, lambda body: body["spec"].update(mode="Disabled"))
        world.rest()
        assert world.ours(JOB) == {}
        assert set(world.status(JOB)) == {"conditions", "observedGeneration"}
        assert world.condition(JOB, "Ready") == ("False", "Disabled")
        assert len(world.status(JOB)["conditions"]) == 7

    def test_once_it_is_advised_again_nothing_says_that_it_was_disabled(self, world):
        advised(world, training_job())
        before = world.status(JOB)["conditions"]
        world.edit(JOB, lambda body: body["spec"].update(mode="Disabled"))
        world.rest()
        world.edit(JOB, lambda body: body["spec"].update(mode="Annotate"))
        world.rest()
        said = [
            [(one["type"], one["reason"]) for one in each]
            for each in (before, world.status(JOB)["conditions"])
        ]
        assert said[0] == said[1]

    def test_paused_leaves_everything_as_it_stands(self, world):
        advised(world, training_job())
        world.edit(
            JOB, lambda body: body["metadata"]["annotations"].update({PREFIX + "paused": "true"})
        )
        world.edit(JOB, lambda body: body["spec"]["cluster"].update(nodes=4))
        before = copy.deepcopy(world.bodies[JOB])
        world.rest()
        assert world.bodies[JOB] == before
        assert world.decide(JOB).outcome == "Paused"

    def test_a_job_that_is_being_deleted_is_left_alone(self, world):
        world.put(TRAINING_JOB, training_job())
        world.edit(
            JOB, lambda body: body["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z")
        )
        assert world.decide(JOB).is_silent

    def test_jobs_that_need_no_answer_ask_no_model(self, world):
        world.put(JOB_SET, job_set())
        world.put(TRAINING_JOB, training_job(mode="Disabled"))
        assert not needs_answer(world.store.snapshot(SET, NOW))
        assert not needs_answer(world.store.snapshot(JOB, NOW))


class TestExistingJobs:
    def test_one_that_nobody_opted_in_is_not_touched(self, world):
        advised(world, job_set())
        assert world.writes == 0
        assert world.decide(SET).outcome == "NotAsked"

    def test_a_policy_opts_it_in_and_out(self, world):
        world.put(ADVISOR_POLICY, policy())
        advised(world, job_set())
        assert world.ours(SET)["status"] == "LowConfidence"  # its script names no model
        assert "trains the model of its policy" in world.ours(SET)["explanation"]
        assert "status" not in world.bodies[SET]
        world.drop(Key(ADVISOR_POLICY, "ns", "p"))
        world.rest()
        assert world.ours(SET) == {}

    def test_its_own_mode_counts_before_the_policys(self, world):
        world.put(ADVISOR_POLICY, policy())
        advised(
            world,
            job_set(annotations={PREFIX + "mode": "Disabled", PREFIX + "status": "Recommended"}),
        )
        assert world.ours(SET) == {}

    def test_a_mode_that_cannot_be_is_said_on_the_job(self, world):
        advised(world, job_set(annotations={PREFIX + "mode": "Apply!"}))
        assert world.ours(SET)["status"] == "InvalidInput"
        assert [note.reason for note in world.notes] == ["InvalidInput"]

    def test_a_policy_that_cannot_be_read_changes_nothing(self, world):
        world.put(ADVISOR_POLICY, policy())
        advised(world, job_set())
        before = world.ours(SET)
        world.edit(Key(ADVISOR_POLICY, "ns", "p"), lambda body: body["spec"].update(mode="Perhaps"))
        world.rest()
        assert world.ours(SET) == before


class TestTargets:
    def test_the_target_has_the_same_annotations(self, world):
        target = job_set()
        advised(world, target, training_job(targetRef=ref(target)))
        assert world.ours(SET) == world.ours(JOB)
        assert world.decide(SET).outcome == "Owned"

    def test_a_target_that_comes_late_is_annotated_then(self, world):
        target = job_set()
        advised(world, training_job(targetRef=ref(target)))
        (ready,) = [one for one in world.status(JOB)["conditions"] if one["type"] == "Ready"]
        assert (ready["status"], "there is no JobSet js here" in ready["message"]) == ("True", True)
        world.now += 600
        advised(world, target)
        assert world.ours(SET) == world.ours(JOB)
        assert "targetRef" not in str(world.status(JOB)["conditions"])
        assert [note.reason for note in world.notes] == ["Recommended"]

    def test_disabled_and_deleted_training_jobs_leave_a_clean_target(self, world):
        target = job_set()
        advised(world, target, training_job(targetRef=ref(target)))
        world.edit(JOB, lambda body: body["spec"].update(mode="Disabled"))
        world.rest()
        assert world.ours(SET) == {}
        world.edit(JOB, lambda body: body["spec"].update(mode="Annotate"))
        world.rest()
        assert world.ours(SET) != {}
        world.drop(JOB)
        world.rest()
        assert world.ours(SET) == {}

    def test_two_training_jobs_do_not_fight_over_a_target(self, world):
        target = job_set()
        first, second = (
            training_job(name, nodes=n, targetRef=ref(target)) for name, n in (("a", 2), ("b", 4))
        )
        advised(world, target, second, first)
        assert world.ours(SET) == world.ours(JOB)
        other = key_of(TRAINING_JOB, second)
        assert "TrainingJob a writes to JobSet js already" in str(world.status(other)["conditions"])
        world.drop(JOB)
        world.rest()
        assert world.ours(SET) == world.ours(other)

    def test_a_paused_target_is_left_alone(self, world):
        target = job_set(annotations={PREFIX + "paused": "true"})
        advised(world, target, training_job(targetRef=ref(target)))
        assert world.ours(SET) == {}
        assert "JobSet js is paused" in str(world.status(JOB)["conditions"])

    def test_a_kind_that_nobody_knows_is_said(self, world):
        other = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
        advised(world, training_job(targetRef=other))
        assert "Deployment d is of no kind that can be annotated" in str(
            world.status(JOB)["conditions"]
        )


class TestObserved:
    @pytest.fixture
    def running(self, world):
        """An advised job, and what it is predicted to do."""
        advised(world, training_job())
        self.predicted = world.decide(JOB).figures.predicted["tokens_per_second"].target
        return world

    def see(self, world, share, after=0.0, **more):
        """The job is seen to do a share of what was predicted."""
        world.now += after
        seen = Running(source="mofa", tokens_per_second=share * self.predicted, **more)
        world.due |= world.store.set_running(JOB, seen)
        return world.rest()

    def test_what_is_seen_is_shown_with_three_digits(self, running):
        self.see(
            running, 1.0, step_seconds=0.46412, ettr=0.98765, interruptions={("pod", "failure"): 2}
        )
        seen = running.status(JOB)["observed"]
        assert seen["tokensPerSecond"] == round(float(f"{self.predicted:.3g}"))
        assert (seen["stepMilliseconds"], seen["ettr"], seen["interruptions"]) == (464, "0.988", 2)
        assert seen["interruptionsBy"] == [{"name": "pod", "cause": "Failure", "count": 2}]
        assert running.status(JOB)["observed"]["tokensPerSecond"] > 0
        assert running.condition(JOB, "ObservationAvailable") == ("True", "Observed")
        assert running.condition(JOB, "PredictionAccurate") == ("True", "WithinBand")

    def test_four_percent_are_never_written_and_six_after_ten_minutes(self, running):
        self.see(running, 1.0)
        writes = running.writes
        self.see(running, 0.96, after=3600)
        assert running.writes == writes
        self.see(running, 0.9, after=1)
        assert running.writes == writes + 1
        self.see(running, 1.0, after=599)
        assert running.writes == writes + 1
        assert running.decide(JOB).requeue_after == 1
        self.see(running, 1.01, after=1)
        assert running.writes == writes + 2

    def test_a_job_seen_at_8_125_001_tokens_a_second_when_it_is_first_advised_is_written_once(self):
        """Its MFU is told of the figures that the status keeps: a second look and a restart say the
        same percent.
        """
        world = World()
        world.put(CLUSTER_PROFILE, profile(ready=None))
        world.put(TRAINING_JOB, training_job())
        world.due |= world.store.set_running(
            JOB, Running(source="mofa", tokens_per_second=8_125_001.0)
        )
        world.rest()  # which asserts that the next look is silent
        assert world.decide(JOB, world.restarted()).is_silent

    def test_steps_that_advance_write_nothing(self, running):
        self.see(running, 1.0, step=10)
        writes = running.writes
        self.see(running, 1.0, after=7200, step=9000)
        assert running.writes == writes

    def test_a_job_half_as_fast_as_predicted_drifts_and_says_so_once(self, running):
        self.see(running, 0.5)
        assert running.condition(JOB, "PredictionAccurate") == ("False", "Drifting")
        assert running.status(JOB)["observed"]["residual"] == "-0.500"
        self.see(running, 0.4, after=700)
        assert [note.reason for note in running.notes] == ["Recommended", "PredictionDrift"]
        assert running.decide(JOB).figures.residual == pytest.approx(-0.6)

    def test_a_running_job_without_throughput_is_not_a_job_at_zero(self, running):
        running.due |= running.store.set_running(JOB, Running(source="mofa"))
        running.rest()
        assert running.condition(JOB, "ObservationAvailable") == ("False", "NoObservation")
        assert "tokensPerSecond" not in running.status(JOB)["observed"]

    def test_after_a_restart_what_was_seen_stands_until_somebody_looks(self, running):
        self.see(running, 1.0)
        store = running.restarted()
        assert running.decide(JOB, store).is_silent
        store.set_running(JOB, None)
        assert not running.decide(JOB, store).is_silent

    def test_the_record_of_a_run_is_written_with_what_is_seen_and_with_nothing_else(self, running):
        self.see(running, 1.0, record="first")
        told = running.ours(JOB)
        assert told["run-record"] == "first"
        assert "life" not in running.status(JOB)["observed"]
        self.see(running, 1.01, after=3600, record="second")
        assert running.ours(JOB) == told, "a figure that hardly moved writes nothing"
        self.see(running, 0.9, after=1, record="third")
        assert running.ours(JOB) == told | {"run-record": "third"}
        assert running.decide(JOB, running.restarted()).is_silent
        running.edit(JOB, lambda body: body["spec"].update(mode="Disabled"))
        assert running.rest().ours(JOB) == {}

    def test_what_0_1_0_remembered_moves_to_the_annotation(self, running):
        self.see(running, 1.0)
        observed = running.status(JOB)["observed"]
        running.edit(JOB, lambda body: body["status"]["observed"].update(life="remembered"))
        running.rest()
        assert running.ours(JOB)["run-record"] == "remembered"
        assert running.status(JOB)["observed"] == observed

    def test_nonsense_is_not_shown(self, running):
        seen = Running(
            source='evil"}',
            tokens_per_second=float("nan"),
            ettr=float("inf"),
            lost={"!": 1.0, "lost_steps": 60.0},
        )
        running.due |= running.store.set_running(JOB, seen)
        running.rest()
        observed = running.status(JOB)["observed"]
        assert set(observed) == {"interruptions", "interruptionsBy", "lost", "time"}
        assert observed["lost"] == [{"cause": "LostSteps", "seconds": 60}]


class TestFaultsOfOurs:
    def test_the_advice_stands_and_ready_is_unknown(self, world):
        advised(world, training_job())
        before = world.status(JOB)
        decision = failed(world.store.snapshot(JOB, world.now), "the model failed: KeyError: 'x'")
        assert decision.status["recommendation"] == before["recommendation"]
        (ready, *others) = decision.status["conditions"]
        assert (ready["status"], ready["reason"]) == ("Unknown", "InternalError")
        assert others == before["conditions"][1:]
        assert not decision.annotate

    def test_a_job_that_was_never_advised_says_it_too_and_recovers(self, world):
        world.put(TRAINING_JOB, training_job())
        snapshot = world.store.snapshot(JOB, world.now)
        assert len(failed(snapshot, "x").status["conditions"]) == 7
        body = world.bodies[JOB]
        body["status"] = failed(snapshot, "x").status
        world.put(TRAINING_JOB, body)
        assert failed(world.store.snapshot(JOB, world.now + 60), "x").is_silent
        world.due.discard(EAST)
        world.rest()
        assert world.condition(JOB, "Ready") == ("True", "Recommended")


def test_deciding_needs_no_clock(world):
    """The moment is in the snapshot: the same snapshot gives the same decision."""
    world.put(TRAINING_JOB, training_job())
    snapshot = world.store.snapshot(JOB, NOW)
    found = answer(snapshot.question)
    assert job(snapshot, found, SETTINGS) == job(snapshot, found, SETTINGS)
