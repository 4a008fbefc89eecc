"""Write what commands print into README and documents, from a run of each; --check compares.

    ```console
    $ mofa advise examples/llama3-405b.yaml
    llama3.1-405b on 2048 h100-80gb-sxm: Recommended; …
    ```

A line that begins with `$ ` is a command, and what follows it is what it prints. Commands of ours
are run here, 100 columns wide. What the local stack prints is written by --live
(tools/live_transcripts.py), which takes half an hour. In between, the cells of `kubectl get tjob`
that tell the advice are those of the same answer at the desk.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML

from mofa_model.annotations import PREFIX
from mofa_model.manifest.advised import summary
from mofa_model.strategy import parse_strategy

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = tuple(
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.name != "evidence.md"  # `make validate` writes that one
)
JOB: Final = "examples/llama3-405b.yaml"
"""The job whose rows the transcripts of a cluster show."""
JOB_ROW: Final = f"\n{Path(JOB).stem}  "
"""Beginning of a row of this job."""
BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Transcript:
    """A command with what a page says that it prints."""

    command: str
    """The command as it is typed."""
    output: str
    """Its output, in whole lines."""

    @property
    def at_the_desk(self) -> bool:
        """Whether it asks no cluster."""
        return self.command.startswith("mofa ")


def transcripts_in(block: str) -> list[Transcript]:
    r"""The commands of a block, each with its output.

    >>> transcripts_in("$ mofa a\n1\n2\n$ mofa b\n")
    [Transcript(command='mofa a', output='1\n2\n'), Transcript(command='mofa b', output='')]
    """
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
    return [
        Transcript(command, output)
        for command, output in zip(parts[1::2], parts[2::2], strict=True)
    ]


def with_outputs(text: str, say: Callable[[Transcript], str]) -> str:
    """A page in which the output of each command is what `say` returns for it."""

    def block(match: re.Match[str]) -> str:
        return (
            "```console\n"
            + "".join(
                f"$ {transcript.command}\n{say(transcript)}"
                for transcript in transcripts_in(match[1])
            )
            + "```"
        )

    return BLOCK.sub(block, text)


def of_page(page: Path) -> list[Transcript]:
    """Every command of a page's transcripts."""
    return [
        transcript
        for match in BLOCK.finditer(page.read_text("utf-8"))
        for transcript in transcripts_in(match[1])
    ]


def run_shell(command: str, given: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a shell command with the given
    standard input.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=os.environ | {"PATH": path, "COLUMNS": "100"},
        input=given,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@functools.cache
def output_of(command: str) -> str:
    """The output of a command of ours, which is run once."""
    code, output, wrong = run_shell(command)
    if code not in {0, 3, 5} or wrong:
        raise SystemExit(f"transcripts: {command}\n{wrong}")
    return output


def trimmed(output: str) -> str:
    """An output as a page has it: no blank lines around, none at the ends of lines."""
    return "".join(f"{line.rstrip()}\n" for line in output.strip("\n").splitlines())


def output_now(transcript: Transcript) -> str:
    """Output of a command. Of a command that needs a cluster, the part that can be computed
    without one.
    """
    if not transcript.at_the_desk:
        return advised(transcript.output)
    command, _, pipe = transcript.command.partition(" | ")
    output = output_of(command)
    return trimmed(run_shell(pipe, output)[1] if pipe else output)


@functools.cache
def annotations() -> dict[str, str]:
    """What `mofa annotate` writes on the job, by the names without their prefix."""
    written_annotations = YAML(typ="safe").load(output_of(f"mofa annotate {JOB}"))["metadata"][
        "annotations"
    ]
    return {key.removeprefix(PREFIX): text for key, text in written_annotations.items()}


def advised(output: str) -> str:
    """A table of `kubectl get tjob`, where it is one, with the cells of the job's own answer."""
    head, *rows = output.splitlines() or [""]
    at = [match.start() for match in re.finditer(r"\S+", head)]
    names = head.split()
    if not job_cells().keys() <= set(names) or not any(map(_is_the_job, rows)):
        return output
    table = [names]
    for row in rows:
        cells = [row[i:j].strip() for i, j in zip(at, [*at[1:], None], strict=True)]
        table.append([job_cells().get(name, cell) for name, cell in zip(names, cells, strict=True)])
    width = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ("   ".join(map(str.ljust, row, width)).rstrip() for row in table)
    return "".join(f"{line}\n" for line in lines)


def _is_the_job(row: str) -> bool:
    return f"\n{row}".startswith(JOB_ROW) and "  tp" in row


def job_cells() -> dict[str, str]:
    """What of the advice for the job is the same on every pool, by the columns of `kubectl
    get tjob`.
    """
    advice = annotations()
    return {
        "STRATEGY": summary(parse_strategy(advice["strategy"])),
        "TOK/S": advice["predicted-tokens-per-second"],
    }


def stale() -> Iterator[str]:
    """What pages say that is not printed now, as differences."""
    for path in PAGES:
        text = path.read_text("utf-8")
        if (fresh := with_outputs(text, output_now)) != text:
            name = str(path.relative_to(ROOT))
            yield "\n".join(
                difflib.unified_diff(
                    text.splitlines(), fresh.splitlines(), name, "now", lineterm=""
                )
            )


def main() -> int:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; say what is stale")
    parser.add_argument("--live", action="store_true", help="what the local stack prints, too")
    arguments = parser.parse_args()
    if arguments.check:
        differences = list(stale())
        sys.stderr.write("".join(f"{difference}\n" for difference in differences))
        return bool(differences)
    for path in PAGES:
        text = path.read_text("utf-8")
        if (fresh := with_outputs(text, output_now)) != text:
            path.write_text(fresh, encoding="utf-8")
            print(f"written: {path.relative_to(ROOT)}")
    if arguments.live:
        import live_transcripts

        live_transcripts.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
