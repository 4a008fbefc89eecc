"""A line with another layout is run by a real bash, in which every program prints its arguments:
each sees the same words as before, the trainer's without the old layout and with the new one."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from questions import case

from mofa_model.errors import InputError
from mofa_model.launch import launch, rewritten_line
from mofa_model.strategy import Strategy

NEW = list(
    launch(
        Strategy(tp=8, pp=4, dp=8, pipeline_overlap=False),
        "megatron",
        case("llama3-70b", batch=512),
    ).arguments
)
"""The layout that is asked for; one that no shell may read for itself goes with it."""
NEW += ["--pipeline-model-parallel-layout", "E|t*2 'L'$X"]
PRINTS = """#!/bin/sh
{ printf '%s\\0' "${0##*/}" "$@"; printf '\\n\\0'; } >>"$SEEN/$$"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What bash runs for a line: the programs with their arguments, sorted; None where bash -n does
    not accept it.
    """
    folder = tmp_path_factory.mktemp("run")
    for name in ("torchrun", "python", "prepare", "finish", "log", "cat", "a", "b"):
        (folder / name).write_text(PRINTS)
        (folder / name).chmod(0o755)
    for program in ("bash", "sh", "env", "nice", "timeout"):
        (folder / program).symlink_to(shutil.which(program))
    (folder / "ssh").write_text('#!/bin/sh\nshift\nexec /bin/sh -c "$*"\n')
    (folder / "su").write_text('#!/bin/sh\nfor last; do :; done; exec /bin/sh -c "$last"\n')
    (folder / "runuser").write_text('#!/bin/sh\nfor last; do :; done; exec /bin/sh -c "$last"\n')
    (folder / "srun").write_text(
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n'
    )
    (folder / "sudo").write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    for name in ("ssh", "su", "runuser", "srun", "sudo"):
        (folder / name).chmod(0o755)
    for profile in (".bash_profile", ".profile"):
        (folder / profile).write_text(f"PATH={folder}\n")
    seen = folder / "seen"
    seen.mkdir()
    environment = {
        "PATH": str(folder),
        "SEEN": str(seen),
        "X": "x y",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
    }

    def run(line):
        def bash(*words):
            return subprocess.run(
                ["/bin/bash", *words], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=20, check=False,
            ).returncode  # fmt: skip

        if bash("-n", "-c", line):
            return None
        for one in seen.iterdir():
            one.unlink()
        bash("-c", f"{line}\nwait")
        told = "".join(
            os.fsdecode(one.read_bytes()) for one in seen.iterdir()
        )  # a file a process: they write at once
        calls = [one.split("\0")[:-1] for one in told.split("\n\0")[:-1]]
        return sorted(calls)

    return run


@dataclass(frozen=True)
class Piece:
    """A piece of a command as it is written, and the words that it gives."""

    written: str
    words: tuple[str, ...]
    ours: bool = False


KEPT = [
    Piece("t.py", ("t.py",)), Piece("--lr 1e-4", ("--lr", "1e-4")), Piece("'a b'", ("a b",)), Piece('"a  $X"', ("a  x y",)),
    Piece("$X", ("x", "y")), Piece("--data=/d/é", ("--data=/d/é",)), Piece("a\\ b", ("a b",)), Piece("s3://a#b", ("s3://a#b",)),
    Piece("2", ("2",)), Piece('"it\'s \\"q\\" \\$X \\\\"', ('it\'s "q" $X \\',)), Piece("$((1 + 2))", ("3",)), Piece("$(echo 1 2)", ("1", "2")),
    Piece("--note '--bf16 is on'", ("--note", "--bf16 is on")), Piece("{c,d}", ("c", "d")), Piece("w\\\nw", ("ww",)),
    Piece("2>/dev/null", ()), Piece("<&-", ()), Piece("--e ''", ("--e", "")), Piece('"1\n2"', ("1\n2",)), Piece("x;y".replace(";", "\\;"), ("x;y",)),
]  # fmt: skip
GONE = [
    Piece(text, tuple(text.replace("'", "").replace('"', "").replace("\\\n", "").split()), ours=True)
    for text in (
        "--bf16", "--tensor-model-parallel-size 4", "--tensor_model_parallel_size=4", "--'sequence-parallel'", '"--micro-batch-size" "2"',
        "--pipeline-model-parallel-size\t2", "--recompute-\\\nactivations", "--use-distributed-optimizer", "--global-batch-size \\\n 512",
    )
]  # fmt: skip
BEFORE = ["", "", "", "set -u; ", "cd . && ", "prepare --x 1 | ", "A=1 B=$X ", "exec ", "A='--x' exec ", "# --bf16 \\\n", "cat <<E\nb '$X\nE\n", "! ", "prepare; ",
          "eval ", "ssh n ", "env A=1 nice "]  # fmt: skip
AFTER = ["", "", "\n", " \\\n", " # --bf16 \\\nfinish", " && finish 1", " | log x", ">/dev/null 2>&1", " >>/dev/null", '; finish "$X"', " &", "|| b", " <<'E' | log\n$X `\nE\n"]  # fmt: skip
AROUND = ["{}", "{}", "({})", "{{ {}\n}}", "if true; then {}\nfi", "for i in 1 2; do {}\ndone", "f() {{ {}\n}}; f", "case x in x) {}\n;; esac"]  # fmt: skip
SHELLS = ["", "", "", "", "bash -c '", 'sh -ec "', 'exec bash -euo pipefail -c "', "prepare; bash -c '", 'bash -lc "', "sh -lc '",
          "srun bash -c '", 'srun --ntasks=8 --export=ALL bash -lc "', "exec srun -l env A=1 sh -c '", 'sudo -u user bash -c "', "su - user -c '",
          'runuser -l user -c "', "ssh n srun ", "env A=1 timeout 9 bash -c '", 'exec nice -n 1 env -u A /bin/sh -c "', "env A=1 su user -c '"]  # fmt: skip
HIDDEN = [
    "ssh n '",
    'ssh -p 22 n "',
    "ssh n bash -c '",
    "srun bash <<'E9'\n",
    "ssh n bash -s <<E9\n",
    "a bash -c '",
    'b x sh -c "',
    'echo "$(',
    "bash <<'E9'\n",
    "A='",
]
"""Beginnings behind which nobody can tell what becomes of the line."""


@st.composite
def lines(draw):
    """A line, and the words that its trainer is given, before and after."""
    pieces = [
        draw(st.sampled_from(KEPT[:1])),
        *draw(st.lists(st.sampled_from([*KEPT, *GONE]), max_size=7)),
    ]
    gaps = [draw(st.sampled_from([" ", "  ", "\t", " \\\n", " \\\n   "])) for _ in pieces]
    command = "torchrun" + "".join(
        gap + piece.written for gap, piece in zip(gaps, pieces, strict=True)
    )
    line = draw(st.sampled_from(BEFORE)) + command + draw(st.sampled_from(AFTER))
    line = draw(st.sampled_from(AROUND)).format(line)
    shell = draw(st.sampled_from([*SHELLS, draw(st.sampled_from(HIDDEN))]))
    before = [word for piece in pieces for word in piece.words]
    after = [word for piece in pieces if not piece.ours for word in piece.words]
    line = within(shell, line)
    if draw(st.integers(0, 5)) == 0:  # a folded block of YAML
        line = re.sub(r"(?<!\n)\n(?![\n ])", " ", line)
    return line, before, after, shell in HIDDEN


def within(shell, line):
    """A line as it is written behind the beginning of another."""
    if shell.endswith("'"):
        return shell + line.replace("'", "'\\''") + "'"
    if shell.endswith('"'):
        return shell + "".join("\\" * (c in '$`"\\') + c for c in line) + '"'
    return shell + line + {"(": '\n)"', "\n": "\nE9\n", "": "", " ": ""}[shell[-1:]]


def check(run, line, before, after, hidden):
    if hidden:
        with pytest.raises(InputError):
            rewritten_line(line, NEW)
        return
    made = run(line)
    if made is None or ["torchrun", *before] not in made:
        return  # no line, or one that never comes to its trainer
    try:
        once = rewritten_line(line, NEW)
    except InputError as refused:
        if any(
            one in str(refused)
            for one in ("a word to other shells", "a backslash that ends no line")
        ):
            return
        note = "the layout's arguments are in '--bf16 is on'" in str(refused)
        assert before == after and (note or "several of its commands" in str(refused))  # noqa: PT017, PT018 - one layout is found
        return
    assert rewritten_line(once, NEW) == once
    assert run(once) == sorted(
        ["torchrun", *after, *NEW] if call[0] == "torchrun" else call for call in made
    )


@given(drawn=lines())
@settings(max_examples=60)
def test_every_program_sees_its_words(run, drawn):
    check(run, *drawn)


@pytest.mark.soak
@given(drawn=lines())
@settings(max_examples=10_000)
def test_every_program_sees_its_words_in_thousands_of_lines(run, drawn):
    check(run, *drawn)


SOUP = [
    " ", " ", " ", "\n", "\\", "'", '"', "#", ";", "&", "&&", "|", "(", ")", "{", "}", "$(", "`", "$X", "<", ">", "2", "!", "=", "E",
    "<<E\n", "\nE\n", "\\\n", "a ", "b ", "torchrun ", "t.py", " --bf16", " --lr 1", " --micro-batch-size 2", "bash -c ", "if ", "then ", "fi",
]  # fmt: skip
TP = ["--bf16", "--micro-batch-size", "1"]


def stripped(call):
    """Arguments without their layout."""
    left = [word for word in call if word.partition("=")[0] != "--bf16"]
    while "--micro-batch-size" in left:
        at = left.index("--micro-batch-size")
        del left[at : at + 1 + (not "".join(left[at + 1 : at + 2]).startswith("--"))]
    return left


def check_soup(run, line):
    if re.search(r"--micro-batch-size 2\S*\$X", line):
        return  # the value of a layout, of two words here, goes whole
    try:
        once = rewritten_line(line, TP)
    except InputError:
        return
    assert rewritten_line(once, TP) == once
    made = run(line)
    if made is not None:
        again = run(once)
        assert again is not None
        assert sorted(map(stripped, again)) == sorted(map(stripped, made))


@given(line=st.lists(st.sampled_from(SOUP), max_size=14).map("".join))
@settings(max_examples=150)
def test_no_soup_of_shell_is_changed_beyond_its_layout(run, line):
    check_soup(run, line)


@pytest.mark.soak
@given(line=st.lists(st.sampled_from(SOUP), max_size=24).map("".join))
@settings(max_examples=5_000)
def test_no_soup_of_shell_is_changed_beyond_its_layout_in_thousands(run, line):
    check_soup(run, line)
