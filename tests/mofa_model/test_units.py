"""Quantities go in as text with a unit, are SI floats inside, and come out as text that means
the same.
"""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model import units
from mofa_model.errors import BadUnit, BadValue

DIMENSIONS = ["s", "B", "B/s", "FLOP", "FLOP/s", "1/s"]
MAGNITUDES = st.floats(min_value=1e-9, max_value=1e19, allow_nan=False)


@pytest.mark.parametrize(
    "text, dimension, value",
    [
        ("450 GB/s", "B/s", 4.5e11),
        ("400 Gbit/s", "B/s", 5e10),
        ("400Gbps", "B/s", 5e10),
        ("80 GiB", "B", 80 * 2**30),
        ("80 GB", "B", 80e9),
        ("2.5 ms", "s", 0.0025),
        ("10 seconds", "s", 10.0),
        ("15m", "s", 900.0),
        ("1 week", "s", 604800.0),
        ("512Gi", "B", 512 * 2.0**30),
        ("512G", "B", 512e9),
        ("25Gb/s", "B/s", 3.125e9),
        ("400 gbps", "B/s", 50e9),
        ("50 GBps", "B/s", 50e9),
        ("90 min", "s", 5400.0),
        ("1 d", "s", 86400.0),
        ("989 TFLOP/s", "FLOP/s", 9.89e14),
        ("989 TFLOPS", "FLOP/s", 9.89e14),
        ("0.0864 /d", "1/s", 1e-6),
        ("1_000 B", "B", 1000.0),
    ],
)
def test_a_quantity_becomes_an_si_float(text, dimension, value):
    assert units.parse(text, dimension) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("dimension", DIMENSIONS)
@given(value=MAGNITUDES)
def test_what_format_writes_parse_reads_back_within_the_digits_shown(dimension, value):
    assert units.parse(units.format(value, dimension, digits=6), dimension) == pytest.approx(
        value, rel=1e-5
    )


@pytest.mark.parametrize("dimension", DIMENSIONS)
@given(value=MAGNITUDES)
def test_format_is_stable_under_another_round(dimension, value):
    once = units.format(value, dimension)
    assert units.format(units.parse(once, dimension), dimension) == once


@pytest.mark.parametrize("dimension", DIMENSIONS)
@given(number=st.one_of(st.integers(), st.floats(), st.integers().map(str)))
def test_a_bare_number_is_refused_because_nobody_can_know_its_unit(dimension, number):
    with pytest.raises(BadUnit, match=r"link: .* write a number with a unit"):
        units.parse(number, dimension, field="link")


@pytest.mark.parametrize(
    "text, dimension",
    [
        ("80 GiB", "B/s"),
        ("80 gib", "B"),
        ("5 ms/s", "s"),
        ("", "s"),
        ("s", "s"),
        ("nan s", "s"),
        ("inf s", "s"),
        ("1 s" + " " * 80, "s"),
        ("1,5 s", "s"),
        ("--1 s", "s"),
        ([1], "s"),
        (None, "B"),
    ],
)
def test_what_is_no_quantity_of_the_dimension_is_refused(text, dimension):
    with pytest.raises(BadUnit):
        units.parse(text, dimension)


def test_a_number_beyond_floats_is_refused_rather_than_infinite():
    with pytest.raises(BadValue, match="finite"):
        units.parse("1e999 s", "s")


@given(text=st.text(max_size=100), dimension=st.sampled_from(DIMENSIONS))
def test_any_text_is_a_finite_number_or_one_of_our_errors(text, dimension):
    with contextlib.suppress(BadUnit, BadValue):
        assert math.isfinite(units.parse(text, dimension))


@pytest.mark.parametrize(
    "text, number",
    [
        ("15T", 15 * 10**12),
        ("8k", 8000),
        ("2048", 2048),
        (2048, 2048),
        (4e3, 4000),
        ("1.5M", 1_500_000),
        ("7B", 7 * 10**9),
    ],
)
def test_a_count_may_carry_a_decimal_suffix(text, number):
    assert units.count(text) == number
    assert isinstance(units.count(text), int)


@pytest.mark.parametrize(
    "text", ["8.5", 0.5, "8 Ki", "many", True, None, float("nan"), float("inf"), "1e999", "9" * 65]
)
def test_what_is_no_whole_number_is_refused(text):
    with pytest.raises(BadValue, match="tokens"):
        units.count(text, field="tokens")


@given(number=st.integers(min_value=0, max_value=2**53))
def test_a_count_written_in_digits_is_exact(number):
    assert units.count(str(number)) == number
