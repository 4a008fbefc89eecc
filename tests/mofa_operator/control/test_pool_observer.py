"""What the watch sees goes into the store, and its profile is queued; opting in plays no part."""

from operator_objects import H100, NOW, PRODUCT, job_set, node, profile, ref, training_job
from virtual_time import run

from mofa_model.kinds import JOB_SET
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.observers import PoolObserver
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.evidence import WATCH
from mofa_operator.keys import CLUSTER_PROFILE, NODE, TRAINING_JOB, Key
from mofa_operator.observe.cluster.store import Store
from mofa_operator.settings import LoopSettings

EAST = Key(CLUSTER_PROFILE, "", "east")


def with_status(body, restarts):
    """A JobSet that runs, after so many restarts."""
    name = body["spec"]["replicatedJobs"][0]["name"]
    told = {"name": name, "ready": 1, "succeeded": 0, "failed": 0, "active": 1}
    metadata = body["metadata"] | {"resourceVersion": f"{10 + restarts}"}
    return body | {
        "metadata": metadata,
        "status": {"restarts": restarts, "replicatedJobsStatus": [told]},
    }


def test_a_job_set_that_nobody_opted_in_is_witnessed_for_its_pool():
    async def main():
        store, queue, now = Store(), WorkQueue(backoff=1.0, longest=1.0), [NOW]
        enqueuer = Enqueuer(store, queue, LoopSettings())
        observer = PoolObserver(store=store, enqueuer=enqueuer, interval=60.0, clock=lambda: now[0])
        store.put(CLUSTER_PROFILE, profile(nodeSelector={PRODUCT: H100}))
        for name in "abcd":
            store.put(NODE, node(name))
        body = job_set()
        for restarts in (0, 0, 2):
            store.put(JOB_SET, with_status(body, restarts))
            await observer.look()
            now[0] += 60.0
        (day,) = store.snapshot(EAST, now[0]).watched
        assert (day.witness, day.covered) == (WATCH, 120.0)
        assert {name: one.failures for name, one in day.classes.items()} == {"pod": 0, "job": 2}
        assert len(queue) == 1, "the profile is looked at"

    run(main())


def test_the_profile_of_a_job_is_the_one_that_a_training_job_about_it_names():
    store = Store()
    store.put(CLUSTER_PROFILE, profile())
    body = job_set()
    store.put(JOB_SET, body)
    key = Key(JOB_SET, "ns", "js")
    assert store.profile_name(key) is None
    store.put(TRAINING_JOB, training_job(targetRef=ref(body)))
    assert store.profile_name(key) == "east"
