"""What is said of a Workload is final, so it rests on the policies that stand, not on those that
were seen.
"""

import asyncio
import copy
import time

from operator_objects import job_set, policy, profile
from virtual_time import run

from mofa_model.kinds import JOB_SET, WORKLOAD
from mofa_operator.api_errors import Gone
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.gates import AdmissionChecks
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.control.worker_process import Outgrown
from mofa_operator.decide.status import moment
from mofa_operator.keys import ADMISSION_CHECK, ADVISOR_POLICY, CLUSTER_PROFILE, Key
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.objects import live
from mofa_operator.observe.cluster.store import Store
from mofa_operator.settings import OperatorSettings

KEY = Key(WORKLOAD, "ns", "w")


def workload():
    """Since a minute there is room for a JobSet that waits for our check."""
    since = moment(time.time() - 60.0)
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "R",
        "lastTransitionTime": since,
    }
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "js",
        "uid": "js",
        "controller": True,
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {
            "name": "w",
            "namespace": "ns",
            "uid": "w",
            "resourceVersion": "5",
            "ownerReferences": [owner],
        },
        "spec": {
            "podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": []}}}]
        },
        "status": {
            "conditions": [reserved],
            "admission": {"podSetAssignments": [{"name": "main", "count": 2}]},
            "admissionChecks": [{"name": "advice", "state": "Pending"}],
        },
    }


class Cluster:
    """An API server; its policies are not those that were seen."""

    def __init__(self, policies):
        self.policies = policies
        self.lists = 0
        self.said = []

    async def list(self, kind, namespace=None):
        assert (kind, namespace) == (ADVISOR_POLICY, "ns")
        self.lists += 1
        if self.policies is None:
            raise Gone("404")
        for one in self.policies:
            yield copy.deepcopy(one)

    async def merge(self, kind, namespace, name, patch, *, status=False):
        self.said.append([one["message"] for one in patch["status"]["admissionChecks"]])
        body = workload()
        body["metadata"]["resourceVersion"] = "6"
        body["status"] |= patch["status"]
        return body


def versioned(body, version):
    return {**body, "metadata": {**body["metadata"], "resourceVersion": version}}


class Model:
    """One that has too little memory for every question, and notes whose turn it was."""

    def __init__(self, meanwhile=lambda store: None):
        self.turns, self.store, self.meanwhile = [], None, meanwhile

    async def answer(self, question, *, namespace="", urgent=True):
        self.turns.append((namespace, urgent))
        self.meanwhile(self.store)
        raise Outgrown("too large")


def answered(seen=(), stands=(), model=None):
    """What is said of the Workload where some policies were seen, and others stand; how often they
    were read; what was queued.
    """

    async def play():
        settings, store, cluster = OperatorSettings(admission_checks=True), Store(), Cluster(stands)
        if model is not None:
            model.store = store
        queue = WorkQueue(backoff=1.0, longest=1.0)
        checks = AdmissionChecks(
            store=store,
            enqueuer=Enqueuer(store, queue, settings.loop),
            api=cluster,
            model_pool=model,
            exporter=Exporter(),
            settings=settings,
        )
        check = {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "AdmissionCheck",
            "metadata": {"name": "advice"},
            "spec": {"controllerName": "mofa.dev/advisor"},
        }
        store.put(ADMISSION_CHECK, check)
        store.put(CLUSTER_PROFILE, profile())
        store.put(JOB_SET, job_set())
        for one in seen:
            store.put(ADVISOR_POLICY, one)
        store.put(WORKLOAD, workload())
        checks.listen(live(WORKLOAD, workload()))
        working = asyncio.create_task(checks.run())
        await asyncio.sleep(5.0)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return cluster, queue

    return run(play())


def test_a_policy_that_was_applied_a_moment_ago_counts_before_its_watch_brings_it():
    cluster, queue = answered(stands=[policy(mode="Disabled")])
    assert cluster.said == [["without advice: its mode is Disabled"]]
    assert cluster.lists == 2
    assert len(queue) == 3  # policy, job and Workload are looked at, as if its watch had brought it


def test_so_does_one_that_was_changed():
    old, new = policy(mode="Disabled"), policy(kinds=False)
    cluster, _ = answered(seen=[old], stands=[versioned(new, "2")])
    assert cluster.said == [["without advice: nobody asks for it"]]


def test_policies_that_were_seen_as_they_stand_or_since_are_read_once():
    for version in ("2", "1"):
        cluster, queue = answered(
            seen=[versioned(policy(mode="Disabled"), "2")], stands=[versioned(policy(), version)]
        )
        assert cluster.said == [["without advice: its mode is Disabled"]]
        assert (cluster.lists, len(queue)) == (1, 0)


def test_its_namespace_takes_its_turn_with_the_model():
    model = Model()
    answered(seen=[policy()], stands=[policy()], model=model)
    assert model.turns
    assert set(model.turns) == {("ns", True)}


def test_a_policy_that_comes_while_the_model_thinks_counts():
    old, new = versioned(policy(), "1"), versioned(policy(mode="Disabled"), "2")
    model = Model(lambda store: store.put(ADVISOR_POLICY, new))
    cluster, _ = answered(seen=[old], stands=[new], model=model)
    assert cluster.said == [["without advice: its mode is Disabled"]]


def test_where_there_are_no_policies_nothing_is_waited_for():
    assert answered(stands=None)[0].said == [["without advice: nobody asks for it"]]
