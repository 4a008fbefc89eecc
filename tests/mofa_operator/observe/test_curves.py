"""A job's last day, from our own series: asked with its own labels, and never of another job."""

import asyncio

from mofa_model.kinds import JOB_SET
from mofa_operator.keys import TRAINING_JOB, Key
from mofa_operator.observe.progress.telemetry import curves
from mofa_operator.observe.prometheus.client import QueryResult, Sample
from mofa_operator.snapshot import Curves


class Prometheus:
    """Answers by the metric that a query names."""

    def __init__(self, **answers):
        self.asked = []
        self._answers = answers

    async def query(self, promql, at=None):
        self.asked.append((promql, at))
        points = next(points for name, points in self._answers.items() if name in promql)
        return QueryResult(samples=(Sample({}, points),) if points else ())


def test_both_lines_are_asked_of_the_one_job_over_a_day():
    server = Prometheus(predicted=((0.0, 100.0), (900.0, 100.0)), observed=((900.0, 90.0),))
    found = asyncio.run(curves(server, Key(TRAINING_JOB, "ml", 'a"} or up{b="'), 900.0))
    assert found == Curves(predicted=((0.0, 100.0), (900.0, 100.0)), observed=((900.0, 90.0),))
    predicted, observed = (promql for promql, _ in server.asked)
    assert predicted == (
        '(max(mofa_job_predicted_tokens_per_second{bound="target",training_namespace="ml",'
        'training_job="a\\"} or up{b=\\"",training_kind="TrainingJob"}))[86400s:300s]'
    )
    assert "mofa_job_observed_tokens_per_second" in observed
    assert {at for _, at in server.asked} == {900.0}


def test_a_job_that_prometheus_does_not_know_has_no_lines():
    server = Prometheus(predicted=(), observed=())
    assert asyncio.run(curves(server, Key(JOB_SET, "ml", "a"), 0.0)) == Curves()
    assert 'training_kind="JobSet"' in server.asked[0][0]
