"""Running jobs: where each is to be seen, and what an outage of Prometheus does not end."""

from __future__ import annotations

from operator_objects import job_set, policy, profile, training_job
from virtual_time import run

from mofa_model.errors import SourceUnreachable
from mofa_model.kinds import JOB_SET
from mofa_model.kinds.kind import Observation
from mofa_model.manifest.cluster_profile import EXPORTERS
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.observers import JobObserver, watched
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.objects import live
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.jobs.pods import Gang
from mofa_operator.observe.progress.telemetry import Telemetry
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import Running

JOB = Key(TRAINING_JOB, "ns", "a")


def test_the_pools_matchers_count_more_than_the_jobs():
    pool = profile(prometheus={"matchers": {"cluster": "east"}, "stepQuery": "up"})
    job = training_job(
        throughput={"preset": "megatron", "matchers": {"cluster": "other", "run": "7"}}
    )
    found = watched(live(TRAINING_JOB, job), {"east": live(CLUSTER_PROFILE, pool)})
    assert found.preset == "megatron"
    assert found.matchers == {"cluster": "east", "run": "7"}
    assert (found.tokens_query, found.step_query) == (None, "up")


def test_a_job_without_a_known_exporter_hides_no_other():
    assert (
        watched(live(TRAINING_JOB, training_job(throughput={"preset": "nobody-knows"})), {}) is None
    )
    assert watched(live(TRAINING_JOB, training_job(mode="Disabled")), {}) is None
    assert watched(live(TRAINING_JOB, training_job()), {}).preset == "mofa"


def test_what_was_seen_stands_while_prometheus_is_away_and_goes_when_the_job_stands_still(caplog):
    async def main():
        store, queue = Store(), WorkQueue(backoff=1.0, longest=1.0)
        enqueuer = Enqueuer(store, queue, LoopSettings())
        store.put(CLUSTER_PROFILE, profile())
        store.put(TRAINING_JOB, training_job())
        look = Telemetry(running=Running(source="mofa", tokens_per_second=1000.0))
        answers = iter([{JOB_ID: look}, None, None, {}])

        async def ask(jobs, now):
            assert [one.job for one in jobs] == [JOB_ID]
            answer = next(answers)
            if answer is None:
                raise SourceUnreachable("connection refused")
            return answer

        observer = JobObserver(store=store, enqueuer=enqueuer, ask=ask, interval=60.0)
        running, queued = [], []
        for _ in range(4):
            await observer.look()
            running.append(store.snapshot(JOB, 0.0).running)
            queued.append(len(queue))
            if len(queue):
                queue.done(await queue.take())
        assert [one and one.tokens_per_second for one in running] == [1000.0, 1000.0, 1000.0, None]
        assert queued == [1, 0, 0, 1]  # only news are looked at
        assert sum("connection refused" in record.message for record in caplog.records) == 1

    run(main())


JOB_ID = ("ns", "a")


def test_the_object_that_a_training_job_is_about_owns_the_pods():
    about = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "llama"}
    pool = live(CLUSTER_PROFILE, profile(prometheus={"matchers": {"cluster": "e"}}))
    found = watched(live(TRAINING_JOB, training_job(targetRef=about)), {"east": pool})
    assert found.pods_of == ("ns", "llama")
    assert found.pool == {"cluster": "e"}
    assert watched(live(TRAINING_JOB, training_job()), {}).pods_of == ("ns", "a")


def test_a_job_of_another_kind_is_looked_at_once_it_is_advised_unless_a_training_job_speaks_for_it():
    async def main():
        store = Store()
        pool = profile(prometheus={"matchers": {"cluster": "e"}})
        store.put(CLUSTER_PROFILE, pool)
        store.put(ADVISOR_POLICY, policy(profile="east"))
        advised = {"advisor.mofa.dev/inputs-hash": "0"}
        for name, said in (
            ("alone", advised),
            ("unasked", None),
            ("spoken-for", advised),
            ("a", advised),
        ):
            store.put(JOB_SET, job_set(name, annotations=said))
        about = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "spoken-for"}
        store.put(TRAINING_JOB, training_job(targetRef=about))
        asked = []

        async def ask(jobs, now):
            asked.extend((one.job, dict(one.matchers), one.pods_of) for one in jobs)
            return {
                ("ns", "alone"): Telemetry(running=Running(source="mofa", tokens_per_second=1000.0))
            }

        enqueuer = Enqueuer(store, WorkQueue(backoff=1.0, longest=1.0), LoopSettings())
        await JobObserver(store=store, enqueuer=enqueuer, ask=ask, interval=60.0).look()
        assert sorted(asked) == [
            (
                ("ns", "a"),
                {"cluster": "e"},
                ("ns", "spoken-for"),
            ),  # the TrainingJob, and not the JobSet of its name
            (("ns", "alone"), {"cluster": "e"}, ("ns", "alone")),
        ]
        running = store.snapshot(Key(JOB_SET, "ns", "alone"), 0.0).running
        assert running.tokens_per_second == 1000.0

    run(main())


def test_what_the_device_holds_counts_before_what_an_allocator_says():
    async def main():
        store = Store()
        enqueuer = Enqueuer(store, WorkQueue(backoff=1.0, longest=1.0), LoopSettings())
        store.put(CLUSTER_PROFILE, profile())
        store.put(TRAINING_JOB, training_job())
        told = Running(source="mofa", tokens_per_second=1000.0, memory_bytes=5e10)
        pods = [
            Gang(observation=Observation(), nodes=frozenset(), memory_bytes=memory)
            for memory in (None, 6e10)
        ]
        answers = iter([{JOB_ID: Telemetry(running=told, gang=gang)} for gang in pods])

        async def ask(jobs, now):
            return next(answers)

        observer, seen = JobObserver(store=store, enqueuer=enqueuer, ask=ask, interval=60.0), []
        for _ in pods:
            await observer.look()
            running = store.snapshot(JOB, 0.0).running
            seen.append((running.memory_bytes, running.whole_device))
        assert seen == [(5e10, False), (6e10, True)]

    run(main())


def test_a_pool_may_name_where_its_exporters_run():
    for named, believed in ({"exporterNamespaces": ["dcgm"]}, ("dcgm",)), ({}, EXPORTERS):
        pool = {"east": live(CLUSTER_PROFILE, profile(prometheus=named))}
        assert watched(live(TRAINING_JOB, training_job()), pool).exporters == believed
