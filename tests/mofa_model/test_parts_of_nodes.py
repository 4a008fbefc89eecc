"""A job may have a part of its nodes: what is shared is shared out, what is a GPU's own stays so,
and a node fails whole.
"""

import json
from argparse import ArgumentParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model import cli, presets
from mofa_model.answers import training
from mofa_model.answers.options import question_of
from mofa_model.answers.questions import LayoutQuestion
from mofa_model.errors import BadValue
from mofa_model.spec.cluster import part_of, places
from mofa_model.verbs import advise

JOB = ("--model", "llama3-8b", "--gpu", "h100", "--global-batch", "64", "--seq", "4096")
SMALL = ("--model", "megatron-1.7b", *JOB[2:])
"""A model whose states fit on one device."""


def run(capsys, *argv):
    code = cli.main(list(argv))
    said = capsys.readouterr()
    return code, said.out, said.err


def asked(*words):
    """Machines and failures that flags ask for."""
    parser = ArgumentParser()
    advise.configure(parser)
    question = question_of(LayoutQuestion, parser.parse_args([*JOB, *words]))
    cluster = training.problems_of(question)[0].cluster
    return cluster, training.reliability_of(question, cluster), training.nodes_of(question)


@given(pods=st.integers(1, 400), pod=st.integers(1, 16), per_node=st.integers(1, 16))
def test_equal_pods_lie_in_equal_parts_on_no_more_nodes_than_they_are(pods, pod, per_node):
    found = places(pods * pod, per_node, pod)
    if found is None:
        assert pod > per_node
        return
    nodes, mine = found
    assert nodes * mine == pods * pod
    assert mine <= per_node
    if pod <= per_node:
        assert mine % pod == 0
        assert -(-pods * pod // per_node) <= nodes <= pods


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 7])
def test_flags_may_ask_for_a_part_of_one_node(gpus):
    whole, all_of_it, _ = asked("--nodes", "1")
    part, failures, nodes = asked("--gpus", str(gpus))
    assert (nodes, part.gpus, part.gpus_per_node, part.domain) == (1, gpus, gpus, gpus)
    assert part.host.memory == whole.host.memory * gpus / 8
    assert part.host.optimizer_rate / gpus == pytest.approx(whole.host.optimizer_rate / 8)
    assert part.scale_out == whole.scale_out
    assert part.device == whole.device
    assert failures.classes == all_of_it.classes
    (mine,), (theirs,) = failures.tiers, all_of_it.tiers
    assert mine.node_bandwidth == theirs.node_bandwidth * gpus / 8 == 2e9 * gpus / 8
    assert mine.snapshot_bandwidth == pytest.approx(gpus * part.host.link.bandwidth)
    assert mine.total_bandwidth == theirs.total_bandwidth


def test_whole_nodes_are_asked_for_as_before():
    assert asked("--gpus", "16") == asked("--nodes", "2")
    cluster, failures, nodes = asked("--gpus", "16")
    assert cluster == presets.cluster("h100", 16)
    assert (nodes, failures.tiers[0].node_bandwidth) == (2, 2e9)
    assert failures.tiers[0].snapshot_bandwidth == 8 * cluster.host.link.bandwidth


def test_nodes_of_four_are_not_half_of_nodes_of_eight():
    part, _, _ = asked("--gpus", "4")
    small, _, _ = asked("--gpus", "4", "--gpus-per-node", "4")
    assert small.host.memory == 2 * part.host.memory


@pytest.mark.parametrize("gpus", ["12", "9", "20"])
def test_more_than_a_node_is_whole_nodes_because_the_parts_could_be_many(gpus):
    with pytest.raises(
        BadValue,
        match=f"--gpus: {gpus} cannot be right; give whole nodes of 8, or at most 8 of one node",
    ):
        asked("--gpus", gpus)


def test_a_rack_wide_domain_is_shared_out_and_reaches_across_pods():
    rack = presets.cluster("gb200", 72)
    assert (rack.gpus_per_node, rack.domain) == (4, 72)
    assert part_of(rack, 2).domain == 36
    assert part_of(rack, 4, gpus_per_pod=1).domain == 72


def test_a_part_is_advised_explained_and_swept(capsys):
    code, out, _ = run(capsys, "advise", *SMALL, "--gpus", "4", "--json")
    told = json.loads(out)
    assert (code, told["status"], told["nodes"], told["gpus"]) == (0, "Recommended", 1, 4)
    code, out, _ = run(
        capsys, "explain", *SMALL, "--gpus", "4", "--strategy", told["strategy"], "--json"
    )
    assert code == 0
    assert json.loads(out)["strategy"] == told["strategy"]
    code, out, _ = run(capsys, "sweep", *SMALL, "--vary", "gpus=1..8", "--jobs", "1", "--json")
    rows = json.loads(out)["rows"]
    assert [(row["gpus"], row["status"], row["nodes_used"]) for row in rows] == [
        (gpus, "Recommended", 1) for gpus in ("1", "2", "4", "8")
    ]
    least = told["predicted"]["step_seconds"][
        "target"
    ]  # a sweep shows the model, and weighs no odds
    assert rows[2]["step_seconds"] <= least * (1 + 1e-9)
    speeds = [row["tokens_per_second"] for row in rows]
    assert speeds == sorted(speeds)
    assert 7 < speeds[3] / speeds[0] < 9.5


def test_what_waits_in_host_memory_has_its_share_of_it_and_no_more(capsys):
    """96 GB of an 8B model's states fit into 640 GiB, and not into the eighth of it that one GPU of
    eight has.
    """
    words = (*JOB, "--gpus", "1", "--host-memory", "640 GiB", "--constraint", "optimizer=cpu")
    assert run(capsys, "advise", *words, "--gpus-per-node", "1")[0] == 0
    code, _, err = run(capsys, "advise", *words)
    assert code == 3
    assert err.count("\n") == 1
    assert "GiB in main memory, of which it may fill 64.0 GiB" in err  # 80 less a fifth


def test_a_checkpoint_of_a_part_takes_its_share_of_the_way(capsys):
    words = (
        "advise",
        *JOB,
        "--json",
        "--constraint",
        "tp=1",
        "--constraint",
        "pp=1",
        "--constraint",
        "optimizer=device",
    )
    half = json.loads(run(capsys, *words, "--gpus", "4", "--sync")[1])
    full = json.loads(
        run(capsys, *words, "--gpus", "4", "--sync", "--checkpoint-bandwidth", "4 GB/s")[1]
    )
    assert full["strategy"] == half["strategy"]
    ratio = half["checkpoint_interval_steps"] / full["checkpoint_interval_steps"]
    assert ratio == pytest.approx(
        2**0.5, rel=0.02
    )  # Young: the interval goes as the root of a save's time
