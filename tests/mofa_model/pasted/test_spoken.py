"""What people type before they know the options ends in an answer, or in one thing to say."""

import argparse
import json
import subprocess
import sys

import pytest

from mofa_model import cli
from mofa_model.answers.questions import AdviceQuestion, PasteQuestion
from mofa_model.cli import OF_ADVISE, OF_BOTH, main, pasted_words
from mofa_model.verbs import advise, paste

WHOLE = ["llama3-70b", "512xH100"]
SAME = [
    ["llama3-70b", "512", "h100"],
    ["llama 3 70b on 512 h100"],
    ["llama3-70b", "--gpus", "512xH100"],
    ["llama3-70b", "--gpu", "H100:512"],
    ["llama3-70b", "--num-gpus", "512", "--gpu-type", "H100"],
    ["recommend", "llama3-70b", "--nnodes", "64", "--nproc_per_node", "8", "--device", "h100"],
    ["--model-name-or-path", "llama3-70b", "-n", "512", "--accelerator", "h100"],
    ["paste", "llama 70b", "512xh100"],
]


def strategy(words, capsys):
    assert main([*words, "-o", "json", "--top", "0"]) == 0
    found = json.loads(capsys.readouterr().out)
    return found["answer"]["strategy"], found["notes"]


def test_words_of_other_programs_are_options_and_a_number_beside_a_gpu_is_how_many(capsys):
    wanted, notes = strategy(WHOLE, capsys)
    assert notes[0] == (
        "nobody says sequence 8192 and global batch 512, which are assumed; --seq and --global-batch change it"
    )
    for words in SAME:
        assert strategy(words, capsys)[0] == wanted, words


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["mistral-7b", "8x", "a100"], ["--gpus", "8", "--gpu", "a100", "--model", "mistral-7b"]),
        (["Qwen/Qwen2.5-7B", "128", "gpus"], ["--gpus", "128", "--model", "Qwen/Qwen2.5-7B"]),
        (["llama3-8b", "--lora"], ["llama3-8b", "--lora", "16"]),
        (["llama3-8b", "--tp", "8", "--pp=2"], ["llama3-8b", "--planned", "tp=8,pp=2"]),
        (["llama3-8b", "on", "64", "h100", "with", "tp8"], ["--gpus", "64", "--gpu", "h100", "--planned", "tp=8", "--model", "llama3-8b"]),
        (["today", "llama3-8b", "runs", "tp8", "on", "64", "h100"], ["--gpus", "64", "--gpu", "h100", "--current", "tp=8", "--model", "llama3-8b"]),
        (["llama3-8b", "8", "h100", "micro", "batch", "size", "2"], ["--gpus", "8", "--gpu", "h100", "--planned", "mbs=2", "--model", "llama3-8b"]),
        (["llama3-8b", "8", "h100", "batch", "64", "sequences", "of", "4096"],
         ["--gpus", "8", "--gpu", "h100", "--global-batch", "64", "--seq", "4096", "--model", "llama3-8b"]),
        (["llama3-8b", "h100", "for", "3", "days"], ["--gpu", "h100", "--model", "llama3-8b"]),
        (["phi4", "on", "one", "rtx", "4090"], ["--gpus", "1", "--gpu", "rtx 4090", "--model", "phi4"]),
        (["torchrun", "t.py", "--lr", "1", "--gpu", "a100"], ["torchrun t.py --lr 1", "--gpu", "a100"]),
        (["train", "x.sh", "--num_gpus=8"], ["x.sh", "--gpus=8"]),
        (["-f", "x.sbatch"], ["x.sbatch"]),
        (["x.json", "64"], ["x.json", "--gpus", "64"]),
        (["--", "torchrun", "t.py", "--lr", "1"], ["torchrun t.py --lr 1"]),
        (["mixtral-8x7b", "expert", "parallel", "8", "64", "h100"],
         ["--gpus", "64", "--gpu", "h100", "--planned", "ep=8", "--model", "mixtral-8x7b"]),
        (["llama3-8b", "8-way", "tensor", "parallelism", "64", "h100"],
         ["--gpus", "64", "--gpu", "h100", "--planned", "tp=8", "--model", "llama3-8b"]),
        (["llama3-8b", "tp=1", "on", "8", "h100", "went", "out", "of", "memory"],
         ["--gpus", "8", "--gpu", "h100", "--failed", "tp=1", "--model", "llama3-8b"]),
        (["llama3-8b", "16", "a100", "40g"], ["--gpus", "16", "--gpu", "a100 40gb", "--model", "llama3-8b"]),
        (["deepspeed", "zero3", "llama3-8b", "8", "h100"],
         ["--gpus", "8", "--gpu", "h100", "--framework", "deepspeed", "--planned", "optimizer=zero3", "--model", "llama3-8b"]),
    ],
)  # fmt: skip
def test_words_become_options(typed, meant):
    assert pasted_words(typed, {}) == ["paste", *meant]


@pytest.mark.parametrize(
    "words", [["adivse"], ["advise", "--trainer", "x"], ["ettr", "-n", "8"], ["plan"], ["8"]]
)
def test_verbs_of_ours_and_slips_of_the_pen_stay_as_they_are(words):
    assert pasted_words(words, {}) == words


OWN = [
    "--model llama3-8b --gpu h100 --gpus 64 --seq 8k --global-batch 512 --by-estimate -o wide",
    "--model=llama3-8b --gpu=p5.48xlarge --nodes 8 --batch-size 512 --lora 16 --dora --json",
    "--model mixtral-8x22b --gpu b200 --gpus 64 --seq 8k --global-batch 64 --constraint tp=4,8 --probe 3",
    "job.yaml --profile h100-east --save-dir out --overwrite",
    "--help",
]


def test_options_of_advise_stay_its_own_and_nobody_who_reads_other_words_is_imported():
    program = (
        "import sys; from mofa_model.cli import pasted_words\n"
        f"for line in {OWN!r}:\n"
        "    words = ['advise', *line.split()]\n"
        "    assert pasted_words(words, {}) == words, line\n"
        "sys.exit('mofa_model.pasted' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "verb, question, beside",
    [(advise, AdviceQuestion, {*OF_BOTH, *OF_ADVISE}), (paste, PasteQuestion, {*OF_BOTH, "-h", "--help"})],
)  # fmt: skip
def test_each_option_beside_a_question_is_known_without_its_parser(verb, question, beside):
    parser = argparse.ArgumentParser()
    verb.configure(parser)
    every = {flag for action in parser._actions for flag in action.option_strings}
    assert every - {flag for how in question.options.values() for flag in how.flags} == beside


def test_what_is_piped_is_read_without_a_word(monkeypatch, tmp_path):
    for text, meant in (("srun torchrun t.py", ["paste", "-"]), (" \n", [])):
        path = tmp_path / "x"
        path.write_text(text)
        with path.open() as file:
            monkeypatch.setattr(cli.sys, "stdin", file)
            assert pasted_words([], {}) == meant
            assert cli.sys.stdin.buffer.read().decode() == text


def test_a_script_that_says_no_batch_is_asked_for_it_and_nothing_is_assumed(capsys):
    command = "torchrun --nproc_per_node 8 t.py --model_name_or_path meta-llama/Llama-3.1-8B"
    assert main([command, "--gpu", "h100"]) == 2
    assert "--seq and --global-batch: are missing" in capsys.readouterr().err
