"""What our AdmissionCheck says: Ready with the words of an answer, Retry or Rejected where the
policy says so, and nothing for ever.
"""

from dataclasses import replace

import pytest
from each import each

from mofa_model.annotations import PREFIX
from mofa_model.kinds import BATCH_JOB, WORKLOAD
from mofa_model.units import Range
from mofa_operator.decide.admission import active, answered, is_ours, needs_answer
from mofa_operator.decision import Answer
from mofa_operator.keys import ADMISSION_CHECK, CLUSTER_PROFILE, Key
from mofa_operator.keys import ADVISOR_POLICY as POLICY
from mofa_operator.objects import LiveObject
from mofa_operator.observe.cluster.store import Store, check_snapshot
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import Named
from mofa_operator.words import Reason
from mofa_operator.workloads import LiveWorkload

MADE, NOW = "2026-11-23T05:00:00Z", 1795410030.0
SETTINGS = LoopSettings()
STRATEGY, INTERVAL = f"{PREFIX}strategy", f"{PREFIX}checkpoint-interval-steps"


def named(kind, name, **more):
    place = {"namespace": "team"} if kind.namespaced else {}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": MADE,
            **place,
        },
        **more,
    }


def template(**metadata):
    container = {"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def workload(count=4, admitted=None, state="Pending", pods=None):
    """A Workload of the Job `train`, with room for it since `MADE`."""
    room = {
        "type": "QuotaReserved",
        "status": "True",
        "lastTransitionTime": MADE,
        "reason": "QuotaReserved",
        "message": "",
    }
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train",
        "uid": "uid-train",
        "controller": True,
    }
    body = named(
        WORKLOAD,
        "job-train",
        spec={
            "podSets": [
                {"name": "main", "count": count, "minCount": 1, "template": pods or template()}
            ]
        },
        status={
            "conditions": [room],
            "admission": {"podSetAssignments": [{"name": "main", "count": admitted or count}]},
            "admissionChecks": [
                {"name": "advice", "state": state},
                {"name": "other", "state": "Pending"},
            ],
        },
    )
    body["metadata"]["ownerReferences"] = [owner]
    return LiveWorkload(Key(WORKLOAD, "team", "job-train"), body)


def snapshot(work=None, *, mode="Annotate", asks=True, admission=None, job=True, now=NOW):
    """What is asked of a Workload where a policy and a pool are there."""
    store, work = Store(), work or workload()
    store.put(
        CLUSTER_PROFILE,
        named(CLUSTER_PROFILE, "east", spec={"gpu": "h100", "nodeSelector": {"pool": "east"}}),
    )
    policy = {"profile": "east", "mode": mode, "admission": admission or {}}
    if asks:
        policy["kinds"] = [{"apiVersion": "batch/v1", "kind": "Job"}]
    store.put(POLICY, {**named(POLICY, "p"), "spec": policy})
    if job:
        spec = {"suspend": True, "parallelism": 4, "template": template()}
        store.put(BATCH_JOB, named(BATCH_JOB, "train", spec=spec))
    return check_snapshot(store, work, ("advice",), now, Named())


def answer(**changes):
    told = {STRATEGY: "tp=8", INTERVAL: "40"}
    given = Answer(
        digest="d", outcome="Recommended", explanation="it fits", annotations=told, status={}, reason="Recommended",
        predicted={"ettr": Range(lower=0.90, target=0.95, upper=0.97)}, strategy={"tp": "8"}, profile="east", arguments=("--tp=8",), trainer="megatron",
    )  # fmt: skip
    return replace(given, **changes)


UNFIT = answer(
    strategy={}, annotations={}, reason=Reason.NO_FEASIBLE_LAYOUT, explanation="nothing fits"
)


def test_advice_is_ready_with_its_words_for_the_pods():
    given = snapshot()
    assert needs_answer(given, SETTINGS)
    found = answered(given, answer(), SETTINGS)
    assert (found.state, found.checks) == ("Ready", ("advice",))
    (update,) = found.updates
    assert (update.name, update.annotations, update.node_selector) == (
        "main",
        {STRATEGY: "tp=8", INTERVAL: "40"},
        {},
    )


def test_the_policy_gives_pods_the_profiles_node_selector_and_what_stands_there_stays():
    pods = template(annotations={STRATEGY: "mine"})
    found = answered(
        snapshot(workload(pods=pods), admission={"nodeSelector": True}), answer(), SETTINGS
    )
    (update,) = found.updates
    assert (update.annotations, update.node_selector) == ({INTERVAL: "40"}, {"pool": "east"})


CASES = [
    pytest.param({}, UNFIT, "Ready", id="unfit, by default"),
    pytest.param({"noLayout": "Retry"}, UNFIT, "Retry", id="unfit, tried again"),
    pytest.param({"noLayout": "Reject"}, UNFIT, "Rejected", id="unfit, refused"),
    pytest.param({"noLayout": "Reject"}, answer(), "Ready", id="fits, where the unfit are refused"),
    pytest.param({"ettr": "0.96"}, answer(), "Ready", id="below, by default"),
    pytest.param({"ettr": "0.96", "belowEttr": "Reject"}, answer(), "Rejected", id="below, refused"),
    pytest.param({"ettr": "0.94", "belowEttr": "Reject"}, answer(), "Ready", id="above"),
    pytest.param({"noLayout": "Reject", "belowEttr": "Retry"}, answer(strategy={}, reason=Reason.INVALID_INPUT), "Ready", id="a question that cannot be answered"),
]  # fmt: skip


@each(CASES)
def test_retry_and_rejected_are_said_only_where_the_policy_says_so(admission, told, state):
    found = answered(snapshot(admission=admission), told, SETTINGS)
    assert found.state == state
    assert found.retry is None
    assert found.message


def test_the_first_retry_gives_the_room_away_and_the_next_ones_wait():
    again = workload()
    again.body["status"]["admissionChecks"][0]["retryCount"] = 1
    rule = {"noLayout": "Retry", "retrySeconds": 60}
    assert answered(snapshot(admission=rule), UNFIT, SETTINGS).retry is None
    assert answered(snapshot(again, admission=rule), UNFIT, SETTINGS).retry == 60


def test_launch_arguments_are_told_in_mode_apply_and_where_they_were_verified():
    told = answered(snapshot(mode="Apply"), answer(), SETTINGS)
    assert f"{PREFIX}launch-args" not in told.updates[0].annotations
    assert "verified" in told.message  # nobody says which version of the trainer runs


def test_what_nobody_asks_about_is_let_go_once_a_policy_has_had_its_moment():
    given = snapshot(asks=False, now=NOW - 29.0)
    assert not needs_answer(given, SETTINGS)
    assert (
        answered(given, None, SETTINGS).state,
        answered(given, None, SETTINGS).requeue_after,
    ) == (
        "",
        1.0,
    )
    found = answered(replace(given, now=NOW), None, SETTINGS)
    assert (found.state, found.updates, found.message) == (
        "Ready",
        (),
        "without advice: nobody asks for it",
    )
    assert (
        answered(snapshot(job=False), None, SETTINGS).message
        == "without advice: its job is not seen"
    )


def test_nothing_waits_longer_than_the_longest_wait():
    late = snapshot(now=NOW + SETTINGS.gate_longest)
    assert not needs_answer(late, SETTINGS)
    assert answered(late, None, SETTINGS).state == "Ready"
    assert answered(snapshot(), None, SETTINGS).state == ""


def test_partial_admission_is_asked_about_by_the_size_that_there_is_room_for():
    whole, part = snapshot().question, snapshot(workload(admitted=2)).question
    assert whole.job["kind"] == "Job"
    assert part.job["kind"] == "Workload"
    assert [one["count"] for one in part.job["spec"]["podSets"]] == [2]
    assert part.job["metadata"] == whole.job["metadata"]


def test_an_admission_check_is_active_unless_it_has_parameters_that_nobody_reads():
    def check(**spec):
        body = named(ADMISSION_CHECK, "advice", spec={"controllerName": "mofa.dev/advisor", **spec})
        return LiveObject(Key(ADMISSION_CHECK, "", "advice"), body)

    assert is_ours(check())
    assert not is_ours(check(controllerName="example.org/other"))
    said = active(check(), NOW)
    assert (said["type"], said["status"]) == ("Active", "True")
    said = active(check(parameters={"kind": "Thing", "name": "x"}), NOW)
    assert said["status"] == "False"
    assert said["message"].startswith("spec.parameters: Thing x: ")
    stands = check()
    stands.body["status"] = {"conditions": [active(stands, NOW)]}
    assert active(LiveObject(stands.key, stands.body), NOW + 60.0) is None
