"""One table in every form: for people with units, for machines with every digit, and never
a NaN.
"""

import csv
import enum
import html
import io
import json
import re
from argparse import ArgumentParser
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from mofa_model import output
from mofa_model.tables import Column, Table, plain, shown

TABLE = Table(
    title="Step <time>",
    columns=(
        Column("term"),
        Column("time taken", unit="s"),
        Column("share", unit="%"),
        Column("rank", wide=True),
    ),
    rows=(("compute", 4.25, 0.8125, 1), ("bubble|idle", 0.00031, None, 2)),
    notes=("a note",),
)
ANSI = re.compile(r"\x1b\[[\d;]*m")
CELLS = st.one_of(
    st.text(max_size=200),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.none(),
)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_piped_tables_are_aligned_text_with_units_in_the_cells():
    assert plain(TABLE) == (
        "Step <time>\n"
        "term         time taken   share\n"
        "-----------  ----------  ------\n"
        "compute          4.25 s  81.2 %\n"
        "bubble|idle      310 us       -\n"
        "a note\n"
    )


def test_wide_shows_the_columns_that_are_left_out_otherwise():
    assert "rank" in output.render("wide", [TABLE])
    assert "rank" not in output.render("table", [TABLE])


@given(words=st.lists(st.text("abc ", min_size=1, max_size=300), min_size=1, max_size=4))
def test_text_is_wrapped_to_80_columns(words):
    table = Table(
        columns=(Column("n"), Column("why", align="left")), rows=tuple((1.5, w) for w in words)
    )
    assert max(len(line) for line in plain(table).splitlines()) <= 80


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_words_of_a_strategy_and_numbers_with_their_units_stay_whole(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    strategy = "tp4 pp16 cp2 dp16 vpp8 mbs2 sp offload distributed tp-overlap"
    reason = "30.7 ms slower a step: work of the slowest stage +28.8 ms"
    table = Table(
        columns=(Column("strategy"), Column("step", unit="s"), Column("why not")),
        rows=((strategy, 41.5, reason),),
    )
    for stream in (None, Terminal()):
        output.emit("table", [table], stream=stream)
        text = capsys.readouterr().out if stream is None else ANSI.sub("", stream.getvalue())
        assert max(len(line) for line in text.splitlines()) <= columns
        assert {*strategy.split(), "28.8 ms", "30.7 ms"} <= {*re.findall(r"[\d.]+ ms|[\w-]+", text)}


def test_what_people_copy_is_never_wrapped(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    line = (
        "--offload-modules attn_norm qkv_linear core_attn attn_proj mlp_norm expert_fc1 moe_act \\"
    )
    table = Table(columns=(Column("arguments", copied=True),), rows=((line,), ("--bf16",)))
    for stream in (None, Terminal()):
        output.emit("table", [table], stream=stream)
        text = capsys.readouterr().out if stream is None else ANSI.sub("", stream.getvalue())
        assert line in [shown.strip() for shown in text.splitlines()]


@pytest.mark.parametrize("columns", ["40", "80"])
@pytest.mark.parametrize("form", ["table", "wide", "markdown", "html"])
def test_what_people_copy_is_whole_in_every_form(form, columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    line = f"--pipeline-model-parallel-layout 'Et*3{'|t*4' * 40}L' --note  \"a  b\" \\"
    table = Table(columns=(Column("arguments", copied=True),), rows=((line,), ("--bf16",)))
    output.emit(form, [table])
    text = html.unescape(re.sub(r"</?t[dr]>", "\n", capsys.readouterr().out))
    assert line in text.splitlines()


def test_a_number_is_never_cut_on_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal()
    table = Table(
        columns=tuple(Column(f"c{i}", unit="B") for i in range(9)), rows=((123456789.0,) * 9,)
    )
    output.emit("table", [table], stream=terminal)
    assert terminal.getvalue().count("117.7 MiB") == 9


@given(rows=st.lists(st.tuples(CELLS, CELLS), max_size=5), form=st.sampled_from(output.FORMS))
def test_any_cells_can_be_printed_in_every_form(rows, form):
    table = Table(columns=(Column("a"), Column("b", unit="B")), rows=tuple(rows))
    try:
        assert output.render(form, [table])
    except (OverflowError, ValueError) as error:
        pytest.fail(f"{form}: {error}")


def test_json_keeps_every_digit_and_says_null_for_no_value():
    document = json.loads(output.render("json", [TABLE]))
    assert document["rows"][1] == {
        "term": "bubble|idle",
        "time_taken": 0.00031,
        "share": None,
        "rank": 2,
    }
    assert document["units"] == {"time_taken": "s", "share": "%"}


def test_yaml_says_the_same_as_json():
    assert YAML(typ="safe").load(output.render("yaml", [TABLE])) == json.loads(
        output.render("json", [TABLE])
    )


def test_several_tables_are_a_list_in_json():
    assert [one["title"] for one in json.loads(output.render("json", [TABLE, TABLE]))] == [
        "Step <time>"
    ] * 2


def test_csv_has_keys_in_the_first_row_and_an_empty_cell_for_no_value():
    rows = list(csv.reader(io.StringIO(output.render("csv", [TABLE]))))
    assert rows == [
        ["term", "time_taken", "share", "rank"],
        ["compute", "4.25", "0.8125", "1"],
        ["bubble|idle", "0.00031", "", "2"],
    ]


def test_markdown_escapes_the_bar():
    assert "| bubble\\|idle | 310 us | - | 2 |" in output.render("markdown", [TABLE])


def test_html_escapes_text_and_needs_nothing_else():
    page = output.render("html", [TABLE])
    assert "Step &lt;time&gt;" in page
    assert "http" not in page
    assert "src=" not in page


def test_on_a_terminal_the_text_of_a_user_is_not_markup():
    terminal = Terminal()
    output.emit(
        "table", [Table(columns=(Column("name"),), rows=(("[bold]x[/bold]",),))], stream=terminal
    )
    assert "[bold]x[/bold]" in terminal.getvalue()


@pytest.mark.parametrize(
    "number", [float("nan"), float("inf"), np.float64("nan"), np.array([1.0, np.nan])]
)
def test_json_refuses_a_number_that_is_not_finite_and_says_where(number):
    with pytest.raises(ValueError, match=r"document\.step"):
        output.as_json({"step": number})


def test_dataclasses_enums_and_arrays_become_plain_data():
    class Kind(enum.Enum):
        RING = "ring"

    @dataclass(frozen=True)
    class Answer:
        kind: Kind
        times: np.ndarray

    assert output.as_data(Answer(Kind.RING, np.array([1.0, 2.0]))) == {
        "kind": "ring",
        "times": [1.0, 2.0],
    }


@pytest.mark.parametrize(
    "options, form",
    [([], "table"), (["--json"], "json"), (["-o", "csv"], "csv"), (["--output", "html"], "html")],
)
def test_the_form_is_asked_for_by_one_option(options, form):
    parser = ArgumentParser()
    output.add_options(parser)
    assert parser.parse_args(options).output == form


def test_a_row_must_have_one_cell_for_each_column():
    with pytest.raises(ValueError, match="1 cells under 2 columns"):
        Table(columns=(Column("a"), Column("b")), rows=(("x",),))


@pytest.mark.parametrize(
    "cell, unit, text", [(0, "B", "0"), (True, "", "yes"), (0.5, "%", "50.0 %"), (5, "", "5")]
)
def test_a_cell_as_people_read_it(cell, unit, text):
    assert shown(cell, unit) == text


def test_progress_is_silent_where_standard_error_is_no_terminal(capsys):
    with output.progress("searching", total=3) as advance:
        advance(3)
    assert capsys.readouterr().err == ""
