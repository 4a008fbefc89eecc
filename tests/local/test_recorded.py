"""What rules would have recorded of a made-up past, against the past's own events; what agents show
of nodes.
"""

import re

from mofa_local.recorded import EVERY, SMOOTH, recorded
from mofa_local.stack import ROOT
from mofa_local.synthetic import DAY, Incident, Job, Past, draw, node_names, truth

END = 1_700_000_100
PAST = draw(end=END, nodes=8, days=20, jobs=(Job(name="a", nodes=6),))


def of(past, metric):
    return [
        (series.labels, runs) for series, runs in recorded(past, "east") if series.metric == metric
    ]


def total(runs):
    return sum(value for run in runs for value in run.values())


def test_every_series_is_one_that_our_rules_record():
    rules = (ROOT / "deploy" / "rules" / "mofa-recording.yaml").read_text("utf-8")
    names = set(re.findall(r"- record: (\S+)", rules))
    assert {series.metric for series, _ in recorded(PAST, "east")} < names


def test_each_failure_of_a_node_is_one_and_counted_at_one_evaluation():
    [(_, runs)] = of(PAST, "mofa:pool_node_failures:new")
    assert total(runs) == truth(PAST).node_failures == 51


def test_nodes_that_are_ready_and_nodes_that_are_down_add_up():
    [(_, down)], [(_, ready)] = (
        of(PAST, "mofa:pool_nodes_down:count"),
        of(PAST, "mofa:pool_nodes_ready:sum"),
    )
    moments = len(range(PAST.start - PAST.start % -EVERY, PAST.end, EVERY))
    assert total(down) + total(ready) == 8 * moments
    ups = of(PAST, "mofa:node_unplanned_up:bool")
    assert sum(total(runs) for _, runs in ups) == total(ready)


def test_an_hour_lost_in_six_is_five_sixths_of_effective_time():
    start = END - 2 * DAY
    past = Past(
        start=start, end=END, nodes=node_names(2), labels={}, jobs=(Job(name="a", nodes=1, checkpoint_steps=1),),
        incidents=(Incident(at=END - 4 * 3600, job="a", level="process", recovery=3600),),
    )  # fmt: skip
    [(labels, runs)] = of(past, "mofa:job_ettr:ratio_6h")
    assert labels["training_job"] == "a"
    last = list(runs[-1].values())[-1]
    assert abs(last - 5 / 6) < 0.01
    [(_, burn)] = of(past, "mofa:job_ettr_burn:ratio_6h")
    assert abs(list(burn[-1].values())[-1] - (1 / 6) / 0.1) < 0.1
    assert SMOOTH == 300, "a node that is back within five minutes never failed"
