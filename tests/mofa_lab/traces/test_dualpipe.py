"""DeepSeek's published trace of a DualPipe pair on H800: what inspect and replay say of it."""

import pytest

from mofa_lab.traces.account import account
from mofa_lab.traces.columns import load
from mofa_lab.traces.operators import Class, classes_of, communicates
from mofa_lab.traces.places import places
from mofa_lab.traces.ranks import job_of
from mofa_lab.traces.replay import critical_path, replay, spans
from mofa_model import presets
from mofa_model.estimate.step import estimate
from mofa_model.schedules import DUALPIPE
from mofa_model.spec import Training, Workload
from mofa_model.strategy import Strategy


@pytest.fixture(scope="module")
def trace(dualpipe):
    return load(dualpipe)


@pytest.fixture(scope="module")
def run(trace):
    return replay(job_of([trace]).graph)


def test_the_file_says_who_it_is(trace):
    assert (trace.rank, trace.world, trace.gpu) == (0, 64, "NVIDIA H800")
    assert len(trace.on_device) == 983


def test_every_stream_and_the_whole_replay_within_two_percent(run):
    rows = {span.lane: span for span in spans(run)}
    assert {"rank 0 stream 7", "rank 0 stream 23", "rank 0 stream 27", "whole"} <= set(rows)
    assert max(abs(span.error) for span in rows.values()) < 0.02


def test_links_that_the_trace_lacks_are_counted(run):
    counted = run.graph.counted()
    assert counted["launch"] == 983  # each kernel has its call
    assert 20 < run.graph.inferred < 80
    assert (
        counted["inferred_sync"] == 4
    )  # the host reads the token counts of each of four dispatches


def test_the_critical_path_adds_up_to_the_makespan(run):
    assert sum(critical_path(run).values()) == pytest.approx(run.makespan, rel=1e-9)


def test_most_of_the_all_to_all_hides_in_both_directions(trace):
    told = account(trace)
    exposed = {
        back: sum(t.exposed for t in told.talks if t.backward is back) for back in (False, True)
    }
    time = {back: sum(t.time for t in told.talks if t.backward is back) for back in (False, True)}
    assert {t.place for t in told.talks} == {
        "dispatch(F)",
        "dispatch(B)",
        "combine(F)",
        "combine(B)",
    }
    assert time[False] == pytest.approx(61.5e-3, rel=0.01)
    assert time[True] == pytest.approx(51.9e-3, rel=0.01)
    assert exposed[False] / time[False] < 0.02
    assert exposed[True] / time[True] < 0.07


def test_a_step_is_computing_exposing_or_doing_nothing(trace):
    (step,) = account(trace).steps
    assert step.compute + step.exposed + step.host + step.waiting == pytest.approx(
        step.span, rel=1e-9
    )
    assert step.span == pytest.approx(129.0e-3, rel=0.01)


def test_classes_keep_apart_what_libraries_name_alike(trace):
    rows = {kind: count for kind, count, _, _ in account(trace).by_class}
    assert rows[Class.GROUPED] == 16  # gate-up and down, forward and backward, of four layers
    assert Class.OPTIMIZER not in rows


def test_one_layer_takes_what_the_model_says_of_deepseek_v3_on_h800(trace):
    numbers = classes_of(trace)[trace.events.kind <= 1]
    where = places(trace, trace.on_device)
    computing = ~communicates(numbers)
    seconds = {
        back: trace.on_device.duration[computing & (where.backward == back)].sum() / 4
        for back in (False, True)
    }
    model = presets.model("deepseek-v3")
    training = Training(
        sequence=4096, global_batch=15360, precision=presets.precision("fp8-block", stack="hai-llm")
    )
    cluster = presets.cluster("h800", 2048, stack="hai-llm", precision="fp8-block")
    layout = Strategy(pp=16, dp=128, ep=64, schedule=DUALPIPE, expert_overlap=True)
    layer = estimate(Workload(model=model, training=training), cluster, layout).layer_times[-1]
    assert seconds[False] == pytest.approx(8.97e-3, rel=0.01)
    assert seconds[True] == pytest.approx(23.7e-3, rel=0.01)
    assert layer.linear + layer.attention + layer.elementwise == pytest.approx(
        seconds[False], rel=0.1
    )
    assert layer.backward == pytest.approx(seconds[True], rel=0.1)
