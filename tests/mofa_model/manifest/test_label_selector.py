"""Selectors of a policy: as everywhere in Kubernetes, and the plain map of 0.1.0."""

import pytest

from mofa_model.errors import InputError
from mofa_model.manifest.advisor_policy import LabelSelector, read_selector
from mofa_model.manifest.parsing import parse

A = {"team": "a", "stage": "pretraining"}


def expression(key, operator, *values):
    return {
        "matchExpressions": [
            {"key": key, "operator": operator} | ({"values": [*values]} if values else {})
        ]
    }


@pytest.mark.parametrize(
    "selector, selects",
    [
        ({}, True),
        ({"team": "a"}, True),
        ({"team": "b"}, False),
        ({"matchLabels": {"team": "a"}}, True),
        ({"matchLabels": {"other": "a"}}, False),
        (expression("team", "In", "a", "b"), True),
        (expression("team", "In", "b"), False),
        (expression("other", "In", "b"), False),
        (expression("team", "NotIn", "a"), False),
        (expression("other", "NotIn", "a"), True),
        (expression("team", "Exists"), True),
        (expression("other", "Exists"), False),
        (expression("team", "DoesNotExist"), False),
        (expression("other", "DoesNotExist"), True),
        ({"matchLabels": {"team": "a"}, **expression("stage", "In", "tuning")}, False),
    ],
)
def test_labels_are_selected_as_kubernetes_does(selector, selects):
    assert parse(LabelSelector, selector, "selector").matches(A) is selects
    assert read_selector(selector).matches(A) is selects


def test_a_selector_names_the_labels_that_it_depends_on():
    assert read_selector({"team": "a"}).keys() == {"team"}
    both = {"matchLabels": {"team": "a"}, **expression("stage", "Exists")}
    assert read_selector(both).keys() == {"team", "stage"}


@pytest.mark.parametrize(
    "selector, why",
    [
        ({"matchLabel": {"team": "a"}}, "matchLabels"),
        ({"matchLabels": {}, "team": "a"}, "team"),
        (expression("team", "In"), "In and NotIn need values"),
        (expression("team", "Exists", "a"), "Exists and DoesNotExist have none"),
        (expression("team", "In", "a", "a"), "give each value of values once"),
    ],
)
def test_a_selector_that_cannot_be_read_is_refused_in_one_line_and_selects_everything_until_it_is_mended(
    selector, why
):
    with pytest.raises(InputError, match=why) as refused:
        parse(LabelSelector, selector, "selector")
    assert "\n" not in str(refused.value)
    assert read_selector(selector).matches({})
