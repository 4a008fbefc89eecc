"""A real Slurm came to harm, and its records say so: incidents, rates, account."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from slurm_truth import JSON, TEXT, scored

from mofa_model.cli import main
from mofa_model.manifest.cluster_profile import IncidentRules
from mofa_model.slurm import NodeEvent, SlurmNode, SlurmRecords, SlurmRun
from mofa_operator.observe.slurm import cause_of, slurm_past

SEEN = Path(__file__).parents[2] / "data" / "slurm"


@pytest.mark.parametrize("names", [TEXT, JSON], ids=["text", "json"])
def test_of_40_jobs_95_percent_are_found_and_the_hours_are_right_to_2_percent(names) -> None:
    score = scored(SEEN, names)
    assert score.truth >= 15
    assert score.recall >= 0.95
    assert score.precision >= 0.95
    assert score.error <= 0.02


@pytest.mark.parametrize(
    ("reason", "states", "word", "counts"),
    [
        ("Not responding", ("DOWN", "NOT_RESPONDING"), "node-down", True),
        ("Node unexpectedly rebooted", ("DOWN",), "reboot", True),
        ("NVRM: Xid 79, GPU has fallen off the bus", ("DRAIN",), "gpu-lost", True),
        ("Xid 94", ("DRAIN",), "gpu-fatal", True),
        ("xid 31 seen", ("DRAIN",), "user-xid", False),
        ("gres/gpu count reported lower than configured (7 < 8)", ("DRAIN",), "gpu-lost", True),
        ("uncorrectable ECC on GPU 3", ("DRAIN",), "gpu-fatal", True),
        ("mlx5_2 link down", ("DRAIN",), "nic", True),
        ("Kill task failed", ("DRAIN",), "node-unhealthy", True),
        ("NHC: check_fs_mount /scratch", ("DRAIN",), "node-unhealthy", True),
        ("moving racks", ("DRAIN",), "planned-drain", False),
        ("", ("DOWN",), "node-down", True),
    ],
)
def test_twelve_reasons_have_their_causes(reason, states, word, counts) -> None:
    cause = cause_of(NodeEvent(node="a", begun=1.0, states=states, reason=reason), {})
    assert (cause.word, cause.counts) == (word, counts)


def test_a_run_that_ends_with_its_node_is_blamed_on_it_and_goes_on_in_the_next() -> None:
    records = SlurmRecords(
        runs=(
            SlurmRun(job_id="1", name="a", user="u", state="NODE_FAIL", submitted=1, begun=1000, ended=5000,
                     hosts=("n1", "n2"), devices=16),
            SlurmRun(job_id="1", name="a", user="u", state="COMPLETED", submitted=5000, begun=5600, ended=9000,
                     hosts=("n2", "n3"), devices=16),
        ),
        node_events=(NodeEvent(node="n1", begun=4990, ended=8000, states=("DRAIN",), reason="Xid 79"),),
    )  # fmt: skip
    past = slurm_past(records, IncidentRules())
    job = next(one for one in past.incidents if one.kind == "job")
    assert (job.cause.word, job.nodes, job.seconds, job.timed) == ("gpu-lost", ("n1",), 600.0, True)
    days = {one.state.value: 0.0 for one in past.account}
    for one in past.account:
        days[one.state.value] += one.node_days
    trained = days["kept"] + days["redone"] + days["rendezvous"]
    assert trained == pytest.approx((4000 * 2 + 3400 * 2) / 86400, abs=1e-3)


def test_three_nodes_that_go_at_once_are_one_failure_and_two_are_two() -> None:
    for count, kinds in ((2, ["node", "node"]), (3, ["domain"])):
        names = [f"n{number}" for number in range(1, count + 1)]
        records = SlurmRecords(
            runs=(
                SlurmRun(job_id="1", name="a", user="u", state="NODE_FAIL", submitted=1, begun=1000, ended=5000,
                         hosts=("n1", "n9"), devices=16),
            ),
            node_events=tuple(
                NodeEvent(node=one, begun=5000, ended=8000, states=("DOWN",), reason="Not responding") for one in names
            ),
        )  # fmt: skip
        records = replace(
            records, node_records=tuple(SlurmNode(name=f"n{n}", devices=8) for n in range(1, 10))
        )
        past = slurm_past(records, IncidentRules())
        nodes = [one for one in past.incidents if one.kind != "job"]
        assert [one.kind for one in nodes] == kinds
        (job,) = (one for one in past.incidents if one.kind == "job")
        assert (job.fault in nodes, set(job.nodes) <= {*names}) == (True, True)
        repair = sum(one.node_days for one in past.account if one.state.value == "repair")
        assert repair == pytest.approx(count * 3000 / 86400, abs=1e-4)


def test_three_verbs_read_the_files(capsys) -> None:
    files = [str(SEEN / name) for name in TEXT]
    assert main(["incidents", "--slurm", *files, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(one["counts"] for one in found["incidents"]) >= 4
    assert main(["rates", "--slurm", *files, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert main(["profile", "--slurm", files[0]]) == 0
    said = capsys.readouterr().out
    assert "gpu: h100-80gb-sxm" in said
    assert "total: 8" in said


def test_a_profile_of_each_kind_of_node_has_the_memory_of_its_own_nodes(tmp_path, capsys) -> None:
    text = (SEEN / TEXT[0]).read_text()
    node = text[: text.index("NodeName=", 1)]
    other = node.replace("gpu01", "lab01").replace("gpu:h100:8", "gpu:a100:4")
    file = tmp_path / "nodes.txt"
    file.write_text(node + other.replace("RealMemory=64000", "RealMemory=128000"))
    assert main(["profile", "--slurm", str(file)]) == 0
    said = capsys.readouterr().out
    assert ("memory: 62 GiB" in said, "memory: 125 GiB" in said) == (True, True)


def test_without_slurm_one_line_says_so(monkeypatch, capsys) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["incidents", "--slurm"]) == 4
    assert capsys.readouterr().err.strip() == (
        "mofa incidents: Slurm: there is no scontrol on the PATH; give files with what it printed"
    )
