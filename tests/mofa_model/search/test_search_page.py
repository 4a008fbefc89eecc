"""docs/search.md says what the code does: every axis, every value, every reason, every trainer."""

from pathlib import Path

from mofa_model.presets import model
from mofa_model.search import LIFTABLE, Reason, frameworks
from mofa_model.search.axes import (
    BATCH,
    CHUNKS,
    CONTEXT,
    EXPERT_TENSOR,
    RECOMPUTED,
    SIMPLICITY,
    TENSOR,
    default_axes,
)
from mofa_model.search.rules import SHORTEST

PAGE = (Path(__file__).parents[3] / "docs" / "search.md").read_text(encoding="utf-8")


def test_every_axis_is_listed_and_no_other_exists():
    assert set(default_axes(model("deepseek-v3"), [1], 8).values) == set(SIMPLICITY)
    for axis in SIMPLICITY:
        assert f"`{axis}`" in PAGE


def test_every_list_of_values_is_the_one_in_the_code():
    for values in (TENSOR, CONTEXT, BATCH, EXPERT_TENSOR, CHUNKS, RECOMPUTED):
        assert ", ".join(str(value) for value in values) in PAGE
    assert f"{SHORTEST} tokens" in PAGE


def test_every_reason_is_explained_and_expert_rules_are_marked():
    for reason in Reason:
        assert f"`{reason.value}`" in PAGE
        assert (f"`{reason.value}` ★" in PAGE) == (reason in LIFTABLE)


def test_every_trainer_is_named():
    for name in frameworks():
        assert name in PAGE
