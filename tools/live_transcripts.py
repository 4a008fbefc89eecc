"""Types the tutorial on the local stack, and writes down what is printed: `tools/transcripts.py
--live`.

Every other command of the page is typed in its place, so that nodes fail and the job is slow where
the page makes them so. A transcript is asked for again until it says what the page says: the same
words, any ages, numbers within a hundredth. What does not come within `PATIENCE` is written as it
was seen last, and named.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from transcripts import ROOT, Transcript, advised, run_shell, transcripts_in, trimmed, with_outputs

README: Final = ROOT / "README.md"
TUTORIAL: Final = ROOT / "docs" / "tutorial.md"
PATIENCE: Final = 900.0
"""Longest wait: ten quiet minutes lie between two writes of what is observed. [s]"""
NEAR: Final = 0.01
"""Largest relative difference of a number from the page's. [1]"""
_STEP: Final = re.compile(
    r"^```console\n(?P<seen>.*?)^```$|^```shell\n(?P<shell>.*?)^```$|^    "
    r"(?P<line>(?:kubectl|curl|PYTHONPATH=\S+) [^\n]+)$",
    re.MULTILINE | re.DOTALL,
)
SETTLED: Final = 120.0
"""How long the right words stand with other numbers until these are taken. [s]"""
_NUMBER: Final = re.compile(r"\d[\d,]*(?:\.\d+)?")
_AGE: Final = re.compile(r"\b(?:\d+d)?(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?\s?[smhd]\b")


def words(output: str) -> str:
    """What is said, without numbers, ages and the room between them."""
    return _NUMBER.sub("#", _aged(output))


def _aged(output: str) -> str:
    return re.sub(r"AGE(?: AGE)+", "AGE", " ".join(_AGE.sub("AGE", output).split()))


def like(written: str, seen: str) -> bool:
    """Whether the same is said: the same words, numbers within a hundredth, any ages and any room
    between them.

    >>> like("a   1,000  5s", "a 995 2m33s"), like("a 1000", "a 800"), like("Healthy 1", "Stuck 1")
    (True, False, False)
    """
    if words(written) != words(seen):
        return False
    numbers = (_NUMBER.findall(_aged(output)) for output in (written, seen))
    pairs = zip(
        *([float(number.replace(",", "")) for number in column] for column in numbers), strict=True
    )
    return all(abs(a - b) <= NEAR * max(abs(a), abs(b)) for a, b in pairs)


def steps(text: str) -> Iterator[str | list[Transcript]]:
    """Commands of a page that need a cluster, in their order, with the transcripts around them."""
    for match in _STEP.finditer(text):
        if match["seen"] is not None:
            if asked := [
                transcript
                for transcript in transcripts_in(match["seen"])
                if not transcript.at_the_desk
            ]:
                yield asked
        elif match["line"]:
            yield re.split(r"  +", match["line"])[0]
        else:
            lines = re.sub(r"\\\n *", "", match["shell"]).splitlines()
            yield from (line for line in lines if not line.startswith("mofa "))


class Walk:
    """One stack, and what was seen on it."""

    def __init__(self) -> None:
        sys.path.insert(0, str(ROOT / "deploy" / "local"))
        from mofa_local import binaries, up

        self._folder = up.FOLDER
        self._tools = str(Path(binaries.path("kubectl")).parent)
        self.differs: list[str] = []
        """Transcripts whose command never printed what the page shows."""

    def type(self, line: str) -> str:
        """Run a command line in a shell that reaches the local stack; returns what it prints."""
        env = self._folder / "env"
        source = f". {env}; " if env.exists() else ""
        _, output, _ = run_shell(f'PATH="$PATH:{self._tools}"; {source}{line}')
        return trimmed(output)

    def see(self, transcript: Transcript) -> str:
        """Run a transcript's command until its output is like the page's, or stays another one;
        returns the last output.
        """
        since = began = time.monotonic()
        seen = self.type(transcript.command)
        once = transcript.command.startswith(("make ", "kubectl apply"))
        while (
            not like(transcript.output, seen) and not once and time.monotonic() < began + PATIENCE
        ):
            if words(transcript.output) == words(seen) and time.monotonic() > since + SETTLED:
                break
            time.sleep(2)
            before, seen = seen, self.type(transcript.command)
            since = since if like(before, seen) else time.monotonic()
        if not like(transcript.output, seen):
            self.differs.append(f"$ {transcript.command}\npage:\n{transcript.output}seen:\n{seen}")
            print(self.differs[-1], flush=True)
        return advised(seen)


def walk() -> tuple[dict[Path, str], list[str]]:
    """The texts of tutorial and README with what the stack prints now, and the transcripts that
    differ from the pages.
    """
    reader, outputs = Walk(), []
    try:
        for step in steps(TUTORIAL.read_text("utf-8")):
            print(
                f"{time.strftime('%H:%M:%S')}  "
                f"{step if isinstance(step, str) else [transcript.command for transcript in step]}",
                flush=True,
            )
            if isinstance(step, str):
                reader.type(step)
            else:
                outputs += [(transcript.command, reader.see(transcript)) for transcript in step]
    finally:
        reader.type("make down")
    seen = iter(outputs)
    first = dict(reversed(outputs))
    return {
        TUTORIAL: with_outputs(
            TUTORIAL.read_text("utf-8"),
            lambda transcript: transcript.output if transcript.at_the_desk else next(seen)[1],
        ),
        README: with_outputs(
            README.read_text("utf-8"),
            lambda transcript: first.get(transcript.command, transcript.output),
        ),
    }, reader.differs


def write() -> None:
    """Run the commands that tutorial and README show, and write what they print into these
    pages.
    """
    pages, differs = walk()
    for page, text in pages.items():
        page.write_text(text, encoding="utf-8")
    print(f"written: {', '.join(page.name for page in pages)}; {len(differs)} transcripts differ")
