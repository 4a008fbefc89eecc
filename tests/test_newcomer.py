"""A newcomer's toys work in as many files and lines as CONTRIBUTING says."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOYS = {
    "block": 2, "device": 1, "schedule": 2, "axis": 2, "kind": 2, "recovery-class": 2, "figure": 2, "term": 1, "trainer": 2,
}  # fmt: skip
"""Each toy with the files that it may write by hand."""
SAMPLE = ("axis",)
"""Those that `make test` tries, beside the kind of jobs; `make soak` tries all."""


def said(*words):
    done = subprocess.run(
        [sys.executable, "tools/newcomer.py", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize(
    "toy, files",
    [
        pytest.param(toy, files, id=toy, marks=() if toy in SAMPLE else pytest.mark.soak)
        for toy, files in TOYS.items()
    ],
)
def test_a_toy_works_in_few_files(toy, files):
    assert said(toy).startswith(f"{toy}: {files} files, ")


@pytest.mark.timeout(1800)  # it runs other tests, beside those of clusters
def test_beside_a_toy_kind_of_jobs_the_quick_tests_of_its_room_are_green_and_none_is_edited():
    told = said("--near", "kind")
    assert told.startswith(f"kind: {TOYS['kind']} files, ")
    assert " passed" in told


@pytest.mark.soak
@pytest.mark.parametrize("toy", ["axis", "kind", "term", "figure", "trainer", "device"])
def test_beside_a_toy_every_check_and_every_quick_test_is_green_and_none_is_edited(toy):
    assert " passed" in said("--suite", toy)
