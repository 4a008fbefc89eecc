"""Layout, interval and recovery plan are one choice: it is what trying all of them one by
one finds.
"""

from __future__ import annotations

import itertools

import pytest
from planned_runs import measured

import mofa_model
from mofa_model.advice import advise
from mofa_model.advice.predictions import job_of
from mofa_model.answers.questions import AdviceQuestion
from mofa_model.answers.simulate import planned_scenario
from mofa_model.answers.training import request_of

_ASKED = {
    "model": "llama3-8b",
    "gpu": "h100",
    "gpus": 128,
    "sequence_length": 8192,
    "global_batch_size": 256,
    "by_estimate": True,
}
_PLANS = ("classes", "in-place", "replica:stall=10s:rejoin=10s")
_BIG = {
    "model": "llama3-405b",
    "gpu": "h100",
    "gpus": 2048,
    "sequence_length": 8192,
    "global_batch_size": 1024,
    "framework": "megatron",
    "recovery": ("in-place", "replica:stall=20s:rejoin=20s"),
}


def _time(answer: mofa_model.Advice) -> float:
    """Node time that a step is expected to cost. [s]"""
    figures = answer.predicted
    assert figures is not None
    return float(figures.step_seconds.target / figures.ettr.target)


@pytest.mark.parametrize("rate", [pytest.param(0.005, marks=pytest.mark.soak), 2.0])
def test_the_joint_choice_is_the_best_of_four_layouts_by_three_plans(rate: float) -> None:
    def ask(tensor: str, plans: str) -> mofa_model.Advice:
        return mofa_model.advise(
            **_ASKED,
            failure_rate=rate,
            recovery=plans,
            constraints=[f"tp={tensor}", "pp=1", "cp=1"],
        ).advice

    joint = ask("1,2,4,8", ",".join(_PLANS))
    alone = [ask(tensor, plan) for tensor, plan in itertools.product("1248", _PLANS)]
    best = min((one for one in alone if one.strategy is not None), key=_time)
    assert _time(joint) == pytest.approx(_time(best), rel=1e-9)
    assert joint.recovery == best.recovery


@pytest.mark.soak
def test_a_405b_changes_layout_and_plan_between_8_and_32_failures_in_100_node_days() -> None:
    found, events = [], []
    for rate in (0.08, 0.32):
        request = request_of(AdviceQuestion(**_BIG, failure_rate=rate))
        answer = advise(request)
        assert answer.strategy is not None
        assert answer.predicted is not None
        step = answer.predicted.step_seconds.target
        job = job_of(request, request.problems[0], answer.nodes, answer.strategy, step)
        scenario = planned_scenario(job, int(answer.checkpoint_interval_steps or 0), (1,))
        seen, error = measured(scenario, 10_000)
        found.append((int(answer.strategy.pp), int(answer.strategy.dp), answer.recovery))
        events.append(abs(seen - answer.predicted.ettr.target) < 0.003 + 2 * error)
    assert found == [(16, 8, "in-place"), (32, 4, "replica:stall=20s:rejoin=20s")]
    assert all(events)
