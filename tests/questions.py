"""A model with its training and machines, from few words: what a search or a launch is
asked for.
"""

from mofa_model import presets
from mofa_model.search import SearchCase
from mofa_model.spec import Training, Workload


def case(
    model="llama3.1-405b",
    *,
    device="h100",
    gpus=8,
    sequence=8192,
    batch=2048,
    precision="bf16",
    optimizer="adamw",
    stack="megatron-core",
):
    """One question; a model is a preset or made by the test."""
    given = presets.model(model) if isinstance(model, str) else model
    recipe = presets.precision(precision, stack=stack)
    training = Training(
        sequence=sequence,
        global_batch=batch,
        precision=recipe,
        optimizer=presets.optimizer(optimizer),
    )
    cluster = presets.cluster(device, gpus, stack=stack, precision=precision)
    return SearchCase(workload=Workload(model=given, training=training), cluster=cluster)
