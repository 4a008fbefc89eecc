"""What a policy's status says: whether it was understood, and how many jobs it applies to."""

import pytest
from operator_objects import World, job_set, key_of, policy, profile, why_ready

from mofa_model.annotations import PREFIX
from mofa_model.kinds import JOB_SET
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE


def world(*job_sets, **spec):
    made = World()
    made.put(CLUSTER_PROFILE, profile())
    made.put(ADVISOR_POLICY, policy(**spec))
    for one in job_sets:
        made.put(JOB_SET, one)
    return made.rest()


POLICY = key_of(ADVISOR_POLICY, policy())


def test_a_policy_counts_the_jobs_that_it_opts_in():
    found = world(job_set("a", labels={"x": "y"}), job_set("b"), selector={"x": "y"})
    assert found.status(POLICY)["jobs"] == 1
    assert found.condition(POLICY, "Ready") == ("True", "Active")
    assert why_ready(found.status(POLICY)) == "Active"
    found.put(JOB_SET, job_set("c", labels={"x": "y"}))
    assert found.rest().status(POLICY)["jobs"] == 2
    found.drop(key_of(JOB_SET, job_set("a")))
    assert found.rest().status(POLICY)["jobs"] == 1


def test_a_policy_without_kinds_counts_the_jobs_whose_own_words_it_completes():
    asks = job_set("a", annotations={f"{PREFIX}mode": "Annotate"})
    assert world(asks, job_set("b"), kinds=False).status(POLICY)["jobs"] == 1


def test_of_two_policies_the_first_counts():
    found = world(job_set("a"))
    found.put(ADVISOR_POLICY, policy("a-first"))
    found.rest()
    assert found.status(key_of(ADVISOR_POLICY, policy("a-first")))["jobs"] == 1
    assert found.status(POLICY)["jobs"] == 0


@pytest.mark.parametrize(
    "spec, ready",
    [
        ({"mode": "Disabled"}, ("False", "Disabled")),
        ({"profile": "nowhere"}, ("False", "ProfileMissing")),
        ({"profile": "east"}, ("True", "Active")),
        ({"objective": "Fame"}, ("False", "InvalidInput")),
    ],
)
def test_a_policy_says_why_it_does_nothing(spec, ready):
    assert world(**spec).condition(POLICY, "Ready") == ready


def test_a_kind_that_nobody_knows_is_named():
    found = world()
    found.edit(
        POLICY,
        lambda body: body["spec"]["kinds"].append({"apiVersion": "batch/v1", "kind": "CronJob"}),
    )
    found.rest()
    assert "CronJob of batch/v1" in found.status(POLICY)["conditions"][0]["message"]


def test_a_profile_that_appears_makes_its_policies_ready():
    found = world(profile="west")
    found.put(CLUSTER_PROFILE, profile("west"))
    assert found.rest().condition(POLICY, "Ready") == ("True", "Active")
    found.drop(key_of(CLUSTER_PROFILE, profile("west")))
    assert found.rest().condition(POLICY, "Ready") == ("False", "ProfileMissing")


def test_a_restart_writes_nothing():
    found = world(job_set("a"))
    assert found.decide(POLICY, found.restarted()).is_silent
