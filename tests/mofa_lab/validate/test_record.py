"""A case file is read with checks, and a wrong field is named with its value."""

import json

import pytest

from mofa_lab.validate.record import Record, read
from mofa_model.errors import BadFile, BadValue


def test_null_and_absent_are_the_same():
    record = Record({"a": None})
    assert record.number("a", 1.5) == record.number("b", 1.5) == 1.5
    assert record.inner("a").values == record.inner("b").values == {}


@pytest.mark.parametrize("value", ["8", True, float("nan"), float("inf"), -1, [8]])
def test_a_count_is_a_whole_number_and_nothing_else(value):
    with pytest.raises(BadValue, match=r"strategy\.tp"):
        Record({"strategy": {"tp": value}}).inner("strategy").count("tp")


def test_a_measured_zero_is_refused_and_a_measured_null_is_nothing():
    assert Record({"mfu": None}).measured("mfu") is None
    with pytest.raises(BadValue, match="above zero"):
        Record({"mfu": 0}).measured("mfu")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"other": 1}', "7"])
def test_what_is_no_list_of_cases_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "cases.json"
    path.write_text(text)
    with pytest.raises(BadFile) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_a_list_may_stand_alone_or_under_cases_or_rows(tmp_path):
    path = tmp_path / "cases.json"
    for document in ([1], {"cases": [1]}, {"rows": [1]}):
        path.write_text(json.dumps(document))
        assert read(path)[0] == [1]
