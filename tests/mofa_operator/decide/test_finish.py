"""A running job says when it finishes, with the stops of its pool's past days; no date where that
is not known.
"""

import json
from dataclasses import replace
from datetime import datetime

import pytest
from operator_objects import NOW, World, profile, training_job

from mofa_model.manifest.crds import crds
from mofa_model.spec.account import NodeState, NodeTime
from mofa_model.spec.evidence import FailureEvidence
from mofa_operator.decide.ledger import ledger_status
from mofa_operator.evidence import PROMETHEUS, Day, date_of
from mofa_operator.keys import CLUSTER_PROFILE, FAILURE_LEDGER, TRAINING_JOB, Key
from mofa_operator.objects import live
from mofa_operator.snapshot import Alive, Running

DAY = 86400.0
JOB = Key(TRAINING_JOB, "ns", "a")


def days(number, lost):
    """Days before now, each with one stop; every third loses three times as much."""
    found = []
    for back in range(number, 0, -1):
        date = date_of(NOW - back * DAY)
        gone = lost * (3 if back % 3 == 0 else 1)
        rows = [
            NodeTime(state=NodeState.KEPT, cause="", node_days=4 - gone, date=date),
            NodeTime(state=NodeState.RENDEZVOUS, cause="reboot", node_days=gone, date=date),
        ]
        classes = {"pod": FailureEvidence(node_days=4.0, failures=1)}
        found.append(
            Day(date=date, witness=PROMETHEUS, covered=DAY, classes=classes, account=tuple(rows))
        )
    return found


def ran(number=30, lost=0.2, **running):
    """A test world with one running job, whose pool was accounted for on so many days."""
    world, body = World(), profile()
    world.put(CLUSTER_PROFILE, body)
    if number:
        status = ledger_status(live(CLUSTER_PROFILE, body), days(number, lost), (), NOW)
        meta = {
            "name": body["metadata"]["name"],
            "ownerReferences": [{"uid": body["metadata"]["uid"]}],
        }
        ledger = {"metadata": meta, "status": json.loads(json.dumps(status))}
        world.put(FAILURE_LEDGER, ledger)
    world.put(TRAINING_JOB, training_job())
    world.rest()
    predicted = world.decide(JOB).figures.predicted
    seen = Running(
        source="mofa",
        tokens_per_second=predicted["tokens_per_second"].target,
        step=1000,
        step_seconds=predicted["step_seconds"].target,
    )
    alive = Alive(at=NOW + 10, since=NOW, watched=True, step_at=NOW + 10)
    world.now = NOW + 10
    world.due |= world.store.set_running(JOB, replace(seen, **running), alive)
    world.rest()
    return world


def finish(number=30, lost=0.2, **running):
    """`finish` of that job, and its status."""
    status = ran(number, lost, **running).status(JOB)
    told = status["observed"].get("finish")
    if told is None:
        return None, status
    ends = [datetime.fromisoformat(told[name]).timestamp() for name in ("p10", "p50", "p90")]
    return [(end - NOW) / DAY for end in ends], status


def test_a_trillion_tokens_finish_when_the_steps_that_are_left_are_done_at_the_pools_ettr():
    (early, likely, late), status = finish()
    told = status["recommendation"]["predicted"]
    ideal = told["durationSeconds"]["target"] * float(told["ettr"]["target"]) / DAY
    ettr = 1 - 0.2 * (2 / 3 + 3 / 3) / 4
    assert likely == pytest.approx(ideal / ettr, rel=0.02)
    assert ideal < early < likely < late


def test_a_job_that_is_slower_than_predicted_finishes_later():
    (_, likely, _), status = finish()
    step = status["observed"]["stepMilliseconds"] / 1000
    (_, slow, _), _ = finish(step_seconds=1.25 * step)
    assert slow == pytest.approx(1.25 * likely, rel=0.02)


@pytest.mark.parametrize(
    "missing", [{"number": 0}, {"number": 9}, {"step_seconds": None}, {"step": None}]
)
def test_there_is_no_date_without_a_fortnight_of_account_a_step_and_its_time(missing):
    found, _ = finish(**missing)
    assert found is None


def test_the_date_and_its_band_stand_on_the_job_and_in_the_column_that_kubectl_shows():
    world = ran()
    told = world.status(JOB)["observed"]["finish"]
    early, likely, late = (told[name] for name in ("p10", "p50", "p90"))
    assert world.ours(JOB)["finish"] == f"{likely} ({early} to {late})"
    assert told["days"] == f"{likely[:10]} ({early[:10]} to {late[:10]})"
    (version,) = next(one for name, one in crds().items() if "trainingjobs" in name)["spec"][
        "versions"
    ]
    (column,) = (one for one in version["additionalPrinterColumns"] if one["name"] == "FINISH")
    assert column["jsonPath"] == ".status.observed.finish.days"
    assert column.get("priority", 0) == 0


def test_a_date_that_moves_moves_on_the_job_and_nothing_is_asked_anew():
    world = ran()
    before, hashed = world.ours(JOB)["finish"], world.ours(JOB)["inputs-hash"]
    world.now += 1200
    seen = world.status(JOB)["observed"]
    step = Running(
        source="mofa",
        tokens_per_second=0.7 * seen["tokensPerSecond"],
        step=1300,
        step_seconds=seen["stepMilliseconds"] / 700,
    )
    alive = Alive(at=world.now, since=NOW, watched=True, step_at=world.now)
    world.due |= world.store.set_running(JOB, step, alive)
    world.rest()
    assert world.ours(JOB)["finish"] != before
    assert world.ours(JOB)["inputs-hash"] == hashed


def test_where_nothing_is_known_of_the_end_no_date_stands_on_the_job():
    assert "finish" not in ran(number=9).ours(JOB)
