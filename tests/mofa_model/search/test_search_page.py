"""docs/search.md and its table of axes say what the code does: every axis, every reason,
every trainer.
"""

from pathlib import Path

from mofa_model.axes.rules import SHORTEST
from mofa_model.search import LIFTABLE, Rejection, frameworks
from mofa_model.search.axes import EVERY

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "search.md").read_text(encoding="utf-8")
TABLE = (DOCS / "reference" / "axes.md").read_text(encoding="utf-8")


def test_every_axis_is_listed_with_its_values_and_a_constraint():
    for axis in EVERY:
        assert f"| `{axis.name}` |" in TABLE
        assert axis.example
        assert f"`{axis.example}`" in TABLE
    assert "(reference/axes.md)" in PAGE


def test_the_shortest_sequence_of_a_rank_is_the_one_in_the_code():
    assert f"{SHORTEST} tokens" in TABLE


def test_every_reason_is_explained_and_expert_rules_are_marked():
    for reason in Rejection:
        assert f"| `{reason.value}`" in TABLE
        assert (f"`{reason.value}` ★" in TABLE) == (reason in LIFTABLE)
    assert "(reference/axes.md#reasons)" in PAGE


def test_every_trainer_is_named():
    for name in frameworks():
        assert name in PAGE + TABLE
