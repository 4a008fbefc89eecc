"""`mofa check FILE…`: findings for a reviewer of launches, one line each."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from mofa_model import output, terminal
from mofa_model.answers.options import add_options, question_of
from mofa_model.answers.questions import CheckQuestion
from mofa_model.errors import BadValue
from mofa_model.tables import Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mofa_model.answers.check import ReviewFinding
    from mofa_model.answers.reviewed import ReviewedLaunch

FOUND: Final = 5
"""Exit code with findings."""

EXAMPLES: Final = """\
Reads batch scripts of Slurm, shell scripts and Kubernetes manifests, and runs nothing of them.

examples:
  mofa check train.sbatch
  a pull request: against what it changes, for the pool, as a code host shows it
    mofa check --base origin/main --profile h100-east --sarif found.sarif train.sbatch
  annotations of the diff, in a workflow
    mofa check --base origin/main --annotate train.sbatch

exit codes: 0 nothing found, 2 bad input, 5 something was found (notes are no finding)"""


def configure(parser: ArgumentParser) -> None:
    """Add the question."""
    add_options(parser, CheckQuestion)
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Read launches, price them, compare them with those that they replace, print the findings."""
    from mofa_model import VERSION, files
    from mofa_model.answers.check import review, sarif
    from mofa_model.answers.reviewed import launches_in

    question = question_of(CheckQuestion, arguments)
    findings: list[ReviewFinding] = []
    for name in question.files:
        launches = launches_in(files.read_text(name), name)
        replaced = _before(name, question.replaced)
        for launch in launches:
            findings += review(launch, _counterpart(launch, replaced), question)
    if question.sarif:
        files.write_text(question.sarif, output.as_json(sarif(findings, VERSION)))
    if question.annotate:
        for finding in findings:
            terminal.put(_annotation(finding) + "\n")
    else:
        output.emit(
            arguments.output,
            [_table(findings)],
            {"findings": [_row(finding) for finding in findings]},
        )
    return FOUND if any(finding.level != "note" for finding in findings) else 0


def _row(finding: ReviewFinding) -> dict[str, object]:
    return {
        "rule": finding.rule,
        "level": finding.level,
        "file": finding.file,
        "line": finding.line_number,
        "message": finding.message,
    }


def _table(findings: Sequence[ReviewFinding]) -> Table:
    return Table(
        title="Findings",
        columns=(
            Column("where", align="left", copied=True),
            Column("rule", align="left"),
            Column("what", align="left"),
        ),
        rows=tuple(
            (f"{finding.file}:{finding.line_number}", finding.rule, finding.message)
            for finding in findings
        ),
        notes=() if findings else ("Nothing was found.",),
    )


def _annotation(finding: ReviewFinding) -> str:
    """A finding as a workflow command; characters that would end it are escaped."""
    word = {"note": "notice"}.get(finding.level, finding.level)
    message = finding.message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    place = finding.file.replace("%", "%25").replace(",", "%2C").replace(":", "%3A")
    return f"::{word} file={place},line={finding.line_number},title=mofa {finding.rule}::{message}"


def _counterpart(
    launch: ReviewedLaunch, replaced: Sequence[ReviewedLaunch]
) -> ReviewedLaunch | None:
    """The old launch of the same kind and name, which a launch replaces; None for a new one."""
    return next((old_launch for old_launch in replaced if old_launch.kind == launch.kind), None)


def _before(name: str, base: str | None) -> Sequence[ReviewedLaunch]:
    """The launches of a file as it was in a commit, or of another file; none for a new file."""
    import subprocess
    from pathlib import Path

    from mofa_model import files
    from mofa_model.answers.reviewed import launches_in
    from mofa_model.errors import InputError

    if base is None:
        return []
    if base.startswith("-"):
        raise BadValue("--base", base, "give a commit, a branch or a file")
    is_file = Path(base).is_file()
    path = Path(name).resolve()

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["git", "-C", str(path.parent), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    try:
        commit = git("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")
        if commit.returncode and is_file:
            return launches_in(files.read_text(base), base)
        if commit.returncode:
            right = "give a commit or a branch of the files' own repository, or a file"
            raise BadValue("--base", base, right)
        old_file = git("show", f"{commit.stdout.strip()}:./{path.name}")
    except (OSError, subprocess.TimeoutExpired):
        if is_file:
            return launches_in(files.read_text(base), base)
        right = "git is needed for a commit, and cannot be run here; give a file"
        raise BadValue("--base", base, right) from None
    if old_file.returncode:
        return []
    try:
        return launches_in(old_file.stdout, name)
    except InputError:
        return []
