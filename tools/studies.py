"""Runs every command of docs/studies/README.md: draws its picture and writes its table into
results.md.

make studies                                      all of them
.venv/bin/python tools/studies.py linearity       those that draw linearity.svg
"""

import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path

from mofa_model.cli import main

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "studies"
HEAD = (
    "# Results of the studies\n\nWritten by `make studies` from the commands of "
    "[README.md](README.md); do not edit.\n"
)


def commands(page: str) -> list[list[str]]:
    """The commands of a page's shell blocks, as lists of words."""
    blocks = re.findall(r"^```shell\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("mofa ")]


def line(words: list[str]) -> str:
    """A command as one line."""
    return shlex.join(words).replace("'>'", ">")


def answer(words: list[str]) -> str:
    """What a command prints on a page of 160 columns.

    Where the command ends with `> FILE`, a later command reads that file, and nothing is returned.
    """
    if ">" in words:
        *words, _, file = words
        Path(file).write_text(answer(words), encoding="utf-8")
        return ""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main(words)
    if code != 0:
        sys.exit(f"studies: mofa {shlex.join(words)} ended with {code}")
    return printed.getvalue()


def study(only: list[str]) -> str:
    """Run the recipes whose pictures are named in `only`, or all of them; the page of
    their results.
    """
    sections = [HEAD]
    recipes = commands((FOLDER / "README.md").read_text(encoding="utf-8"))
    for words in recipes:
        name = Path(words[words.index("--plot") + 1]).stem if "--plot" in words else words[0]
        if not only or name in only:
            output = answer(words)
            printed = f"\n```text\n{output}```\n" if output else ""
            sections.append(f"## {name}\n\n    mofa {line(words)}\n{printed}")
            print(f"studied: {name}")
    for words in recipes:
        if ">" in words:
            Path(words[-1]).unlink(missing_ok=True)
    return "\n".join(sections)


if __name__ == "__main__":
    os.chdir(ROOT)
    os.environ["COLUMNS"] = "160"
    results = study(sys.argv[1:])
    if not sys.argv[1:]:
        (FOLDER / "results.md").write_text(results, encoding="utf-8")
