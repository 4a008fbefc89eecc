"""A launch command gets another layout: nothing else in it changes, and doing it twice is doing it once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.errors import InputError
from mofa_model.launch import Run, launch, read, rewritten, rewritten_line
from mofa_model.strategy import Sharding, Strategy

RUN = Run(sequence=8192, global_batch=512, layers=80, interval_steps=100)
NEW = Strategy(tp=8, pp=4, dp=8)
SHARDED = Strategy(tp=8, pp=4, dp=8, sharding=Sharding.GRADIENTS)
MEGATRON, NEMO = (launch(NEW, name, RUN).arguments for name in ("megatron", "nemo"))
TORCHTITAN = launch(SHARDED, "torchtitan", RUN).arguments
COMMAND = ("pretrain_gpt.py", "--num-layers", "80", "--lr", "1e-4", "--tensor_model_parallel_size", "4", "--sequence-parallel",
           "--recompute-modules", "mlp", "core_attn", "--data-path", "a b", "--bf16", "--save", "/ckpt", "--recompute-activations")  # fmt: skip
KEPT = ("pretrain_gpt.py", "--num-layers", "80", "--lr", "1e-4", "--data-path", "a b", "--save", "/ckpt")


def test_flags_of_the_layout_are_replaced_and_all_others_kept():
    assert rewritten(COMMAND, MEGATRON) == (*KEPT, *MEGATRON)


def test_torchtitan_keeps_its_positional_word_at_the_end():
    words = ["--module", "llama3", "--parallelism.tensor_parallel_degree=2", "--metrics.log_freq", "10"]
    found = rewritten([*words, "activation-checkpoint:full"], TORCHTITAN)
    assert found == ("--module", "llama3", "--metrics.log_freq", "10", *TORCHTITAN)
    assert found[-1].startswith("activation-checkpoint:")


def test_overrides_of_nemo_are_replaced():
    words = ["run.py", "model.tensor_model_parallel_size=2", "+ddp.overlap_grad_reduce=false", "data.path=/d"]
    assert rewritten(words, NEMO) == ("run.py", "data.path=/d", *NEMO)


@pytest.mark.parametrize("trainer, arguments", [("megatron", MEGATRON), ("torchtitan", TORCHTITAN)])
def test_what_was_written_is_read_as_the_layout_that_was_meant(trainer, arguments):
    line = rewritten_line("torchrun --nnodes=32 train.py --log-dir /x", arguments)
    reading = read(line.split())
    assert reading.trainer == trainer
    assert (reading.layout["tp"], reading.layout["pp"]) == (8, 4)


@pytest.mark.parametrize(
    "line, kept",
    [
        ("torchrun t.py --micro-batch-size 2 && sync", "torchrun t.py {} && sync"),
        ("torchrun t.py --micro-batch-size 2 2>&1 | tee log", "torchrun t.py {} 2>&1 | tee log"),
        ('set -e; torchrun --node-rank "$RANK" t.py \\\n  --micro-batch-size $MBS \\\n  --lr 1e-4\n',
         'set -e; torchrun --node-rank "$RANK" t.py \\\n  --lr 1e-4 {}\n'),
        ("torchrun --master $(head -1 (x)) t.py --bf16 # --fp16", "torchrun --master $(head -1 (x)) t.py {} # --fp16"),
        ("torchrun t.py --note '--bf16 is on' --bf16", "torchrun t.py --note '--bf16 is on' {}"),
        ("torchrun t.py", "torchrun t.py {}"),
    ],
)  # fmt: skip
def test_of_a_shell_line_every_other_character_stays(line, kept):
    new = ["--micro-batch-size", "1", "--bf16"]
    assert rewritten_line(line, new) == kept.format("--micro-batch-size 1 --bf16")


def test_a_shell_line_in_a_list_stays_one():
    words = ["bash", "-c", "torchrun t.py --micro-batch-size 2", "x"]
    assert rewritten(words, ["--micro-batch-size", "1"]) == (
        "bash",
        "-c",
        "torchrun t.py --micro-batch-size 1",
        "x",
    )
    assert (
        rewritten(["bash", "-c", "train"], ["--bf16", "--micro-batch-size", "1"])[2]
        == "train --bf16 --micro-batch-size 1"
    )


@pytest.mark.parametrize(
    "line, why",
    [
        ("prepare && torchrun t.py", "several commands"),
        ("torchrun a.py --bf16; torchrun b.py --bf16", "several commands"),
        ("torchrun t.py 'x", "' is missing"),
        ("torchrun t.py --parallelism.tensor_parallel_degree 2", "is not megatron's"),
        ("--bf16", "nothing but the layout"),
    ],
)
def test_what_cannot_be_done_safely_is_refused(line, why):
    with pytest.raises(InputError, match=why):
        rewritten_line(line, ["--micro-batch-size", "1", "--bf16"])


def test_a_layout_in_a_file_is_refused():
    with pytest.raises(InputError, match="in a file"):
        rewritten(["t.py"], ["--deepspeed", "ds_config.json"])


WORDS = st.sampled_from(
    [*MEGATRON, *COMMAND, "x", "--unknown", "$TP", "'a b'", '"$X"', "--bf16=1", "a=b", "-x"]
)
TEXT = st.text(st.sampled_from("ab -'\"\\\n;&|$()#<>=2`") | st.characters(), max_size=60)


@given(st.lists(WORDS, max_size=12))
def test_twice_is_once_in_a_list(words):
    once = rewritten(words, MEGATRON)
    assert rewritten(once, MEGATRON) == once
    assert once[-len(MEGATRON) :] == MEGATRON


@given(st.lists(WORDS, max_size=10).map(" ".join) | TEXT)
def test_twice_is_once_in_a_line_and_no_line_breaks_it(line):
    try:
        once = rewritten_line(line, MEGATRON)
    except InputError:
        return
    assert rewritten_line(once, MEGATRON) == once
