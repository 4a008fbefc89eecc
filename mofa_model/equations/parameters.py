"""How many parameters a model has, and how many FLOPs a token costs: Table 2 of the paper, summed
over layers and their blocks.

    layer = its blocks and their norms        each block counts its own (`mofa_model/blocks/`)
    model = layers + embedding + head (unless tied) + final norm

Multi-token prediction modules are counted apart, as published counts do.

Reported FLOPs follow a convention: `full` counts all s x s attention scores, `causal` the half that
is needed; trainers that count the head twice say so. Recomputation is never a model FLOP.

Low-rank adapters (LoRA) are two narrow trained matrices beside some frozen linear layers;
embedding, head, norms and encoders have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from mofa_model.blocks import Block, Core, Layer, Rows
from mofa_model.errors import BadValue
from mofa_model.spec import Adapters, Training, Transformer
from mofa_model.units import Count, Flop, Numeric, Ratio

CONVENTIONS: Final = ("full", "causal")
"""How attention scores are counted when FLOPs are reported."""


def total_parameters(model: Transformer) -> Count:
    """All parameters without prediction modules, Table 2 summed over the model. [1]

    >>> from mofa_model.presets import model
    >>> total_parameters(model("llama3-8b"))
    8030261248
    """
    return _parameters(model, active=False)


def active_parameters(model: Transformer) -> Count:
    """Parameters that one token meets: of the routed experts only the top k. Source: Table 2. [1]

    >>> from mofa_model.presets import model
    >>> active_parameters(model("deepseek-v3"))
    37552282624
    """
    return _parameters(model, active=True)


def prediction_parameters(model: Transformer) -> Count:
    """Parameters of the multi-token prediction modules beside embedding and head, which they share:
    one layer, the projection of two streams onto one, and its norms, each. Source: DeepSeek-V3. [1]

    >>> from mofa_model.presets import model
    >>> int(prediction_parameters(model("deepseek-v3")) / 1e6)
    11610
    """
    h = model.hidden
    return model.prediction_modules * (model.kinds[model.last].parameters(h) + 2 * h * h + 3 * h)


def core_flops_per_token(layer: Layer, sequence: Count, *, convention: str = "full") -> Flop:
    """Forward FLOPs of a layer's tokens on each other, Table 2: of attention 4 s a d, half of it
    where causal. [FLOP]

    In a windowed layer a token sees at most w others: s becomes min(s, w), and causal counting s/2
    becomes w - w^2/2s.

    >>> from mofa_model.presets import model
    >>> core_flops_per_token(model("llama3-8b").kinds[0], 8192)
    134217728.0
    """
    if convention not in CONVENTIONS:
        raise BadValue("convention", convention, f"one of {', '.join(CONVENTIONS)}")
    total: Flop = 0.0
    for block in layer.blocks:
        for core in block.cores():
            pairs = _tokens_met(core, sequence, convention) * core.heads
            pairs = pairs if core.times is None else pairs * core.times
            total = total + 2.0 * _token_share(block, sequence) * pairs * core.width
    return total


def attention_flops_per_token(
    model: Transformer, sequence: Count, *, convention: str = "full"
) -> Flop:
    """Forward FLOPs of the tokens on each other in all layers, Table 2. [FLOP]

    >>> from mofa_model.presets import model
    >>> attention_flops_per_token(model("llama3-8b"), 8192) / 32
    134217728.0
    """
    kinds = model.kinds
    return sum(
        model.number(kind) * core_flops_per_token(kind, sequence, convention=convention)
        for kind in kinds
    )


def forward_flops_per_token(
    model: Transformer,
    sequence: Count,
    *,
    convention: str = "full",
    head_counted_twice: bool = False,
    prediction: bool = False,
) -> Flop:
    """Forward FLOPs of the model for one token, Table 2: two per weight that it meets, attention,
    and the head. [FLOP]

    `prediction` adds the multi-token prediction modules.

    >>> from mofa_model.presets import model
    >>> round(float(forward_flops_per_token(model("llama3-8b"), 8192)) / 1e9, 3)
    19.304
    """
    h = model.hidden
    modules = model.prediction_modules if prediction else 0
    weights = sum(
        model.number(kind) * _weights_per_token(kind, h, sequence) for kind in model.kinds
    )
    last = model.kinds[model.last]
    weights = weights + modules * (_weights_per_token(last, h, sequence) + 2 * h * h)
    heads = (2 if head_counted_twice else 1) + modules
    core = attention_flops_per_token(model, sequence, convention=convention)
    core = core + modules * core_flops_per_token(last, sequence, convention=convention)
    return 2.0 * weights + core + 2.0 * heads * h * model.embedding.vocabulary


def training_flops_per_token(
    model: Transformer,
    sequence: Count,
    *,
    convention: str = "full",
    head_counted_twice: bool = False,
    prediction: bool = False,
) -> Flop:
    """FLOPs of forward and backward for one token, Eq. (15): three times forward. [FLOP]

    >>> from mofa_model.presets import model
    >>> round(float(training_flops_per_token(model("gpt3-175b"), 2048)) / 1e12, 3)
    1.076
    """
    return 3.0 * forward_flops_per_token(
        model,
        sequence,
        convention=convention,
        head_counted_twice=head_counted_twice,
        prediction=prediction,
    )


def _weights_per_token(layer: Layer, hidden: Count, sequence: Count) -> Count:
    """Weights of a layer that a token of the sequence is multiplied with, on average. [1]"""
    return sum(
        _token_share(block, sequence) * block.matrices(hidden, active=True)
        for block in layer.blocks
    )


def _token_share(block: Block, sequence: Count) -> Ratio:
    """Tokens that a block sees for each token of the sequence. [1]"""
    return 1 if block.own_tokens is None else block.own_tokens / sequence


def _parameters(model: Transformer, *, active: bool) -> Count:
    h, ends = model.hidden, model.embedding
    layers = sum(model.number(kind) * kind.parameters(h, active=active) for kind in model.kinds)
    return layers + ends.rows(h) + ends.head(h) + ends.vectors(h)


def _tokens_met(core: Core, sequence: Count, convention: str) -> Count:
    """Tokens that a token is counted to meet. [1]"""
    if core.fixed is not None:
        return core.fixed
    seen = sequence if core.window is None else np.minimum(sequence, core.window)
    return seen - seen * seen / (2.0 * sequence) if convention == "causal" else seen


def over_documents(
    training: Training, of: Callable[[Numeric], Numeric], padded: Numeric | None = None
) -> Numeric:
    """Mean over the tokens of a sequence of what depends on the length in which they see each
    other. Ours. []

    `padded` is the length with padding, which attention works on too. Attention's work is the sum
    of squares of the lengths: two documents of 1024 tokens and one of
    2048 in a sequence of 4096 ask for (2 + 4) / 16 of its products.

    >>> from mofa_model.spec import Lengths, Precision
    >>> packed = Lengths((1024.0, 2048.0), (2.0, 1.0))
    >>> bf16 = Precision(name="bf16")
    >>> step = Training(sequence=4096, global_batch=1, precision=bf16, documents=packed)
    >>> float(over_documents(step, lambda length: length)) / 4096
    0.375
    """
    if training.documents is None:
        return of(training.sequence)
    if training.documents.padded and padded is not None:
        return of(padded)
    return training.documents.mean(training.sequence, of)


def adapter_parameters(
    layer: Layer, hidden: Count, adapters: Adapters, *, routed: bool = False
) -> Count:
    """Trained parameters of a layer, an expert's once where `routed`: rank times inputs and outputs
    of the linear layers with adapters. Source: Hu et al., 2021. [1]

    >>> from mofa_model.presets import model
    >>> from mofa_model.spec import Adapters
    >>> llama, all_linear = model("llama3-8b"), frozenset({"attention", "mlp"})
    >>> kind = llama.kinds[0]
    >>> int(32 * adapter_parameters(kind, llama.hidden, Adapters(rank=16, targets=all_linear)))
    41943040
    """
    inputs, outputs = _widths(layer, hidden, adapters, Rows.ROUTED if routed else None)
    matrices: Count = adapters.rank * (inputs + outputs)
    # The length of each column of a whole matrix beside its direction. Source: DoRA.
    return matrices + outputs if adapters.magnitudes else matrices


def trained_parameters(model: Transformer, adapters: Adapters) -> Count:
    """Parameters of all adapters of a model. Source: Hu et al., 2021. [1]

    >>> from mofa_model.presets import model
    >>> from mofa_model.spec import Adapters
    >>> int(trained_parameters(model("llama2-70b"), Adapters(rank=16)))
    65536000
    """
    total: Count = 0
    for kind in model.kinds:
        own = adapter_parameters(kind, model.hidden, adapters)
        for exchange in filter(None, (block.exchange() for block in kind.blocks)):
            inside = adapter_parameters(kind, model.hidden, adapters, routed=True)
            own = own + exchange.count * inside
        total = total + model.number(kind) * own
    return total


def adapter_traffic(
    layer: Layer, hidden: Count, adapters: Adapters, *, routed: bool = False
) -> Count:
    """Elements that adapters move per token of a layer, forward: inputs are read, outputs read and
    written. Ours. [1]

    >>> from mofa_model.presets import model
    >>> from mofa_model.spec import Adapters
    >>> llama = model("llama3-8b")
    >>> int(adapter_traffic(llama.kinds[0], llama.hidden, Adapters(rank=16)))
    36864
    """
    inputs, outputs = _widths(layer, hidden, adapters, Rows.ROUTED if routed else None)
    return inputs + 2 * outputs


def adapted(layer: Layer, hidden: Count, adapters: Adapters) -> Count:
    """Linear layers of a layer that have an adapter, those of a routed expert once. Ours. [1]

    >>> from mofa_model.presets import model
    >>> from mofa_model.spec import Adapters
    >>> llama = model("llama3-8b")
    >>> adapted(llama.kinds[0], llama.hidden, Adapters(rank=16))
    4
    """
    return sum(
        adapters.beside(name) * (1 if product.times is None else product.times)
        for block in layer.blocks
        for product in block.products(hidden)
        for name, _ in product.linears
    )


def _widths(
    layer: Layer, hidden: Count, adapters: Adapters, rows: Rows | None
) -> tuple[Count, Count]:
    """Inputs and outputs of the linear layers with adapters, added up: of an expert, or of
    all others.
    """
    inputs: Count = 0
    outputs: Count = 0
    for block in layer.blocks:
        for product in block.products(hidden):
            if (product.rows is Rows.ROUTED) is not (rows is Rows.ROUTED):
                continue
            times = 1 if product.times is None else product.times
            for name, width in product.linears:
                if adapters.beside(name):
                    inputs, outputs = inputs + times * product.k, outputs + times * width
    return inputs, outputs
