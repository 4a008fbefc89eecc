"""The error tree: what a caller may catch, what the command returns, and how a message reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model import errors
from mofa_model.errors import BadFile, BadUnit, BadValue, InputError, MofaError, UnknownName

TREE = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, MofaError)
]


@pytest.mark.parametrize("error", [UnknownName, BadValue, BadUnit, BadFile])
def test_bad_input_is_a_value_error_and_exits_with_2(error):
    assert issubclass(error, InputError)
    assert issubclass(error, ValueError)
    assert error.exit_code == 2


def test_no_feasible_strategy_exits_with_3_and_an_unreachable_source_with_4():
    assert errors.NoFeasibleStrategy.exit_code == 3
    assert errors.SourceUnreachable.exit_code == 4


@pytest.mark.parametrize("error", TREE)
def test_the_tree_drawn_in_the_docstring_names_every_error(error):
    assert error.__name__ in errors.__doc__


def test_an_unknown_name_is_answered_with_the_nearest_known_one():
    error = UnknownName("model", "lama3.1-405b", ["llama3.1-405b", "gpt3-175b"])
    assert str(error) == "model: unknown name 'lama3.1-405b'; did you mean llama3.1-405b?"


def test_an_unknown_name_that_is_near_nothing_lists_what_is_known():
    error = UnknownName("gpu", "zzz", [f"device-{i:02d}" for i in range(14)])
    assert str(error).endswith("device-11 and 2 more")


def test_a_bad_value_names_field_value_and_what_would_be_right():
    assert (
        str(BadValue("heads", 7, "give a multiple of 8"))
        == "heads: 7 cannot be right; give a multiple of 8"
    )


@given(value=st.one_of(st.text(), st.binary(), st.lists(st.integers()), st.floats()))
def test_any_value_is_shown_on_one_line_of_at_most_80_characters(value):
    text = errors.shown(value)
    assert len(text) <= 80
    assert len(text.splitlines()) == 1
