"""A clean clone of this tree, in which a newcomer writes: it counts files and lines by hand, and
runs what a contributor runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = """
import contextlib, io, json, sys
from mofa_model.cli import main

told = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(command)
    if code:
        sys.exit(f"mofa {' '.join(command)} ends with {code}")
    told.append(out.getvalue())
print(json.dumps(told))
"""
GENERATORS = (
    ("-m", "mofa_model.manifest.crds"),
    ("tools/rules.py",),
    ("tools/reference.py",),
    ("tools/metrics.py",),
    ("tools/chart.py",),
    ("tools/dashboards.py",),
)
"""What a contributor runs before a commit, as CONTRIBUTING says."""


class Fails(Exception):
    """A toy that does not work."""


@dataclass
class Copy:
    """A scratch copy of the tree."""

    root: Path
    """Folder of the copy."""
    touched: set[str] = field(default_factory=set)
    """Files that a person wrote or changed."""

    def write(self, name: str, text: str) -> None:
        """Write a new file."""
        self.touched.add(name)
        (self.root / name).write_text(text, encoding="utf-8")

    def change(self, name: str, old: str, new: str) -> None:
        """Replace text at one place of an existing file."""
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise Fails(f"{name}: {old!r} is there {text.count(old)} times")
        self.touched.add(name)
        path.write_text(text.replace(old, new), encoding="utf-8")

    def lines(self) -> int:
        """Lines that were written or replaced by hand."""
        self.run("git", "add", "--intent-to-add", *self.touched)
        counted = self.run("git", "diff", "--numstat", "--", *self.touched)
        return sum(int(line.split()[0]) for line in counted.splitlines())

    def keep_to(self, files: int, lines: int) -> None:
        """Refuse more files or lines than a toy should need."""
        if len(self.touched) > files:
            raise Fails(
                f"{len(self.touched)} files, where {files} should do: "
                f"{', '.join(sorted(self.touched))}"
            )
        if (written := self.lines()) > lines:
            raise Fails(f"{written} lines, where {lines} should do")

    def generate(self) -> None:
        """Do what a contributor does before a commit."""
        self.run(
            str(ROOT / ".venv/bin/ruff"),
            "format",
            "--quiet",
            *(name for name in self.touched if name.endswith(".py")),
            "mofa_model/__init__.py",
        )
        for words in GENERATORS:
            self.python(*words)

    def suite(self) -> str:
        """Check, and run the whole quick tier; what pytest says at its end."""
        self.generate()
        self.python("tools/transcripts.py")  # README shows figures that a toy may change
        # Set up anew, our environment would be the copy's, and broken once the copy is gone.
        ours = ROOT / ".venv"
        for target in ("check", "verify"):
            self.run("make", f"VENV={ours}", f"--old-file={ours / '.set-up-from-lock'}", target)
        return self.tested("-n", "2", "--ignore=tests/test_newcomer.py")

    def near(self) -> str:
        """Run the quick tests of the rooms that changed; what pytest says at its end."""
        self.generate()
        return self.tested("-n", "0", *self.rooms())

    def rooms(self) -> list[str]:
        """The folders of tests that mirror the folders of the modules that were written."""
        modules = (Path(name) for name in self.touched if name.endswith(".py"))
        folders = {
            "tests"
            / module.parent.relative_to("operator" if module.parts[0] == "operator" else ".")
            for module in modules
        }
        return sorted(map(str, folders))

    def tested(self, *options: str) -> str:
        """Run quick tests with no test edited; what pytest says at its end."""
        quick = ("-m", "not slow and not cluster")
        output = self.run(sys.executable, "-m", "pytest", "-q", *quick, *options)
        if edited := self.run("git", "status", "--porcelain", "tests"):
            raise Fails(f"tests were edited: {edited}")
        return output.strip().splitlines()[-1]

    def mofa(self, *commands: tuple[str, ...]) -> list[str]:
        """The output of each of these commands of the copy. One process runs them all, one after
        the other.
        """
        outputs: list[str] = json.loads(self.python("-c", COMMANDS, json.dumps(commands)))
        return outputs

    def python(self, *arguments: str) -> str:
        """The output of a Python program, run in the copy."""
        return self.run(sys.executable, *arguments)

    def run(self, *command: str) -> str:
        """The output of any program, run in the copy."""
        path = os.pathsep.join(str(self.root / part) for part in ("", "operator", "deploy/local"))
        done = subprocess.run(
            command,
            cwd=self.root, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise Fails(f"{' '.join(command)[:200]}: {done.stdout.strip()} {done.stderr.strip()}")
        return done.stdout

    def json(self, *commands: tuple[str, ...]) -> list[Any]:
        """The JSON that commands of the copy print."""
        return [
            json.loads(text)
            for text in self.mofa(*((*command, "-o", "json") for command in commands))
        ]


def cloned(folder: Path) -> Copy:
    """A clean clone of this tree, with what is changed here and not committed."""
    copy = Copy(folder / "clone")
    subprocess.run(["git", "clone", "--quiet", "--local", ROOT, copy.root], check=True)
    changed = subprocess.run(
        ["git", "ls-files", "--modified", "--deleted", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in set(changed.stdout.splitlines()):
        if not (ROOT / name).exists():
            (copy.root / name).unlink()
            continue
        (copy.root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy.root / name)
    copy.run("git", "add", "--all")
    copy.run(
        "git",
        "-c",
        "user.name=newcomer",
        "-c",
        "user.email=",
        "commit",
        "--quiet",
        "--allow-empty",
        "--message",
        "here",
    )
    return copy
