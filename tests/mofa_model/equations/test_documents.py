"""Packed documents ask for less attention, padded ones for fewer tokens, and ranks wait for
the longest.
"""

import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model import presets
from mofa_model.answers.lengths import documents_of
from mofa_model.equations import documents
from mofa_model.equations.parameters import over_documents
from mofa_model.errors import BadFile, BadValue
from mofa_model.estimate import estimate
from mofa_model.spec import Lengths, Training, Workload
from mofa_model.spec.training import parse_documents
from mofa_model.strategy import Strategy, parse_strategy

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
        PLAIN, documents=Lengths(tuple(map(float, lengths)), tuple(map(float, shares)))
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


MIXED = Lengths((100.0, 900.0, 2000.0, 3500.0), (5.0, 3.0, 1.0, 1.0))


def of(documents, sequence=8192):
    return replace(PLAIN, sequence=sequence, documents=documents)


def packed_squares(rng, sequence=8192):
    """Squares of the lengths in one sequence that is filled one document after the other."""
    room, squares = sequence, 0.0
    while room > 0:
        length = min(room, rng.choices(MIXED.lengths, MIXED.shares)[0])
        room, squares = room - length, squares + length * length
    return squares


def test_attention_of_packed_sequences_varies_as_a_simulation_says():
    """Squares of 4,000 sequences vary by 29 %, the renewal law says 28 %."""
    rng = random.Random(1)
    found = [packed_squares(rng) for _ in range(4000)]
    spread, room = documents.variation(of(MIXED), 1)
    assert spread == pytest.approx(statistics.pstdev(found) / statistics.mean(found), rel=0.06)
    assert room >= max(found) / statistics.mean(found) - 1.0


def test_the_rank_with_the_longest_documents_is_waited_for_as_a_simulation_says():
    """The slowest of 16 ranks, each with 8 micro-batches, computes 17 % more attention than the
    mean rank.
    """
    rng = random.Random(2)
    sums = [[sum(packed_squares(rng) for _ in range(8)) for _ in range(16)] for _ in range(200)]
    mean = statistics.mean(one for ranks in sums for one in ranks)
    simulated = statistics.mean(max(ranks) for ranks in sums) / mean - 1.0
    spread, _ = documents.variation(of(MIXED), 1)
    assert float(spread / 8**0.5 * documents.largest_of(16)) == pytest.approx(simulated, rel=0.1)


@given(
    st.lists(st.tuples(st.integers(1, 4096), st.integers(1, 9)), min_size=1, max_size=6),
    st.sampled_from((1, 2, 8)),
)
def test_padding_is_between_the_mean_and_the_longest(pairs, number):
    lengths, shares = (tuple(map(float, some)) for some in zip(*pairs, strict=True))
    text = of(Lengths(lengths, shares, padded=True), 4096)
    mean, padded = (
        text.documents.longest(4096, 1),
        text.length(number),
    )
    assert mean <= padded + 1e-9 <= text.longest + 1e-6
    assert 0.0 < documents.filled(text, number) <= 1.0 + 1e-9


def test_padded_documents_are_priced_by_their_padding_and_held_by_their_longest():
    """Documents of 1,000 tokens: an eighth of the time of 8,000, and memory of what is longest."""
    training = replace(of(Lengths((1000.0,), (1.0,), padded=True)))
    workload = Workload(model=presets.model("llama3-8b"), training=training)
    short = replace(training, sequence=1000, documents=None)
    machines, layout = presets.cluster("h100", 8), Strategy(dp=8, mbs=2)
    found = estimate(workload, machines, layout)
    same = estimate(replace(workload, training=short), machines, layout)
    assert found.step_time == pytest.approx(same.step_time, rel=1e-12)
    assert found.footprint.peak == same.footprint.peak
    assert found.step_terms.waits == 0.0
    rare = replace(training, documents=Lengths((1000.0, 8000.0), (999.0, 1.0), padded=True))
    other = estimate(replace(workload, training=rare), machines, layout)
    longest = replace(training, sequence=8000, documents=None)
    assert (
        other.footprint.peak
        == estimate(replace(workload, training=longest), machines, layout).footprint.peak
    )
    assert found.step_time < other.step_time < 1.5 * found.step_time


def test_ranks_that_share_weights_wait_in_every_micro_batch():
    """Eight micro-batches: under ZeRO-3 the waits are the square root of eight times as long."""
    workload = Workload(model=presets.model("llama3-8b"), training=of(MIXED))
    machines = presets.cluster("h100", 8, stack="accelerate")
    once, each = (
        estimate(workload, machines, parse_strategy(f"mbs=1,optimizer={one}", 8))
        for one in ("replicated", "zero3")
    )
    assert once.step_terms.waits > 0
    assert each.step_terms.waits / each.step_inputs.slowest == pytest.approx(
        8**0.5 * once.step_terms.waits / once.step_inputs.slowest, rel=1e-9
    )


def test_lengths_come_from_a_file_of_lengths_or_of_rows(tmp_path):
    """Eight hundred lengths become 33: means of parts of equal numbers, and the longest."""
    plain, rows = tmp_path / "lengths.txt", tmp_path / "rows.jsonl"
    plain.write_text("\n".join(map(str, range(100, 901))))
    found = documents_of(f"padded,{plain}", field="documents")
    assert (found.padded, len(found.lengths), max(found.lengths)) == (True, 33, 900.0)
    assert found.longest(8192, 1) == pytest.approx(500.0, rel=0.01)
    rows.write_text('{"text": "abcdefgh"}\n{"input_ids": [1, 2, 3]}\n{"num_tokens": 7}\n{}\n')
    assert documents_of(str(rows), field="documents").lengths == (2.0, 3.0, 7.0)
    rows.write_text("{}\n")
    with pytest.raises(BadFile, match="no row with a length"):
        documents_of(str(rows), field="documents")
    with pytest.raises(BadFile):
        documents_of(str(tmp_path / "absent.txt"), field="documents")
