"""What PyTorch's trainers keep: gradients that are freed after a step, the update's temporaries,
frozen weights under FSDP.
"""

from dataclasses import replace

import pytest

from mofa_model import presets
from mofa_model.answers.questions import ExplainQuestion
from mofa_model.answers.training import layout_of, problems_of
from mofa_model.estimate import estimate
from mofa_model.units import GIB

PARAMETERS = 8.03e9


def footprint(layout, *defects, gpus=1, batch=4, **asked):
    question = ExplainQuestion(
        model="llama3-8b",
        gpu="a100-80gb-sxm",
        gpus=gpus,
        global_batch_size=batch,
        sequence_length=4096,
        stack="accelerate",
        loss="fused",
        **asked,
    )
    (problem,) = problems_of(question)
    recipe = problem.workload.training.precision.name
    constants = presets.calibration("a100-80gb-sxm", recipe, "accelerate", defects=defects)
    cluster = replace(problem.cluster, calibration=constants)
    strategy = layout_of(layout, problem, "layout")
    return estimate(problem.workload, cluster, strategy).footprint


PURE = {"precision": ("bf16-pure",), "optimizer": "adamw-bf16"}


@pytest.mark.parametrize("batch", [4, 8])
def test_an_update_that_is_not_fused_takes_ten_bytes_a_parameter_whatever_the_batch(batch):
    """Weights, gradients, two moments and the root of one, 2 bytes each: 74.8 GiB, as counted on
    an A100.
    """
    layout = f"mbs={batch},recompute=full"
    found = footprint(layout, "unfused-update", batch=batch, **PURE)
    assert float(found.allocated) / GIB == pytest.approx(74.8, rel=0.01)
    assert float(found.allocated) == pytest.approx(10 * PARAMETERS, rel=0.01)


def test_accelerate_shards_fp32_weights_twenty_bytes_a_parameter():
    """A parameter takes 20 bytes, on two GPUs as on one: its weight, its gradient, its two moments
    and the root of one of them take 4 bytes each.
    """
    layout = "mbs=4,recompute=full,optimizer=zero3"
    found = footprint(layout, "unfused-update", gpus=2, batch=8)
    assert float(found.allocated) / GIB == pytest.approx(74.8, rel=0.02)


def test_a_fused_update_has_no_temporaries():
    """The root of one moment is 16.1 GB on each of two GPUs; the last layer's backward pass has
    most of that place.
    """
    layout = "mbs=4,recompute=full,optimizer=zero3"
    fused, plain = (footprint(layout, *also, gpus=2, batch=8) for also in ((), ("unfused-update",)))
    root = 4 * PARAMETERS / 2
    assert 0.5 * root < float(plain.allocated - fused.allocated) < root


def test_shards_of_weights_without_a_master_copy_stay():
    """Weights of 2 bytes, on two ranks one byte of each parameter."""
    found = footprint("mbs=1,recompute=full,optimizer=zero3", gpus=2, batch=2, **PURE)
    assert float(found.weights.max()) == pytest.approx(PARAMETERS, rel=0.01)


def test_gradients_of_a_lone_micro_batch_come_as_activations_go():
    """Two micro-batches keep 14.96 GiB of gradients beside the activations; one has them where
    those were.
    """
    lone = footprint("mbs=4", batch=4, **PURE)
    two = footprint("mbs=4", batch=8, **PURE)
    gradients = 2 * PARAMETERS / GIB
    assert float(two.peak - lone.peak) / GIB == pytest.approx(gradients, rel=0.01)
    assert float(lone.static.max() + lone.update.max()) < float(two.static.max())


def test_peak_holds_all_gradients_beside_the_last_layer():
    """Without much to keep, gradients and a layer's backward pass are more than the activations."""
    found = footprint("mbs=1,recompute=full", batch=1, **PURE)
    states = float((found.weights + found.optimizer).max())
    assert float(found.allocated) - states >= 2 * PARAMETERS


def test_ddp_keeps_buckets_beside_gradients():
    """DDP's buckets are no views of the gradients: 2 bytes a parameter more than one GPU has."""
    one = footprint("mbs=1,recompute=full", batch=1, **PURE)
    two = footprint("mbs=1,recompute=full,optimizer=replicated", gpus=2, batch=2, **PURE)
    more = float(two.peak - one.peak) / GIB
    assert more == pytest.approx(2 * PARAMETERS / GIB, rel=0.01)


def test_the_first_fsdp_keeps_gradients_of_layer_inputs_beside_frozen_weights():
    """16 sequences of 4,096 on two A100: 57.2 GiB were counted; the second FSDP has 32 gradients of
    0.5 GiB less.
    """
    asked = {"adapter_rank": 16, "adapter_targets": ("attention",), "gpus": 2, "batch": 32}
    layout = "mbs=16,recompute=full,optimizer=zero3"
    first, second = (footprint(layout, *also, **asked) for also in (("fsdp1",), ()))
    assert float(first.allocated) / GIB == pytest.approx(57.2, rel=0.03)
    assert float(first.allocated - second.allocated) / GIB == pytest.approx(16.0, rel=0.05)
