"""A cluster stands in its device's usual machine unless it is told otherwise."""

import pytest

from mofa_model import presets
from mofa_model.errors import BadUnit, BadValue, InputError, UnknownName
from mofa_model.spec import Link


@pytest.mark.parametrize("device", presets.names("devices"))
def test_every_device_has_a_machine(device):
    cluster = presets.cluster(device, 64)
    assert cluster.gpus == 64
    assert cluster.domain % cluster.gpus_per_node == 0
    assert cluster.scale_up.bandwidth >= cluster.scale_out.bandwidth


def test_a_rack_is_one_domain_of_many_nodes():
    cluster = presets.cluster("gb200", 144)
    assert (cluster.gpus_per_node, cluster.domain) == (4, 72)


def test_a_smaller_node_has_a_smaller_domain_but_a_rack_stays():
    assert presets.cluster("h100", 64, gpus_per_node=4).domain == 4
    assert presets.cluster("gb200", 144, gpus_per_node=2).domain == 72
    assert presets.cluster("h100", 64, domain=16).domain == 16


@pytest.mark.parametrize(
    "given, bandwidth",
    [
        ("hdr", 25e9),
        ("100 Gbit/s", 12.5e9),
        ("50 GB/s", 50e9),
        (Link(bandwidth=1e9), 1e9),
        ("EFA", 50e9),
    ],
)
def test_a_fabric_is_given_by_name_by_bandwidth_or_as_a_link(given, bandwidth):
    assert presets.cluster("h100", 64, scale_out=given).scale_out.bandwidth == bandwidth


def test_the_stack_s_constants_come_with_the_cluster():
    cluster = presets.cluster("h100", 64, stack="nanotron")
    assert cluster.calibration == presets.calibration("h100", "bf16", "nanotron")
    assert cluster.calibration.placement == "cost"


def test_the_paper_s_devices_have_the_host_of_its_table_3():
    assert presets.cluster("mofa-a", 128).host.memory == 512 * 2**30
    assert presets.cluster("mofa-b", 64).host.link.bandwidth == 32e9


@pytest.mark.parametrize(
    "change, named",
    [
        ({"scale_out": "400"}, "scale_out"),
        ({"scale_out": "-1 GB/s"}, "scale_out"),
        ({"scale_out": "0 GB/s"}, "scale_out"),
        ({"scale_up": "nvlink9"}, "scale_up"),
        ({"host_memory": "1 TFLOP"}, "host_memory"),
        ({"host_memory": True}, "host_memory"),
        ({"gpus_per_node": 0}, "gpus_per_node"),
        ({"reserve": 2.0}, "reserve"),
        ({"oversubscription": float("nan")}, "oversubscription"),
        ({"stack": "megatorn"}, "stack"),
        ({"precision": "int3"}, "precision"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(change, named):
    with pytest.raises(InputError) as caught:
        presets.cluster("h100", 64, **change)
    assert str(caught.value).startswith(f"{named}:")


def test_an_unknown_device_is_called_gpu():
    with pytest.raises(UnknownName, match="gpu: unknown name 'v100'"):
        presets.cluster("v100", 64)


def test_a_bare_number_is_no_bandwidth():
    with pytest.raises(BadUnit):
        presets.link("400")
    with pytest.raises(BadValue):
        presets.cluster("h100", 0)


@pytest.mark.parametrize(
    "name, size",
    [
        ("h100", 2 * 2**40),
        ("b200", 2 * 2**40),
        ("gb200", 0.96e12),
        ("p5.48xlarge", 2048 * 2**30),
        ("Standard_ND96isr_H100_v5", 1900 * 2**30),
        ("a3-ultragpu-8g", 2952e9),
        ("BM.GPU.H200.8", 3072e9),
    ],
)
def test_a_machine_has_the_host_memory_that_its_maker_or_its_cloud_states(name, size):
    assert presets.cluster(name, 8).host.memory == size


def test_the_host_memory_of_every_rented_node_is_stated():
    for device in presets.names("devices"):
        for name, facts in presets.entry("devices", device).get("instances", {}).items():
            assert "host_memory" in facts, name
