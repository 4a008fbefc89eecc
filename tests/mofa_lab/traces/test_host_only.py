"""Traces of the CPU alone: operators stand in the place of kernels, and collectives still meet."""

import pytest

from mofa_lab.traces.account import account
from mofa_lab.traces.columns import load
from mofa_lab.traces.operators import Class
from mofa_lab.traces.ranks import job_of
from mofa_lab.traces.replay import replay, spans
from mofa_model.cli import main


def op(name, start, took, thread=1, **said):
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 9,
        "tid": thread,
        "ts": start,
        "dur": took,
        "args": said,
    }


def rank(number, late):
    """linear (holding addmm) then an all-reduce that ends on both ranks at 1000 us, then
    an update.
    """
    events = [
        op("aten::linear", 0, 300 + late),
        op("aten::addmm", 10, 280 + late),
        op("gloo:all_reduce", 400 + late, 600 - late),
        op("c10d::part", 410 + late, 20),
        op("aten::add_", 1050, 100),
    ]
    return events, {"distributedInfo": {"rank": number, "world_size": 2}}


@pytest.fixture
def traces(write):
    made = [(n, *rank(n, late)) for n, late in ((0, 0), (1, 250))]
    return [load(write(events, f"rank{n}.json", **head)) for n, events, head in made]


def test_only_operators_that_hold_no_other_count_and_a_collective_counts_whole(traces):
    rows = {kind: (count, time) for kind, count, time, _ in account(traces[0]).by_class}
    assert rows[Class.GEMM] == (1, pytest.approx(280e-6))
    assert rows[Class.ALL_REDUCE] == (1, pytest.approx(600e-6))


def test_the_collective_of_both_ranks_is_one_meeting(traces):
    job = job_of(traces)
    assert job.meetings == 1
    assert max(abs(span.error) for span in spans(replay(job.graph))) < 1e-6


def test_what_needs_kernels_refuses_such_a_trace(write, capsys):
    events, head = rank(0, 0)
    path = write(events, **head)
    asked = [
        "--model",
        "llama3.1-8b",
        "--gpu",
        "h100",
        "--seq",
        "4096",
        "--global-batch",
        "2",
        "--strategy",
        "dp=2",
    ]
    assert main(["trace", "predict", str(path), *asked]) == 2
    assert "ProfilerActivity.CUDA" in capsys.readouterr().err
    assert main(["trace", "inspect", str(path)]) == 0
    capsys.readouterr()
    assert main(["trace", "inspect", str(path), "-o", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "rank,step,span,compute,exposed,hidden,host_bound,waiting"
    assert {line.count(",") for line in lines} == {7}
