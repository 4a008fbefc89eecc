"""A shell line as the shell reads it: commands and places for whoever changes it, words for whoever
only reads.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.errors import InputError
from mofa_model.kinds import demand_of
from mofa_model.launch import read_layout
from mofa_model.launch.shell import line_of, nodes, parse, tree, words_of

LINE = """# first
A=1 B=(2 3) torchrun 't'.py "$X y" a\\ b \\
  --né=$(hostname -f) 2>&1 <<E | tee log
--in $(date)
E
"""


def test_commands_words_and_places_are_the_shells():
    script = parse(LINE.replace(" B=(2 3)", ""))
    told = [[word.text for word in command.words] for command in script.commands]
    assert told == [
        ["torchrun", "t.py", "$X y", "a b", "--né=$(hostname -f)"],
        ["hostname", "-f"],
        ["tee", "log"],
        ["date"],
    ]
    assert [command.substituted for command in script.commands] == [False, True, False, True]
    assert script.values == ("A=1",)
    assert script.documents == ("--in $(date)\nE",)


def test_each_word_is_found_where_it_stands_with_the_blanks_before_it():
    line = LINE.replace(" B=(2 3)", "")
    first = parse(line).commands[0].words
    assert all(line[word.start : word.end] == word.raw for word in first)
    assert [line[word.before : word.start] for word in first] == [" ", " ", " ", " ", " \\\n  "]


def test_what_stands_in_double_quotes_has_its_places_too():
    line = 'sh -c "a \\"é $X \\\n\\$b\\\\"'
    quoted = parse(line).commands[0].words[2].quoted
    assert quoted.text == 'a "é $X $b\\'
    assert [line[at] for at in quoted.at] == list('a \\é $X \\b\\"')
    assert quoted.escaped('"$`\\') == '\\"\\$\\`\\\\'


@given(st.text(st.sampled_from("ab -'\"\\\n;&|$()#<>=2`{}é") | st.characters(), max_size=40))
def test_words_lie_in_the_line_in_order_or_it_is_refused(line):
    try:
        commands = parse(line).commands
    except InputError:
        return
    for command in commands:
        places = [place for word in command.words for place in (word.before, word.start, word.end)]
        assert places == sorted(places)
        assert [line[word.start : word.end] for word in command.words] == [
            word.raw for word in command.words
        ]


@pytest.mark.parametrize(
    "words, at",
    [
        ("bash -c x", 2),
        ("bash -euo pipefail -c x y", 4),
        ("sh -e -c -- x", 4),
        ("bash --rcfile f -lc x", 4),
        ("srun -n 8 /bin/bash -c x", 5),
        ("-lc x", 1),
        ("bash -c", 2),
        ("bash train.sh -c x", None),
        ("bash --cold x", None),
        ("python -c x", None),
        ("torchrun t.py", None),
        ("", None),
    ],
)
def test_a_shell_is_told_to_run_a_line(words, at):
    assert line_of(words.split()) == at


@pytest.mark.parametrize(
    "line",
    [
        "torchrun t.py --bf16 \\",
        "torchrun t.py --bf16 \\\n",
        "torchrun \\\n  t.py \\\n  --bf16 # --fp16",
        "tor\\\nchrun t.py --bf16\n",
    ],
)
def test_a_line_that_goes_on_is_read_as_its_words(line):
    assert words_of(line) == ["torchrun", "t.py", "--bf16"]


def test_the_line_of_a_shell_in_a_line_is_read_too():
    line = "cd /x && bash -lc \"sh -c 'torchrun t.py --bf16'\" | tee log"
    assert words_of(line)[4:] == [
        "-lc",
        "sh",
        "-c",
        "torchrun",
        "t.py",
        "--bf16",
        "|",
        "tee",
        "log",
    ]


BLOCK = "torchrun --nnodes=2 t.py \\\n  --tensor-model-parallel-size \\\n  8 \\\n  --pipeline-model-parallel-size 2 \\"


@pytest.mark.parametrize("line", [BLOCK, BLOCK + "\n", f"bash -c '{BLOCK[:-1]}'"])
def test_a_layout_over_several_lines_is_read_on_the_desk_and_in_a_job(line):
    assert (read_layout(line, 32).tp, read_layout(line, 32).pp) == (8, 2)
    gpus = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 8}}}]}
    workers = {
        "rayClusterSpec": {"workerGroupSpecs": [{"replicas": 4, "template": {"spec": gpus}}]}
    }
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": {"entrypoint": line, **workers}}
    words = demand_of(job).words
    assert words[words.index("--tensor-model-parallel-size") + 1] == "8"
    assert words[-1] == "2"


def test_an_array_takes_a_word_that_begins_with_brackets_and_assigns_nothing():
    """NVIDIA's own script has it; bash takes it, and the parser looks for an assignment."""
    text = "A=(--moe-layer-freq [0]*3+[1]*58 --bf16)\ntorchrun t.py ${A[@]}"
    values = {str(one.get("Value")) for one, _ in nodes(tree(text))}
    assert {"[0]*3+", "[1]*58"} <= values
