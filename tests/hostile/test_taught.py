"""What the jobs of one namespace teach a pool that others use: one vote, a bounded step, and only
what can be true.
"""

import math

import pytest
from operator_objects import NOW, SETTINGS, World, node, profile, training_job
from virtual_time import run

from mofa_model.errors import SourceUnreachable
from mofa_model.kinds.kind import Observation
from mofa_model.units import DAY, Range
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.observers import LATELY, JobObserver
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.decide.calibration import MOST, calibration, learned, remembered, taught
from mofa_operator.decide.observation import MOST_MFU, doubted
from mofa_operator.decision import Answer
from mofa_operator.evidence import JobEvidence
from mofa_operator.keys import CLUSTER_PROFILE, NODE, TRAINING_JOB, Key
from mofa_operator.objects import live
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.jobs.pods import Gang
from mofa_operator.observe.progress.telemetry import Telemetry
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import JobSnapshot, Running
from mofa_operator.words import Aspect, Reason

JOB = Key(TRAINING_JOB, "ns", "a")
PREDICTED = Answer(
    digest="",
    outcome="Recommended",
    explanation="",
    annotations={},
    status={},
    predicted={
        "tokens_per_second": Range(lower=900.0, target=1000.0, upper=1100.0),
        "mfu": Range(lower=0.4, target=0.45, upper=0.5),
    },
    profile="east",
)


def says(namespace, name, ratio, at=NOW):
    return JobEvidence(job=f"{namespace}/{name} 1", log_ratio=math.log(ratio), at=at)


def evidence_of(tokens, *, on_pool=True):
    running = Running(source="mofa", tokens_per_second=tokens, since=NOW - DAY, on_pool=on_pool)
    job = live(TRAINING_JOB, training_job("a"))
    store = Store()
    store.put(CLUSTER_PROFILE, profile())
    store.put(TRAINING_JOB, training_job("a"))
    question = store.snapshot(JOB, NOW).question
    return taught(
        JobSnapshot(job=job, question=question, running=running, looked=True, now=NOW),
        PREDICTED,
        SETTINGS,
    )


def test_a_job_without_pods_on_the_pools_nodes_teaches_nothing():
    assert evidence_of(850.0) is not None
    assert evidence_of(850.0, on_pool=False) is None


def test_figures_that_cannot_be_are_said_to_be_and_teach_nothing():
    assert doubted(1500.0, PREDICTED) == ""
    assert "MFU of 4050 %" in doubted(9e4, PREDICTED)
    assert f"{100 * MOST_MFU:.0f} %" in doubted(9e4, PREDICTED)
    assert "2.1 times the prediction" in doubted(2100.0, _modest())
    for tokens in (9e4, 200.0):
        assert evidence_of(tokens) is None, "far more, and far less, teaches nothing"


def _modest():
    return Answer(
        digest="", outcome="", explanation="", annotations={}, status={},
        predicted={"tokens_per_second": Range(lower=900.0, target=1000.0, upper=1100.0), "mfu": Range(lower=0.1, target=0.1, upper=0.1)},
    )  # fmt: skip


def test_sixteen_jobs_of_one_namespace_have_one_vote():
    honest = [says(f"team-{n}", "x", 1.10) for n in range(4)]
    flood = [says("evil", f"x-{n}", 0.5) for n in range(12)]
    assert (
        learned([*honest, *flood], NOW).factor.target
        == learned([*honest, flood[0]], NOW).factor.target
    )
    assert (
        abs(learned([*honest, *flood], NOW).factor.target / learned(honest, NOW).factor.target - 1)
        < 0.08
    )


def test_a_namespace_full_of_jobs_does_not_drive_out_what_others_taught():
    kept = (says("research", "x", 1.1, NOW - DAY),)
    for n in range(3 * MOST):
        kept = remembered(kept, says("evil", f"x-{n}", 0.5, NOW + n))
    assert len(kept) == MOST
    assert kept[0].namespace == "research"


def test_who_joins_a_pool_moves_its_factor_by_one_step_a_day():
    def after(status, jobs, now):
        found = calibration(live(CLUSTER_PROFILE, {"status": status}), jobs, now, SETTINGS)
        return {"calibration": found.written, "residual": found.residual}

    honest = [says("research", name, 1 / 0.85) for name in "abc"]
    status = after({}, honest, NOW)
    assert status["calibration"]["stepTimeRatio"] == "1.15", (
        "alone on a pool it teaches in full, at once"
    )
    forged = [says("evil", f"x-{n}", 0.55) for n in range(16)]
    ratios = []
    for hours in range(72):
        status = after(status, [*honest, *forged], NOW + 3600.0 * hours)
        ratios.append(float(status["calibration"]["stepTimeRatio"]))
    assert min(ratios[:24]) == 1.15
    assert min(ratios[:48]) >= 1.15 * 0.98 - 0.005
    assert min(ratios) >= 1.15 * 0.98**2 - 0.01
    assert min(ratios) < 1.15


def test_of_two_profiles_over_the_same_nodes_a_job_teaches_the_one_that_it_names_and_both_are_told():
    world = World()
    for name in "mnop":
        world.put(NODE, node(name))
    for name in ("east", "west"):
        world.put(CLUSTER_PROFILE, profile(name))
    world.put(TRAINING_JOB, training_job("a"))
    world.rest()
    tokens = world.decide(JOB).figures.predicted["tokens_per_second"].target
    runs = Running(source="mofa", tokens_per_second=0.85 * tokens, since=NOW - DAY, on_pool=True)
    world.store.set_running(JOB, runs)
    world.store.set_taught(JOB, "east", world.decide(JOB).taught)
    world.due |= {Key(CLUSTER_PROFILE, "", name) for name in ("east", "west")}
    world.rest()
    status = {name: world.status(Key(CLUSTER_PROFILE, "", name)) for name in ("east", "west")}
    assert status["east"]["calibration"]["stepTimeRatio"] != "1.00"
    assert "calibration" not in status["west"]
    for name, other in (("east", "west"), ("west", "east")):
        (told,) = (
            one for one in status[name]["conditions"] if one["type"] == Aspect.NODES_EXCLUSIVE
        )
        assert (told["status"], told["reason"]) == ("False", Reason.NODES_SHARED)
        assert other in told["message"]


class Seen:
    """An observer of one job, whose looks are told."""

    def __init__(self):
        self.store = Store()
        for name in ("n1", "n2"):
            self.store.put(NODE, {"metadata": {"name": name, "labels": {"pool": "east"}}})
        self.store.put(CLUSTER_PROFILE, profile(nodeSelector={"pool": "east"}))
        self.store.put(TRAINING_JOB, training_job())
        self.answer = {}
        queue = WorkQueue(backoff=1.0, longest=1.0)
        enqueuer = Enqueuer(self.store, queue, LoopSettings())
        self.observer = JobObserver(
            store=self.store, enqueuer=enqueuer, ask=self.ask, interval=60.0
        )

    async def ask(self, jobs, now):
        if isinstance(self.answer, Exception):
            raise self.answer
        return {("ns", "a"): self.answer}

    async def look(self, answer):
        self.answer = answer
        await self.observer.look()
        return self.store.snapshot(JOB, NOW)


def gang(*nodes):
    return Gang(observation=Observation(), nodes=frozenset(nodes))


RUNS = Running(source="mofa", tokens_per_second=1000.0)


def test_whether_a_job_stands_on_the_pool_its_pods_say():
    async def main():
        seen = Seen()
        for nodes, stands in ((("n1", "n2"), True), (("n1", "other"), False), ((), False)):
            found = await seen.look(Telemetry(running=RUNS, gang=gang(*nodes)))
            assert found.running.on_pool is stands
        assert (await seen.look(Telemetry(running=RUNS))).running.on_pool is False

    run(main())


@pytest.mark.parametrize("refusal", [True, False], ids=["its own series", "the whole server"])
def test_figures_of_series_that_are_gone_expire(monkeypatch, refusal):
    clock = [NOW]
    monkeypatch.setattr("mofa_operator.control.observers.time.time", lambda: clock[0])

    async def main():
        seen = Seen()
        assert (await seen.look(Telemetry(running=RUNS))).running is not None
        gone = Telemetry(refused="too many") if refusal else SourceUnreachable("away")
        clock[0] += LATELY - 1
        assert (await seen.look(gone)).running is not None, "what was seen lately stands"
        clock[0] += 2
        found = await seen.look(gone)
        assert (found.running, found.looked) == (None, False)
        assert found.unseen == ("too many" if refusal else "")
        assert (await seen.look(Telemetry(running=RUNS))).unseen == ""

    run(main())
