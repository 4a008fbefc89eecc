"""One pure function: the same question has the same hash, and an answer has the
same annotations.
"""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.advice import (
    Advice,
    Alternative,
    Current,
    Odds,
    Predicted,
    Status,
)
from mofa_model.annotations import (
    INPUTS,
    LARGEST,
    OUTPUTS,
    PREFIX,
    hash_of,
    of_advice,
    of_bad_input,
    recommendation,
    removal,
    settled,
)
from mofa_model.spec.reliability import FailureRate
from mofa_model.strategy import Strategy
from mofa_model.units import DAY, Range

NOW = "2026-01-31T09:30:00Z"


def band(target, spread=0.1):
    return Range(lower=target * (1 - spread), target=target, upper=target * (1 + spread))


PREDICTED = Predicted(
    step_seconds=band(27.98913),
    tokens_per_second=band(599_400.4),
    mfu=band(0.4126),
    memory_bytes=band(71e9),
    ettr=Range(lower=0.9021, target=0.9412, upper=0.9634),
    duration_seconds=band(2.6e7),
)
LAYOUT = Strategy(tp=8, pp=16, dp=16, sequence_parallel=True)


def an_advice(**changes):
    plain = Advice(
        status=Status.RECOMMENDED,
        model="llama3.1-405b",
        device="h100-80gb-sxm",
        objective="time",
        strategy=LAYOUT,
        predicted=PREDICTED,
        odds=Odds(fits=0.9412, beats=0.6),
        checkpoint_interval_steps=37,
        checkpoint_interval_seconds=1035.6,
        restarts=17,
        hang_timeout=240.0,
        nodes=256,
        gpus=2048,
        explanation="tp=8 and pp=16 finish first",
        rejected={"OutOfMemory": 120_000, "NotDivisible": 4_000_000},
        raw=5_000_000,
        searched=880_000,
        pruned=0,
        confidence=0.8,
        memory_limit_bytes=80e9,
        model_version="0.1.0",
    )
    return dataclasses.replace(plain, **changes)


def test_an_answer_says_what_the_design_promises():
    told = of_advice(an_advice(), "abc", NOW)
    assert told[PREFIX + "status"] == "Recommended"
    assert told[PREFIX + "strategy"].startswith("tp=8,pp=16,cp=1,ep=1,dp=16,vpp=1,mbs=1,sp=true")
    assert told[PREFIX + "checkpoint-interval-steps"] == "37"
    assert told[PREFIX + "checkpoint-interval-seconds"] == "1036"
    assert told[PREFIX + "restarts"] == "17"
    assert told[PREFIX + "hang-timeout-seconds"] == "240"
    assert told[PREFIX + "predicted-step-seconds"] == "27.99"
    assert told[PREFIX + "predicted-tokens-per-second"] == "599400"
    assert told[PREFIX + "predicted-mfu"] == "0.413"
    assert told[PREFIX + "predicted-memory-bytes"] == "71000000000"
    assert told[PREFIX + "probability-of-fitting"] == "0.941"
    assert told[PREFIX + "predicted-ettr"] == "0.941"
    assert told[PREFIX + "predicted-ettr-range"] == "0.902-0.963"
    assert told[PREFIX + "computed-at"] == NOW
    assert tuple(told) == OUTPUTS


def test_no_recommendation_is_an_explicit_outcome_without_predictions():
    none = an_advice(
        status=Status.NO_RECOMMENDATION,
        strategy=None,
        predicted=None,
        checkpoint_interval_steps=None,
        checkpoint_interval_seconds=None,
        explanation="nothing fits: OutOfMemory",
    )
    told = of_advice(none, "abc", NOW)
    assert told[PREFIX + "status"] == "NoRecommendation"
    assert PREFIX + "strategy" not in told
    assert PREFIX + "predicted-ettr" not in told


def test_bad_input_is_an_explicit_outcome_of_one_line():
    told = of_bad_input("model:\nunknown\tname", "abc", "0.1.0", NOW)
    assert told[PREFIX + "status"] == "InvalidInput"
    assert told[PREFIX + "explanation"] == "model: unknown name"


@given(st.text(max_size=2000))
def test_an_explanation_is_one_printable_line_of_at_most_512_bytes(text):
    said = of_bad_input(text, "abc", "0.1.0", NOW)[PREFIX + "explanation"]
    assert len(said.encode()) <= 512
    assert said.isprintable()


@pytest.mark.parametrize("alternatives", [0, 5, 200])
def test_the_recommendation_is_json_of_at_most_four_kibibytes(alternatives):
    other = Alternative(
        name="with cp",
        odds=Odds(fits=0.95, beats=0.2),
        strategy=LAYOUT,
        predicted=PREDICTED,
        checkpoint_interval_steps=30,
        checkpoint_interval_seconds=900.0,
        terms={},
        nodes=256,
        precision="bf16",
        reason="its pipeline bubble takes 1.2 s more " * 4,
    )
    advice = an_advice(
        alternatives=(other,) * alternatives,
        current=Current(strategy=LAYOUT, predicted=PREDICTED, reason="", gain=0.034567),
        caveats=("ein Satz mit Umlauten: äöü",) * 20,
    )
    text = recommendation(advice, ["--tensor-model-parallel-size", "8"] * 30)
    assert len(text.encode()) <= LARGEST
    read = json.loads(text)
    assert read["strategy"].startswith("tp=8,pp=16")
    assert read["checkpoint"] == {"steps": 37, "seconds": 1036}
    assert read["predicted"]["ettr"] == [0.9021, 0.9412, 0.9634]


def test_nothing_is_written_while_the_hash_is_equal_though_the_clock_goes_on():
    first = of_advice(an_advice(), "abc", NOW)
    later = of_advice(an_advice(), "abc", "2026-02-01T00:00:00Z")
    assert settled(first, later) == {}


def test_a_new_hash_replaces_all_keys_and_removes_those_that_no_longer_hold():
    first = of_advice(an_advice(), "abc", NOW)
    change = settled(
        {**first, "owner": "me", PREFIX + "model": "x"}, of_bad_input("no", "def", "0.1.0", NOW)
    )
    assert change[PREFIX + "status"] == "InvalidInput"
    assert change[PREFIX + "strategy"] is None
    assert "owner" not in change
    assert PREFIX + "model" not in change


def test_an_outcome_that_someone_tore_apart_is_written_anew():
    first = of_advice(an_advice(), "abc", NOW)
    del first[PREFIX + "status"]
    assert settled(first, of_advice(an_advice(), "abc", NOW))[PREFIX + "status"] == "Recommended"


def test_removal_takes_our_outputs_and_leaves_inputs_and_the_rest():
    every = dict.fromkeys([*INPUTS, *OUTPUTS, "owner", PREFIX + "of-a-later-version"], "x")
    assert set(removal(every)) == {*OUTPUTS, PREFIX + "of-a-later-version"}


def test_a_hash_covers_values_and_the_version_and_not_their_spelling():
    assert hash_of({"nodes": 256, "rate": 1.5}, "1") == hash_of({"rate": 1.50, "nodes": 256.0}, "1")
    assert hash_of({"nodes": 256}, "1") != hash_of({"nodes": 255}, "1")
    assert hash_of({"nodes": 256}, "1") != hash_of({"nodes": 256}, "2")
    assert len(hash_of({}, "1")) == 32


def test_a_rate_counts_with_two_digits_and_without_its_exposure():
    seen = FailureRate(failures=47.0, exposure=10_000 * DAY)
    longer = FailureRate(failures=474.0, exposure=101_000 * DAY)
    other = FailureRate(failures=48.0, exposure=10_000 * DAY)
    assert hash_of(seen, "1") == hash_of(longer, "1")
    assert hash_of(seen, "1") != hash_of(other, "1")


def test_what_no_question_holds_is_our_fault():
    with pytest.raises(TypeError, match="object"):
        hash_of(object(), "1")
