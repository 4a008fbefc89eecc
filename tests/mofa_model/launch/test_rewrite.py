"""A launch command gets another layout: nothing else in it changes, and doing it twice is doing
it once.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from questions import case
from ruamel.yaml import YAML

from mofa_model.errors import InputError
from mofa_model.launch import launch, read, rewritten, rewritten_line, shell
from mofa_model.strategy import Sharding, Strategy

ASKED = case("llama3-70b", batch=512)
NEW = Strategy(tp=8, pp=4, dp=8, pipeline_overlap=False)
SHARDED = Strategy(tp=8, pp=4, dp=8, sharding=Sharding.GRADIENTS)
MEGATRON, NEMO = (
    launch(NEW, name, ASKED, interval_steps=100).arguments for name in ("megatron", "nemo")
)
TORCHTITAN = launch(SHARDED, "torchtitan", ASKED, interval_steps=100).arguments
COMMAND = ("pretrain_gpt.py", "--num-layers", "80", "--lr", "1e-4", "--tensor_model_parallel_size", "4", "--sequence-parallel",
           "--recompute-modules", "mlp", "core_attn", "--data-path", "a b", "--bf16", "--save", "/ckpt", "--recompute-activations")  # fmt: skip
KEPT = (
    "pretrain_gpt.py",
    "--num-layers",
    "80",
    "--lr",
    "1e-4",
    "--data-path",
    "a b",
    "--save",
    "/ckpt",
)


def test_flags_of_the_layout_are_replaced_and_all_others_kept():
    assert rewritten(COMMAND, MEGATRON) == (*KEPT, *MEGATRON)


def test_torchtitan_keeps_its_positional_word_at_the_end():
    words = [
        "--module",
        "llama3",
        "--parallelism.tensor_parallel_degree=2",
        "--metrics.log_freq",
        "10",
    ]
    found = rewritten([*words, "activation-checkpoint:full"], TORCHTITAN)
    assert found == ("--module", "llama3", "--metrics.log_freq", "10", *TORCHTITAN)
    assert found[-1].startswith("activation-checkpoint:")


def test_overrides_of_nemo_are_replaced():
    words = [
        "run.py",
        "model.tensor_model_parallel_size=2",
        "+ddp.overlap_grad_reduce=false",
        "data.path=/d",
    ]
    assert rewritten(words, NEMO) == ("run.py", "data.path=/d", *NEMO)


@pytest.mark.parametrize("trainer, arguments", [("megatron", MEGATRON), ("torchtitan", TORCHTITAN)])
def test_what_was_written_is_read_as_the_layout_that_was_meant(trainer, arguments):
    line = rewritten_line("torchrun --nnodes=32 train.py --log-dir /x", arguments)
    reading = read(line.split())
    assert reading.trainer == trainer
    assert (reading.layout["tp"], reading.layout["pp"]) == (8, 4)


TP = ["--bf16", "--micro-batch-size", "1"]
"""Arguments that are short enough to be read in a row."""


@pytest.mark.parametrize(
    "line, kept",
    [
        ("torchrun t.py", "torchrun t.py {}"),
        ("torchrun t.py --micro-batch-size 2 && sync", "torchrun t.py {} && sync"),
        ("torchrun t.py --micro-batch-size 2 2>&1 | tee log", "torchrun t.py {} 2>&1 | tee log"),
        ("torchrun t.py --note '--bf16 is on' --bf16", "torchrun t.py --note '--bf16 is on' {}"),
        ("torchrun t.py --name é --bf16 --run ü", "torchrun t.py --name é --run ü {}"),
        ("torchrun t.py \"--bf16\" --'micro-batch-size'=2", "torchrun t.py {}"),
        # comments
        ("torchrun --master $(head -1 x) t.py --bf16 # --fp16", "torchrun --master $(head -1 x) t.py {} # --fp16"),
        ("# --bf16\ntorchrun t.py --bf16\n# --bf16", "# --bf16\ntorchrun t.py {}\n# --bf16"),
        ("torchrun t.py s3://a#b --bf16", "torchrun t.py s3://a#b {}"),
        ("# old.py \\\n#  --lr 1 \\\ntorchrun t.py --bf16 # a \\\nsync", "# old.py \\\n#  --lr 1 \\\ntorchrun t.py {} # a \\\nsync"),
        # continued lines: the blocks | and > of YAML end with a newline, |- and >- do not
        ("python t.py --lr 1e-4 \\\n", "python t.py --lr 1e-4 {} \\\n"),
        ("python t.py \\\n  --bf16 \\\n  --lr 1e-4 \\\n", "python t.py \\\n  --lr 1e-4 {} \\\n"),
        ("python t.py \\\n  --lr 1e-4 \\\n  --bf16 \\\n", "python t.py \\\n  --lr 1e-4 {} \\\n"),
        ("python t.py --lr 1e-4 \\\n\\\n --bf16", "python t.py --lr 1e-4 {}"),
        ("python t.py --b\\\nf16 --lr 1", "python t.py --lr 1 {}"),
        ('set -e; torchrun --node-rank "$RANK" t.py \\\n  --micro-batch-size $MBS \\\n  --lr 1e-4\n',
         'set -e; torchrun --node-rank "$RANK" t.py \\\n  --lr 1e-4 {}\n'),
        # other commands, variables before a command, compound commands
        ("set -eux\ncd /app\nsource env.sh\ntorchrun t.py\n", "set -eux\ncd /app\nsource env.sh\ntorchrun t.py {}\n"),
        ("export A=1; B=2 C=$A torchrun t.py --bf16 &", "export A=1; B=2 C=$A torchrun t.py {} &"),
        ("if [ -f x ]; then torchrun t.py --bf16; fi", "if [ -f x ]; then torchrun t.py {}; fi"),
        ("(cd x && time exec torchrun t.py --bf16)", "(cd x && time exec torchrun t.py {})"),
        ('f() { torchrun t.py --bf16 "$@"; }; f --lr 1', 'f() { torchrun t.py "$@" {}; }; f --lr 1'),
        ("torchrun a.py --bf16; python b.py", "torchrun a.py {}; python b.py"),
        # the end of the flags
        ("torchrun -- t.py --bf16 x", "torchrun -- t.py x {}"),
        ("torchrun -- t.py", "torchrun -- t.py {}"),
        ("torchrun t.py --bf16 x -- a b", "torchrun t.py x {} -- a b"),
        # redirections: a number that touches one would be its file
        ("torchrun t.py>log", "torchrun t.py {} >log"),
        ("torchrun t.py\\\n>log", "torchrun t.py {} \\\n>log"),
        ("torchrun t.py 2 --bf16\\\n>log x", "torchrun t.py 2 \\\n>log x {}"),
        ("torchrun t.py 2 --bf16>log x", "torchrun t.py 2 >log x {}"),
        ("torchrun t.py 2>&1 --bf16 x <in", "torchrun t.py 2>&1 x {} <in"),
        ("torchrun t.py --bf16 &>log", "torchrun t.py {} &>log"),
        # here-documents
        ("cat <<E >f\n\\a 'b\nE\ntorchrun t.py --bf16", "cat <<E >f\n\\a 'b\nE\ntorchrun t.py {}"),
        ("torchrun t.py <<'E' --bf16 | tee x\na $(b\nE\n", "torchrun t.py {} <<'E' | tee x\na $(b\nE\n"),
        # a shell in the line
        ("bash -c 'torchrun t.py --bf16 && sync' x", "bash -c 'torchrun t.py {} && sync' x"),
        ('exec sh -lc "torchrun t.py --bf16 --a \\"b c\\" --r $R"', 'exec sh -lc "torchrun t.py --a \\"b c\\" --r $R {}"'),
        ("bash -c 'torchrun t.py --'\\''bf16'\\'" + "''", "bash -c 'torchrun t.py {}'"),
        ("python `t`\\\n", "python `t` {}\\\n"),
        ("prepare; bash -c 'torchrun t.py --bf16>log'", "prepare; bash -c 'torchrun t.py {} >log'"),
        ('sh -ec "torchrun t.py \\\\\n"', 'sh -ec "torchrun t.py {} \\\\\n"'),
        ("bash -c torchrun\\ t.py", "bash -c 'torchrun t.py {}'"),
        ("bash -c 'torchrun t.py --a '\\''b c'\\'' --bf16'", "bash -c 'torchrun t.py --a '\\''b c'\\'' {}'"),
        ("bash -euo pipefail -c 'torchrun t.py --bf16' | tee log", "bash -euo pipefail -c 'torchrun t.py {}' | tee log"),
        ("bash -c \"sh -c 'torchrun t.py --bf16'\"", "bash -c \"sh -c 'torchrun t.py {}'\""),
        ("bash -c 'exec \"$@\"' -- torchrun t.py --bf16 x", "bash -c 'exec \"$@\"' -- torchrun t.py x {}"),
        ("bash -c 'torchrun t.py --bf16 \"$@\"' -- --lr 1", "bash -c 'torchrun t.py \"$@\" {}' -- --lr 1"),
        ("bash train.sh --bf16 -c x", "bash train.sh -c x {}"),
        ("bash -x train.sh", "bash -x train.sh {}"),
        ("timeout -k 9 1h nsys profile -o x sh -c 'torchrun t.py'", "timeout -k 9 1h nsys profile -o x sh -c 'torchrun t.py {}'"),
        ("torchrun t.py --hook bash -c 'a b' --bf16", "torchrun t.py --hook bash -c 'a b' {}"),
        ("torchrun t.py --bf16; bash", "torchrun t.py {}; bash"),
        ("python -c 'print(1)' --bf16", "python -c 'print(1)' {}"),
    ],
)  # fmt: skip
def test_of_a_shell_line_every_other_character_stays(line, kept):
    once = rewritten_line(line, TP)
    assert once == kept.replace("{}", "--bf16 --micro-batch-size 1")
    assert rewritten_line(once, TP) == once


@pytest.mark.parametrize(
    "line, made",
    [
        (
            "bash -c 'torchrun t.py'",
            "bash -c 'torchrun t.py --pipeline-model-parallel-layout '\\''E|t'\\'''",
        ),
        (
            'bash -c "torchrun t.py"',
            "bash -c \"torchrun t.py --pipeline-model-parallel-layout 'E|t'\"",
        ),
        (
            "su -s /bin/sh - user -c 'torchrun t.py'",
            "su -s /bin/sh - user -c 'torchrun t.py --pipeline-model-parallel-layout '\\''E|t'\\'''",
        ),
        (
            "eval torchrun t.py",
            "eval torchrun t.py --pipeline-model-parallel-layout ''\"'\"'E|t'\"'\"''",
        ),
    ],
)
def test_what_a_shell_would_read_is_quoted_as_often_as_it_is_read(line, made):
    new = ["--pipeline-model-parallel-layout", "E|t"]
    assert rewritten_line(line, new) == made
    assert rewritten_line(made, new) == made


@pytest.mark.parametrize(
    "style, line",
    [
        ("|", "torchrun t.py \\\n--lr 1 {} \\\n"),
        (">", "torchrun t.py --lr 1 {}\n"),
        ("|-", "torchrun t.py \\\n--lr 1 {}"),
        (">-", "torchrun t.py --lr 1 {}"),
    ],
)
def test_a_block_of_yaml_is_edited_in_each_style(style, line):
    back = " \\" if style.startswith("|") else ""
    last = back if style == "|" else ""
    text = f"a: {style}\n  torchrun t.py{back}\n  --bf16{back}\n  --lr 1{last}\n"
    assert rewritten_line(
        YAML(typ="safe").load(text)["a"], ["--micro-batch-size=1"]
    ) == line.format("--micro-batch-size=1")


@pytest.mark.parametrize(
    "words, made",
    [
        (["bash", "-c", "torchrun t.py --bf16", "x"], ["bash", "-c", "torchrun t.py {}", "x"]),
        (["bash", "-c", "train"], ["bash", "-c", "train {}"]),
        (["bash", "-c", "--", "train"], ["bash", "-c", "--", "train {}"]),
        (["env", "A=1", "/bin/sh", "-e", "-c", "train \\\n"], ["env", "A=1", "/bin/sh", "-e", "-c", "train {} \\\n"]),
        (["-c", "train --bf16"], ["-c", "train {}"]),
        (["torchrun t.py --bf16"], ["torchrun t.py {}"]),
        (["sh", "-c", 'exec "$@"', "--", "t", "--bf16", "x"], ["sh", "-c", 'exec "$@"', "--", "t", "x", "{}"]),
        (["sh", "-c", "train $@"], ["sh", "-c", "train $@ {}"]),
        (["t.py", "--note", "a --bf16 b", "--bf16"], ["t.py", "--note", "a --bf16 b", "{}"]),
        (["python", "-c", "x = (1"], ["python", "-c", "x = (1", "{}"]),
        (["t.py", "--bf16", "--", "a"], ["t.py", "{}", "--", "a"]),
    ],
)  # fmt: skip
def test_a_shell_line_in_a_list_stays_one(words, made):
    once = rewritten(words, ["--micro-batch-size=1"])
    assert list(once) == [word.format("--micro-batch-size=1") for word in made]
    assert rewritten(once, ["--micro-batch-size=1"]) == once


@pytest.mark.parametrize(
    "line, why",
    [
        ("prepare && torchrun t.py", "several of its commands"),
        ("torchrun a.py --bf16; torchrun b.py --bf16", "several of its commands"),
        ("if x; then torchrun t.py --bf16 --log; else torchrun t.py --bf16; fi", "several of its commands"),
        ("torchrun t.py --bf16 | sh -c 'torchrun t.py --bf16'", "several of its commands"),
        ("torchrun t.py 'x", "no shell can read it: 1:15: reached EOF without closing quote"),
        ("torchrun t.py (", "no shell can read it"),
        ("cat <<E\ntorchrun t.py", "no shell can read it"),
        ("torchrun t.py --parallelism.tensor_parallel_degree 2", "is no argument of megatron"),
        ("torchrun t.py\n  --bf16", "'--bf16' would run as a separate command"),
        ("torchrun t.py \\\n # --bf16 \\\n --lr 1", "'--lr' would run as a separate command"),
        ("python t.py --lr 1e-4 \\", "a backslash that ends no line"),
        ("python t.py --lr 1e-4\\", "a backslash that ends no line makes '1e-4.*' one word"),
        ("python t.py --lr 1e-4 \\ --bf16", "makes ' --bf16' one word"),
        ("python t.py --lr 1e-4 \\ \n x", "a backslash that ends no line"),
        ('A="--bf16 --lr 1"; torchrun t.py $A', "in the variable A"),
        ("A=(--lr 1 --bf16); torchrun t.py ${A[@]}", "in the variable A"),
        ("export A='--bf16'; torchrun t.py $A", "in the variable A"),
        ("cat >r.sh <<E\ntorchrun t.py --bf16\nE\nbash r.sh", "in a here-document"),
        ("torchrun t.py $(flags --bf16)", r"in a substitution, \$\( \)"),
        ("torchrun t.py `flags --bf16`", r"in a substitution, \$\( \)"),
        ("bash <<E\ntorchrun t.py\nE", "its shell has nothing to run"),
        ("a bash -c 'torchrun t.py --bf16'", "it is not known whether 'a' runs the shell"),
        ("torchrun t.py --bf16 --hook bash -c 't --bf16'", "both in the line that a shell runs and beside it"),
        ("ssh node 'torchrun t.py --bf16'", "the layout's arguments are in 'torchrun t.py --bf16'"),
        ("ssh node 'cd /x && ./run.sh'", "the trainer is in 'cd /x && ./run.sh', which 'ssh' splits into words"),
        ("ssh node", "ssh has no command"),
        ("cd /x && ssh -tp 22 -o A=b user@node", "ssh has no command"),
        ("env -S 'A=1 torchrun t.py'", "the trainer is in 'A=1 torchrun t.py', which 'env' splits into words"),
        ("su user --command='torchrun t.py'", "its shell has nothing to run"),
        ("su user", "its shell has nothing to run"),
        ("watch 'python t.py'", "the trainer is in 'python t.py', which 'watch' splits into words"),
        ("cat hosts | sudo xargs -n1 torchrun t.py --bf16", "'xargs' adds words after the command"),
        ("find . -exec torchrun t.py \\;", "'find' adds words after the command"),
        ("bash -c ~/train.sh", "one pair of quotes"),
        ("bash -c 'torchrun t.py --bf16 \"'$X'\"'", "one pair of quotes"),
        ("bash -c 'torchrun --bf16 $@' -- --bf16", "both in the line that a shell runs and beside it"),
        ("t.py --bf16 -- t.py --bf16", "on both sides of --"),
        ("t.py --recompute-modules mlp $MORE --bf16", r"\$MORE' may or may not be the value"),
        ("torchrun t.py --bf16 \r\n", "it holds '\\\\r'"),
        ("torchrun t.py \ud800", "it holds"),
        ("torchrun t.py --bf16 512>log", "'512' is the number of a file for bash, and a word for other shells"),
        ("", "it holds no command"),
        ('echo "$(torchrun t.py)"', "it holds no command"),
        ("# torchrun t.py", "it holds no command"),
        ("x" * 20_001, "20001 characters"),
        ("$(" * 9000, "no shell can read it"),
        ("{ " * 900 + "torchrun t.py; " + "}; " * 900, "nested too deep"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_safely_is_refused_in_one_line(line, why):
    with pytest.raises(InputError, match=why) as refused:
        rewritten_line(line, TP)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "words, why",
    [
        (["a", "t.py --bf16", "u.py --bf16"], "the layout's arguments are in 't.py --bf16'"),
        (
            ["/entry.sh", "torchrun t.py --bf16", "a b"],
            "the layout's arguments are in 'torchrun t.py --bf16'",
        ),
        (
            ["sh", "-c", "t.py --bf16 $@", "--", "--bf16"],
            "both in the line that a shell runs and beside it",
        ),
        (["bash", "-c", "a; b"], "several of its commands"),
        (["bash", "-c"], "its shell has nothing to run"),
        (["env", "A=1", "/bin/bash", "-x"], "its shell has nothing to run"),
        (
            ["/entry.sh", "bash", "-c", "torchrun t.py"],
            "it is not known whether '/entry.sh' runs the shell",
        ),
    ],
)
def test_of_a_list_too(words, why):
    with pytest.raises(InputError, match=why):
        rewritten(words, TP)


def test_without_the_parser_a_line_is_refused_and_a_list_is_not(monkeypatch):
    monkeypatch.setattr(shell, "_program", lambda: "/nowhere/shfmt")
    with pytest.raises(InputError, match=r"cannot be run here.*No such file"):
        rewritten_line("torchrun t.py", TP)
    assert rewritten(["torchrun", "t.py"], TP) == ("torchrun", "t.py", *TP)


def test_a_layout_in_a_file_is_refused():
    with pytest.raises(InputError, match="from a file"):
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


DISPATCHED = [
    "--expert-model-parallel-size",
    "8",
    "--moe-token-dispatcher-type",
    "alltoall",
    "--moe-grouped-gemm",
]


@pytest.mark.parametrize(
    "chosen, left",
    [
        (["--moe-token-dispatcher-type", "flex", "--moe-enable-deepep"], "flex"),
        (["--moe-token-dispatcher-type=flex"], "flex"),
        (["--moe_token_dispatcher_type", "flex"], "flex"),
        (["--moe-token-dispatcher-type", "allgather"], "alltoall"),
        ([], "alltoall"),
    ],
)
def test_a_command_that_chose_the_flexible_dispatcher_keeps_it(chosen, left):
    """DeepEP and its kin refuse any other dispatcher; the default gathers everything everywhere."""
    words = ["python", "pretrain_gpt.py", *chosen, "--lr", "1e-4"]
    once = rewritten(words, DISPATCHED)
    assert rewritten(once, DISPATCHED) == once
    line = rewritten_line(" ".join(words), DISPATCHED)
    for text in (" ".join(once), line):
        assert [word for word in ("flex", "alltoall", "allgather") if word in text] == [left]
        assert "--expert-model-parallel-size 8" in text
        assert text.count("dispatcher") == 1


@pytest.mark.parametrize("chosen, left", [(["--async-strategy", "nvrx"], "nvrx"), (["--async-strategy=mcore"], "mcore"), ([], "mcore")])  # fmt: skip
def test_a_command_that_chose_how_it_saves_in_the_background_keeps_it(chosen, left):
    """Megatron's default needs a package of its own; who names it has it."""
    new = ["--tensor-model-parallel-size", "8", "--async-save", "--async-strategy", "mcore"]
    words = ["python", "pretrain_gpt.py", *chosen, "--lr", "1e-4"]
    once = rewritten(words, new)
    assert rewritten(once, new) == once
    line = rewritten_line(" ".join(words), new)
    for text in (" ".join(once), line):
        assert [word for word in ("nvrx", "mcore") if word in text] == [left]
        assert text.count("--async-strategy") == 1


@pytest.mark.parametrize(
    "command",
    [
        "torchrun t.py --decoder-first-pipeline-num-layers 3",
        "torchrun t.py --bf16 --optimizer_offload_fraction=0.5",
        "bash -c 'torchrun t.py --moe-layer-recompute'",
    ],
)
def test_a_layout_does_not_stand_beside_what_is_priced_as_something_else(command):
    with pytest.raises(InputError, match=r"modelled.*take it out"):
        rewritten_line(command, ["--tensor-model-parallel-size", "8"])


def test_older_names_of_a_pattern_go_where_a_new_one_comes():
    old = "torchrun t.py --hybrid-override-pattern M-M- --cuda-graph-scope attn mlp"
    assert (
        rewritten_line(old, ["--hybrid-layer-pattern", "M-|M-"])
        == "torchrun t.py --hybrid-layer-pattern 'M-|M-'"
    )
    assert "--hybrid-override-pattern M-M-" in rewritten_line(
        old, ["--tensor-model-parallel-size", "8"]
    )


def test_a_shell_behind_ssh_that_reads_a_here_document_gets_no_arguments():
    with pytest.raises(InputError, match="reads what it runs from elsewhere"):
        rewritten_line(
            "ssh -p 22 n bash -s <<E\ntorchrun t.py\nE\n", ["--tensor-model-parallel-size", "8"]
        )
