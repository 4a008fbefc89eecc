"""The shell around the verbs: what goes wrong becomes one line and an exit code, and the start
is quick.
"""

import ast
import os
import signal
import subprocess
import sys
import textwrap
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from signals import BACKGROUND, HEED

from mofa_model import cli, verbs


@pytest.fixture
def foreign(monkeypatch, tmp_path):
    """Register the source of a verb named `borrowed` as another distribution would, and run it."""

    def run(source, *arguments):
        name = f"borrowed_{abs(hash(source))}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        monkeypatch.syspath_prepend(str(tmp_path))
        points = EntryPoints([EntryPoint(name="borrowed", value=name, group=verbs.GROUP)])
        monkeypatch.setattr(
            "importlib.metadata.entry_points", lambda *, group: points.select(group=group)
        )
        return cli.main(["borrowed", *arguments])

    return run


def configured(body):
    return f"from mofa_model import errors\ndef configure(parser): parser.add_argument('--n', type=int)\ndef run(arguments): {body}\n"


def test_without_arguments_the_verbs_are_listed_and_the_exit_code_is_0(capsys):
    assert cli.main([]) == 0
    listing = capsys.readouterr().out
    assert all(f"  {name} " in listing for name in verbs.ours())


def test_the_version_is_that_of_the_distribution(capsys):
    from importlib.metadata import version

    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"mofa {version('mofa-advisor')}\n"


def test_only_verbs_whose_module_exists_are_listed():
    here = Path(verbs.__file__).parent
    assert set(verbs.ours()) == {path.stem for path in here.glob("*.py")} & set(verbs.SUMMARIES)


def test_a_module_with_configure_and_run_is_a_verb_with_a_summary_and_any_other_helps_one():
    here = Path(verbs.__file__).parent
    for name in sorted(path.stem for path in here.glob("[a-z]*.py")):
        module = verbs.load(name)
        whole = callable(getattr(module, "configure", None)) and callable(
            getattr(module, "run", None)
        )
        assert whole == (name in verbs.SUMMARIES), name


def test_every_verb_explains_itself(capsys):
    for verb in verbs.ours():
        with pytest.raises(SystemExit) as stop:
            cli.main([verb, "--help"])
        assert stop.value.code == 0
        assert f"usage: mofa {verb}" in capsys.readouterr().out


def test_a_misspelt_verb_exits_with_2_and_one_line(capsys):
    assert cli.main(["explian"]) == 2
    assert capsys.readouterr().err.startswith("mofa explian: verb: unknown name 'explian'; ")


@pytest.mark.parametrize("name", verbs.LAB)
def test_a_verb_of_the_lab_says_what_to_install_where_the_lab_is_not(monkeypatch, capsys, name):
    monkeypatch.setattr(verbs, "foreign", dict)
    assert cli.main([name, "whatever", "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        said.err
        == f"mofa {name}: is a verb of the lab, which is not installed: pip install ./lab, in a clone\n"
    )


def test_the_help_tells_of_the_lab_where_it_is_not(monkeypatch, capsys):
    monkeypatch.setattr(verbs, "foreign", dict)
    assert cli.main([]) == 0
    ours, lab = capsys.readouterr().out.split("verbs of the lab (pip install ./lab, in a clone):")
    assert "  advise " in ours
    assert [name for name in verbs.LAB if f"  {name} " not in lab or f"  {name} " in ours] == []


def test_a_verb_of_another_distribution_runs_and_its_exit_code_is_kept(foreign):
    assert foreign(configured("return arguments.n"), "--n", "5") == 5


def test_a_verb_of_another_distribution_is_listed_with_its_module(foreign, capsys):
    foreign(configured("return 0"))
    assert cli.main([]) == 0
    assert "borrowed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "error, code",
    [
        ("errors.BadValue('gpus', -1, 'give at least 1')", 2),
        ("errors.NoFeasibleStrategy('all 12 run out of memory')", 3),
        ("errors.SourceUnreachable('prometheus: no answer in 5 s')", 4),
        ("errors.MofaError('two\\nlines')", 1),
    ],
)
def test_our_errors_become_one_line_and_their_exit_code(foreign, capsys, error, code):
    assert (
        foreign(
            f"from mofa_model import errors\ndef configure(parser): ...\ndef run(arguments): raise {error}\n"
        )
        == code
    )
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("mofa borrowed: ")
    assert said.err.count("\n") == 1


def test_a_wrong_option_exits_with_2_and_one_line(foreign, capsys):
    with pytest.raises(SystemExit) as stop:
        foreign(configured("return 0"), "--n", "many")
    assert stop.value.code == 2
    assert capsys.readouterr().err == "mofa borrowed: argument --n: invalid int value: 'many'\n"


def test_an_unexpected_error_is_one_line_that_asks_to_report_it(foreign, capsys, monkeypatch):
    monkeypatch.delenv(cli.TRACEBACK, raising=False)
    assert foreign(configured("1 / 0")) == 1
    said = capsys.readouterr().err
    assert said.startswith("mofa borrowed: ZeroDivisionError: division by zero; this is our fault")
    assert said.count("\n") == 1


def test_the_traceback_of_an_unexpected_error_is_shown_when_asked_for(foreign, monkeypatch):
    monkeypatch.setenv(cli.TRACEBACK, "1")
    with pytest.raises(ZeroDivisionError):
        foreign(configured("return 1 / 0"))


EXTRAS = {
    "operator": "operator",
    "observe train.log --job tiny": "operator",
    "rates --prometheus http://127.0.0.1:1 --profile h100-east": "operator",
    "profile --from-cluster": "operator",
    "ettr --nodes 4 --step 10s --plot a.svg": "plot",
    "ettr --nodes 4 --step 10s --vary rate=0.001,0.01 --plot a.svg": "plot",
    "sweep --model llama3-8b --gpu h100 --vary gpus=8,16 --plot a.svg": "plot",
    "explain --model llama3-8b --gpu h100 --gpus 8 --strategy tp=8 --plot a.svg": "plot",
    "advise --model llama3-8b --gpu h100 --gpus 8 --seq 8k --global-batch 8 --plots folder": "plot",
}
WITHOUT = """\
import io, sys
from contextlib import redirect_stderr, redirect_stdout
brought = ('kopf', 'kubernetes', 'aiohttp', 'prometheus_client', 'matplotlib')
sys.modules.update(dict.fromkeys(brought))
from mofa_model import cli
for words in sys.argv[1:]:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = cli.main(words.split())
    print(repr((code, out.getvalue(), err.getvalue())))
"""


def test_a_verb_that_needs_an_extra_names_it_in_one_line(tmp_path):
    """As in an environment without the extras: what they bring cannot be imported."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *EXTRAS],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    said = dict(zip(EXTRAS, map(ast.literal_eval, done.stdout.splitlines()), strict=True))
    for words, (code, out, err) in said.items():
        assert (code, out, err.count("\n")) == (2, "", 1), f"{words}: {err}"
        assert f"pip install '.[{EXTRAS[words]}]', in a clone" in err, words
        assert "our fault" not in err, words


def test_an_interruption_exits_with_130_and_says_nothing(foreign, capsys):
    assert (
        foreign("def configure(parser): ...\ndef run(arguments): raise KeyboardInterrupt\n") == 130
    )
    assert capsys.readouterr().err == ""


def test_a_reader_that_goes_away_is_no_error():
    with subprocess.Popen(
        [sys.executable, "-m", "mofa_model"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        complaint = process.stderr.read()
    assert (process.returncode, complaint) == (0, b"")


WAITING = """\
import sys, time
sys.modules['mofa_model.verbs.waiting'] = sys.modules[__name__]
def configure(parser): ...
def run(arguments):
    print('ready', flush=True)
    time.sleep(60)
"""
RUN = "import sys; from mofa_model import cli, verbs; import waiting; verbs.ours = lambda: {'waiting': ''}; sys.exit(cli.main(['waiting']))"


def interrupted(tmp_path, program, *numbers):
    """Exit code and complaint of a verb that waits, started as in the background of a script, after
    these signals.
    """
    (tmp_path / "waiting.py").write_text(WAITING)
    command = [*BACKGROUND, sys.executable, "-c", program]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout.readline().strip() == b"ready"
        for number in numbers:
            process.send_signal(number)
        complaint = process.stderr.read()
    return process.returncode, complaint


def test_a_real_sigint_ends_quietly(tmp_path):
    assert interrupted(tmp_path, HEED + RUN, signal.SIGINT) == (130, b"")


def test_in_the_background_of_a_script_sigint_is_somebody_elses_and_sigterm_ends(tmp_path):
    assert interrupted(tmp_path, RUN, signal.SIGINT, signal.SIGTERM) == (-signal.SIGTERM, b"")


def test_help_imports_nothing_slow():
    program = (
        "import sys; from mofa_model import cli; cli.main([]);"
        "slow = {'numpy', 'scipy', 'pydantic', 'rich', 'ruamel', 'matplotlib'} & set(sys.modules);"
        "sys.exit(f'imported {slow}' if slow else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", ["advise", "explain", "sweep", "ettr", "simulate"])
def test_help_of_a_verb_reads_its_question_and_imports_no_numpy(verb):
    program = (
        f"import sys; from mofa_model import cli\ntry: cli.main([{verb!r}, '--help'])\n"
        "except SystemExit: sys.exit('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--device", "--gpu"),
        ("--modle", "--model"),
        ("--batch=64", "--global-batch"),
        ("--sequence", "--seq"),
        ("--trainer", "--framework"),
    ],
)
def test_an_option_that_is_not_there_is_named_with_the_one_that_is_like_it(given, meant, capsys):
    assert cli.main(["advise", given, "h100"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"unknown name {given.partition('=')[0]!r}; did you mean {meant}" in told


def test_advice_is_given_without_masked_arrays_and_archives():
    """Both are imported by calls that look harmless: numpy's `unique`, and a help text that asks
    `shutil` for its width.
    """
    asked = "advise --model llama3-8b --gpu h100 --gpus 8 --global-batch 64 --seq 4096 --framework megatron --json"
    told = subprocess.run(
        [sys.executable, "-c", f"import sys; from mofa_model.cli import main; main({asked.split()}); sys.stderr.write(' '.join(sys.modules))"],
        capture_output=True, text=True, check=True,
    ).stderr  # fmt: skip
    assert {"numpy.ma", "shutil", "bz2"} & set(told.split()) == set()
