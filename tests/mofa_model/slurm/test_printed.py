"""Outputs of a real Slurm 22.05, and of later ones as they are documented: nodes, runs, events."""

import json
from pathlib import Path

import pytest

from mofa_model.errors import BadFile, BadValue
from mofa_model.slurm import hosts_of, read

SEEN = Path(__file__).parents[2] / "data" / "slurm"


def test_text_and_json_of_one_site_say_the_same_of_eight_nodes() -> None:
    text = read([((SEEN / "nodes.txt").read_text(), "nodes")]).node_records
    for name in ("sinfo-json.json", "sinfo.txt"):
        other = read([((SEEN / name).read_text(), name)]).node_records
        assert [(one.name, one.devices, one.product, one.cpus) for one in other] == [
            (one.name, one.devices, one.product, one.cpus) for one in text
        ]
    assert {(one.devices, one.product) for one in text} == {(8, "h100")}
    assert len(text) == 8


def test_text_and_json_of_one_site_say_the_same_of_every_run() -> None:
    text = read([((SEEN / "runs.txt").read_text(), "runs")]).runs
    other = read([((SEEN / "sacct-json.json").read_text(), "json")]).runs
    names = ("job_id", "name", "user", "state", "begun", "ended", "hosts", "devices", "exit_signal")
    assert len(text) >= 40
    assert [[getattr(one, name) for name in names] for one in other] == [
        [getattr(one, name) for name in names] for one in text
    ]


def test_columns_of_a_screen_are_read_as_those_with_bars() -> None:
    screen = (
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
        "train*       up 7-00:00:00      2  drain* gpu[01-02]\n"
        "train*       up 7-00:00:00      1    mix gpu03\n"
    )
    nodes = read([(screen, "sinfo")]).node_records
    assert [(one.name, one.states, one.usable) for one in nodes] == [
        ("gpu01", ("DRAIN", "NOT_RESPONDING"), False),
        ("gpu02", ("DRAIN", "NOT_RESPONDING"), False),
        ("gpu03", ("MIXED",), True),
    ]
    rows = (
        "JobID           JobName      State ExitCode        NodeList \n"
        "------------ ---------- ---------- -------- --------------- \n"
        "12             llama 7b CANCELLED+      0:0        gpu[1-2] \n"
        "12.batch          batch  CANCELLED     0:15            gpu1 \n"
    )
    (run,) = read([(rows, "sacct")]).runs
    assert (run.name, run.state, run.hosts) == ("llama 7b", "CANCELLED", ("gpu1", "gpu2"))


def test_numbers_that_newer_versions_write_as_objects_are_read() -> None:
    number = {"set": True, "infinite": False, "number": 5}
    job = {
        "job_id": 7,
        "name": "a",
        "state": {"current": ["NODE_FAIL"], "reason": "None"},
        "time": {"start": 10, "end": 20, "submission": 1, "limit": number},
        "exit_code": {"status": ["SIGNALED"], "return_code": {"set": False, "number": 0},
                      "signal": {"id": {"set": True, "infinite": False, "number": 9}, "name": "KILL"}},
        "nodes": "gpu[1-2]",
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 16}]},
    }  # fmt: skip
    (run,) = read([(json.dumps({"jobs": [job]}), "json")]).runs
    assert (run.state, run.exit_signal, run.limit_seconds, run.devices, run.ended) == (
        "NODE_FAIL", 9, 300.0, 16, 20.0,
    )  # fmt: skip
    rows = {"sinfo": [{
        "gres": {"total": "gpu:h200:8(S:0-1)"}, "nodes": {"nodes": ["a[1-2]"]},
        "node": {"state": ["DOWN", "DRAIN"]}, "partition": {"name": "train"},
        "reason": {"description": "Xid 79"}, "memory": {"maximum": 1024}, "cpus": {"maximum": 96},
    }]}  # fmt: skip
    nodes = read([(json.dumps(rows), "json")]).node_records
    assert [(one.name, one.devices, one.product, one.reason) for one in nodes] == [
        ("a1", 8, "h200", "Xid 79"),
        ("a2", 8, "h200", "Xid 79"),
    ]


def test_what_is_no_output_is_refused_by_name() -> None:
    with pytest.raises(BadFile, match="notes: it is no output of Slurm"):
        read([("hello\n", "notes")])
    with pytest.raises(BadFile, match="json: Slurm answered with an error: no"):
        read([(json.dumps({"errors": [{"description": "no"}]}), "json")])
    with pytest.raises(BadFile, match="cut off"):
        read([('{"jobs": [', "json")])


def test_a_list_of_hosts_ends() -> None:
    with pytest.raises(BadValue, match="at most"):
        hosts_of("a[1-900000000]")
    assert hosts_of("a[08-10]b") == ("a08b", "a09b", "a10b")
