"""What a policy leaves the jobs of its namespace of what all namespaces share; no policy can take
more than anybody has.
"""

import asyncio
import math
from functools import partial

import pytest
from operator_objects import NOW, SETTINGS, policy, profile, training_job
from virtual_time import run

from mofa_model.errors import InputError
from mofa_model.manifest.parsing import advisor_policy
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.decide.calibration import calibration
from mofa_operator.evidence import JobEvidence
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.objects import live
from mofa_operator.observe.cluster.store import Store

EAST = Key(CLUSTER_PROFILE, "", "east")


def store(**budget):
    made = Store()
    made.put(CLUSTER_PROFILE, profile())
    made.put(ADVISOR_POLICY, policy("b", namespace="evil", profile="east", budget=budget))
    made.put(ADVISOR_POLICY, policy("a", namespace="evil", profile="east"))
    return made


@pytest.mark.parametrize("percent, most", [(50, 8), (10, 1), (1, 1), (30, 4)])
def test_a_namespace_has_no_more_hands_than_its_policy_leaves_it(percent, most):
    known = store(handsPercent=percent)

    async def main():
        queue = WorkQueue(backoff=1.0, longest=1.0, most=partial(known.policies.most_workers, 16))
        for n in range(100):
            queue.add(Key(TRAINING_JOB, "evil", str(n)))
        queue.add(Key(TRAINING_JOB, "research", "mine"))
        taken = []
        while len(taken) <= most:
            taken.append((await asyncio.wait_for(queue.take(), 1.0)).namespace)
        assert taken.count("evil") == most
        assert taken.count("research") == 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.take(), 1.0)

    run(main())


def says(namespace, ratio, at=NOW):
    return JobEvidence(job=f"{namespace}/x 1", log_ratio=math.log(ratio), at=at)


def days_until_it_moves(influence, *, most=25):
    """After how many days a namespace has moved what another taught."""
    honest = [says("research", 1.15)]
    known = store(**influence)
    status, first = {}, None
    for hours in range(0, 24 * most, 6):
        now = NOW + 3600.0 * hours
        jobs = [*honest, *([says("evil", 0.7, now)] if hours else [])]
        given = known.snapshot(EAST, now).influence
        found = calibration(live(CLUSTER_PROFILE, {"status": status}), jobs, now, SETTINGS, given)
        status = {"calibration": found.written, "residual": found.residual}
        first = first or found.written["stepTimeRatio"]
        if found.written["stepTimeRatio"] != first:
            return hours / 24
    return math.inf


def test_what_others_taught_is_moved_as_slowly_as_the_policy_says():
    usual, half, never = (days_until_it_moves({"influencePercent": n}) for n in (2, 1, 0))
    assert usual == pytest.approx(1.0, abs=0.3)
    assert half == pytest.approx(2 * usual, abs=0.3)
    assert never == math.inf


def test_a_policy_gives_nobody_more_than_usual_and_says_which_field():
    for budget, field in (
        ({"handsPercent": 51}, "handsPercent"),
        ({"influencePercent": 3}, "influencePercent"),
    ):
        body = policy("a", namespace="evil", profile="east", budget=budget)
        with pytest.raises(InputError, match=f"spec.budget.{field}"):
            advisor_policy(body)
        known = Store()
        known.put(ADVISOR_POLICY, body)
        assert known.policies.worker_share("evil") == 0.5, (
            "and what got past the API server counts as the most"
        )
        assert known.policies.worker_share("research") == 0.5


def test_a_budget_is_no_part_of_what_is_asked():
    digests = []
    for percent in (50, 10):
        known = store(handsPercent=percent)
        known.put(TRAINING_JOB, training_job("a", namespace="evil"))
        digests.append(known.snapshot(Key(TRAINING_JOB, "evil", "a"), NOW).question)
    assert digests[0] == digests[1]
