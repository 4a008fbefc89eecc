"""Traces that PyTorch's profiler makes here: a small transformer on the CPU, gloo between 2 and
4 processes.
"""

import os
import subprocess
import sys

import pytest

from mofa_lab.traces.account import account
from mofa_lab.traces.columns import load
from mofa_lab.traces.ranks import job_of
from mofa_lab.traces.replay import replay, spans

PROGRAM = """
import os, sys
import torch, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)
optimizer = torch.optim.AdamW(model.parameters())
data = torch.randn(4, 64, 64)
def step():
    model(data).sum().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step(); optimizer.zero_grad()
step()
with profile(activities=[ProfilerActivity.CPU]) as prof:
    for n in range(2):
        with record_function(f"ProfilerStep#{n}"):
            step()
prof.export_chrome_trace(os.path.join(sys.argv[1], f"rank{rank}.json"))
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_traces_of_the_cpu_go_through_inspect_and_replay(tmp_path, processes):
    pytest.importorskip(
        "torch",
        reason="the extra `torch` is not installed: it is gigabytes, so these two run where it is",
    )
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    shared = os.environ | {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29500 + os.getpid() % 1000), "WORLD_SIZE": str(processes),
    }  # fmt: skip
    running = [
        subprocess.Popen([sys.executable, program, tmp_path], env=shared | {"RANK": str(rank)})
        for rank in range(processes)
    ]
    assert [process.wait(timeout=300) for process in running] == [0] * processes
    traces = [load(tmp_path / f"rank{rank}.json") for rank in range(processes)]
    assert all(len(account(trace).steps) == 2 for trace in traces)
    job = job_of(traces)
    assert job.meetings > 0
    assert max(abs(span.error) for span in spans(replay(job.graph))) <= 0.05
