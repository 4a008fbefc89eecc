"""Whether a job is there to train, and since when: by its object, its pods or its
trainer's series.
"""

import asyncio

import pytest

from mofa_model.kinds import JOB_SET
from mofa_operator.keys import TRAINING_JOB
from mofa_operator.objects import live
from mofa_operator.observe.jobs.pods import Pod, gang
from mofa_operator.observe.progress.run_records import RunRecords
from mofa_operator.observe.progress.telemetry import (
    FinishedStep,
    JobSeries,
    Telemetry,
    series_presence,
)
from mofa_operator.observe.prometheus.client import QueryResult, Sample
from mofa_operator.snapshot import Running

JOB = ("ml", "llama")
LLAMA = live(TRAINING_JOB, {"metadata": {"namespace": "ml", "name": "llama", "uid": "1"}})
NONE = Telemetry()


def job_set(ready, **status):
    """A JobSet of two jobs, so many of which are ready."""
    said = {"replicatedJobsStatus": [{"name": "w", "ready": ready}], **status}
    spec = {"replicatedJobs": [{"name": "w", "replicas": 2}]}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": spec,
        "status": said,
    }


class Watching:
    """Looks at one job."""

    def __init__(self):
        self.lives = RunRecords(lambda _: "")

    def look(self, now, look=NONE, target=None):
        target = target and live(JOB_SET, target)
        running = self.lives.after(LLAMA, target, look, now)
        return self.lives.alive(LLAMA, target, look, running, now)


def running(step):
    return Running(source="mofa", step=step, step_seconds=2.0)


def test_a_job_of_which_nothing_says_that_it_is_there_is_not():
    assert Watching().look(0.0) is None
    assert Watching().look(0.0, target=job_set(1)) is None


def test_each_of_object_pods_and_trainer_says_that_a_job_is_there_and_only_the_trainer_that_it_is_watched():
    pods = {
        "a": Pod(job_name=JOB, attempt="0", slot="0"),
        "b": Pod(job_name=JOB, attempt="0", slot="1"),
    }
    whole = gang(pods, {}, {"a": 700.0, "b": 800.0})
    by_object = Watching().look(1000.0, target=job_set(2))
    by_pods = Watching().look(1000.0, Telemetry(gang=whole))
    by_trainer = Watching().look(1000.0, Telemetry(series_since=900.0))
    assert (by_object.since, by_object.watched) == (1000.0, False)
    assert (by_pods.since, by_pods.watched) == (800.0, False)
    assert (by_trainer.since, by_trainer.watched) == (900.0, True)
    assert gang(pods, {}, {"a": 700.0, "b": 0.0}).since is None, "one pod does not run yet"


def test_pods_that_have_nodes_and_do_not_run_are_watched_and_pods_that_wait_for_nodes_are_in_a_queue():
    starts = {"a": 700.0, "b": 0.0}
    crashing = {name: Pod(job_name=JOB, attempt="0", slot=name, node=f"n-{name}") for name in "ab"}
    waiting = crashing | {"b": Pod(job_name=JOB, attempt="0", slot="b")}
    found = Watching().look(1000.0, Telemetry(gang=gang(crashing, {}, starts)))
    assert (found.since, found.watched) == (1000.0, True)
    assert Watching().look(1000.0, Telemetry(gang=gang(waiting, {}, starts))) is None
    assert Watching().look(1000.0, Telemetry(gang=gang(crashing, {}, {}))) is None, (
        "none of them lives"
    )


def test_who_was_seen_to_step_is_watched_when_its_trainer_falls_silent():
    job = Watching()
    job.look(0.0, Telemetry(series_since=0.0, running=running(7)), job_set(2))
    silent = job.look(600.0, target=job_set(2))
    assert (silent.watched, silent.step_at) == (True, 0.0)


@pytest.mark.parametrize("over", ["Suspended", "Completed", "Failed"])
def test_an_object_that_is_suspended_or_over_says_more_than_series_that_are_still_there(over):
    said = [{"type": over, "status": "True", "lastTransitionTime": "1970-01-01T00:10:00Z"}]
    assert Watching().look(1000.0, Telemetry(series_since=0.0), job_set(2, conditions=said)) is None


def test_a_job_that_starts_again_and_again_is_still_in_its_first_start():
    job = Watching()
    assert job.look(0.0, Telemetry(series_since=0.0)).since == 0.0
    for now in range(
        300, 3600, 300
    ):  # down for five minutes, up for five, and its exporter begins anew
        job.look(float(now), Telemetry(series_since=float(now)) if now % 600 else NONE)
    assert job.look(3600.0, Telemetry(series_since=3590.0)).since == 0.0
    assert job.look(8000.0, Telemetry(series_since=7990.0)).since == 7990.0, (
        "long gone: another start"
    )


def test_a_resumed_job_starts_anew():
    job = Watching()
    job.look(0.0, target=job_set(2))
    said = [{"type": "Suspended", "status": "True", "lastTransitionTime": "1970-01-01T00:00:10Z"}]
    job.look(60.0, target=job_set(0, conditions=said))
    assert job.look(120.0, target=job_set(2)).since == 120.0


def test_the_last_step_is_dated_by_its_series_else_when_it_was_first_seen():
    dated, plain = Watching(), Watching()
    path = (FinishedStep(90.0, 6, 95.0), FinishedStep(95.0, 7, 100.0))
    assert (
        dated.look(
            100.0, Telemetry(series_since=0.0, running=running(7), finished_steps=path)
        ).step_at
        == 95.0
    )
    assert plain.look(100.0, Telemetry(series_since=0.0, running=running(7))).step_at == 100.0
    assert plain.look(160.0, Telemetry(series_since=0.0, running=running(7))).step_at == 100.0
    stood = plain.look(1000.0, Telemetry(series_since=0.0))
    assert (stood.step_at, stood.at) == (100.0, 1000.0)


def test_step_nought_is_no_step():
    flat = Telemetry(series_since=10.0, finished_steps=(FinishedStep(10.0, 0, 15.0),))
    assert Watching().look(1000.0, flat).step_at is None


class Server:
    """Keeps what it is asked; answers by the first of these texts that stands in a query."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    async def query(self, query, at=None):
        self.asked.append(query)
        found = next((answer for text, answer in self.answers.items() if text in query), {})
        names = ("training_namespace", "training_job")
        return QueryResult(samples=tuple(Sample(dict(zip(names, job, strict=False)), ((0.0, value),)) for job, value in found.items()))  # fmt: skip


def test_one_query_says_whose_trainers_are_there():
    server = Server(mofa_train_start={JOB: 5.0, ("ml", "not-asked"): 1.0})
    many = [JobSeries(namespace="ml", name=name) for name in ("llama", "other")]
    assert asyncio.run(series_presence(server, many, 10.0)) == {JOB: 5.0}
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("job", "series"),
    [
        ({"preset": "megatron", "matchers": {"pod": "x"}}, "megatron_training_tokens_per_sec"),
        ({"preset": "prime-rl", "matchers": {"pod": "x"}}, "trainer_step"),
        ({"step_query": 'my_step{job="$job"}'}, "my_step"),
    ],
)
def test_other_exporters_and_own_queries_are_there_with_their_first_series(job, series):
    one = [JobSeries(namespace="ml", name="llama", **job)]
    assert asyncio.run(series_presence(Server(**{series: {(): 0.0}}), one, 10.0)) == {JOB: 0.0}
    assert asyncio.run(series_presence(Server(), one, 10.0)) == {}
