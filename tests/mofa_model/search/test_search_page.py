"""docs/search.md and its table of axes say what the code does: every axis, every reason, every trainer."""

from pathlib import Path

from mofa_model.axes.rules import SHORTEST
from mofa_model.search import LIFTABLE, Rejection, frameworks
from mofa_model.search.axes import EVERY

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "search.md").read_text(encoding="utf-8")


def test_every_axis_is_listed_with_its_values_and_a_constraint():
    table = (DOCS / "reference" / "axes.md").read_text(encoding="utf-8")
    for axis in EVERY:
        assert f"| `{axis.name}` |" in table
        assert axis.example
        assert f"`{axis.example}`" in table
    assert "reference/axes.md" in PAGE


def test_the_shortest_sequence_of_a_rank_is_the_one_in_the_code():
    assert f"{SHORTEST} tokens" in PAGE


def test_every_reason_is_explained_and_expert_rules_are_marked():
    for reason in Rejection:
        assert f"`{reason.value}`" in PAGE
        assert (f"`{reason.value}` ★" in PAGE) == (reason in LIFTABLE)


def test_every_trainer_is_named():
    table = (DOCS / "reference" / "axes.md").read_text(encoding="utf-8")
    for name in frameworks():
        assert name in PAGE + table
