"""`mofa calibrate`: what it refuses, and where that went."""

import pytest

from mofa_model.cli import main


def test_nothing_to_calibrate_from_is_refused(capsys):
    assert main(["calibrate"]) == 2
    assert "--from-runs" in capsys.readouterr().err


def test_a_csv_file_that_no_reader_takes_is_refused_with_its_line(tmp_path, capsys):
    (tmp_path / "runs.csv").write_text("model,gpu\nllama3-8b," + "h" * 200_000)
    assert main(["calibrate", "--from-runs", str(tmp_path / "runs.csv")]) == 2
    assert "runs.csv: line 2: field larger than field limit" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["cases.json"],
        ["cases.json", "--quick", "--to", "out"],
        ["--quick", "cases.json"],
        ["--from-trace", "rank0.json"],
    ],
    ids=" ".join,
)
def test_what_other_verbs_take_is_refused_with_their_names(words, capsys):
    with pytest.raises(SystemExit) as left:
        main(["calibrate", *words])
    said = capsys.readouterr().err
    assert left.value.code == 2
    assert said.count("\n") == 1
    assert "`mofa fit`" in said
    assert "`mofa trace calibrate`" in said
