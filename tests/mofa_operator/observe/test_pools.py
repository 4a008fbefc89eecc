"""Pools that a cluster seems to have, and the profile that is proposed for each."""

import pytest

from mofa_model.answers import given
from mofa_model.cli import main
from mofa_operator.observe.nodes import NodeFacts, pools_of

H100, MI = "NVIDIA-H100-80GB-HBM3", "Some-Card-Nobody-Knows"


def node(product=H100, gpus=8, ready=True, cordoned=False):
    labels = {"nvidia.com/gpu.product": product} if product else {}
    return NodeFacts(labels=labels, ready=ready, cordoned=cordoned, gpus=gpus)


def test_nodes_with_the_same_gpu_and_as_many_of_them_are_a_pool():
    found = pools_of(
        [
            node(),
            node(ready=False),
            node(cordoned=True),
            node(gpus=4),
            node(product=""),
            node(gpus=0),
        ]
    )
    assert found == [
        {"product": H100, "gpus_per_node": 8, "nodes": 3, "ready": 1},
        {"product": H100, "gpus_per_node": 4, "nodes": 1, "ready": 1},
    ]


@pytest.fixture
def cluster(monkeypatch):
    def hold(*nodes):
        monkeypatch.setattr(given, "live_source", lambda _: lambda: pools_of(nodes))

    return hold


def test_each_pool_gets_a_profile_that_can_be_applied(cluster, capsys):
    cluster(node(), node(), node(gpus=4))
    assert main(["profile", "--from-cluster", "--scale-out", "400 Gbit/s"]) == 0
    text = capsys.readouterr().out
    assert text.count("kind: ClusterProfile") == 2
    assert "name: h100-80gb-sxm\n" in text
    assert "name: h100-80gb-sxm-4\n" in text
    assert text.count("scaleOut: 400 Gbit/s") == 2
    assert f"nvidia.com/gpu.product: {H100}" in text


def test_a_card_that_nobody_knows_is_named_and_left_out(cluster, capsys):
    cluster(node(), node(product=MI))
    assert main(["profile", "--from-cluster"]) == 0
    assert MI in capsys.readouterr().err
    cluster(node(product=MI))
    assert main(["profile", "--from-cluster"]) == 2
    assert "give --gpu and --label" in capsys.readouterr().err


def test_a_cluster_without_gpus_and_flags_that_contradict_are_bad_input(cluster, capsys):
    cluster(node(gpus=0))
    assert main(["profile", "--from-cluster"]) == 2
    assert "no node has the label" in capsys.readouterr().err
    assert main(["profile", "--from-cluster", "--gpu", "h100"]) == 2
    assert "--gpu: --from-cluster reads it from the cluster" in capsys.readouterr().err


def test_without_a_cluster_the_exit_code_says_unreachable(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["profile", "--from-cluster"]) == 4
    assert "KUBECONFIG" in capsys.readouterr().err
