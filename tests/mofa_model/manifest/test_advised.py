"""An answer becomes a status that the schema admits."""

import dataclasses

import pytest
from questions import case

from mofa_model.advice import (
    Advice,
    Alternative,
    Current,
    Odds,
    Predicted,
    Status,
)
from mofa_model.bands.evidence import Basis, NearRun
from mofa_model.launch import launch
from mofa_model.manifest.advised import duration, quantity, status_of, summary
from mofa_model.manifest.parsing import parse
from mofa_model.manifest.status import TrainingJobStatus
from mofa_model.spec.reliability import FailureMode, FailureRate, RecoveryTime
from mofa_model.strategy import Strategy
from mofa_model.units import Range

NOW = "2026-01-31T09:30:00Z"
LAYOUT = Strategy(tp=8, pp=16, dp=16, sequence_parallel=True, pipeline_overlap=False)


def band(target):
    return Range(lower=0.9 * target, target=target, upper=1.1 * target)


PREDICTED = Predicted(
    step_seconds=band(27.98913),
    tokens_per_second=band(599_400.4),
    mfu=band(0.4126),
    memory_bytes=band(71e9),
    ettr=Range(lower=0.9021, target=0.9412, upper=0.9634),
    duration_seconds=band(2.6e7),
)
ADVICE = Advice(
    status=Status.RECOMMENDED,
    model="llama3.1-405b",
    device="h100-80gb-sxm",
    objective="time",
    strategy=LAYOUT,
    predicted=PREDICTED,
    checkpoint_interval_steps=37,
    checkpoint_interval_seconds=1035.6,
    nodes=256,
    gpus=2048,
    explanation="it is the fastest",
    rejected={"OutOfMemory": 120_000, "NotDivisible": 4_000_000},
    raw=5_000_000,
    searched=880_000,
    pruned=0,
    failures=(
        FailureMode(
            name="pod",
            rate=FailureRate.assumed(0.003, float("inf")),
            recovery=RecoveryTime(mean=262.0),
        ),
    ),
    confidence=0.8,
    memory_limit_bytes=80e9,
    model_version="0.1.0",
)


def test_a_recommendation_is_told_in_whole_units_and_text():
    status = status_of(ADVICE, "abc", NOW, launch(LAYOUT, "megatron", case(), interval_steps=37))
    told = status["recommendation"]
    assert told["summary"] == "tp8 pp16 dp16"
    assert told["predicted"]["stepMilliseconds"] == {
        "lower": 25190,
        "target": 27989,
        "upper": 30788,
    }
    assert told["predicted"]["ettr"] == {"lower": "0.9021", "target": "0.9412", "upper": "0.9634"}
    assert told["launch"]["trainer"] == "megatron"
    assert status["inputs"]["nodes"] == 256
    assert status["rejected"][0] == {"reason": "NotDivisible", "count": 4_000_000}
    assert status["inputs"]["failure"][0]["failuresPerThousandNodeDays"] == "3.0000"
    parse(TrainingJobStatus, status, "status")


def test_an_alternative_says_how_much_longer_it_takes():
    slower = dataclasses.replace(PREDICTED, step_seconds=band(1.1 * 27.98913))
    other = Alternative(
        name="with cp", odds=Odds(fits=0.95, beats=0.2), strategy=LAYOUT, predicted=slower, checkpoint_interval_steps=30, checkpoint_interval_seconds=900.0,
        terms={}, reason="its bubble", nodes=256, precision="bf16",
    )  # fmt: skip
    status = status_of(dataclasses.replace(ADVICE, alternatives=(other,) * 9), "abc", NOW)
    assert len(status["alternatives"]) == 5
    assert status["alternatives"][0]["relativeTime"] == "1.100"
    parse(TrainingJobStatus, status, "status")


def test_odds_and_evidence_are_told_of_the_choice_and_of_what_stands_beside_it():
    one = Alternative(
        name="worth a try", odds=Odds(fits=0.9512, beats=0.7), strategy=LAYOUT, predicted=PREDICTED, checkpoint_interval_steps=30,
        checkpoint_interval_seconds=900.0, terms={}, reason="no measured run has it", nodes=256, precision="bf16",
    )  # fmt: skip
    near = NearRun(name="x", place="tp8 on 64 h100", distance=0.5, error=0.03, differs=())
    basis = Basis(
        stack="megatron", devices="h100", runs=41, family={"bridge": 29, "megatron": 12}, related=90, confidence=0.8, largest=1024, nearest=(near,), within=0.093
    )  # fmt: skip
    today = Current(
        strategy=LAYOUT,
        predicted=PREDICTED,
        odds=Odds(fits=0.8),
        reason="it needs 82.0 GiB of 74.9 GiB",
        gain=0.1,
    )
    given = dataclasses.replace(
        ADVICE, odds=Odds(fits=0.94, beats=0.612), basis=basis, alternatives=(one,), current=today
    )
    status = status_of(given, "abc", NOW)
    assert status["recommendation"]["odds"] == {"fits": "0.940", "beats": "0.612"}
    assert status["recommendation"]["evidence"] == (
        "evidence: 41 runs of the family of megatron (bridge 29, megatron 12) on h100, largest 1,024 GPUs, nearest tp8 on 64 h100; a step within ±9 %"
    )
    assert status["alternatives"][0]["name"] == "worth a try"
    assert status["alternatives"][0]["odds"] == {"fits": "0.951", "beats": "0.700"}
    assert status["current"]["odds"] == {"fits": "0.800"}, (
        "of itself it is not told whether it is better"
    )
    parse(TrainingJobStatus, status, "status")


def test_a_status_of_before_odds_is_one_still():
    old = status_of(ADVICE, "abc", NOW)
    assert "odds" not in old["recommendation"]
    parse(TrainingJobStatus, old, "status")


def test_no_recommendation_is_a_status_too():
    none = dataclasses.replace(
        ADVICE, status=Status.NO_RECOMMENDATION, strategy=None, predicted=None
    )
    status = status_of(none, "abc", NOW)
    assert "recommendation" not in status
    parse(TrainingJobStatus, status, "status")


@pytest.mark.parametrize(
    "shown, wanted",
    [
        (summary(Strategy()), "dp1"),
        (summary(Strategy(ep=8, dp=8, vpp=2, pp=2)), "pp2 ep8 dp8 vpp2"),
        (quantity(1.234e9), "1.23G"),
        (quantity(0.0), "0"),
        (duration(7200), "2h"),
        (duration(90), "90s"),
        (duration(3 * 86400), "3d"),
    ],
)
def test_columns_are_short(shown, wanted):
    assert shown == wanted
