"""Every kind of block: its parameters as published, its FLOPs by an independent count, and what
holds of all of them.
"""

from dataclasses import fields, replace

import numpy as np
import pytest
from hybrids import HYBRIDS
from machines import ideal

from mofa_model import presets
from mofa_model.blocks import BLOCKS, Experts, FeedForward, SoftmaxAttention, StateSpace
from mofa_model.equations import parameters as p
from mofa_model.estimate import estimate
from mofa_model.spec import Training, Workload
from mofa_model.strategy import MODULES, OFFLOADED, ContextMode, Strategy

HIDDEN = 2048
EVERY = {
    block.word: (model, layer, block)
    for model in [*HYBRIDS.values(), *map(presets.model, ("llama3-8b", "deepseek-v3"))]
    for layer in model.kinds
    for block in layer.blocks
}
"""A block of each kind, with a model that has it."""


def question(model, sequence=8192):
    training = Training(sequence=sequence, global_batch=64, precision=presets.precision("bf16"))
    return Workload(model=model, training=training)


def test_every_kind_of_block_is_in_a_model_here():
    assert set(EVERY) == set(BLOCKS)


@pytest.mark.parametrize(
    "name, published",
    [
        ("qwen3-next", 79_674_391_296),
        ("kimi-linear", 49_122_681_728),
        ("mamba2-2.7b", 2_702_599_680),
        ("mamba-2.8b", 2_768_345_600),
        ("minimax-m1", 456_089_655_296),
        ("qwen2.5-vl-7b", 8_292_166_656),
    ],
)
def test_a_model_has_the_parameters_of_its_published_weights(name, published):
    assert p.total_parameters(HYBRIDS[name]) == published


def counted(word, model, block, s):
    """Forward FLOPs of a token in a block, matrix by matrix and head by head, for a sequence
    of s.
    """
    h, b = model.hidden, block
    if word in {"attention", "shared_attention"}:
        wide, narrow = b.heads * b.head_dim, b.kv_heads * b.head_dim
        made = h * wide * (2 if b.gated else 1) + (2 * h * narrow if word == "attention" else 0)
        return 2 * (made + wide * h) + 2 * b.heads * s * 2 * b.head_dim
    if word in {"latent_attention", "sparse_attention"}:
        q = b.heads * (b.nope_dim + b.rope_dim)
        query = h * q if b.query_rank is None else h * b.query_rank + b.query_rank * q
        ups = b.kv_rank * b.heads * (b.nope_dim + b.value_dim)
        linear = 2 * (query + h * (b.kv_rank + b.rope_dim) + ups + b.heads * b.value_dim * h)
        if word == "latent_attention":
            return linear + 2 * s * b.heads * (b.nope_dim + b.rope_dim + b.value_dim)
        index = b.query_rank * b.index_heads * b.index_dim + h * (b.index_dim + b.index_heads)
        best = 2 * min(s, b.top_k) * b.heads * (b.kv_rank + b.rope_dim + b.kv_rank)
        return linear + 2 * index + 2 * s * b.index_heads * b.index_dim + best
    if word == "dense":
        return 2 * (3 if b.gated else 2) * h * b.width
    if word == "experts":
        matrices = 3 if b.gated else 2
        return 2 * (
            h * b.count
            + matrices * h * (b.top_k * b.width + (b.shared_width or 0))
            + (h if b.shared_gate else 0)
        )
    if word == "state_space":
        inner, sides = b.heads * b.head_dim, 2 * b.groups * b.state
        linear = 2 * h * (2 * inner + sides + b.heads) + 2 * inner * h
        inside = 2 * b.chunk * (b.groups * b.state + inner)
        return linear + inside + 2 * (2 * inner * b.state)
    if word == "selective_scan":
        linear = 2 * (
            h * 2 * b.inner
            + b.inner * (b.step_rank + 2 * b.state)
            + b.step_rank * b.inner
            + b.inner * h
        )
        return linear + 6 * b.inner * b.state
    if word == "encoder":
        w, m = b.width, b.merged
        layer = 2 * (4 * w * w + 3 * w * b.ffn)
        seen = b.whole_layers * b.patches + (b.layers - b.whole_layers) * b.window
        projector = 2 * (m * w * m * w + m * w * h) / m
        patch = 2 * b.inputs * w + b.layers * layer + 4 * seen * w + projector
        return patch * b.patches / s
    keys, values = b.key_heads * b.key_dim, b.value_heads * b.value_dim
    linear = h * (2 * keys + values) + values * h
    linear += h * values if b.gate_rank is None else b.gate_rank * (h + values)
    linear += b.gate_rank * (h + keys) if b.decay == "channel" else 0
    linear += h * b.value_heads * ((b.decay == "head") + b.delta)
    c, dk, dv = b.chunk, b.key_dim, b.value_dim
    # Q K^T, A V; K^T V into the state, Q S out of it; of the delta rule K K^T, its inverse, T V, T
    # K, and W S.
    head = 2 * c * (dk + dv) + 4 * dk * dv
    head += (2 * c * (dk + dv + dk) + c * c / 3 + 2 * dk * dv) if b.delta else 0
    return 2 * linear + b.value_heads * head


@pytest.mark.parametrize("sequence", [4096, 65536])
@pytest.mark.parametrize("word", BLOCKS)
def test_a_token_costs_the_flops_of_an_independent_count(word, sequence):
    model, layer, block = EVERY[word]
    alone = replace(layer, blocks=(block,))
    seen = 1 if block.own_tokens is None else block.own_tokens / sequence
    found = 2.0 * seen * block.matrices(model.hidden, active=True) + p.core_flops_per_token(
        alone, sequence
    )
    assert float(found) == pytest.approx(counted(word, model, block, sequence), rel=0.01)


@pytest.mark.parametrize("word", BLOCKS)
def test_an_ideal_device_takes_the_time_of_its_flops(word):
    """Perfect kernels, endless bandwidth, no window or chunk left out: time is FLOPs over the peak
    of 1e15 a second.
    """
    model, layer, block = EVERY[word]
    short = replace(
        model, runs=(replace(model.runs[0], layers=(replace(layer, blocks=(block,)),), repeats=1),)
    )
    found = estimate(
        question(short), ideal(1, compute=dict(attention_causal=1.0)), Strategy()
    ).layer_times[0]
    seen = 1 if block.own_tokens is None else block.own_tokens / 8192
    flops = 2.0 * seen * block.matrices(model.hidden, active=True) + p.core_flops_per_token(
        short.kinds[0], 8192
    )
    near = (
        0.15 if word == "sparse_attention" else 1e-9
    )  # the first tokens see fewer than the best 2048
    assert float(found.linear + found.attention) == pytest.approx(
        8192 * float(flops) / 1e15, rel=near
    )


@pytest.mark.parametrize("word", BLOCKS)
def test_what_a_block_says_is_complete(word):
    model, _, block = EVERY[word]
    h = model.hidden
    for kept in block.saved_tensors(h):
        assert kept.elements > 0
        assert kept.dropped_by | kept.narrowed_by <= set(MODULES)
        assert set(kept.offloaded_by) <= set(OFFLOADED)
    assert set(block.recomputed_work) <= set(MODULES)
    assert (
        block.parameters(h)
        >= block.matrices(h)
        == pytest.approx(
            sum(
                one.weights * (block.exchange().count if one.rows.value == "routed" else 1)
                for one in block.products(h)
            )
        )
    )
    assert (block.context_messages() is None) == (not block.cores())
    assert (block.all_to_all_heads() is None) == (not block.cores())


@pytest.mark.parametrize("word", BLOCKS)
def test_numbers_may_be_arrays_and_a_row_is_the_same_alone(word):
    model, _, block = EVERY[word]

    def is_number(value):
        return isinstance(value, int | float) and not isinstance(value, bool)

    rows = {
        f.name: np.array([getattr(block, f.name)] * 3)
        for f in fields(block)
        if is_number(getattr(block, f.name))
    }
    many = replace(block, **rows)
    for number in ("parameters", "matrices", "vectors", "placement_cost"):
        assert np.all(getattr(many, number)(model.hidden) == getattr(block, number)(model.hidden))


@pytest.mark.parametrize("mode", ContextMode)
@pytest.mark.parametrize("word", BLOCKS)
def test_memory_falls_with_every_way_of_sharing(word, mode):
    model, layer, block = EVERY[word]
    alone = replace(
        model, runs=(replace(model.runs[0], layers=(replace(layer, blocks=(block,)),), repeats=4),)
    )
    cluster = presets.cluster("h100", 8)

    def peak(**degrees):
        return float(
            estimate(
                question(alone), cluster, Strategy(context_mode=mode, **degrees)
            ).footprint.peak
        )

    assert peak(tp=2, sequence_parallel=True) < peak()
    assert peak(cp=2) < peak()
    assert peak(dp=8) < peak()
    if block.exchange() is not None:
        assert peak(dp=8, ep=8) < peak(dp=8)


def test_a_state_is_handed_on_however_many_tokens_there_are():
    """Mamba-2 on four ranks of a slow link: 80 heads x 64 x 128 numbers of 4 B, at any length of
    the sequence.
    """

    def sent(sequence):
        work = question(HYBRIDS["mamba2-2.7b"], sequence)
        return float(
            estimate(work, ideal(4, scale_up=1e9), Strategy(cp=4)).layer_times[0].communication
        )

    assert sent(8192) == sent(65536) == pytest.approx(3 * 3 * 80 * 64 * 128 * 4 / 1e9)


def test_biases_gates_and_norms_are_counted():
    """8 heads of 64 over 2: (8 + 4) x 64 outputs with biases; a gate doubles the queries; two norms
    of 64; 8 sinks.
    """
    plain = SoftmaxAttention(heads=8, kv_heads=2, head_dim=64)
    more = {"bias": 12 * 64, "output_bias": HIDDEN, "gated": 8 * 64 * HIDDEN, "sinks": 8}
    for name, added in more.items():
        assert replace(plain, **{name: True}).parameters(HIDDEN) - plain.parameters(HIDDEN) == added
    for kind, added in (("head", 2 * 64), ("whole", 10 * 64)):
        assert replace(plain, qk_norm=kind).parameters(HIDDEN) - plain.parameters(HIDDEN) == added
    dense = FeedForward(width=512)
    assert (
        replace(dense, bias=True).parameters(HIDDEN) - dense.parameters(HIDDEN) == 2 * 512 + HIDDEN
    )
    experts = Experts(count=4, top_k=2, width=512)
    biased = replace(experts, bias=True, router_bias=True)
    assert biased.parameters(HIDDEN) - experts.parameters(HIDDEN) == 4 * (2 * 512 + HIDDEN) + 4
    assert (
        biased.parameters(HIDDEN, active=True) - experts.parameters(HIDDEN, active=True)
        == 2 * (1024 + HIDDEN) + 4
    )


def test_latent_experts_are_small_and_send_small_tokens():
    """Projected from 2048 to 512: experts of 3 x 512 x 256, two projections, and a quarter of
    the exchange.
    """
    wide = Experts(count=8, top_k=2, width=256)
    small = replace(wide, latent=512)
    assert small.matrices(HIDDEN) == 8 * 3 * 512 * 256 + 2 * 512 * HIDDEN + 8 * HIDDEN
    model = presets.model("mixtral-8x7b")

    def of(experts):
        layer = replace(model.kinds[0], blocks=(experts,))
        return replace(model, runs=(replace(model.runs[0], layers=(layer,)),))

    cluster, layout = ideal(8, scale_up=1e9), Strategy(dp=8, ep=8)
    wide, small = (
        float(estimate(question(of(e)), cluster, layout).layer_times[0].expert)
        for e in (wide, replace(small, latent=1024))
    )
    assert small == pytest.approx(wide / 4)


def test_a_longer_chunk_costs_more_inside_and_nothing_between():
    short, long = (StateSpace(heads=8, head_dim=64, state=128, chunk=chunk) for chunk in (64, 256))
    inside, between = short.cores()
    assert long.cores()[1] == between
    assert long.cores()[0] == replace(inside, fixed=256)
