"""Our tables are parsed once and kept beside their text, as Python keeps byte code."""

import sys
import tomllib
from importlib.util import cache_from_source
from pathlib import Path

import pytest

import mofa_model
from mofa_model import parsed
from mofa_model.bands.table import _runs_with, measured_runs
from mofa_model.parsed import cached, tables_in
from mofa_model.presets import kernels
from mofa_model.presets.entries import KINDS, table

PRESETS = Path(mofa_model.__file__).parent / "presets"


@pytest.fixture
def writes(monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def place_of(path):
    return Path(cache_from_source(str(path))).parent / f"{path.name}.parsed"


def made(folder, text):
    path = folder / "table.toml"
    path.write_text(text, encoding="utf-8")
    place_of(path).parent.mkdir(exist_ok=True)
    return path


def test_what_is_kept_is_what_the_text_says_before_and_after_a_change(tmp_path, writes):
    for number in (1, 2.5, 2.5):
        path = made(tmp_path, f"[a]\nb = {number}\n")
        assert cached(str(path), path.read_bytes(), tables_in) == {"a": {"b": number}}
    assert [*place_of(path).parent.iterdir()] == [place_of(path)]


@pytest.mark.parametrize("spoilt", [b"", b"nothing", b"\xe9\x00"])
def test_what_is_spoilt_is_parsed_anew(tmp_path, writes, spoilt):
    path = made(tmp_path, "a = 1\n")
    place_of(path).write_bytes(spoilt)
    assert cached(str(path), path.read_bytes(), tables_in) == {"a": 1}
    assert place_of(path).read_bytes() != spoilt


def test_nothing_is_kept_where_byte_code_is_not_or_the_text_is_no_table(tmp_path, monkeypatch):
    path = made(tmp_path, "a = 1\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert cached(str(path), path.read_bytes(), tables_in) is None
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert cached(str(path), b"a = \n", tables_in) is None
    assert cached(str(tmp_path / "elsewhere" / "table.toml"), b"a = 1\n", tables_in) is None
    assert not [*place_of(path).parent.iterdir()]


def test_every_entry_is_the_same_kept_or_parsed_alone():
    for kind in (*KINDS, "constants"):
        whole = tomllib.loads((PRESETS / f"{kind}.toml").read_text(encoding="utf-8"))
        entries = {name: given for name, given in whole.items() if isinstance(given, dict)}
        found = table(kind)  # and what a user has added
        assert {name: found[name] for name in entries} == entries


def test_runs_and_surfaces_are_the_same_kept_or_not(writes, monkeypatch):
    def read():
        _runs_with.cache_clear()
        kernels._shipped.cache_clear()
        runs, surfaces = measured_runs(), kernels._kernels.__wrapped__("h200", ()).surfaces
        columns = {name: at.tolist() for name, at in (runs.which | runs.errors).items()}
        known = {
            key: (repr(one.law), one.knots, one.corrections.tolist())
            for key, one in surfaces.items()
        }
        assert len(known) > 40
        assert len(runs.names) > 2000
        return repr([columns, runs.words, runs.names, runs.groups, known]), runs.digest

    kept_once, kept_twice = read(), read()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(parsed, "cache_from_source", lambda _: "/nowhere/x.pyc")
    assert kept_once == kept_twice == read()
