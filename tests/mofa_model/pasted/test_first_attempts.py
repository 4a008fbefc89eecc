"""Commands that strangers type first: nine of ten end in an answer, a question names what makes the
next command work.
"""

import io
import re
import shlex
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from mofa_model import cli, presets
from mofa_model.cli import main
from mofa_model.verbs import paste

DATA = YAML(typ="safe").load(
    (Path(__file__).parents[2] / "data/first_attempts.yaml").read_text("utf-8")
)
LISTS = {name: DATA[name] for name in ("first", "second", "third", "fourth", "fifth", "sixth")}
FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH = LISTS.values()
PIPED = {"nvidia-smi": "nvidia-smi.txt", "kubectl": "job.yaml"}


@pytest.fixture(autouse=True)
def desk(tmp_path, monkeypatch):
    for name, text in DATA["desk"].items():
        (tmp_path / name).write_text(text)
    (tmp_path / "train.sbatch").write_text(DATA["desk"]["run.sbatch"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def run(typed, monkeypatch, capsys, stdin=""):
    """The exit code of a typed command, and what it says on both ways out."""
    before, _, behind = typed.partition("| mofa") if "| mofa" in typed else ("", "", typed)
    words = shlex.split(re.sub(r"\$\(.*?\)", "4", behind.removeprefix("mofa")))
    if before:
        stdin = Path(PIPED.get(before.split()[0]) or before.split()[1]).read_text()
    if "<" in words:
        words, stdin = words[:-2], Path(words[-1]).read_text()
    path = Path("stdin")
    path.write_text(stdin)
    with path.open() as file:
        monkeypatch.setattr(cli.sys, "stdin", file)
        try:
            code = main(words)
        except SystemExit as end:  # help
            code = end.code or 0
    said = capsys.readouterr()
    return code, said.out, said.err


def ended(attempt, monkeypatch, capsys):
    """Whether an attempt ended as it should; after a question its example is typed,
    and answered.
    """
    typed = attempt["typed"]
    code, out, err = run(typed, monkeypatch, capsys)
    if attempt.get("findings"):
        return code == 5
    if "wrong" in attempt:
        return code == 2 and attempt["wrong"] in err
    if "shows" in attempt:
        return code == 0 and out.startswith(attempt["shows"])
    if "asks" in attempt:
        asked = re.search(r": ((?:--[\w-]+(?:, | and )?)+): (?:is|are) missing", err)
        example = re.search(r"for example (mofa .*?)(?:; |\n)", err)
        source = f"{typed.partition(' | ')[0]} | " if "| mofa" in typed else ""
        return (
            code == 2
            and re.findall(r"--[\w-]+", asked[1]) == attempt["asks"]
            and run(source + example[1], monkeypatch, capsys)[0] == 0
        )
    found = re.search(r"verdict +(.*): (\S+) on (\d+) (\S+)", out)
    ends = 3 if attempt.get("nothing") else 0
    return (code, found[2], int(found[3])) == (ends, attempt["model"], attempt["gpus"]) and bool(
        presets.meanings("devices", found[4])
    )


SAMPLE = [
    *FIRST[3::25],
    *SECOND[3::17],
    *THIRD[7::16],
    *FOURTH[3::13],
    *SIXTH[11:13],
    *SIXTH[17::22],
]


@pytest.mark.parametrize("attempt", SAMPLE, ids=lambda one: one["typed"])
def test_a_sample_of_first_attempts_ends_as_it_should(attempt, monkeypatch, capsys):
    assert ended(attempt, monkeypatch, capsys)


@pytest.mark.soak
@pytest.mark.parametrize("attempts", LISTS.values(), ids=LISTS)
def test_every_first_attempt_ends_as_it_should(attempts, monkeypatch, capsys):
    wrong = [one["typed"] for one in attempts if not ended(one, monkeypatch, capsys)]
    assert wrong == []


def test_of_ten_first_attempts_eight_are_answered_at_once_and_nine_after_at_most_two_questions():
    for attempts in (FIRST, SECOND, FOURTH, SIXTH):
        at_once = [one for one in attempts if {"gpus", "findings", "shows"} & one.keys()]
        asked = [one for one in attempts if len(one.get("asks", ["a", "b", "c"])) <= 2]
        assert len(at_once) > 0.75 * len(attempts)
        assert len(at_once) + len(asked) > 0.9 * len(attempts)


def test_of_a_hundred_with_slips_and_nonsense_among_them_seven_of_ten_are_answered_and_no_more_than_two_are_asked():
    at_once = [one for one in THIRD if {"gpus", "shows"} & one.keys()]
    refused = [one for one in THIRD if "wrong" in one]
    assert len(at_once) >= 68
    assert len(refused) <= 16
    assert all(len(one["asks"]) <= 2 for one in THIRD if "asks" in one)


def test_on_a_terminal_a_question_is_answered_with_enter_or_in_one_phrase(monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(paste.sys, "stderr", Terminal())
    for typed, answers, gpus in (
        ("train.sh", "\n", 16),
        ("meta-llama/Llama-3.1-70B", "\n\n", 64),
        ("config.json", "32 a100\n", 32),
    ):
        monkeypatch.setattr(paste.sys, "stdin", Terminal(answers))
        assert main([typed]) == 0
        assert f" on {gpus} " in capsys.readouterr().out
