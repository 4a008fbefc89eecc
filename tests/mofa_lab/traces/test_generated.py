"""Jobs of several ranks from the event-driven generator: their replay, whatever the profiler
left out.
"""

import pytest
from trace_generator import Missing, Setup, Stack, World

from mofa_lab.traces.account import account
from mofa_lab.traces.columns import load
from mofa_lab.traces.ranks import job_of
from mofa_lab.traces.replay import replay, spans

SMALL = dict(layers=4, micro_batches=4)
SETUPS = {
    "alone": Setup(**SMALL),
    "tp2": Setup(**SMALL, tp=2),
    "tp4": Setup(**SMALL, tp=4),
    "dp2": Setup(**SMALL, dp=2),
    "dp4": Setup(**SMALL, dp=4),
    "pp2": Setup(**SMALL, pp=2),
    "pp4": Setup(**SMALL, pp=4),
    "pp2 interleaved": Setup(**SMALL, pp=2, vpp=2),
    "pp4 interleaved": Setup(layers=8, micro_batches=4, pp=4, vpp=2),
    "tp2 pp2": Setup(**SMALL, tp=2, pp=2),
    "tp2 pp2 dp2": Setup(**SMALL, tp=2, pp=2, dp=2),
    "ep4": Setup(layers=2, micro_batches=2, dp=4, ep=4, experts=8, expert_ffn=2048),
    "ep2 pp2": Setup(layers=2, micro_batches=4, dp=2, ep=2, pp=2, experts=8, expert_ffn=2048),
    "host-bound": Setup(**SMALL, tp=2, hidden=1024, heads=8, ffn=2048, sequence=512),
}
WITHOUT = {
    "whole": Missing(),
    "no waits": Missing(waits=True),
    "no correlation": Missing(correlation=True),
    "no metadata": Missing(metadata=True, waits=True, annotations=True, shapes=True),
}


def whole(setup, stack, missing, folder):
    """Error of the replayed step against the generator's own clock, and the job."""
    clock = [137.0 * rank for rank in range(setup.world)] if not missing.metadata else []
    world = World(setup, stack, clock=clock).run()
    job = job_of([load(path) for path in world.write(folder, range(setup.world), missing=missing)])
    run = replay(job.graph)
    # The first call comes 200 us after the step begins, which no task of the graph holds.
    return run.makespan / (world.step_seconds - 209e-6) - 1.0, job, run


@pytest.mark.parametrize("without", WITHOUT)
@pytest.mark.parametrize("name", SETUPS)
def test_a_generated_job_replays_within_one_percent(name, without, tmp_path):
    error, job, run = whole(SETUPS[name], Stack(), WITHOUT[without], tmp_path)
    assert abs(error) <= 0.01
    assert abs(spans(run)[-1].error) <= 0.01
    said = job.graph.counted()
    if without == "no correlation":
        assert said["inferred_launch"] > 0
        assert "launch" not in said


@pytest.mark.parametrize("name", SETUPS)
def test_with_jitter_it_replays_within_three_percent(name, tmp_path):
    error, *_ = whole(SETUPS[name], Stack(jitter=0.05), Missing(waits=True), tmp_path)
    assert abs(error) <= 0.03


def test_clocks_of_hosts_are_aligned_by_their_collectives(tmp_path):
    setup = SETUPS["tp2 pp2"]
    clock = [0.0, 5000.0, -800.0, 12.5]
    world = World(setup, Stack(), clock=clock).run()
    job = job_of([load(path) for path in world.write(tmp_path, range(4))])
    begins = [float(job.graph.start[job.graph.rank == rank].min()) for rank in range(4)]
    assert (
        max(begins) - min(begins) < 2e-6
    )  # all hosts began at the same moment; the files' clocks have 0.25 us steps


def test_collectives_of_all_ranks_meet(tmp_path):
    _, job, _ = whole(SETUPS["tp2 pp2"], Stack(), Missing(), tmp_path)
    # 4 layers x 4 micro-batches x 8 tensor-parallel collectives on each tensor group; hops: 4
    # forward, 4 backward, twice
    assert job.meetings == 4 * 4 * 8 + 2 * 8
    assert job.inferred == 0


def test_a_straggler_is_the_slowest_rank_and_slows_the_others_in_collectives(tmp_path):
    world = World(Setup(**SMALL, tp=2), Stack(straggler=1, slower=1.2)).run()
    told = [account(load(path)) for path in world.write(tmp_path, range(2))]
    busy = [one.steps[0].compute for one in told]
    exposed = [one.steps[0].exposed for one in told]
    assert busy[1] > 1.15 * busy[0]
    assert exposed[0] > exposed[1]


def test_a_host_bound_step_says_so(tmp_path):
    (path,) = World(SETUPS["host-bound"], Stack()).run().write(tmp_path, [0])
    (step,) = account(load(path)).steps
    assert step.host > 0.3 * step.span


def test_message_sizes_give_the_achieved_bandwidth(tmp_path):
    setup = SETUPS["tp4"]
    (path,) = World(setup, Stack()).run().write(tmp_path, [0])
    message = next(m for m in account(load(path)).messages if m.members == 4)
    assert message.size == setup.sequence * setup.hidden * 2
    assert (
        0.6 * 450e9 * 0.74 < message.bandwidth < 450e9 * 0.74
    )  # the start of a collective takes its part
