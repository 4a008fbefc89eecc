"""Packed documents ask for less attention, and for nothing else less."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model import presets
from mofa_model.equations.parameters import over_documents
from mofa_model.errors import BadValue
from mofa_model.estimate import estimate
from mofa_model.spec import PackedDocuments, Training, Workload
from mofa_model.spec.training import parse_documents
from mofa_model.strategy import Strategy

PLAIN = Training(sequence=8192, global_batch=64, precision=presets.precision("bf16"))


def found(text=None, name="llama3-8b"):
    packed = None if text is None else parse_documents(text, field="documents")
    training = replace(PLAIN, documents=packed)
    return estimate(
        Workload(model=presets.model(name), training=training),
        presets.cluster("h100", 8),
        Strategy(dp=8),
    )


def test_attention_of_equal_documents_falls_with_their_length():
    """Four documents of 2048 tokens in 8192 ask for a quarter of the products."""
    assert found("2048").layer_times[0].attention == pytest.approx(
        found().layer_times[0].attention / 4, rel=1e-12
    )
    assert found("8192").layer_times[0].attention == found().layer_times[0].attention
    assert found("2048").layer_times[0].linear == found().layer_times[0].linear
    assert found("2048").footprint.peak == found().footprint.peak


@given(st.lists(st.tuples(st.integers(1, 8192), st.integers(1, 9)), min_size=1, max_size=6))
def test_the_mean_is_the_sum_of_squares_over_the_tokens(pairs):
    lengths, shares = zip(*pairs, strict=True)
    packed = replace(
        PLAIN, documents=PackedDocuments(tuple(map(float, lengths)), tuple(map(float, shares)))
    )
    tokens = sum(n * length for length, n in pairs)
    squares = sum(n * length * length for length, n in pairs)
    assert over_documents(packed, lambda length: length) == pytest.approx(
        squares / tokens, rel=1e-12
    )
    assert found(",".join(f"{length}:{n}" for length, n in pairs)).step_time <= found().step_time


def test_a_document_longer_than_a_sequence_is_cut():
    assert found("1M").layer_times[0].attention == found().layer_times[0].attention


def test_windows_inside_documents_are_priced_by_the_shorter_of_both():
    """gpt-oss: windows of 128 in every second layer; documents of 128 leave these as they are."""
    assert (
        found("128", "gpt-oss-20b").layer_times[0].attention
        < found("1024", "gpt-oss-20b").layer_times[0].attention
    )


@pytest.mark.parametrize(
    "text", ["", "0", "-4", "512:x", "512:0", "512:inf", "a", ",".join(["8"] * 65)]
)
def test_a_text_that_is_no_distribution_is_refused_with_its_field(text):
    with pytest.raises(BadValue, match=r"^documents: "):
        parse_documents(text, field="documents")
