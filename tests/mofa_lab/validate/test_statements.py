"""What trainers publish of which fine-tune fits which machine, and what we say of it."""

from __future__ import annotations

import statistics

import pytest

from mofa_lab.validate.statements import RECIPES, STEPS, score, slower, statements, step_error
from mofa_model.answers.questions import ExplainQuestion
from mofa_model.answers.training import layout_of, problems_of
from mofa_model.estimate import estimate
from mofa_model.launch import launch, read

NEEDED = {
    "id",
    "says",
    "source",
    "trainer",
    "fits",
    "memory_gib",
    "question",
    "strategy",
    "assumed",
}
WRONG = 0
"""Statements that we contradict. [1]"""


@pytest.fixture(scope="module")
def scored():
    return {one.name: one for one in score(statements())}


def test_every_statement_says_where_it_stands_and_no_id_is_used_twice():
    cases = statements()
    assert len(cases) >= 30
    assert len({case["id"] for case in cases}) == len(cases)
    for case in cases:
        assert set(case) == NEEDED, case["id"]
        assert case["source"].strip(), case["id"]
    assert sum(not case["fits"] for case in cases) >= 10, "some of them say that it does not fit"
    assert {"torchtune", "axolotl", "trl"} <= {case["trainer"] for case in cases}


def test_what_is_published_to_fit_has_an_even_chance_and_what_does_not_has_less(scored):
    against = [one.name for one in scored.values() if not one.agrees]
    assert len(against) <= WRONG, against


def test_llama3_8b_on_one_card_and_70b_in_four_bits_are_as_the_recipes_say(scored):
    fitting = {
        "torchtune-8b-full-4090", "torchtune-8b-full-a6000", "torchtune-8b-lora-4090",
        "torchtune-8b-qlora-4090", "axolotl-8b-full-48", "axolotl-70b-qlora-2x24",
        "peft-70b-qlora-2x24-offload", "unsloth-70b-qlora-48",
    }  # fmt: skip
    not_fitting = {"llama-factory-7b-full-80", "peft-70b-qlora-2x24", "unsloth-70b-lora-80"}
    assert min(scored[name].chance for name in fitting) >= 0.9
    assert max(scored[name].chance for name in not_fitting) <= 0.1


SLOWER = 1.05
"""Times that a recipe's step may be exceeded by the default pick. [1]"""
SAMPLE = {"dgxc-llama3-70b-lora-gb200-8-bf16", "dgxc-nemotron3-nano-30b-a3b-pretrain-h100-32-bf16"}


def test_the_default_pick_of_two_recipes_is_at_most_five_percent_slower_by_the_same_price():
    some = [case for case in statements(RECIPES) if case["id"] in SAMPLE]
    assert len(some) == len(SAMPLE)
    assert [case["id"] for case in some if not (slower(case) or 9.0) <= SLOWER] == []


@pytest.mark.soak
def test_the_default_pick_of_nine_recipes_in_ten_is_at_most_five_percent_slower():
    found = {case["id"]: slower(case) for case in statements(RECIPES)}
    good = [name for name, ratio in found.items() if ratio is not None and ratio <= SLOWER]
    assert len(good) >= 0.9 * len(found), {n: r for n, r in found.items() if n not in good}


def test_steps_of_two_cards_without_nvlink_are_priced_by_their_data_sheets_within_a_quarter():
    """Two RTX 3090 or 4090 whose micro-batches hide the slow lanes: 17.2 s were measured
    for 70B.
    """
    cards = [
        case
        for case in statements(STEPS)
        if case["question"]["gpu"] in {"rtx-3090", "rtx-4090"} and "mbs=1," not in case["strategy"]
    ]
    errors = {case["id"]: step_error(case) for case in cards}
    assert len(errors) == 8
    assert {name: error for name, error in errors.items() if abs(error) > 0.27} == {}


def test_steps_of_professional_cards_are_promised_too_soon():
    """What is known to be wrong: those of an RTX 6000 Ada take twice as long as its data
    sheet says.
    """
    errors = {case["id"]: step_error(case) for case in statements(STEPS)}
    assert statistics.median(map(abs, errors.values())) < 0.3
    far = {name for name, error in errors.items() if abs(error) > 0.5}
    assert far <= {
        "fsdp-qlora-llama2-70b-nf4-2xrtx-6000-ada-b2",
        "fsdp-qlora-llama2-70b-nf4-4xrtx-6000-ada-b3",
        "fsdp-qlora-llama2-7b-bf16-2xrtx-3090-b1",
    }


def priced_again(case):
    """A recipe's price, and that of what its own launch is read as."""
    asked = {**case["question"], "framework": "nemo"}
    (problem,) = problems_of(ExplainQuestion(**asked))
    several = any(word.startswith("vpp=") and word != "vpp=1" for word in case["layout"])
    plain = ["schedule=interleaved"] if several else ["pp-overlap=false"]
    layout = layout_of(",".join([*case["layout"], *plain]), problem, "layout")
    found = launch(layout, "nemo", problem)
    words = [*found.starter, "train.py", *found.arguments]
    said = read(words, found.files.get).strategy(
        int(layout.gpus), layers=int(problem.workload.model.layers)
    )
    for one in (layout, said):
        price = estimate(problem.workload, problem.cluster, one)
        yield float(price.step_time), float(price.footprint.peak)


def test_a_recipe_that_is_written_is_read_back_at_the_same_price():
    """Of 57 published layouts, all for Megatron Bridge or NeMo AutoModel, not one is changed by its
    own flags.
    """
    recipes = statements(RECIPES)
    assert len(recipes) >= 57
    changed = []
    for case in recipes:
        first, second = priced_again(case)
        if first != second:
            changed.append(case["id"])
    assert changed == []
