"""Lines of trainers: what each format says, and that the logs in tests/data/logs say what happened
in them.
"""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.calibrate.runs import step_seconds
from mofa_model.errors import UnknownName
from mofa_operator.trainer.facts import Facts
from mofa_operator.trainer.formats import FAMILIES, Line, Reader
from mofa_operator.trainer.progress import Progress, speed, with_line

LOGS = Path(__file__).parents[2] / "data" / "logs"


def told(name, given=Facts(), family=None):  # noqa: B008 - frozen
    """What a recorded log tells in the end."""
    reader, progress = Reader(family), Progress()
    for raw in (LOGS / name).read_bytes().splitlines():
        if (line := reader.read(raw)) is not None:
            progress = with_line(progress, line, given, 0.0)
    return progress


# file, trainer, what must be given, tokens of a step, last step, step time, checkpoints, steps
# between, restarts, redone
RECORDED = [
    ("megatron.log", "megatron", Facts(), 256 * 4096, 60, 8.012, 3, 20, 1, 7),
    ("megatron-bridge.log", "megatron", Facts(), 512 * 8192, 12, 4.0, 0, None, 0, 0),
    ("nemo.log", "nemo", Facts(sequence=8192), 128 * 8192, 20, 6.088, 2, 10, 0, 0),
    (
        "torchtitan.log",
        "torchtitan",
        Facts(),
        64 * 8192,
        100,
        64 * 8192 / (64 * 6501),
        2,
        50,
        1,
        10,
    ),
    (
        "deepspeed.log",
        "deepspeed",
        Facts(sequence=4096),
        512 * 4096,
        120,
        512 / 35.5,
        1,
        None,
        1,
        50,
    ),
    (
        "deepspeed-pipeline.log",
        "deepspeed",
        Facts(sequence=4096),
        256 * 4096,
        50,
        2.5,
        0,
        None,
        0,
        0,
    ),
    ("nanotron.log", "nanotron", Facts(), 256 * 4096, 30, 8.34, 3, 10, 0, 0),
]


@pytest.mark.parametrize(
    "name, family, given, tokens, step, seconds, saves, spacing, restarts, redone",
    RECORDED,
    ids=[row[0] for row in RECORDED],
)
def test_a_recorded_log_tells_what_happened_in_it(
    name, family, given, tokens, step, seconds, saves, spacing, restarts, redone
):
    progress = told(name, given)
    assert progress.family == family
    assert progress.step == step
    assert progress.step_seconds == pytest.approx(seconds)
    assert progress.tokens_per_second == pytest.approx(
        tokens / seconds, rel=5e-3
    )  # nanotron rounds
    assert (progress.saves, progress.save_spacing) == (saves, spacing)
    assert (progress.restarts, progress.redone) == (restarts, redone)
    assert not progress.missing


def test_what_an_allocator_reserved_is_read_where_a_trainer_says_it():
    assert told("torchtitan.log").memory_bytes == pytest.approx(47.28 * 2**30)
    assert told("nemo.log", Facts(sequence=8192)).memory_bytes == 127785762816
    assert told("megatron.log").memory_bytes is None
    rank = b"[Rank 0] (after 2 iterations) memory (MB) | allocated: 8241.6 | max allocated: 13271.2 | reserved: 15126.0 | max reserved: 15226.0"
    assert Reader().read(rank).memory_bytes == 15226 * 2**20
    stage = b"12/08/2024 [INFO|DP=0|PP=0|TP=0]: Memory usage: 835.84MiB. Peak allocated 9000.5MiB. Peak reserved: 9512.0MiB"
    assert Reader().read(stage).memory_bytes == 9512 * 2**20


def test_of_the_ranks_in_a_log_the_fullest_counts_since_the_last_start():
    progress = Progress()
    for line in (
        Line(family="x", memory_bytes=5e9),
        Line(family="x", memory_bytes=7e9),
        Line(family="x", memory_bytes=6e9),
    ):
        progress = with_line(progress, line, Facts(), 0.0)
    assert progress.memory_bytes == 7e9
    progress = with_line(progress, Line(family="x", starts=True), Facts(), 0.0)
    assert progress.memory_bytes is None


@pytest.mark.parametrize("row", RECORDED, ids=[row[0] for row in RECORDED])
def test_calibration_reads_the_same_step_time_from_the_same_log(row):
    name, _, given, tokens, *_ = row
    if name == "deepspeed-pipeline.log":
        pytest.skip("calibration does not know the pipeline engine's lines")
    sequence = given.sequence or told(name).facts.sequence or 4096
    lines = re.sub(
        r"\x1b\[[0-9;]*m", "", (LOGS / name).read_text()
    ).splitlines()  # calibration reads no colours
    calibrated = step_seconds(lines, global_batch=tokens // sequence, sequence=sequence, gpus=64)
    assert told(name, given).step_seconds == pytest.approx(calibrated, rel=0.01)


@pytest.mark.parametrize("row", RECORDED, ids=[row[0] for row in RECORDED])
def test_a_format_that_is_given_reads_as_the_one_that_is_found(row):
    name, family, given, *_ = row
    assert told(name, given, family) == told(name, given)


LINES = {
    b"[default7]: [2026-03-02 15:23:07] iteration        1/    24000 | consumed samples: 1024 |"
    b" elapsed time per iteration (ms): 271607.0 | throughput per GPU (TFLOP/s/GPU): 40.4 | global batch size:  1024 |":
        Line(family="megatron", step=1, seconds=271.607, batch=1024),
    b" iteration  11/50000 | elapsed time per iteration (ms):  52728.1/52000.3 | gloabl batch size:  512 | actual seqlen:  2048 |":
        Line(family="megatron", step=11, seconds=52.7281, batch=512, sequence=2048),
    b"Step Time : 8.34s GPU utilization: 412.0MODEL_TFLOP/s/GPU": Line(family="megatron", seconds=8.34),
    b"Epoch 0: :   1%|  | 10/1000 [01:23<2:17:00, reduced_train_loss=11.0, global_step=9.000, consumed_samples=640.0,"
    b" train_step_timing in s=8.34]": Line(family="nemo", step=10, seconds=8.34),
    b"Training epoch 0, iteration 4/9 | global_batch_size: 32 | global_step: 4 | train_step_timing in s: 2.389 |"
    b" tokens_per_sec_per_gpu: 6.859e+03": Line(family="nemo", step=5, seconds=2.389, batch=32, tokens_per_gpu=6859.0),
    b"\x1b[31mstep: 1,000  \x1b[32mloss:  8.0  \x1b[34mtps: 6,512  \x1b[36mtflops: 301.20\x1b[39m":
        Line(family="torchtitan", step=1000, tokens_per_gpu=6512.0),
    b"- INFO - Building device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=8, cp=2, tp=4, ep=1, etp=1":
        Line(family="torchtitan", gpus=128),
    b"- INFO - Training starts at step 51": Line(family="torchtitan", resumed_step=50),
    b"[INFO] [timer.py:264:stop] epoch=0/micro_step=80/global_step=10, RunningAvgSamplesPerSec=35.1, CurrSamplesPerSec=35.5, MemAllocated=21.4GB":
        Line(family="deepspeed", since_start=10, samples_per_second=35.5),
    b"[INFO] [logging.py:128:log_dist] [Rank 0] step=10, skipped=0, lr=[6e-05]": Line(family="deepspeed", step=10),
    b"[INFO|DP=0|PP=0|TP=0]: iteration: 7 / 15 | consumed_tokens: 7.3M | elapsed_time_per_iteration_ms: 8.34K |"
    b" tokens_per_sec: 126K | tokens_per_sec_per_gpu: 1.97K | global_batch_size: 1.02K |":
        Line(family="nanotron", step=7, seconds=8340.0 / 1e3, tokens=126000.0, tokens_per_gpu=1970.0),
}  # fmt: skip


@pytest.mark.parametrize("raw, line", LINES.items(), ids=range(len(LINES)))
def test_a_line_says_what_stands_in_it(raw, line):
    assert Reader().read(raw) == line


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"iteration 5/10 | lm loss: 5.0 |",
        b" iteration 5/10 | elapsed time per iteration (ms): 0.0 |",
        b" iteration 99999999999999999999999999/10 | elapsed time per iteration (ms): 99999999999999999999 |",
        b"step: 10 loss: 1.0 tps: 0",
        b"\x00\xff elapsed time per iteration (ms): \xfe",
        b"we look for CurrSamplesPerSec= in the log",
        b"Saving ... please wait ...",
    ],
)
def test_a_line_without_a_speed_that_can_be_says_nothing(raw):
    assert Reader().read(raw) is None


def test_a_speed_that_is_no_number_leaves_the_step():
    raw = b" iteration 5/10 | elapsed time per iteration (ms): nan |"
    assert Reader().read(raw) == Line(family="megatron", step=5)


def test_after_the_first_speed_only_one_trainers_lines_count():
    # Megatron-DeepSpeed writes both kinds
    reader = Reader()
    assert (
        reader.read(
            b"global_step=10, RunningAvgSamplesPerSec=35.1, CurrSamplesPerSec=35.5, x"
        ).family
        == "deepspeed"
    )
    assert reader.read(b" iteration 10/ 20 | elapsed time per iteration (ms): 500.0 |") is None


def test_a_format_that_nobody_knows_is_refused_by_name():
    with pytest.raises(UnknownName, match="did you mean torchtitan"):
        Reader("torchtitam")


def test_numbers_for_one_gpu_are_multiplied_by_the_gpus_of_the_job():
    told = speed(Line(family="torchtitan", step=1, tokens_per_gpu=1000.0), Facts(gpus=256))
    assert told.tokens_per_second == 256000.0
    assert told.basis == "the trainer's number for one GPU times 256"


@pytest.mark.parametrize(
    "line, missing",
    [
        (Line(family="torchtitan", tokens_per_gpu=1.0), "--gpus"),
        (Line(family="deepspeed", samples_per_second=1.0), "--sequence"),
        (Line(family="megatron", seconds=1.0, batch=8), "--sequence"),
        (Line(family="megatron", seconds=1.0), "--sequence and --global-batch"),
    ],
)
def test_what_is_missing_is_said_by_the_option_that_gives_it(line, missing):
    assert speed(line, Facts()).basis == missing
    assert speed(line, Facts()).tokens_per_second is None


def test_what_a_steps_line_says_wins_over_what_was_given_because_batches_ramp_up():
    line = Line(family="megatron", step=1, seconds=1.0, batch=8)
    assert speed(line, Facts(batch=1024, sequence=4096)).tokens_per_second == 8 * 4096


@given(st.binary(max_size=400), st.sampled_from(sorted(LINES)), st.integers(0, 400))
def test_no_bytes_break_the_reader(junk, line, cut):
    for raw in (junk, line[:cut] + junk, junk + line, line[:cut] + junk + line[cut:]):
        reader = Reader()
        read = reader.read(raw)
        assert read is None or read.family in FAMILIES
