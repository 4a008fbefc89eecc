"""Queries are built so that no text leaves its quotes. That Prometheus reads them so is tested
beside a real one.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.errors import BadValue
from mofa_operator.observe.prometheus.client import Sample
from mofa_operator.observe.prometheus.promql import (
    any_of,
    duration,
    filled,
    matcher,
    node_label,
    pod_slot,
    quoted,
    selector,
)

_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"\Z')


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_quoted_text_is_one_string_on_one_line_and_reads_back(text):
    found = quoted(text)
    assert _STRING.match(found)
    back = re.sub(
        r"\\(u([0-9a-f]{4})|U([0-9a-f]{8})|.)",
        lambda m: (
            chr(int(m[2] or m[3], 16))
            if m[2] or m[3]
            else {"n": "\n", "r": "\r", "t": "\t"}.get(m[1], m[1])
        ),
        found[1:-1],
    )
    assert back == text


def test_what_is_no_unicode_is_refused():
    with pytest.raises(BadValue, match="Unicode"):
        quoted("\ud800")


@given(st.lists(st.text("ab.|*+?()[]{}^$\\-", min_size=1), min_size=1))
def test_a_regular_expression_of_values_matches_exactly_them(values):
    found = re.compile(f"(?:{any_of(values)})")
    assert all(found.fullmatch(value) for value in values)
    assert bool(found.fullmatch("other")) == ("other" in values)


@pytest.mark.parametrize(
    "label", ["", "a b", 'a"', "nvidia.com/gpu", "1a", "a\n", 'a="x"} or up{b']
)
def test_a_label_that_is_no_name_is_refused(label):
    with pytest.raises(BadValue, match="letters, digits"):
        matcher(label, "x")


@pytest.mark.parametrize("metric", ["", "up{}", "a b", "up\n"])
def test_a_metric_that_is_no_name_is_refused(metric):
    with pytest.raises(BadValue):
        selector(metric)


@pytest.mark.parametrize(
    "label, name",
    [
        ("nvidia.com/gpu.product", "label_nvidia_com_gpu_product"),
        ("node.kubernetes.io/instance-type", "label_node_kubernetes_io_instance_type"),
        ("topologyZone", "label_topology_zone"),
        ("GPUPool", "label_gpupool"),
    ],
)
def test_labels_are_named_as_kube_state_metrics_names_them(label, name):
    assert node_label(label) == name


def test_a_duration_is_above_zero():
    assert duration(604800) == "604800s"
    with pytest.raises(BadValue):
        duration(0)


@pytest.mark.parametrize("name", ['a"} or up{b="', "A", "a b", "", "a\n"])
def test_an_administrators_query_is_filled_with_names_of_objects_only(name):
    with pytest.raises(BadValue, match="name of a Kubernetes object"):
        filled('tokens{job="$job"}', {"namespace": "ml", "job": name})


@pytest.mark.parametrize(
    ("name", "slot"),
    [
        ("sft-w-0-3-k7x2d", "sft-w-0-3"),
        ("sft-w-0-3-25626", "sft-w-0-3"),
        ("sft-worker-3", "sft-worker-3"),
        ("sft-worker-10316", "sft-worker-10316"),
    ],
)
def test_the_end_that_the_api_server_draws_is_no_part_of_a_pods_slot_also_where_it_is_a_number(
    name, slot
):
    assert pod_slot(Sample({"pod": name, "owner_name": "sft"}, ())) == slot
