"""What a checkpoint of a strategy holds, and which ranks write it."""

from __future__ import annotations

from mofa_model.equations.adapters import adapter_parameters
from mofa_model.equations.memory import shard_ranks
from mofa_model.equations.optimizers import state_bytes
from mofa_model.equations.parameters import prediction_parameters, total_parameters
from mofa_model.reliability.checkpoint import checkpoint_bytes
from mofa_model.spec import UpdateRule, Workload
from mofa_model.strategy import Sharding, Strategy
from mofa_model.units import Bytes, Count


def update_rule(workload: Workload, strategy: Strategy) -> UpdateRule:  # noqa: ARG001, an axis may choose the rule
    """The rule that updates the weights. An axis that replaces it does so here: memory, time and checkpoints follow."""
    return workload.training.optimizer


def checkpoint_size(workload: Workload, strategy: Strategy) -> Bytes:
    """Bytes of a whole checkpoint: weights and optimizer states of what is trained. Ours. [B]"""
    model, training = workload.model, workload.training
    rule = update_rule(workload, strategy)
    states = state_bytes(training.precision.optimizer, rule.states, rule.replaced)
    if training.adapter_rank:  # frozen weights are where they came from
        parameters = sum(
            model.number(kind) * adapter_parameters(kind, model.hidden, training.adapter_rank)
            for kind in model.kinds
        )
    else:
        parameters = total_parameters(model) + prediction_parameters(model)
    return checkpoint_bytes(float(parameters), training.precision.weight, states)


def checkpoint_replicas(workload: Workload, strategy: Strategy) -> Count:
    """Ranks that hold the same shard of most parameters, of which one writes it to a checkpoint. Ours. [1]"""
    s = strategy
    copies = s.data_ranks if workload.model.experts is None else s.expert_data_ranks
    return copies if s.sharding is Sharding.NONE else copies / shard_ranks(copies, s.shard)
