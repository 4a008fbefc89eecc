"""What strangers named, and terminals that know few characters: every form is written, nothing is
obeyed, documents stay exact.
"""

import io
import json
import logging
import os
import subprocess
import sys

import pytest
from ruamel.yaml import YAML

from mofa_model import cli, output, terminal
from mofa_model.page import markup
from mofa_model.tables import Column, Table

EVIL = "evil\x1b]0;owned\x07\x1b[2J\u202egnp.exe\u2066\x9b31m\x7f\nsecond"
NAMED = Table(
    title=EVIL,
    columns=(Column("name"), Column(EVIL)),
    rows=((EVIL, 1.0),),
    notes=(f"Runs on {EVIL}.",),
)
DOCUMENT = {"model": EVIL, "difference": "−28.8 ms … é"}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def steers(text):
    return sorted({c for c in text if c != "\n" and not c.isprintable()})


@pytest.mark.parametrize("form", output.FORMS)
def test_the_name_in_a_config_json_cannot_steer_the_terminal(form):
    text = output.render(
        form, [NAMED], None if form in {"csv", "table", "wide", "html"} else DOCUMENT
    )
    assert steers(text) == []
    assert "\nsecond" not in text


def test_on_a_terminal_no_escape_is_left_but_those_of_the_style():
    drawn = Terminal()
    output.emit("table", [NAMED], stream=drawn)
    assert "]0;owned  [2J gnp.exe" in drawn.getvalue()
    for style in ("\x1b[1m", "\x1b[3m", "\x1b[0m"):
        assert steers(drawn.getvalue().replace(style, "")) in ([], ["\x1b"])
    assert "\x1b[2J" not in drawn.getvalue()


def test_a_page_turns_no_name_around_and_steers_no_terminal():
    html = markup.text(
        markup.page("Advice", markup.el("h1", EVIL), markup.el("a", "x", href=f"#{EVIL}"))
    )
    assert steers(html) == []
    assert "gnp.exe" in html


def test_json_and_yaml_say_such_a_name_exactly_and_by_its_codes():
    said = output.render("json", [NAMED], DOCUMENT), output.render("yaml", [NAMED], DOCUMENT)
    assert json.loads(said[0]) == YAML(typ="safe").load(said[1]) == DOCUMENT
    assert r"\u202egnp.exe" in said[0]
    assert "−28.8 ms … é" in said[0], "what harms nobody is written as it is"


def test_an_error_that_names_a_file_cannot_steer_the_terminal(capsys):
    assert cli.main(["advise", f"/nowhere/{EVIL}.yaml"]) == 2
    assert steers(capsys.readouterr().err) == []
    with pytest.raises(SystemExit):
        cli.main(["ettr", "--nodes", "4", "--step", "1s", EVIL])
    assert steers(capsys.readouterr().err) == []


def test_what_is_said_beside_an_answer_and_the_operators_log_cannot_either(capsys):
    logs = pytest.importorskip("mofa_operator.control.logs", reason="the operator needs its extra")
    terminal.tell(f"left out: {EVIL}")
    record = logging.LogRecord("mofa_operator", logging.INFO, "", 1, "job %s", (EVIL,), None)
    said = capsys.readouterr().err + logs.Text("%(levelname)s %(message)s").format(record)
    assert steers(said) == []
    told = logs.Json().format(record)
    assert steers(told) == []
    assert json.loads(told)["message"] == f"job {EVIL}"


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
def test_an_answer_can_be_written_whatever_the_encoding_is(encoding, monkeypatch):
    """U+2212 and … once ended in exit code 1, "this is our fault"."""
    text = "+12 ms, −28.8 ms, 3 × 4 … é 漢 █▌▏ \udcff"
    table = Table(columns=(Column("why"),), rows=((text,),))
    written = {}
    for form in output.FORMS:
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding=encoding)
        terminal.never_fail(stream)
        output.emit(form, [table], {"why": text}, stream=stream)
        stream.flush()
        written[form] = raw.getvalue()
    assert json.loads(written["json"].decode()) == {"why": text}
    assert "−28.8 ms" in written["html"].decode("utf-8")
    assert ("-28.8 ms" if encoding != "utf-8" else "−28.8 ms") in written["table"].decode(encoding)
    if encoding == "ascii":
        assert b"3 x 4 ... e ? ##-" in written["csv"]


def test_a_command_whose_pipe_knows_only_ascii_answers_and_errs_in_ascii(tmp_path):
    manifest = tmp_path / "job.yaml"
    manifest.write_text("# größer\na: 1\n", "utf-8")
    program = (
        "import sys; from mofa_model import cli;"
        "codes = [cli.main(words.split()) for words in ('ettr --nodes 4 --step 漢', 'ettr --nodes 4 --step 10s', 'annotate job.yaml')]; sys.exit(codes != [2, 0, 0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, b"our fault" in done.stderr) == (0, False), done.stderr
    assert done.stderr.isascii()
    answer, copied = done.stdout.split(b"# ", 1)
    assert answer.isascii()
    assert copied.decode("utf-8") == "größer\na: 1\n", "a manifest is UTF-8 wherever it is written"


def test_whoever_asks_for_question_marks_gets_them():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    terminal.never_fail(stream, io.StringIO())
    assert stream.errors == "replace"
