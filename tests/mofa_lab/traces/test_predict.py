"""Layouts that never ran, from the trace of one that did, against the generator's own clock."""

from dataclasses import replace
from statistics import fmean, quantiles

import pytest
from trace_generator import Missing, Setup, Stack, World

from mofa_lab.traces.predict import predict
from mofa_model.cli import main

DENSE = Setup(layers=8, micro_batches=8)
MIXED = Setup(layers=4, micro_batches=4, experts=8, expert_ffn=4096, dp=4, ep=4)
SOURCES = {
    "tp2 pp2 dp2": (replace(DENSE, tp=2, pp=2, dp=2), Stack()),
    "tp2 pp4": (replace(DENSE, tp=2, pp=4), Stack()),
    "pp2 interleaved": (replace(DENSE, tp=2, pp=2, vpp=2), Stack(jitter=0.02)),
    "tp4 dp2": (replace(DENSE, tp=4, dp=2, micro_batches=4), Stack(jitter=0.05)),
    "pp4 dp2": (replace(DENSE, pp=4, dp=2), Stack(jitter=0.05)),
    "one device": (replace(DENSE, layers=4, micro_batches=4), Stack()),
    "ep4": (MIXED, Stack()),
    "ep4, jitter": (MIXED, Stack(jitter=0.05, seed=7)),
}


def changes(setup):
    """Neighbours of a setup: one change each, and one of several."""
    wider = dict(hidden=2 * setup.hidden, heads=2 * setup.heads)
    found = [
        replace(setup, layers=2 * setup.layers),
        replace(setup, micro_batches=2 * setup.micro_batches),
        replace(setup, dp=2 * setup.dp),
        replace(setup, pp=1, vpp=1),
        replace(setup, pp=2, vpp=1),
        replace(setup, pp=2, vpp=2),
        replace(setup, pp=4, vpp=1),
        replace(setup, **wider),
        replace(setup, pp=2, vpp=1, dp=2 * setup.dp, micro_batches=2 * setup.micro_batches),
    ]
    if setup.tp == 1:  # an axis whose links the trace has not seen, or only as another axis
        found += [replace(setup, tp=2), replace(setup, tp=4)]
    else:
        found += [replace(setup, tp=1), replace(setup, tp=8 // setup.tp)]
    if setup.experts:
        found += [replace(setup, ep=2), replace(setup, ep=1), replace(setup, dp=8, ep=8)]
    return [new for new in dict.fromkeys(found) if new != setup]


def errors(names, traced, layout, every=1):
    signed, analytical = [], []
    for name in names:
        setup, stack = SOURCES[name]
        _, source = traced(setup, stack)
        for new in changes(setup)[::every]:
            truth = World(new, stack).run().step_seconds
            told = predict(source, layout(new))
            signed.append(told.seconds / truth - 1.0)
            analytical.append(told.untaught / truth - 1.0)
    return signed, analytical


def test_a_traced_layout_predicts_itself(traced, layout):
    setup, stack = SOURCES["tp2 pp2 dp2"]
    seconds, source = traced(setup, stack)
    told = predict(source, layout(setup))
    assert told.seconds == pytest.approx(seconds, rel=1e-3)
    assert told.lower < seconds < told.upper
    assert sum(told.path.values()) == pytest.approx(source.rebuilt, rel=1e-6)


def test_neighbours_of_one_layout_are_predicted_within_three_percent(traced, layout):
    signed, _ = errors(["tp2 pp2 dp2"], traced, layout, every=3)
    assert max(map(abs, signed)) < 0.033


@pytest.mark.slow
@pytest.mark.parametrize(
    "every, count", [(8, 10), pytest.param(1, 60, marks=pytest.mark.soak)], ids=["a sample", "all"]
)
def test_other_layouts_are_predicted_as_well_as_lumos_replays(traced, layout, every, count):
    signed, analytical = errors(SOURCES, traced, layout, every)
    size = [abs(error) for error in signed]
    assert len(size) >= count
    assert fmean(size) <= 0.033
    assert quantiles(size, n=10)[-1] <= 0.08
    assert fmean(size) < 0.5 * fmean(map(abs, analytical))


@pytest.mark.parametrize("missing", [Missing(annotations=True), Missing(waits=True, shapes=True)])
def test_passes_are_found_without_annotations_and_waits_without_records(traced, layout, missing):
    setup, stack = SOURCES["tp2 pp4"]
    _, source = traced(setup, stack, missing)
    new = replace(setup, layers=16)
    truth = World(new, stack).run().step_seconds
    assert predict(source, layout(new)).seconds == pytest.approx(truth, rel=0.033)


def test_another_device_is_priced_by_the_ratio_of_its_operators(traced, layout):
    setup, stack = SOURCES["one device"]
    _, source = traced(setup, stack)
    slower = replace(stack, peak=312e12, memory=2.039e12)
    truth = World(setup, slower).run().step_seconds
    assert predict(source, layout(setup, gpu="a100-80gb-sxm")).seconds == pytest.approx(
        truth, rel=0.05
    )


def test_what_cannot_be_told_is_refused_in_one_line(tmp_path, capsys):
    setup = replace(DENSE, pp=2, layers=4, micro_batches=4)
    first, last = World(setup, Stack()).run().write(tmp_path, [0, 1])
    asked = [
        "--model",
        "llama3.1-8b",
        "--gpu",
        "h100",
        "--seq",
        "4096",
        "--strategy",
        "pp=2",
        "--to",
        "pp=4",
    ]
    for files, batch, why in (
        ([first], "4", "stage 1"),
        ([first, last], "7", "passes"),
        ([first, last], "4", "do not repeat 16 times"),
    ):
        code = main(["trace", "predict", *map(str, files), *asked, "--global-batch", batch])
        said = capsys.readouterr()
        assert code == 2
        assert said.out == ""
        assert why in said.err
        assert said.err.count("\n") == 1
