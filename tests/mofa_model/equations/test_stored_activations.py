"""Stored bytes of a layer, part by part, of Llama 3.1 405B at sequence 8192 on 8 ranks unless
said otherwise.
"""

import numpy as np
import pytest

from mofa_model.blocks import Experts, FeedForward, LatentAttention, Layer, SoftmaxAttention
from mofa_model.equations import memory as a
from mofa_model.units import GIB

S, H, T = 8192, 16384, 8
UNIT = S * H / T
"""sbh/t: 16.8 MB."""


def test_the_layer_of_the_paper_stores_32_sbh_over_t():
    """Table 2 for its LLaMA3-405B with 16 key-value heads and a gated FFN of 3.25 h: its blocks say
    what they keep.
    """
    blocks = (SoftmaxAttention(heads=128, kv_heads=16, head_dim=128), FeedForward(width=53248))
    kept = [
        one for block in blocks for one in block.saved_tensors(H) if not (one.scored or one.unfused)
    ]
    norms = [one for one in Layer(blocks).stream(H) if not (one.dropout_mask or one.unfused)]
    parts = [a.kept_activation(S, one.elements, width=2.0, ranks=T) for one in (*norms, *kept)]
    assert [part / UNIT for part in parts] == [4, 4, 2.5, 2, 13, 6.5]
    assert sum(parts) == 32 * UNIT


def test_the_input_of_a_layer_is_2_sbh():
    assert a.kept_activation(S, H, width=2.0, ranks=T) == 2 * UNIT
    assert a.kept_activation(S, H, width=2.0, ranks=1) == 16 * UNIT


def test_every_part_is_shared_by_its_ranks():
    ranks = np.array([1.0, 2.0, 8.0])
    for part in (
        a.kept_activation(S, H, width=2.0, ranks=ranks),
        a.score_activation(S, 128, S, statistic=4.0, score=5.0, ranks=ranks),
        a.head_activation(S, H, width=2.0, ranks=ranks),
        a.logit_memory(S, 128256, width=4.0, copies=2.0, ranks=ranks),
        a.head_weight_memory(H, 128256, width=2.0, ranks=ranks),
    ):
        assert (part * ranks).tolist() == [part[0]] * 3


def test_the_latents_of_mla_are_far_smaller_than_what_they_are_projected_to():
    """DeepSeek-V3: 2 (1536 + 512) + 64 = 4160 elements a token, against 128 x (192 + 192 + 128)."""
    block = LatentAttention(
        heads=128, query_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128
    )
    _, ups, before, after, _ = block.saved_tensors(7168)
    assert before.elements + after.elements == 4160
    assert ups.elements / (before.elements + after.elements) == pytest.approx(15.8, abs=0.1)


def test_fused_attention_keeps_four_bytes_a_row_and_head():
    assert a.score_activation(S, 128, S, statistic=4.0, score=0.0, ranks=T) == 4 * S * 128 / T
    # Without fusion five bytes for each of 128 x 8192 x 8192 scores: 5 GiB on a rank.
    unfused = a.score_activation(S, 128, S, statistic=0.0, score=5.0, ranks=T)
    assert unfused / GIB == 5.0


def test_a_plain_ffn_has_one_input_of_its_activation_and_a_gated_one_two():
    plain, gated = (
        FeedForward(width=4 * H, gated=gated).saved_tensors(H)[0].elements
        for gated in (False, True)
    )
    assert gated == 2 * plain == 8 * H


def test_router_logits_are_there_for_every_expert_and_sorted_tokens_are_as_wide_as_the_stream():
    router, tokens, *_ = Experts(count=256, top_k=8, width=2048).saved_tensors(7168)
    assert (router.elements, router.logit_width) == (256, True)
    assert (tokens.elements, tokens.routed) == (7168, True)


def test_a_token_is_routed_to_eight_experts_whatever_the_number_of_devices():
    """4096 tokens x 8 experts; an imbalance of 1.25 makes the fullest device take 40960 of them."""
    assert a.routed_tokens(4096, 8, 1.0, tensor=1, expert_tensor=1) == 32768
    assert a.routed_tokens(4096, 8, 1.25, tensor=1, expert_tensor=1) == 40960
    # Eight tensor-parallel ranks route an eighth each; eight that share an expert see the tokens of
    # all.
    assert a.routed_tokens(4096, 8, 1.0, tensor=8, expert_tensor=1) == 4096
    assert a.routed_tokens(4096, 8, 1.0, tensor=8, expert_tensor=8) == 32768


def test_the_logits_of_405b_take_a_gibibyte_of_each_rank():
    """4 B x 8192 x 128256 / 8 = 501 MiB a copy, and two of them."""
    assert a.logit_memory(S, 128256, width=4.0, copies=2.0, ranks=T) / GIB == pytest.approx(
        0.9785, abs=1e-4
    )


def test_the_head_stores_its_norm_s_input_and_its_own():
    assert a.head_activation(S, H, width=2.0, ranks=T) == 4 * UNIT
    assert a.head_weight_memory(H, 128256, width=2.0, ranks=T) == 2 * H * 128256 / 8
