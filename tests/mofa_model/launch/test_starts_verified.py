"""Whole launches, drawn and written as scripts, that the trainers' own parsers took; a sample is as
it was.
"""

import json
import sys
from pathlib import Path

import pytest

from mofa_model.strategy import parse_strategy

sys.path.append(str(Path(__file__).parents[3] / "tools"))
from layouts import problem_of
from starts import RECORD, launch_of
from verdicts import digest

VERIFIED = json.loads(RECORD.read_text("utf-8"))


def test_five_hundred_whole_launches_were_taken_by_the_trainers_own_parsers():
    assert sum(one["accepted"] for one in VERIFIED.values()) >= 500
    assert {name: one["refused"] for name, one in VERIFIED.items()} == {
        name: {} for name in VERIFIED
    }


@pytest.mark.parametrize("trainer", VERIFIED)
def test_whole_launches_are_those_that_were_asked_about(trainer):
    for one in VERIFIED[trainer]["kept"][:3]:
        device = "b200" if "fp4" in one["precision"] else "h100"
        problem = problem_of(
            one["model"], trainer, one["gpus"], device,
            sequence=one["sequence"], batch=one["batch"], precision=one["precision"],
        )  # fmt: skip
        made = launch_of(problem, parse_strategy(one["strategy"], one["gpus"]), trainer)
        assert digest([{"words": made["arguments"]}]) == one["words"], one
