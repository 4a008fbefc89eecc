"""A newcomer's toys work in as many files as CONTRIBUTING says."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    "toy, files",
    [
        ("block", 2), ("device", 1), ("schedule", 2), ("axis", 2), ("kind", 2), ("recovery-class", 2), ("figure", 2), ("term", 1), ("trainer", 2),
    ],
)  # fmt: skip
def test_a_toy_works_in_few_files(toy, files):
    done = subprocess.run(
        [sys.executable, "tools/newcomer.py", toy],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith(f"{toy}: {files} files, ")
