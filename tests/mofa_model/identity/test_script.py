"""A script is followed as a shell goes through it: bash itself is asked."""

import subprocess

import pytest

from mofa_model.identity import launch_in_pod
from mofa_model.identity.script import walk
from mofa_model.launch import layout_words

SNIPPETS = {
    "a variable": "N=4; run --nnodes $N",
    "quotes keep blanks": "A='x  y'; run $A \"$A\" '$A'",
    "an array": 'A=(--x 1 "b c"); A+=(--y); run "${A[@]}" ${A[@]} ${#A[@]} ${A[2]} "${A[*]}"',
    "an empty array": 'A=(); run a "${A[@]}" b',
    "an empty word": "run '' \"\" a",
    "a default": 'run ${X:-3} "${Y-4 5}" ${Z:+6} ${W:=7} $W',
    "parts of a value": "F=dir/a.b.c; run ${F%.*} ${F%%.*} ${F#*/} ${F##*.} ${F/a/z} ${F:4} ${F:0:3}",
    "case": "F=aBc; run ${F^^} ${F,,} ${#F}",
    "arithmetic": "N=4; M=$((N * 8 / 3 - 1)); ((M += 2)); run $M $((2 ** 5)) $((7 % 4)) $((N > 3))",
    "a ternary": "N=4; run $((N > 3 ? 10 : 20))",
    "appending": 'A="--x 1"; A="$A --y 2"; A+=" --z"; run $A',
    "a long string": 'A=" \\\n\t--x 1 \\\n  --y 2"; run $A; run sh',
    "a branch by a string": 'if [ "$M" = true ]; then run a; else run b; fi',
    "a branch by a number": "N=2; if [[ $N -gt 1 && -n $N ]]; then run a; elif (( N > 0 )); then run c; fi",
    "a branch by a pattern": "F=llama3-8b; if [[ $F == llama* ]]; then run a; fi; [[ $F =~ [0-9]b$ ]] && run b",
    "a check of what is not there yet": "if ! ask --id 7 >/dev/null 2>&1 ; then run a; fi; run b",
    "negation": '[ ! -z "$Q" ] && run a || run b',
    "a case": "M=7b; case $M in 1b|3b) run a;; 7*) run b;; *) run c;; esac",
    "a loop that is left at once": "for C in 2,4,1; do IFS=, read -r T P E <<< $C; run $T $P $E; done",
    "a function": 'f() { local a=$1; shift; run "$a" "$@"; }; f 1 "2 3" 4',
    "eval": "A='run \"x y\" z'; eval $A",
    "bash -c": "N=3; bash -c \"run $N \\$M '$N'\"",
    "bash -c with arguments": "bash -c 'run $1' zero one",
    "a variable of one command": "N=1; N=2 run $N; run $N",
    "a subshell": "N=1; (N=2; run $N); run $N",
    "indirect": "A=5; B=A; run ${!B}",
    "echo in a substitution": "N=$(echo 8); run $N `echo 3`",
    "escapes": 'run a\\ b "c\\"d" e\\\\f "g\\$h"',
    "braces in text": 'run \'{"a": 1}\' "[1,2]"',
    "set": "set -- a 'b c'; run \"$@\" $# $2",
    "redirections": "run x >/dev/null 2>&1 y",
    "a while that never runs": "while [[ $# -gt 0 ]]; do shift; done; run a",
    "unset": "N=1; unset N; run a${N}b",
    "characters of other tongues": 'N="é ü"; run "$N" ö $N',
}


def of_bash(script: str) -> list[list[str]]:
    """What bash hands to `run`, call by call."""
    around = "run() { printf '%s\\037' \"$@\" >&9; printf '\\036' >&9; }; export -f run\n"
    done = subprocess.run(
        ["bash", "-c", f"exec 9>&1\n{around}{script}"],
        capture_output=True, text=True, timeout=20, env={"PATH": "/usr/bin:/bin"}, check=False,
    )  # fmt: skip
    return [one.split("\037")[:-1] for one in done.stdout.split("\036")[:-1]]


@pytest.mark.parametrize("name", SNIPPETS)
def test_words_are_those_that_bash_hands_over(name: str) -> None:
    script = SNIPPETS[name]
    expected = of_bash(script)
    assert expected, "bash ran nothing: the case says nothing"
    ours = [list(call.texts[1:]) for call in walk(script).followed if call.texts[0] == "run"]
    unset = [[one.replace("$M", "").replace("${N}", "") for one in row] for row in ours]
    assert [[one for one in row if one or "''" in script] for row in unset] == [
        [one for one in row if one or "''" in script] for row in expected
    ]


def test_every_word_knows_where_it_was_given() -> None:
    script = 'TP=8\nARGS="--tp $TP"\nsrun bash -c "train $ARGS"\n'
    call = next(one for one in walk(script).followed if one.texts[0] == "train")
    value = call.traced_words[2]
    assert (value.text, script[value.place], value.whole) == ("8", "8", True)
    assert script.count("\n", 0, value.place) == 0


def test_what_only_a_machine_knows_stays_as_it_is_written() -> None:
    said = walk('H=$(scontrol show hostnames "$L" | head -n 1)\nrun --host $H --rank $SLURM_PROCID')
    assert said.followed[-1].texts == (
        "run", "--host", '$(scontrol show hostnames "$L" | head -n 1)', "--rank", "$SLURM_PROCID",
    )  # fmt: skip


def test_a_loop_is_gone_through_once_and_that_is_said() -> None:
    said = walk("for T in 1 2 4; do\n  train --tp $T\ndone")
    assert [one.texts for one in said.followed] == [("train", "--tp", "1")]
    assert said.notes == ["line 1: a loop over 3 values; the first is read, 1"]


def test_a_script_that_doubles_its_value_ends() -> None:
    said = walk('A=xxxxxxxx; f() { A="$A$A"; f; }; f; run "$A"')
    assert len(said.followed[-1].texts[1]) <= 40_000


def test_nothing_is_run(tmp_path) -> None:
    touched = tmp_path / "touched"
    walk(f"touch {touched}; X=$(touch {touched}); cat <(touch {touched}); eval 'touch {touched}'")
    assert not touched.exists()


def test_the_pod_in_which_kuberay_submits_is_told_what_its_job_is() -> None:
    ask, submit, follow = (
        f"ray job {verb} --address http://h:8265" for verb in ("status", "submit", "logs")
    )
    line = (
        f"if ! {ask} j >/dev/null 2>&1 ; then {submit} --no-wait --submission-id j -- bash pretrain_gpt.py "
        f"--tensor-model-parallel-size=2 --micro-batch-size=4 ; fi ; {follow} --follow j"
    )
    submitter = {"name": "s", "command": ["/bin/bash"], "args": ["-ce", line]}
    found = launch_in_pod({"metadata": {"name": "j"}, "spec": {"containers": [submitter]}})
    assert found is not None
    assert layout_words(found.words) == ("--tensor-model-parallel-size=2", "--micro-batch-size=4")
