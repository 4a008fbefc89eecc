"""Bars in a terminal are as long as what they show."""

from hypothesis import given
from hypothesis import strategies as st

from mofa_model.tables import bars


def length(bar):
    """In eighths of a character."""
    return sum(" ▏▎▍▌▋▊▉█".index(one) for one in bar)


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=20), st.integers(4, 60))
def test_a_bar_is_as_long_as_its_number_to_an_eighth_of_a_character(values, width):
    for value, bar in zip(values, bars(values, width), strict=True):
        assert abs(length(bar) - 8 * width * value / max(values)) <= 0.5


def test_what_has_no_number_has_no_bar():
    assert bars([None, 0.0]) == ["", ""]
