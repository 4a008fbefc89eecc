"""What the documents tell people to type runs: the README, the demo, and the recipes of
the studies.
"""

import argparse
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from mofa_model import verbs
from mofa_model.answers.vary import parse_vary, points_of
from mofa_model.cli import main

ROOT = Path(__file__).resolve().parent.parent
_SPEC = importlib.util.spec_from_file_location("studies", ROOT / "tools" / "studies.py")
studies = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(studies)

README = studies.commands((ROOT / "README.md").read_text(encoding="utf-8"))
RECIPES = studies.commands((ROOT / "docs/studies/README.md").read_text(encoding="utf-8"))


def demo():
    """Commands of `make demo`, without the first target that installs."""
    recipe = re.search(
        r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    lines = [line.strip().replace("$(BIN)/", "") for line in recipe.group(1).splitlines()]
    assert all(line.startswith("mofa ") for line in lines)
    return [shlex.split(line)[1:] for line in lines]


@pytest.fixture
def desk(tmp_path, monkeypatch, asked_once):
    """An empty folder with the examples in it."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_readme_shows_what_people_need_first():
    assert {words[0] for words in README} >= {
        "advise",
        "annotate",
        "explain",
        "ettr",
        "rates",
        "sweep",
    }


def test_the_demo_prints_the_manifest_and_the_table_and_leaves_two_pictures(desk, capsys):
    pytest.importorskip("matplotlib")
    for words in demo():
        assert main(words) == 0
    out = capsys.readouterr().out
    assert "advisor.mofa.dev/strategy:" in out
    assert "\nverdict   run this" in out
    assert "\nsave      every" in out
    assert sorted(path.name for path in (desk / "build/demo").iterdir()) == ["ettr.svg", "step.svg"]


@pytest.mark.parametrize(
    "words",
    RECIPES,
    ids=lambda words: words[words.index("--plot") + 1] if "--plot" in words else words[0],
)
def test_a_recipe_of_the_studies_can_be_read(words):
    parser = argparse.ArgumentParser(exit_on_error=False)
    verbs.load(words[0]).configure(parser)
    told = parser.parse_args(words[1 : words.index(">") if ">" in words else None])
    if words[0] == "sweep":
        assert 1 < len(points_of([parse_vary(text) for text in told.vary])) <= 40


@pytest.mark.parametrize(
    "name", [path.stem for path in sorted((ROOT / "docs/studies").glob("*.svg"))]
)
def test_a_picture_of_the_studies_is_drawn_by_a_recipe_and_small(name):
    drawn = {Path(words[words.index("--plot") + 1]).stem for words in RECIPES if "--plot" in words}
    assert name in drawn
    assert (ROOT / f"docs/studies/{name}.svg").stat().st_size < 40_000


@pytest.mark.soak
def test_the_results_of_the_studies_are_those_of_a_run(desk, monkeypatch):
    """`make studies` writes them, in five minutes; their steps were one to two percent too long."""
    shown = (ROOT / "docs/studies/results.md").read_text(encoding="utf-8")
    (desk / "docs/studies").mkdir(parents=True)
    monkeypatch.setenv("COLUMNS", "160")
    assert studies.study([]) == shown


def test_every_recipe_has_its_results():
    results = (ROOT / "docs/studies/results.md").read_text(encoding="utf-8")
    told = {f"    mofa {studies.line(words)}\n" for words in RECIPES}
    assert [one for one in told if one not in results] == []
