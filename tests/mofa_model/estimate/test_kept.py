"""What a layer keeps for its backward pass, and its weights, against PyTorch's own count: PEFT
beside transformers and bitsandbytes on the CPU, as tools/kept.py counted it."""

import json
from pathlib import Path

import numpy as np
import pytest

from mofa_model import presets
from mofa_model.blocks import Embedding, FeedForward, Layer, SoftmaxAttention
from mofa_model.estimate import estimate
from mofa_model.estimate.activation_memory import stored_layers
from mofa_model.spec import (
    Adapters,
    MemoryConstants,
    Run,
    Training,
    Transformer,
    Workload,
)
from mofa_model.spec.tuning import read_targets
from mofa_model.strategy import Recompute, Sharding, Strategy

COUNTED = json.loads(
    (Path(__file__).parents[2] / "data" / "kept_counted.json").read_text(encoding="utf-8")
)
ROWS = COUNTED["rows"]
WIDE = [row for row in ROWS if row["dtype"] != "autocast"]
"""Under autocast half of a weight is told with the optimizer's states."""
STACKS = ("accelerate", "deepspeed")
NAMES = ("q", "k", "v", "o", "gate", "up", "down")


def workload(row):
    """The same small model with the same adapters."""
    shape = COUNTED["shape"]
    heads = shape["num_attention_heads"]
    biased = row["family"] == "qwen2"
    attention = SoftmaxAttention(
        heads=heads, kv_heads=row["kv_heads"], head_dim=shape["hidden_size"] // heads, bias=biased
    )
    layer = Layer((attention, FeedForward(width=shape["intermediate_size"])))
    model = Transformer(
        name="small",
        hidden=shape["hidden_size"],
        runs=(Run((layer,), 3),),
        embedding=Embedding(vocabulary=shape["vocab_size"]),
    )
    plain = {"fp32": "fp32", "bf16": "bf16-pure", "autocast": "bf16"}[row["dtype"]]
    base = {"same": row["dtype"], "nf4": "nf4-double", "int8": "int8"}[row["base"]]
    training = Training(
        sequence=row["tokens"],
        global_batch=row["sequences"],
        precision=presets.precision(plain),
        optimizer=presets.optimizer("adamw-bf16" if plain == "bf16-pure" else "adamw"),
        adapters=Adapters(
            rank=row["rank"],
            targets=read_targets(row["targets"], NAMES, field="targets"),
            magnitudes=row["dora"],
            base=presets.base(base),
        )
        if row["targets"]
        else None,
    )
    return Workload(model=model, training=training)


def name(row):
    said = [
        row["targets"] or "full",
        row["dtype"],
        row["base"],
        f"r{row['rank']}",
        f"kv{row['kv_heads']}",
        row["family"],
    ]
    said += [word for word in ("checkpointing", "dora") if row[word]]
    return "-".join([*said, f"{row['sequences']}x{row['tokens']}"])


def test_forty_configurations_were_counted():
    assert len(ROWS) >= 40
    assert {"nf4", "int8"} <= {row["base"] for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_a_layer_keeps_what_pytorch_counts(row):
    """Within 2 %: transformers fuses neither norms nor activation functions. Under autocast norms
    are in fp32, and each product keeps what it has cast, weights too.
    """
    mode = Recompute.FULL if row["checkpointing"] else Recompute.NONE
    level = Sharding.NONE if row["dtype"] == "autocast" else Sharding.OPTIMIZER
    strategy = Strategy(mbs=row["sequences"], recompute=mode, sharding=level)
    constants = MemoryConstants(unfused=1.0, autocast=1.0)
    [layer] = stored_layers(workload(row), constants, strategy)
    kept = layer.input if row["checkpointing"] else layer.stored
    assert kept == pytest.approx(row["kept"], rel=0.02)


def test_the_loss_of_transformers_has_three_copies_of_the_logits_at_once():
    """Softmax, gradient of the loss and gradient of the softmax, whatever the weights are in."""
    copies = [presets.calibration("h100", "bf16", stack).memory.logit_copies for stack in STACKS]
    assert COUNTED["logit copies"] == {"autocast": pytest.approx(3.0), "bf16": pytest.approx(3.0)}
    assert copies == [3.0, 3.0]


@pytest.mark.parametrize("row", WIDE, ids=name)
def test_weights_of_a_layer_are_as_wide_as_pytorch_counts(row):
    """Within 2 %: frozen matrices in their format, adapters beside them."""
    asked = workload(row)
    cluster = presets.cluster("h100", 1)
    weights = float(
        np.max(estimate(asked, cluster, Strategy(mbs=row["sequences"])).footprint.weights)
    )
    ends = 2 * 512 * 256 * (4 if row["dtype"] == "fp32" else 2)
    assert (weights - ends) / 3 == pytest.approx(row["weights"], rel=0.02)
