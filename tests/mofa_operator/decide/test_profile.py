"""Decisions about profiles: nodes at once, history seldom, and nothing invented where nothing was
seen.

Assumed are, as in the paper, five failures in a thousand node-days: 0.5 % of the nodes in a day.
"""

import math
from dataclasses import replace

import pytest
from operator_objects import NOW, SETTINGS, World, counted, profile, why_ready

from mofa_model.spec.evidence import FailureEvidence
from mofa_operator.decide.pool import profile as decide
from mofa_operator.incidents.incident import UNMATCHED
from mofa_operator.keys import CLUSTER_PROFILE, Key
from mofa_operator.metrics.declared import POOLS
from mofa_operator.objects import live
from mofa_operator.snapshot import History, NodeCount, NoHistory, ProfileSnapshot

EAST = Key(CLUSTER_PROFILE, "", "east")
H100 = "NVIDIA-H100-80GB-HBM3"
NODES = NodeCount(total=256, ready=254, cordoned=1, gpus={8: 256}, products=(H100,), names=("a",))
OUTAGE = NoHistory(
    reason="HistoryUnavailable", message="http://prometheus:9090 does not answer: timed out"
)


def history(process, pod, job, *, node_days=1000.0, coverage=1.0, recovery=None, **more):
    """What Prometheus counted in a window of thirty days."""
    counts = {"process": process, "pod": pod, "job": job}
    return History(
        classes={
            name: FailureEvidence(
                node_days=node_days,
                failures=count,
                recoveries=int(recovery is not None),
                recovery_seconds=recovery or 0.0,
            )
            for name, count in counts.items()
            if count is not None
        },
        node_days=node_days,
        window=30 * 86400.0,
        coverage=coverage,
        **more,
    )


def exported(figures, name):
    """What a metric reads of a pool."""
    return next(declared.read(figures) for declared in POOLS if declared.name == name)


class Pool:
    """A profile whose decisions are done, one look after the other."""

    def __init__(self, body=None, nodes=NODES):
        self.body = body or profile(ready=None)
        self.nodes = nodes
        self.now = NOW
        self.writes = 0
        self.notes = []

    def look(self, seen, after=0.0, nodes=None):
        """Look at the history after some time, and do what is decided; deciding again
        writes nothing.
        """
        self.now += after
        self.nodes = nodes or self.nodes
        decision = decide(self.snapshot(seen), SETTINGS)
        if decision.status is not None:
            self.writes += 1
            self.body = applied(self.body, decision)
        self.notes += decision.notes
        again = decide(self.snapshot(seen), SETTINGS)
        assert again.is_silent, again
        assert decide(self.snapshot(None), SETTINGS).is_silent, "a restart wants to write"
        return decision

    def snapshot(self, seen):
        return ProfileSnapshot(
            profile=live(CLUSTER_PROFILE, self.body),
            node_count=self.nodes,
            history=seen,
            now=self.now,
        )

    @property
    def status(self):
        return self.body["status"]

    def row(self, name):
        (found,) = [row for row in self.status["failures"] if row["name"] == name]
        return found

    def condition(self, aspect):
        (found,) = [one for one in self.status["conditions"] if one["type"] == aspect]
        return found["status"], found["reason"]

    def message(self, aspect):
        (found,) = [one for one in self.status["conditions"] if one["type"] == aspect]
        return found["message"]

    def reasons(self):
        return [note.reason for note in self.notes]


def applied(body, decision):
    from operator_objects import applied as by_the_server

    return by_the_server(body, decision)


class TestShared:
    def test_nodes_of_two_profiles_are_a_condition_that_says_which(self):
        pool = Pool()
        pool.look(None)
        assert pool.condition("NodesExclusive") == ("True", "NotShared")
        others = {"west": ("a", "b", "c", "d", "e"), "all": ("a",)}
        found = decide(replace(pool.snapshot(None), shared=others), SETTINGS).status["conditions"]
        (shared,) = [one for one in found if one["type"] == "NodesExclusive"]
        assert (shared["status"], shared["reason"]) == ("False", "NodesShared")
        assert shared["message"] == (
            "it shares nodes with other ClusterProfiles: a with all; a, b, c and 2 more with west"
        )
        assert next(one for one in found if one["type"] == "Ready")["status"] == "True", (
            "it is used all the same"
        )


def test_an_overruled_id_that_no_incident_has_is_told_at_once_and_no_longer_when_it_is_mended():
    pool, calm = Pool(), history(44, 85, 15, node_days=30720.0)
    told = f"{UNMATCHED}node/a@2026-11-02T09:30:00Z"
    pool.look(calm)
    pool.look(replace(calm, warnings=(told,)), after=60)
    assert pool.message("HistoryComplete").endswith(told)
    assert pool.condition("HistoryComplete") == ("True", "Complete"), (
        "nothing is missing of what was seen"
    )
    writes = pool.writes
    pool.look(replace(calm, warnings=(told, "3 nodes of the pool are gone")), after=60)
    assert pool.writes == writes, "other words are no news"
    pool.look(calm, after=60)
    assert UNMATCHED not in pool.message("HistoryComplete")


class TestVerdicts:
    def test_two_percent_where_half_a_percent_is_assumed_is_higher_than_assumed(self):
        """20 failures in 1,000 node-days where 5 are expected: 6, 12 and 2 where 1.5, 3 and
        0.5 are.
        """
        pool = Pool()
        pool.look(history(6, 12, 2))
        assert pool.status["total"] == {"assumed": "5", "observed": "20", "coveragePercent": 100}
        assert pool.condition("AssumptionsHold") == ("False", "HigherThanAssumed")
        assert pool.row("pod")["verdict"] == "HigherThanAssumed"
        (note,) = pool.notes
        assert (note.reason, note.warning) == ("AssumptionContradicted", True)
        for words in (
            "5 in a thousand node-days are assumed",
            "20 were seen",
            "1,000 node-days",
            "100 %",
        ):
            assert words in note.message

    def test_the_interval_that_is_named_is_the_exact_one(self):
        """Garwood's 90 % interval of 20 events is 13.3 to 29.1."""
        pool = Pool()
        pool.look(history(6, 12, 2))
        assert "between 13.3 and 29.1" in pool.notes[0].message

    def test_what_was_expected_is_consistent(self):
        pool = Pool()
        pool.look(history(44, 85, 15, node_days=30720.0, coverage=0.97))
        assert pool.condition("AssumptionsHold")[1] == "Consistent"
        assert pool.status["total"]["observed"] == "4.69"
        assert pool.condition("HistoryComplete") == ("True", "Complete")
        assert pool.notes == []

    def test_far_fewer_are_lower_than_assumed_which_is_no_warning(self):
        pool = Pool()
        pool.look(history(5, 5, 2, node_days=10000.0))
        assert pool.condition("AssumptionsHold")[1] == "LowerThanAssumed"
        assert [note.warning for note in pool.notes] == [False]

    def test_the_posterior_is_the_blend_that_advice_uses(self):
        """The prior of class pod is 1.2 failures in 400 node-days: (1.2 + 12) / 1,400 = 9.43 in
        a thousand.
        """
        pool = Pool()
        pool.look(history(6, 12, 2))
        row = pool.row("pod")
        assert float(row["rate"]["mean"]) == pytest.approx(1000 * (1.2 + 12) / 1400, abs=1e-4)
        assert row["priorWeightPercent"] == round(100 * 1.2 / 13.2)
        assert row["assumed"] == "3.0000"

    def test_a_verdict_is_told_once_and_again_when_it_changes(self):
        pool = Pool()
        pool.look(history(6, 12, 2))
        pool.look(history(6, 12, 2), after=3600)
        pool.look(history(6, 12, 2, node_days=4000.0), after=60)
        assert pool.condition("AssumptionsHold")[1] == "Consistent"
        pool.look(history(6, 12, 2), after=60)
        assert pool.reasons() == ["AssumptionContradicted"] * 2

    def test_a_changed_assumption_is_judged_at_once_by_what_is_remembered(self):
        pool = Pool()
        pool.look(history(6, 12, 2))
        body = profile(rates=("6", "12", "2"))
        pool.body = {**pool.body, "spec": body["spec"]}
        pool.look(None)
        assert pool.condition("AssumptionsHold")[1] == "Consistent"
        assert pool.row("pod")["assumed"] == "12.0000"
        assert pool.row("pod")["failures"] == 12


class TestMissingIsNeverZero:
    def test_before_anything_was_read_nothing_is_counted(self):
        pool = Pool()
        pool.look(None)
        assert "failures" not in pool.status or pool.status["failures"] == []
        assert pool.condition("HistoryComplete") == ("Unknown", "HistoryUnavailable")
        assert "observed" not in pool.status["total"]
        figures = decide(pool.snapshot(None), SETTINGS).figures
        assert exported(figures, "mofa_pool_exposure_node_days") is None
        assert exported(figures, "mofa_pool_history_coverage_ratio") is None
        assert exported(figures, "mofa_pool_recovery_seconds") == {}
        rates = exported(figures, "mofa_pool_failures_per_node_day")
        assert rates["total", "mean"] == pytest.approx(0.005)
        assert exported(figures, "mofa_pool_prior_weight_ratio")["total"] == 1

    def test_an_outage_keeps_what_was_learned_and_is_told_once(self):
        pool = Pool()
        pool.look(history(44, 85, 15, node_days=30720.0))
        before = pool.status["failures"]
        for after in (60, 60, 7200):
            pool.look(OUTAGE, after=after)
        pool.look(
            replace(OUTAGE, message="http://prometheus:9090 does not answer: connection refused"),
            after=60,
        )
        assert pool.status["failures"] == before
        assert pool.condition("HistoryComplete") == ("False", "HistoryUnavailable")
        assert pool.writes == 2
        assert pool.reasons() == ["HistoryUnavailable"]
        pool.look(history(44, 85, 15, node_days=30720.0), after=60)
        pool.look(OUTAGE, after=60)
        assert pool.reasons() == ["HistoryUnavailable"] * 2
        assert "30,720 node-days" in pool.notes[-1].message

    def test_an_operator_without_prometheus_says_so_without_an_event(self):
        pool = Pool()
        pool.look(NoHistory(reason="NotConfigured", message="no --prometheus-url was given"))
        assert pool.condition("HistoryComplete") == ("False", "NotConfigured")
        assert pool.notes == []

    def test_no_failure_in_a_covered_window_is_said_as_that(self):
        pool = Pool()
        pool.look(history(0, 0, 0, node_days=100.0))
        assert pool.condition("HistoryComplete") == ("True", "NoFailuresSeen")
        assert pool.row("pod")["failures"] == 0
        assert float(pool.row("pod")["rate"]["mean"]) == pytest.approx(1000 * 1.2 / 500, abs=1e-4)
        assert pool.row("pod")["priorWeightPercent"] == 100
        assert pool.condition("AssumptionsHold")[1] == "InsufficientData"

    def test_half_of_the_window_is_incomplete_with_its_coverage(self):
        pool = Pool()
        pool.look(history(3, 6, 1, node_days=2000.0, coverage=0.5))
        assert pool.condition("HistoryComplete") == ("False", "HistoryIncomplete")
        assert pool.row("pod")["coveragePercent"] == 50
        assert pool.reasons() == ["HistoryIncomplete"]
        assert "50 % of 30 days" in pool.notes[0].message

    def test_a_class_that_cannot_be_counted_is_not_a_class_without_failures(self):
        pool = Pool()
        pool.look(
            history(
                None, 30, None, node_days=10000.0, missing=("kube_pod_labels of training pods",)
            )
        )
        assert [row["name"] for row in pool.status["failures"]] == ["pod"]
        assert pool.status["total"]["observed"] == "3"
        assert "3 of class pod were seen" in pool.message("AssumptionsHold")
        assert pool.condition("AssumptionsHold")[1] == "InsufficientData"
        assert pool.condition("HistoryComplete") == ("False", "SeriesMissing")
        figures = decide(pool.snapshot(None), SETTINGS).figures
        verdicts = dict(exported(figures, "mofa_pool_verdict").keys())
        assert verdicts["process"] == "InsufficientData"
        assert "total" not in verdicts
        rates = exported(figures, "mofa_pool_failures_per_node_day")
        assert rates["pod", "mean"] == pytest.approx((1.2 + 30) / 10400)

    @pytest.mark.parametrize("missing", [(), ("kube_pod_container_status_restarts_total",)])
    def test_a_class_that_was_counted_before_is_not_forgotten(self, missing):
        pool = Pool()
        pool.look(history(44, 85, 15, node_days=30720.0))
        before = pool.status["failures"]
        pool.look(history(None, 85, 15, node_days=30720.0, missing=missing), after=3600)
        assert pool.status["failures"] == before
        assert pool.condition("HistoryComplete")[0] == "False"

    @pytest.mark.parametrize(
        "seen",
        [
            history(3, 6, 1, node_days=math.nan),
            history(3, 6, 1, node_days=math.inf),
            history(3, 6, 1, node_days=-1.0),
            history(3, 6, 1, coverage=7.0),
            history(3, -6, 1),
            history(3, 6, 1, recovery=math.nan),
            history(10**9, 6, 1),
        ],
    )
    def test_nonsense_changes_nothing_but_the_condition(self, seen):
        pool = Pool()
        pool.look(history(44, 85, 15, node_days=30720.0))
        before = pool.status["failures"]
        pool.look(seen, after=3600)
        assert pool.status["failures"] == before
        assert pool.condition("HistoryComplete") == ("False", "HistoryUnavailable")
        assert "cannot be" in pool.notes[-1].message


class TestMemory:
    def test_a_small_change_is_never_written_and_a_large_one_after_ten_minutes(self):
        """40 to 41 is 2.5 %; 40 to 43 is 7.5 %."""
        pool = Pool()
        pool.look(history(20, 40, 7, node_days=13000.0))
        pool.look(history(20, 41, 7, node_days=13300.0), after=7200)
        assert pool.writes == 1
        pool.look(history(20, 43, 7, node_days=13300.0), after=60)
        assert pool.writes == 2
        decision = pool.look(history(20, 47, 7, node_days=13300.0), after=500)
        assert (pool.writes, decision.requeue_after) == (2, 100.0)
        pool.look(history(20, 47, 7, node_days=13300.0), after=100)
        assert pool.writes == 3
        assert pool.status["historyTime"] == "2023-11-15T00:24:20Z"

    def test_metrics_do_not_wait(self):
        pool = Pool()
        pool.look(history(20, 40, 7, node_days=13000.0))
        decision = pool.look(history(20, 43, 7, node_days=13300.0), after=60)
        assert exported(decision.figures, "mofa_pool_exposure_node_days") == 13300.0
        assert pool.row("pod")["failures"] == 40

    def test_a_changed_verdict_does_not_wait(self):
        pool = Pool()
        pool.look(history(2, 3, 0))
        pool.look(history(6, 12, 2), after=60)
        assert pool.condition("AssumptionsHold")[1] == "HigherThanAssumed"

    def test_a_server_that_forgot_does_not_make_the_profile_forget(self):
        """A new disk: three days of thirty are left, a tenth of what is remembered."""
        pool = Pool()
        pool.look(history(44, 85, 15, node_days=30720.0))
        pool.look(history(4, 9, 1, node_days=3072.0, coverage=0.1), after=3600)
        assert pool.row("pod")["failures"] == 85
        assert pool.condition("HistoryComplete") == ("False", "HistoryIncomplete")
        pool.look(history(23, 45, 8, node_days=16000.0, coverage=0.52), after=86400)
        assert pool.row("pod")["failures"] == 45

    def test_a_missing_series_does_not_open_a_way_round_that_rule(self):
        pool = Pool()
        pool.look(history(None, 85, None, node_days=30720.0))
        some = history(
            None,
            9,
            None,
            node_days=3072.0,
            coverage=0.1,
            missing=("kube_pod_labels of training pods",),
        )
        pool.look(some, after=3600)
        assert pool.row("pod")["failures"] == 85

    def test_a_pool_that_shrank_is_believed(self):
        """The window is covered: a tenth of the nodes have a tenth of the exposure."""
        pool = Pool()
        pool.look(history(44, 85, 15, node_days=30720.0))
        pool.look(history(4, 9, 1, node_days=3072.0), after=3600)
        assert pool.row("pod")["failures"] == 9

    def test_recovery_times_are_remembered_and_exported_with_bounds(self):
        """16 recoveries of 400 s with a spread of one: 400 s give or take 1.645 x 400 / 4."""
        pool = Pool()
        pool.look(history(8, 16, 2, node_days=5000.0, recovery=400.0))
        assert pool.row("pod")["recoverySeconds"] == 400
        seen = decide(pool.snapshot(None), SETTINGS).figures.recovery["pod"]
        assert (seen.lower, seen.target, seen.upper) == pytest.approx((235.5, 400.0, 564.5))

    def test_what_running_jobs_taught_is_kept(self):
        body = profile(ready=None)
        body["status"] = {"calibration": {"stepTimeRatio": "1.08", "jobs": 3}, "residual": "-0.07"}
        pool = Pool(body)
        decision = pool.look(history(44, 85, 15, node_days=30720.0))
        assert pool.status["calibration"] == {"stepTimeRatio": "1.08", "jobs": 3, "asked": "1.08"}
        assert pool.status["residual"] == "-0.07"
        assert exported(decision.figures, "mofa_pool_calibration_ratio") == 1.08

    def test_a_profile_brings_its_own_history_along(self):
        """A status that was restored with the object is as good as one that was written here."""
        pool = Pool(profile(failures=counted()))
        pool.look(None)
        assert pool.row("pod")["failures"] == 85
        assert pool.status["total"]["coveragePercent"] == 97


class TestNodes:
    def test_a_lost_node_is_shown_at_once(self):
        pool = Pool()
        pool.look(None)
        pool.look(None, after=1, nodes=replace(NODES, ready=253))
        shown = pool.status["nodes"]
        assert (shown["ready"], shown["total"], shown["cordoned"]) == (253, 256, 1)
        assert shown["steady"] == 254, "advice stays for as many as before"

    @pytest.mark.parametrize(
        "nodes, spec, ready, words",
        [
            (NODES, {}, ("True", "NodesAsStated"), ""),
            (NodeCount(total=0, ready=0), {}, ("False", "NoNodes"), "nodeSelector"),
            (replace(NODES, ready=0), {}, ("False", "NoReadyNodes"), "none is ready"),
            (replace(NODES, gpus={4: 256}), {}, ("False", "NodesDiffer"), "nodes offer 4 GPUs"),
            (
                replace(NODES, gpus={7: 1, 8: 255}),
                {},
                ("True", "NodesAsStated"),
                "some nodes offer 7 GPUs",
            ),
            (
                replace(NODES, products=("NVIDIA-H200",)),
                {},
                ("False", "NodesDiffer"),
                "spec.gpu is h100",
            ),
            (replace(NODES, products=("Acme-9000",)), {}, ("True", "NodesAsStated"), ""),
            (NODES, {"gpu": "h999"}, ("False", "InvalidInput"), "h999"),
            (NODES, {"gpusPerNode": -1}, ("False", "InvalidInput"), "gpusPerNode"),
        ],
    )
    def test_ready_says_whether_nodes_are_what_the_profile_says(self, nodes, spec, ready, words):
        pool = Pool(profile(ready=None, **spec), nodes)
        pool.look(None)
        assert pool.condition("Ready") == ready
        assert pool.condition("Ready")[1] == ready[1]
        assert words in pool.status["conditions"][0]["message"]

    def test_a_spec_that_cannot_be_read_keeps_what_was_learned(self):
        body = profile(failures=counted(), gpusPerNode="eight")
        pool = Pool(body)
        pool.look(history(1, 1, 1))
        assert pool.row("pod")["failures"] == 85

    def test_a_profile_that_is_being_deleted_is_left_alone(self):
        body = profile()
        body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        assert decide(Pool(body).snapshot(None), SETTINGS).is_silent


def test_history_flows_through_the_profile_into_the_hash_of_a_job():
    """Nothing but the profile's status lies between Prometheus and an answer."""
    from operator_objects import node, training_job

    from mofa_operator.keys import NODE, TRAINING_JOB

    world = World()
    for name in "abcd":
        world.put(NODE, node(name))
    world.put(CLUSTER_PROFILE, profile(ready=None))
    world.put(TRAINING_JOB, training_job())
    world.rest()
    job = Key(TRAINING_JOB, "ns", "a")
    before = world.ours(job)
    assert world.status(EAST)["nodes"]["ready"] == 4
    world.due |= world.store.set_history("east", history(600, 1200, 200, node_days=1000.0))
    world.rest()
    after = world.ours(job)
    assert after["inputs-hash"] != before["inputs-hash"]
    assert int(after["checkpoint-interval-seconds"]) < int(before["checkpoint-interval-seconds"])
    assert why_ready(world.status(job)) == "Recommended"
    assert [note.reason for note in world.notes] == [
        "Recommended",
        "AssumptionContradicted",
        "RecommendationChanged",
    ]
