"""Files are read whole or refused in one line; written whole or not at all."""

import io
import sys
from pathlib import Path

import pytest

from mofa_model import files
from mofa_model.errors import BadFile


def test_a_file_is_written_and_read_back(tmp_path):
    files.write_text(tmp_path / "a.txt", "ä\n")
    assert files.read_text(tmp_path / "a.txt") == "ä\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_write_leaves_the_old_text_and_nothing_else(tmp_path, monkeypatch, failure):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def interrupted(*_):
        raise failure

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises((KeyboardInterrupt, BadFile)):
        files.write_text(target, "new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_file_keeps_its_permissions_and_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "a.txt", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    files.write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_new_file_has_the_permissions_that_any_new_file_gets_here(tmp_path):
    (tmp_path / "usual").touch()
    files.write_text(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize(
    "name, why",
    [
        ("absent", "cannot be read: no such file"),
        (".", "cannot be read: is a directory"),
        ("nul\0", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path, name, why):
    with pytest.raises(BadFile, match=why):
        files.read_text(f"{tmp_path}/{name}")


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadFile, match="cannot be written: no such file"):
        files.write_text(tmp_path / "absent" / "a.txt", "")


def test_a_file_that_is_too_large_or_no_text_is_refused(tmp_path):
    (tmp_path / "large").write_bytes(b"x" * 101)
    (tmp_path / "binary").write_bytes(b"ok\xff")
    with pytest.raises(BadFile, match="more than 100 bytes"):
        files.read_text(tmp_path / "large", largest=100)
    with pytest.raises(BadFile, match="not UTF-8 text: byte 2"):
        files.read_text(tmp_path / "binary")


def test_a_minus_is_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: 1\n")))
    assert files.read_text("-") == "a: 1\n"


@pytest.mark.parametrize(
    "read, text, why",
    [
        (files.from_json, "[" * 100_000, "t: is not JSON that can be read: maximum recursion"),
        (files.from_json, '{"a": 1,}', "t: is not JSON: .* line 1, column"),
        (files.from_toml, "a = " + "[" * 3000, "t: is not TOML: maximum recursion"),
        (
            files.from_csv,
            "a,b\n1,2\n3," + "4" * 200_000,
            "t: line 3: field larger than field limit",
        ),
        (files.from_csv, 'a\n"' + "4" * 200_000, "t: line 2: field larger than field limit"),
        (
            files.from_headed_csv,
            "a,b\n1,2\n\n3,4,5\n",
            "t: line 4 has 3 cells, the first line names 2",
        ),
    ],
    ids=["deep", "json", "deep toml", "long cell", "open quote", "shifted row"],
)
def test_text_that_no_parser_can_take_is_refused_with_its_place(read, text, why):
    with pytest.raises(BadFile, match=why):
        tuple(read(text, "t"))


def test_rows_end_as_every_system_ends_them_and_may_lack_their_last_cells():
    for end in ("\n", "\r\n", "\r"):
        rows = list(files.from_headed_csv(end.join(["a,b", "1,2", "", '3,"4', '5"', "6"]), "t"))
        assert [row["a"] for _, row in rows] == ["1", "3", "6"]
        assert rows[1] == (4, {"a": "3", "b": f"4{end}5"})
        assert rows[2] == (6, {"a": "6"})
