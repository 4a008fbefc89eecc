"""What the page is handed: what the store holds, and answers in full that never stand in
anybody's way.
"""

from __future__ import annotations

import asyncio

import pytest
from operator_objects import job_set, profile, training_job

from mofa_model.errors import SourceUnreachable
from mofa_model.kinds import JOB_SET
from mofa_model.page import AdviceView
from mofa_model.strategy import format_strategy
from mofa_operator.api_errors import Busy
from mofa_operator.control import pages
from mofa_operator.control.answers import Outdated
from mofa_operator.control.pages import Pages
from mofa_operator.control.worker_process import NoAnswer
from mofa_operator.decide.answer import answer, view
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.prometheus.client import QueryResult, Sample

OUTCOME = {"advisor.mofa.dev/status": "Recommended"}


class ModelPool:
    """Answers in full, computed here; `says` is raised or awaited instead."""

    def __init__(self, says=None):
        self.says = says

    async def view(self, question):
        if isinstance(self.says, Exception):
            raise self.says
        if self.says is not None:
            await self.says
        return view(question)


class Api:
    """An API server that has no ConfigMap, or does not answer."""

    def __init__(self, error=None):
        self.error = error

    async def get(self, *_):
        if self.error:
            raise self.error


@pytest.fixture
def store():
    made = Store()
    made.put(CLUSTER_PROFILE, profile())
    made.put(TRAINING_JOB, training_job())
    return made


def source(store, model_pool=None, api=None, prometheus=None):
    return Pages(
        store=store,
        model_pool=model_pool or ModelPool(),
        api=api or Api(),
        health=lambda _: "",
        prometheus=prometheus,
    )


def job(store, name="a", changes=None, **more):
    return asyncio.run(
        source(store, **more).view("trainingjobs.mofa.dev", "ns", name, changes or {})
    )


def lately(store, prometheus=None):
    return asyncio.run(
        source(store, prometheus=prometheus).curves("trainingjobs.mofa.dev", "ns", "a")
    )


def test_the_view_says_what_the_answer_says(store):
    shown = job(store)
    told = answer(store.snapshot(Key(TRAINING_JOB, "ns", "a"), 0.0).question)
    assert isinstance(shown, AdviceView)
    assert format_strategy(shown.advice.strategy) == told.annotations["advisor.mofa.dev/strategy"]
    assert (shown.advice.status.value, shown.advice.explanation) == (told.outcome, told.explanation)
    assert shown.launch == told.arguments


def test_a_change_reaches_the_answer_and_what_is_wrong_comes_back(store):
    assert job(store, changes={"nodes": "1"}).title.endswith("on 8 h100-80gb-sxm")
    assert list(job(store, changes={"nodes": "x"}).why) == ["nodes"]


class Prometheus:
    """Answers with one point, late or not at all."""

    def __init__(self, wait=0.0, error=None):
        self.wait, self.error = wait, error

    async def query(self, *_):
        await asyncio.sleep(self.wait)
        if self.error:
            raise self.error
        return QueryResult(samples=(Sample({}, ((0.0, 1.0),)),))


def test_a_history_comes_from_prometheus_or_a_sentence_says_why_not(store, monkeypatch):
    assert lately(store, Prometheus()).observed == ((0.0, 1.0),)
    assert "No Prometheus" in lately(store)
    assert "cannot be shown: down" in lately(store, Prometheus(error=SourceUnreachable("down")))
    monkeypatch.setattr(pages, "SHORTLY", 0.01)
    assert "takes long" in lately(store, Prometheus(wait=5.0))


def test_what_cannot_be_understood_has_no_view(store):
    store.put(TRAINING_JOB, training_job("bad", model={"preset": "no-such-model"}))
    assert job(store, "bad") is None


def test_a_job_that_wants_no_advice_has_no_view(store):
    store.put(TRAINING_JOB, training_job("off", mode="Disabled"))
    assert job(store, "off") is None


@pytest.mark.parametrize("error", [NoAnswer("the model failed"), Outdated()])
def test_a_view_that_does_not_come_is_a_sentence(store, error):
    assert job(store, model_pool=ModelPool(error)).startswith("The advice in full")


def test_a_page_waits_for_its_view_only_so_long(store, monkeypatch):
    monkeypatch.setattr(pages, "PATIENCE", 0.01)
    assert "load this page again" in job(store, model_pool=ModelPool(asyncio.sleep(5)))


def test_an_api_server_that_does_not_answer_is_a_sentence(store):
    named = {"configMapRef": {"name": "texts", "key": "config.json"}}
    store.put(TRAINING_JOB, training_job("text", model=named))
    assert "busy" in job(store, "text", api=Api(Busy("busy")))


def test_existing_jobs_are_listed_once_they_have_an_outcome_of_ours(store):
    store.put(JOB_SET, job_set("foreign"))
    store.put(JOB_SET, job_set("ours", annotations=OUTCOME))
    found = asyncio.run(source(store).jobs(None))
    assert {one.job.key.name for one in found} == {"a", "ours"}
    assert asyncio.run(source(store).jobs("elsewhere")) == []
    assert source(store).job("jobsets.jobset.x-k8s.io", "ns", "foreign") is None
    assert source(store).job("secrets", "ns", "a") is None


def test_every_job_comes_with_how_the_operator_judged_it(store):
    store.put(JOB_SET, job_set("ours", annotations=OUTCOME))
    made = Pages(
        store=store,
        model_pool=ModelPool(),
        api=Api(),
        health={Key(JOB_SET, "ns", "ours"): "Stuck"}.get,
    )
    assert {one.job.key.name: one.judged for one in asyncio.run(made.jobs(None))} == {
        "a": None,
        "ours": "Stuck",
    }


def test_the_page_is_not_handed_specs(store):
    store.put(JOB_SET, job_set("ours", annotations=OUTCOME))
    assert not any("spec" in one.job.body for one in asyncio.run(source(store).jobs(None)))
