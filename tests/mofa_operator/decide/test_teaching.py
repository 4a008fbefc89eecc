"""What running jobs teach a profile: measured against the bare model, seldom written, remembered
after their end.
"""

import math

import pytest
from operator_objects import NOW, SETTINGS, World, key_of, profile, training_job

from mofa_model.manifest.cluster_profile import ClusterProfileStatus
from mofa_operator.decide.calibration import HALF_LIFE, OLD, WORTHLESS, calibration
from mofa_operator.evidence import JobEvidence
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.objects import live
from mofa_operator.snapshot import Running

EAST, WEST = Key(CLUSTER_PROFILE, "", "east"), Key(CLUSTER_PROFILE, "", "west")
SLOW = 1 / 0.85


def job(name, at=NOW, ratio=SLOW, memory=None, namespace="ns"):
    held = None if memory is None else math.log(memory)
    return JobEvidence(
        job=f"{namespace}/{name} 1", log_ratio=math.log(ratio), log_memory=held, at=at
    )


def calibrated(status, *given):
    """What a profile with this status makes of what its jobs say."""
    return calibration(live(CLUSTER_PROFILE, {"status": status}), *given)


def stand(*evidence, now=NOW):
    made = calibrated({}, evidence, now, SETTINGS)
    ClusterProfileStatus.model_validate({"calibration": dict(made.written)})
    return {"calibration": made.written, "residual": made.residual}


def test_three_jobs_at_85_percent_halve_the_residual_of_the_next_and_more():
    ratio = float(stand(*(job(name) for name in "abc"))["calibration"]["stepTimeRatio"])
    assert ratio == 1.15
    assert abs(0.85 * ratio - 1) <= 0.15 / 2


def test_the_factor_fades_after_its_jobs_and_is_forgotten_at_last():
    status = stand(*(job(name) for name in "abc"))
    ratios = []
    for half_lives in (1, 2, 4):
        later = calibrated(status, [], NOW + half_lives * HALF_LIFE, SETTINGS)
        ratios.append(float(later.written["stepTimeRatio"]))
        assert len(later.written["evidence"]) == 3
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[1] == pytest.approx(math.exp(0.1625 * 0.75 / 1.155), abs=0.006)
    assert calibrated(status, [], NOW + WORTHLESS, SETTINGS).written == {}


def test_nothing_is_written_while_nothing_changes_and_evidence_of_a_job_that_runs_stays_young():
    status = stand(job("a"))
    same = calibrated(status, [job("a", NOW + 3600)], NOW + 3600, SETTINGS)
    assert same.written == status["calibration"]
    assert same.requeue_after
    day = calibrated(status, [job("a", NOW + OLD)], NOW + OLD, SETTINGS)
    assert day.written["evidence"][0]["time"] > status["calibration"]["evidence"][0]["time"]
    assert day.written["stepTimeRatio"] == status["calibration"]["stepTimeRatio"]


def test_a_second_job_waits_for_its_time_to_be_written():
    status = stand(job("a"))
    soon = calibrated(status, [job("a"), job("b")], NOW + 60, SETTINGS)
    assert soon.written == status["calibration"]
    assert soon.requeue_after == pytest.approx(SETTINGS.quiet - 60)
    then = calibrated(status, [job("a"), job("b")], NOW + SETTINGS.quiet, SETTINGS)
    assert then.written["jobs"] == 2


def test_a_small_change_renews_the_evidence_and_leaves_the_factor_alone():
    status = stand(job("a"), job("b"), job("c"), job("d"), job("e"), job("f"))
    more = [job(name) for name in "abcdefg"]
    after = calibrated(status, more, NOW + SETTINGS.quiet, SETTINGS).written
    assert after["jobs"] == 7
    assert after["stepTimeRatio"] == status["calibration"]["stepTimeRatio"]


@pytest.mark.parametrize(
    "odd", [{"evidence": "x"}, {"evidence": [{"job": 5}]}, {"stepTimeRatio": "nan"}, {"time": 3}]
)
def test_a_status_that_somebody_broke_teaches_nothing_and_stops_nothing(odd):
    assert calibrated({"calibration": odd}, [job("a")], NOW, SETTINGS).written["jobs"] == 1


class Cluster(World):
    """Two profiles; every job trains at 85 % of what the bare model says, and the store is told as
    the loop tells it.
    """

    def __init__(self):
        super().__init__()
        for name in ("east", "west"):
            self.put(CLUSTER_PROFILE, profile(name))

    def decide(self, key):
        decision = super().decide(key)
        if decision is not None and key.kind == TRAINING_JOB:
            self.due |= self.store.set_taught(key, decision.figures.profile, decision.taught)
        return decision

    def apply(self, name, pool="east", **spec):
        body = training_job(name, **spec)
        body["spec"]["cluster"]["profile"] = pool
        self.put(TRAINING_JOB, body)
        self.rest()
        return key_of(TRAINING_JOB, body)

    def tokens(self, key):
        return self.bodies[key]["status"]["recommendation"]["predicted"]["tokensPerSecond"][
            "target"
        ]

    def factor(self, key):
        return float(self.bodies[key]["status"]["inputs"].get("learned", 1))

    def memory(self, key):
        return self.bodies[key]["status"]["recommendation"]["predicted"]["memoryBytes"]

    def train(self, key, truth, hours=1.0, *, on_pool=True, memory=None, whole=True):
        """It runs at a true rate, and so much time passes."""
        since = self.now
        self.now += hours * 3600
        running = Running(
            source="mofa",
            tokens_per_second=truth,
            since=since,
            on_pool=on_pool,
            memory_bytes=memory,
            whole_device=whole,
        )
        self.due |= self.store.set_running(key, running)
        self.rest()


def test_three_jobs_at_85_percent_halve_the_residual_of_the_next_and_another_profile_learns_nothing():
    cluster = Cluster()
    other = cluster.apply("other", "west")
    before = cluster.bodies[other]["status"]
    truth = 0.85 * cluster.tokens(other)  # both pools are alike
    residuals = []
    for name in "abcd":
        key = cluster.apply(name)
        residuals.append(truth / cluster.tokens(key) - 1)
        cluster.train(key, truth)
        cluster.train(key, truth)
    assert residuals[0] == pytest.approx(-0.15, abs=0.001)
    assert abs(residuals[3]) <= abs(residuals[0]) / 2
    assert cluster.bodies[EAST]["status"]["calibration"]["jobs"] == 4
    assert "calibration" not in cluster.bodies[WEST]["status"]
    assert cluster.bodies[other]["status"] == before
    assert cluster.factor(key) > 1.0
    for name in "abcd":
        cluster.drop(Key(TRAINING_JOB, "ns", name))
    cluster.rest()
    assert cluster.bodies[EAST]["status"]["calibration"]["jobs"] == 4, (
        "what they taught outlives them"
    )
    cluster.now += 3 * HALF_LIFE
    cluster.due.add(EAST)
    cluster.rest()
    assert truth / cluster.tokens(cluster.apply("late")) - 1 == pytest.approx(-0.075, abs=0.015)


def test_a_job_that_runs_something_else_is_held_against_what_is_predicted_of_that():
    cluster = Cluster()
    key = cluster.apply("a", current={"strategy": "tp=2,dp=8"})
    today = cluster.bodies[key]["status"]["current"]
    assert today["predicted"]["tokensPerSecond"]["target"] != cluster.tokens(key)
    cluster.train(key, 0.7 * today["predicted"]["tokensPerSecond"]["target"])
    status = cluster.bodies[key]["status"]
    assert float(status["observed"]["residual"]) == pytest.approx(-0.30, abs=0.005)
    accurate = next(one for one in status["conditions"] if one["type"] == "PredictionAccurate")
    assert accurate["reason"] == "Drifting"
    assert "of the layout in spec.current" in accurate["message"]
    (evidence,) = cluster.bodies[EAST]["status"]["calibration"]["evidence"]
    assert float(evidence["stepTimeRatio"]) == pytest.approx(1 / 0.7, rel=0.005)


def test_a_job_whose_layout_cannot_run_by_the_model_teaches_nothing_and_does_not_drift():
    cluster = Cluster()
    key = cluster.apply("a", current={"strategy": "tp=2,dp=8,mbs=7"})
    assert "does not divide" in cluster.bodies[key]["status"]["current"]["reason"]
    cluster.train(key, 0.5 * cluster.tokens(key))
    status = cluster.bodies[key]["status"]
    assert "residual" not in status["observed"]
    accurate = next(one for one in status["conditions"] if one["type"] == "PredictionAccurate")
    assert (accurate["status"], accurate["reason"]) == ("Unknown", "Observed")
    assert "calibration" not in cluster.bodies[EAST]["status"]


def test_a_job_that_has_just_begun_teaches_nothing_yet():
    cluster = Cluster()
    key = cluster.apply("a")
    cluster.train(key, 0.85 * cluster.tokens(key), hours=0.1)
    assert "calibration" not in cluster.bodies[EAST]["status"]


def test_a_drift_is_one_event_each_time_that_it_begins():
    cluster = Cluster()
    key = cluster.apply("a")
    predicted = cluster.tokens(key)
    for share in (0.70, 0.69, 1.0, 0.68):
        cluster.train(key, share * predicted, hours=2 * SETTINGS.quiet / 3600)
        predicted = cluster.tokens(key)
    drifts = [note for note in cluster.notes if note.reason == "PredictionDrift"]
    assert len(drifts) == 2
    assert len({note.episode for note in drifts}) == 2


def test_the_memory_that_jobs_use_shifts_the_next_prediction_and_its_band_is_no_wider():
    training = {
        "framework": "megatron",
        "tokens": "1T",
        "sequenceLength": 4096,
        "globalBatchSize": 64,
    }
    cluster = Cluster()
    first = cluster.apply("a", training=training)
    before = cluster.memory(first)
    real, truth = 1.15 * before["target"], cluster.tokens(first)
    for name in "abc":
        key = cluster.apply(name, training=training)
        for _ in range(3):
            cluster.train(key, truth, memory=real)
    status = cluster.bodies[EAST]["status"]["calibration"]
    rows = [float(one["memoryRatio"]) for one in status["evidence"]]
    assert rows == pytest.approx([1.15] * 3, rel=0.005), "a factor never fights its own evidence"
    key = cluster.apply("d", training=training)
    after = cluster.memory(key)
    assert abs(real / after["target"] - 1) < 0.02, "15 % off before"
    assert after["target"] == pytest.approx(
        float(status["memoryRatio"]) * before["target"], rel=1e-6
    )
    assert after["upper"] / after["target"] <= before["upper"] / before["target"]
    assert after["upper"] / after["target"] <= math.exp(float(status["memorySpread"])) * 1.001
    inputs = cluster.bodies[key]["status"]["inputs"]
    assert inputs["learnedMemory"] == status["memoryRatio"]
    assert "learned" not in inputs, "their steps were as predicted"
    assert (
        f"a factor of {float(status['memoryRatio']):g} on device memory"
        in cluster.ours(key)["explanation"]
    )
    assert cluster.condition(first, "MemoryAccurate") == ("True", "WithinBand")


def test_memory_that_cannot_be_is_said_and_teaches_nothing_but_the_step():
    cluster = Cluster()
    key = cluster.apply("a")
    for memory in (0.0, 5e12, 2.5 * cluster.memory(key)["target"]):
        cluster.train(key, 0.9 * cluster.tokens(key), memory=memory)
        cluster.now += SETTINGS.quiet
        cluster.train(key, 0.9 * cluster.tokens(key), memory=memory)
        (row,) = cluster.bodies[EAST]["status"]["calibration"]["evidence"]
        assert "memoryRatio" not in row
        assert "memoryRatio" not in cluster.bodies[EAST]["status"]["calibration"]


def test_what_an_allocator_reserved_is_not_all_and_teaches_nothing_of_the_device():
    cluster = Cluster()
    key = cluster.apply("a")
    for _ in range(2):
        cluster.train(
            key, cluster.tokens(key), memory=0.9 * cluster.memory(key)["target"], whole=False
        )
    assert cluster.bodies[key]["status"]["observed"]["memorySource"] == "Allocator"
    assert "memoryRatio" not in cluster.bodies[EAST]["status"]["calibration"]


def test_a_trainer_that_takes_memory_in_advance_teaches_none():
    jax = {"framework": "maxtext", "tokens": "1T", "sequenceLength": 4096, "globalBatchSize": 64}
    cluster = Cluster()
    key = cluster.apply("a", training=jax, constraints={})
    target = cluster.memory(key)["target"]
    cluster.train(key, cluster.tokens(key), memory=1.5 * target)
    cluster.train(key, cluster.tokens(key), memory=1.5 * target)
    assert "memoryRatio" not in cluster.bodies[EAST]["status"]["calibration"]


def test_several_namespaces_have_a_vote_each_and_move_memory_by_two_percent_a_day():
    theirs = [job(f"{n}", ratio=1.0, memory=0.5, namespace="evil") for n in range(8)]
    honest = [job("a", ratio=1.0, memory=1.0), job("b", ratio=1.0, memory=1.0, namespace="other")]
    made = calibrated({}, [*theirs, *honest], NOW, SETTINGS).written
    assert float(made["memoryRatio"]) == 0.98, "at most"
    soon = calibrated({"calibration": made}, [*theirs, *honest], NOW + 3600.0, SETTINGS).written
    assert soon["memoryRatio"] == "0.98"
    late = {"calibration": made}
    for day in range(1, 60):
        at = NOW + day * 86400.0
        now = [
            JobEvidence(job=one.job, log_ratio=0.0, log_memory=one.log_memory, at=at)
            for one in (*theirs, *honest)
        ]
        late = {"calibration": calibrated(late, now, at, SETTINGS).written}
    assert float(late["calibration"]["memoryRatio"]) > 0.80, (
        "eight forged jobs of one namespace are one of three votes"
    )


def test_memory_of_jobs_whose_evidence_came_before_it_was_seen_is_learned_beside_it():
    status = stand(job("a"), job("b"))
    assert "memoryRatio" not in status["calibration"]
    more = [job("a", memory=1.1), job("b", memory=1.1)]
    after = calibrated(status, more, NOW + SETTINGS.quiet, SETTINGS).written
    assert float(after["memoryRatio"]) > 1.05
    assert after["stepTimeRatio"] == status["calibration"]["stepTimeRatio"]
