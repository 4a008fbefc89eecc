"""A global batch is a number of sequences, or of tokens; one that nobody trains with is doubted at
every door.
"""

import pytest

import mofa_model as mofa
from mofa_model.answers.what_if import FIRST, what_if
from mofa_model.errors import BadValue
from mofa_model.spec.training import read_batch

ASKED = {
    "model": "llama3-8b",
    "gpu": "h100",
    "gpus": 8,
    "sequence_length": 8192,
    "framework": "nanotron",
}


@pytest.mark.parametrize(
    "text",
    [
        "512",
        512,
        "4M tokens",
        "4Mi tokens",
        "4Mitokens",
        "4194304 tokens",
        "4_194_304 tok",
        "4194.304k tokens",
    ],
)
def test_tokens_are_as_many_sequences_as_they_fill(text):
    assert read_batch(text, 8192, "--global-batch") == 512
    assert (
        read_batch("4e6 tokens", 4000, "--global-batch")
        == read_batch("4M Tokens", 4000, "x")
        == 1000
    )


@pytest.mark.parametrize(
    "text, right",
    [
        ("5.1M tokens", "write 622 (5,095,424 tokens) or 623 (5,103,616 tokens)"),
        ("4e6 tokens", "write 488 (3,997,696 tokens) or 489 (4,005,888 tokens)"),
        ("4 tokens", "write 1 (8,192 tokens)"),
        ("-8192 tokens", "write 1 (8,192 tokens)"),
        ("many tokens", "write a whole number"),
        ("4 megatokens", "write a whole number"),
        ("1e999 tokens", "write a finite number"),
        ("9" * 70 + " tokens", "write a whole number"),
    ],
)
def test_what_is_no_whole_number_of_sequences_is_told_what_would_be(text, right):
    with pytest.raises(BadValue) as refused:
        read_batch(text, 8192, "--global-batch")
    assert str(refused.value).endswith(right) or right in str(refused.value).partition("; ")[2]


def test_four_million_sequences_are_doubted_in_the_first_line_at_every_door():
    """It was taken as it was written: a step of 13.7 hours, Recommended."""
    said = "a global batch of 4,000,000 sequences is 32,768 M tokens a step, and the largest that was published has 128 M"
    found = mofa.advise(**ASKED, global_batch_size="4M")
    assert found.status == "LowConfidence"
    assert found.advice.explanation.startswith(
        f"{said}: if it is a number of tokens, write 488 sequences; "
    )
    one = mofa.sweep(**ASKED, vary={"global_batch_size": ["4M", "4M tokens"]}).rows
    assert [row["status"] for row in one] == ["LowConfidence", "Recommended"]
    assert one[0]["doubts"].startswith(said)
    page = what_if(
        {**FIRST, **{name: str(value) for name, value in ASKED.items()}, "global_batch_size": "4M"}
    )
    assert page.answer.status == "LowConfidence"
    refused = what_if({**FIRST, "global_batch_size": "4e6 tokens"}).errors
    assert "write 488 (3,997,696 tokens)" in refused["global_batch_size"]
