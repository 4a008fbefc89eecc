"""Layout, interval and recovery plan are one choice: it is what trying all of them one by one finds."""

from __future__ import annotations

import itertools

import pytest

import mofa_model

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
}


def _time(answer: mofa_model.Advice) -> float:
    """Node time that a step is expected to cost. [s]"""
    figures = answer.predicted
    assert figures is not None
    return float(figures.step_seconds.target / figures.ettr.target)


@pytest.mark.parametrize("rate", [0.005, 2.0])
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
