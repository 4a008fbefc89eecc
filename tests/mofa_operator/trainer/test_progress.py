"""What a log has told: steps go on, go back, come twice; checkpoints are counted once."""

import pytest

from mofa_operator.snapshot import SHAPE
from mofa_operator.trainer.facts import Facts
from mofa_operator.trainer.formats import Line, Reader
from mofa_operator.trainer.progress import Progress, with_line
from mofa_operator.trainer.serve import LogExporter


def told(*lines):
    progress = Progress()
    for at, line in enumerate(lines):
        progress = with_line(progress, line, Facts(sequence=4096, batch=8), float(at))
    return progress


def step(n):
    return Line(family="megatron", step=n, seconds=1.0)


START = Line(family="megatron", starts=True)


def test_a_step_that_goes_back_is_a_restart_and_its_steps_are_redone():
    progress = told(step(1), step(2), step(3), step(4), step(2), step(3))
    assert (progress.restarts, progress.redone, progress.step) == (1, 3, 3)  # steps 2, 3 and 4


def test_lines_of_several_ranks_are_no_restart():
    ranks = [step(n) for n in (1, 1, 2, 1, 2, 3, 2, 3, 3, 4)]
    assert (told(*ranks).restarts, told(*ranks).step) == (0, 4)


def test_a_restart_from_the_last_step_that_was_logged_costs_what_was_not():
    # every tenth step is logged: 100 was the last, training resumed from 90
    resumed = Line(family="megatron", resumed_step=90)
    assert told(step(90), step(100), START, resumed, step(100)).redone == 10
    assert told(step(90), step(100), START, step(100)).redone == 10


def test_a_start_that_goes_on_where_it_ended_is_no_restart_that_costs():
    resumed = Line(family="megatron", resumed_step=100)
    progress = told(step(90), step(100), resumed, step(110))
    assert (progress.restarts, progress.redone) == (0, 0)


def test_a_start_from_nothing_costs_everything():
    assert (
        told(
            step(10), step(20), Line(family="megatron", starts=True, resumed_step=0), step(10)
        ).redone
        == 20
    )


def test_a_checkpoint_that_every_rank_reports_counts_once():
    saved = Line(family="deepspeed", checkpoint_step=50)
    assert told(step(50), saved, saved, saved).saves == 1


def test_a_checkpoint_that_is_made_again_after_a_restart_counts_again():
    saved = Line(family="megatron", checkpoint_step=20)
    progress = told(step(20), saved, step(25), step(11), step(20), saved)
    assert (progress.saves, progress.saved) == (2, 20)


def test_the_interval_between_checkpoints_is_seen_across_a_restart():
    progress = told(
        step(20),
        Line(family="megatron", checkpoint_step=20),
        step(35),
        step(21),
        step(40),
        Line(family="megatron", checkpoint_step=40),
    )
    assert progress.save_spacing == 20


def test_a_checkpoint_without_a_step_is_of_the_last_one():
    assert told(step(50), Line(family="torchtitan", saves=True)).saved == 50
    assert told(Line(family="torchtitan", saves=True)).saves == 0


def test_steps_since_the_start_count_only_where_no_line_says_the_step():
    timer = Line(family="deepspeed", since_start=10, samples_per_second=1.0)
    assert told(timer).step == 10
    assert told(Line(family="deepspeed", step=510), timer).step == 510


def test_the_moment_is_that_of_the_last_step():
    assert told(step(1), step(2), START).at == 1.0


def test_what_is_missing_is_forgotten_once_it_is_known():
    first = with_line(Progress(), Line(family="megatron", seconds=1.0), Facts(sequence=4096), 0.0)
    assert (first.missing, first.unknown, first.tokens_per_second) == ("--global-batch", 1, None)
    then = with_line(
        first, Line(family="megatron", step=1, seconds=1.0, batch=8), Facts(sequence=4096), 1.0
    )
    assert (then.missing, then.tokens_per_second) == ("", 8 * 4096)


ECHO = """\
[rank0]:   ffn_hidden_size ................................. 14336
[rank0]:   group_query_attention ........................... {grouped}
[rank0]:   hidden_size ..................................... 4096
[rank0]:   num_attention_heads ............................. 32
[rank0]:   num_layers ...................................... 32
[rank0]:   num_query_groups ................................ {groups}
 > padded vocab (size: 128256) with 768 dummy tokens (new size: 129024)
"""
"""How Megatron prints what it was started with, in the order of names."""


@pytest.mark.parametrize(
    ("grouped", "groups", "heads"), [("True", 8, "8"), ("False", 1, "")], ids=["grouped", "not"]
)
def test_the_shape_of_a_model_is_what_megatron_prints_of_its_arguments(grouped, groups, heads):
    """Without grouped attention it prints one group, and means none."""
    reader, progress = Reader(), Progress()
    for text in ECHO.format(grouped=grouped, groups=groups).splitlines():
        if (line := reader.read(text.encode())) is not None:
            progress = with_line(progress, line, Facts(), 0.0)
    said = {"layers": "32", "hidden": "4096", "heads": "32", "kv_heads": heads, "ffn": "14336"}
    said["vocabulary"] = "128256"
    assert progress.facts.shape == said
    assert tuple(said) == tuple(SHAPE), "labels that the operator reads"
    exporter = LogExporter("ml", "llama", 60.0, progress)
    (told,) = [one for one in exporter.collect() if one.name == "mofa_train_model_shape"]
    assert told.samples[0].labels == {"training_namespace": "ml", "training_job": "llama"} | said


def test_too_little_of_a_shape_is_none():
    assert Facts(layers=32, hidden=4096).shape == {}
    assert "mofa_train_model_shape" not in {
        one.name for one in LogExporter("a", "b", 60.0).collect()
    }


def test_what_steps_take_longer_over_a_save_is_what_it_held_up():
    saved = Line(family="megatron", checkpoint_step=20)
    progress = Progress()
    for at, line in ((0.0, step(10)), (10.0, step(20)), (11.0, saved), (45.0, step(30))):
        progress = with_line(progress, line, Facts(sequence=4096, batch=8), at)
    assert progress.save_seconds == 25.0  # ten steps of a second in 35
    progress = with_line(progress, step(40), Facts(), 90.0)  # no save: a slow disk, an evaluation
    assert progress.save_seconds == 25.0
    assert told(step(10), saved, step(5), step(6)).save_seconds is None  # it went back instead
