"""The watch as a witness: objects by hand and a clock of our own, a look every minute."""

import pytest

from mofa_model.kinds import JOB_SET, PYTORCH_JOB, TRAIN_JOB
from mofa_model.spec.evidence import FailureEvidence
from mofa_operator.keys import CLUSTER_PROFILE
from mofa_operator.objects import live
from mofa_operator.observe.history.watch import (
    PoolWatch,
    WatchedPool,
    innermost,
    placement,
    watched_job,
)
from mofa_operator.observe.nodes import NodeFacts

DAY, MINUTE = 86400.0, 60.0
NOON = 1_700_000_000.0 // DAY * DAY + DAY / 2
EAST = {"pool": "east"}


def node(*, ready=True, cordoned=False):
    return NodeFacts(labels=EAST, ready=ready, cordoned=cordoned, gpus=8)


def up(size=4, **changed):
    """A pool's nodes, n0 to n3, all ready but those that are named."""
    return {f"n{number}": node() for number in range(size)} | changed


def job_set(
    restarts=0, ready=2, *, jobs=(0, 0), name="llama", uid="1", in_place=None, owner=None, **more
):
    """A JobSet of two pods with eight GPUs each."""
    status = {
        "restarts": restarts,
        "replicatedJobsStatus": [
            {"name": "w", "ready": ready, "succeeded": 0, "jobRestarts": list(jobs)}
        ],
    }
    if in_place is not None:
        status["currentInPlaceRestartAttempt"] = in_place
    container = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    pod = {"nodeSelector": EAST, "containers": [container]}
    references = [{"kind": "TrainJob", "name": name, "uid": owner}] if owner else []
    return {
        "apiVersion": JOB_SET.api_version,
        "kind": "JobSet",
        "metadata": {"namespace": "ml", "name": name, "uid": uid, "ownerReferences": references},
        "spec": {
            "replicatedJobs": [
                {"name": "w", "replicas": 2, "template": {"spec": {"template": {"spec": pod}}}}
            ]
        },
        "status": status | more,
    }


def train_job(uid="9", **status):
    return {
        "apiVersion": TRAIN_JOB.api_version,
        "kind": "TrainJob",
        "metadata": {"namespace": "ml", "name": "llama", "uid": uid},
        "spec": {"trainer": {"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}},
        "status": {
            "jobsStatus": [{"name": "w", "ready": 2, "active": 2, "succeeded": 0, "failed": 0}]
        }
        | status,
    }


KINDS = {"JobSet": JOB_SET, "TrainJob": TRAIN_JOB, "PyTorchJob": PYTORCH_JOB}


def pool_of(uid, selector, nodes=None, days=None, rules=None):
    """A pool as its profile selects it."""
    spec = {"nodeSelector": selector, "incidents": rules}
    body = {"metadata": {"uid": uid}, "spec": spec, "status": {"days": days}}
    return WatchedPool(profile=live(CLUSTER_PROFILE, body), node_facts=nodes or up())


def of(kind, body, named, now):
    """What a job's object says."""
    return watched_job(kind, live(kind, body), named, now)


class Site:
    """One pool under the eyes of an operator."""

    def __init__(self, days=None, now=NOON, rules=None):
        self.now, self.rules = now, rules
        self.days = days
        self.restart()

    def restart(self):
        self.witness = PoolWatch(180.0)

    def look(self, nodes=None, *jobs, after=MINUTE):
        self.now += after
        pool = pool_of("p", EAST, nodes, self.days, self.rules)
        said = [of(KINDS[body["kind"]], body, None, self.now) for body in jobs]
        return self.witness.look({"east": pool}, said, self.now)["east"]

    def hours(self, hours, nodes=None, *jobs):
        for _ in range(round(60 * hours)):
            found = self.look(nodes, *jobs)
        return found


def counts(day):
    return {name: one.failures for name, one in day.classes.items()}


class TestJobs:
    def test_restarts_of_a_job_set_are_counted_by_class_over_its_own_node_time(self):
        """Two of four nodes for two hours: 1/6 of a node-day."""
        site = Site()
        site.look(up(), job_set())
        site.hours(1, up(), job_set())
        (day,) = site.hours(1, up(), job_set(2))
        assert counts(day) == {"pod": 0, "job": 2}
        assert day.classes["job"].node_days == pytest.approx(2 * 2 / 24)
        assert day.covered == pytest.approx(7200.0)
        assert "process" not in day.classes, "a JobSet without in-place restarts does not show them"

    def test_a_pod_that_was_replaced_is_class_pod_and_its_recovery_is_timed(self):
        site = Site()
        site.look(up(), job_set())
        site.look(up(), job_set())
        for _ in range(5):
            site.look(up(), job_set(ready=1, jobs=(1, 0)))
        (day,) = site.look(up(), job_set(jobs=(1, 0)))
        assert counts(day) == {"pod": 1, "job": 0}
        assert day.classes["pod"].recoveries == 1
        assert day.classes["pod"].recovery_seconds == pytest.approx(5 * MINUTE, abs=MINUTE)

    def test_restarts_in_place_are_class_process_where_the_object_says_so(self):
        site = Site()
        site.look(up(), job_set(in_place=3))
        site.hours(0.5, up(), job_set(in_place=3))
        (day,) = site.look(up(), job_set(in_place=4))
        assert counts(day) == {"process": 1, "pod": 0, "job": 0}

    def test_what_stood_at_the_first_look_counts_nothing(self):
        site = Site()
        site.look(up(), job_set(7, jobs=(3, 3)))
        (day,) = site.hours(1, up(), job_set(7, jobs=(3, 3)))
        assert counts(day) == {"pod": 0, "job": 0}

    def test_a_train_job_and_its_job_set_are_one_job(self):
        site = Site()
        both = train_job(), job_set(owner="9")
        site.look(up(), *both)
        site.hours(1, up(), *both)
        (day,) = site.look(up(), train_job(), job_set(1, owner="9"))
        assert counts(day) == {"pod": 0, "job": 1}
        assert day.classes["job"].node_days == pytest.approx(2 * 61 / 1440)

    def test_a_suspension_is_no_failure_and_no_exposure(self):
        site = Site()
        site.look(up(), job_set())
        site.hours(1, up(), job_set())
        at = "2023-11-14T13:00:30Z"
        held = job_set(
            ready=0, conditions=[{"type": "Suspended", "status": "True", "lastTransitionTime": at}]
        )
        (day,) = site.hours(1, up(), held)
        assert counts(day) == {"pod": 0, "job": 0}
        assert day.classes["job"].node_days == pytest.approx(2 * 61 / 1440, rel=0.02)

    def test_a_job_on_other_nodes_is_none_of_this_pool(self):
        other = job_set(5)
        job = other["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        job["nodeSelector"] = {"pool": "west"}
        site = Site()
        site.look(up(), other)
        (day,) = site.hours(1, up(), other)
        assert counts(day) == {"pod": 0}, "nodes alone"
        assert day.classes["pod"].node_days == pytest.approx(4 / 24)


class TestNodes:
    def test_a_node_of_an_idle_pool_that_goes_down_is_class_pod(self):
        site = Site()
        site.look()
        site.hours(1)
        (day,) = site.hours(0.5, up(n1=node(ready=False)))
        assert day.classes == {
            "pod": FailureEvidence(node_days=pytest.approx((4 * 61 + 3 * 29) / 1440), failures=1)
        }

    def test_a_node_that_is_soon_back_was_flapping(self):
        site = Site()
        site.look()
        for _ in range(5):
            assert counts(site.look(up(n1=node(ready=False)))[0]) == {"pod": 0}
        assert counts(site.look()[0]) == {"pod": 0}
        assert counts(site.hours(0.2)[0]) == {"pod": 0}

    def test_a_node_is_lost_after_five_minutes_and_once(self):
        site = Site()
        site.look()
        site.look(up(n1=node(ready=False)))
        assert [counts(site.look(up(n1=node(ready=False)))[0])["pod"] for _ in range(8)] == [
            0
        ] * 5 + [1] * 3

    def test_a_profile_says_after_how_long_a_node_is_lost(self):
        site = Site(rules={"shortestOutageSeconds": 120})
        site.look()
        site.look(up(n1=node(ready=False)))
        assert [counts(site.look(up(n1=node(ready=False)))[0])["pod"] for _ in range(4)] == [
            0,
            0,
            1,
            1,
        ]

    def test_a_node_that_was_cordoned_before_was_planned_and_one_that_is_gone_was_scaled_away(self):
        site = Site()
        site.look()
        site.look(up(n1=node(cordoned=True)))
        site.look(up(n1=node(cordoned=True, ready=False)))
        (day,) = site.look(up(size=3, n1=node(cordoned=True, ready=False)))
        assert counts(day) == {"pod": 0}

    def test_under_running_jobs_a_lost_node_shows_in_them_and_counts_nothing_itself(self):
        site = Site()
        site.look(up(), job_set())
        site.hours(1, up(), job_set())
        (day,) = site.hours(0.5, up(n1=node(ready=False)), job_set(1))
        assert counts(day) == {"pod": 0, "job": 1}


class TestTime:
    def test_a_night_is_two_days(self):
        site = Site(now=NOON + DAY / 2 - 90.0)
        site.look()
        site.look()
        first, second = site.hours(1)
        assert (first.covered, second.covered) == (pytest.approx(30.0), pytest.approx(3630.0))
        assert first.date < second.date

    def test_a_gap_is_neither_exposure_nor_count(self):
        """Three looks are missed: what went wrong meanwhile, nobody saw."""
        site = Site()
        site.look(up(), job_set())
        site.hours(1, up(), job_set())
        site.look(up(n1=node(ready=False)), job_set(3), after=600.0)
        (day,) = site.hours(1, up(n1=node(ready=False)), job_set(3))
        assert counts(day) == {"pod": 0, "job": 0}
        assert day.covered == pytest.approx(7200.0)

    def test_a_restart_of_the_operator_goes_on_with_the_day_that_the_status_holds(self):
        site = Site()
        site.look(up(), job_set())
        site.hours(1, up(), job_set())
        (day,) = site.look(up(), job_set(2))
        row = {"name": "job", "failures": 2, "exposureNodeDays": "0.0847"}
        calm = {"name": "pod", "failures": 0, "exposureNodeDays": "0.0847"}
        assert counts(day) == {"pod": 0, "job": 2}
        site.days = [
            {"date": day.date, "witness": "Watch", "coveredSeconds": 3660, "classes": [row, calm]},
            {"date": day.date, "witness": "Prometheus", "coveredSeconds": 9, "classes": [row]},
        ]
        site.restart()
        assert site.look(up(), job_set(2), after=3600.0) == ()
        (after,) = site.hours(1, up(), job_set(2))
        assert counts(after) == {"pod": 0, "job": 2}
        assert after.covered == pytest.approx(3660 + 3600)
        assert after.classes["job"].node_days == pytest.approx(0.0847 + 2 / 24)
        (after,) = site.look(up(), job_set(3))
        assert counts(after)["job"] == 3

    def test_a_profile_that_was_made_anew_begins_anew(self):
        site = Site()
        site.look()
        site.hours(1)
        site.now += MINUTE
        again = pool_of("q", EAST)
        assert site.witness.look({"east": again}, [], site.now)["east"] == ()


class TestPlacement:
    POOLS = {  # noqa: RUF012 - read only
        "east": pool_of("p", EAST),
        "west": pool_of("q", {"pool": "west"}),
    }

    def test_a_job_runs_where_its_pods_select_nodes(self):
        job = of(JOB_SET, job_set(), None, NOON)
        assert placement(job, self.POOLS) == ("east", 2.0)

    @pytest.mark.parametrize(
        "pods, each, nodes",
        [(1, 1, 1.0), (1, 4, 1.0), (2, 4, 1.0), (3, 4, 3.0), (4, 4, 2.0), (16, 1, 2.0)],
    )
    def test_a_job_with_a_part_of_a_node_is_on_the_whole_of_it(self, pods, each, nodes):
        """So node-days are counted as the advice counts nodes: a node that is lost is lost for
        whoever has a part of it.
        """
        body = job_set()
        (replicated,) = body["spec"]["replicatedJobs"]
        replicated["replicas"] = pods
        (container,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
        container["resources"]["limits"]["nvidia.com/gpu"] = str(each)
        assert placement(of(JOB_SET, body, None, NOON), self.POOLS) == ("east", nodes)

    def test_a_job_that_selects_nothing_runs_where_it_is_said_to_run_or_nowhere(self):
        assert placement(of(TRAIN_JOB, train_job(), "west", NOON), self.POOLS) == ("west", 2.0)
        assert placement(of(TRAIN_JOB, train_job(), None, NOON), self.POOLS) is None
        assert placement(of(TRAIN_JOB, train_job(), "north", NOON), self.POOLS) is None

    def test_what_a_policy_says_of_a_train_job_holds_for_its_job_set(self):
        (job,) = innermost(
            [of(TRAIN_JOB, train_job(), "east", NOON), of(JOB_SET, job_set(owner="9"), None, NOON)]
        )
        assert (job.uid, job.profile) == ("1", "east")

    def test_an_object_that_cannot_be_read_is_of_no_pool(self):
        broken = job_set()
        broken["spec"]["replicatedJobs"][0]["replicas"] = "many"
        assert placement(of(JOB_SET, broken, None, NOON), self.POOLS) is None
