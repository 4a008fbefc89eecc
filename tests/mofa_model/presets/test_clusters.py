"""A cluster stands in its device's usual machine unless it is told otherwise."""

import pytest

import mofa_model
from mofa_model import presets, units
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
    with pytest.raises(UnknownName, match="gpu: unknown name 'k80'"):
        presets.cluster("k80", 64)


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


@pytest.mark.parametrize(
    ("asked", "stated"),
    [
        ({"device": "h100"}, False),
        ({"device": "rtx-4090"}, False),
        ({"device": "p5.48xlarge"}, True),
        ({"device": "h100", "host_memory": "1 TiB"}, True),
    ],
)
def test_main_memory_is_stated_by_a_user_or_a_cloud_and_no_usual_machine_says_it(asked, stated):
    assert presets.cluster(gpus=8, **asked).host.stated is stated


def test_a_layout_is_refused_for_main_memory_only_where_somebody_said_it():
    asked = {
        "model": "llama3-70b", "gpu": "h100", "gpus": 8, "sequence_length": 4096,
        "global_batch_size": 8, "framework": "deepspeed",
        "strategy": "optimizer=zero3-cpu,recompute=full,mbs=1",
    }  # fmt: skip
    free = mofa_model.explain(**asked).document["summary"]
    said = mofa_model.explain(**asked, host_memory="1 TiB").document["summary"]
    assert free["host_bytes"] == said["host_bytes"] > 0.8 * 2**40
    assert (free["host_stated"], said["host_stated"]) == (False, True)
    assert not said["fits"], "it parks more than 80 % of the 1 TiB that is there"


def test_a_price_is_that_of_a_whole_node_on_demand_and_of_a_day():
    four = presets.instance("g5.12xlarge")
    assert (four["price"], four["priced"], four["gpus_per_node"]) == ("5.672 USD/h", "2026-08", 4)
    assert units.parse(four["price"], "USD/s") * 3600 == pytest.approx(5.672)
