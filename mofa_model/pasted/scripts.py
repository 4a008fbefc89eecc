"""A script's commands with all their words, and what it asks its scheduler for.

`identity.sbatch` follows the script; here are the texts that it refuses as people paste them: with
comments between the lines of a command, with places that are to be filled in, and templates.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final, NamedTuple

from mofa_model.errors import BadShell, InputError
from mofa_model.identity.commands import Contents, PlacedVariable, PlacedWord, ProgramCall, TextFile
from mofa_model.identity.expansion import TracedText
from mofa_model.identity.sbatch import BatchScript, read_script

_OPEN: Final = re.compile(r"\$[\w{(@*#?!]|`")
_STARTS: Final = re.compile(
    r"^\s*(\w+=\S*\s+)*(torchrun|deepspeed|accelerate|srun|mpirun|python3?|tune|trl|axolotl"
    r"|llamafactory-cli|composer|--?[a-z])"
)


class ScriptContents(NamedTuple):
    """What a script runs."""

    contents: Contents
    batch_script: BatchScript | None
    """The script as Slurm reads it; None where no shell can read it."""


def unknown(text: str) -> bool:
    """Whether a value has a variable or a command in it that only a run resolves."""
    return bool(_OPEN.search(text))


def follow(text: str, name: str, others: Mapping[str, str]) -> ScriptContents:
    r"""What a script would run; `others` are texts that it names, by the names of their files.

    >>> contents = follow("N=4; A=(--nnodes $N)\ntorchrun ${A[@]} t.py", "x.sh", {}).contents
    >>> contents.program_calls[0].texts, contents.program_calls[0].where
    (('torchrun', '--nnodes', '4', 't.py'), 'x.sh:2')
    """
    plain = as_meant(text)
    rest = ""
    try:
        read = read_script(plain, name, others)
    except InputError as error:
        # A shell runs a script up to the line that it cannot read, so one with a log pasted below
        # it is followed up to the log.
        lines = plain.split("\n")
        unread = error.__cause__
        cut = max(0, unread.line - 1) if isinstance(unread, BadShell) else 0
        try:
            read = read_script("\n".join(lines[:cut]), name, others)
        except InputError:
            return ScriptContents(_by_lines(plain, name), None)
        rest = "\n" * cut + "\n".join(lines[cut:])
    contents = _by_lines(rest, name)

    def where(place: int) -> str:
        return f"{name}:{1 + plain.count(chr(10), 0, place)}" if place >= 0 else name

    for call in read.walked.followed:
        words, place = list[PlacedWord](), call.place
        for word in call.traced_words:
            place = word.place if word.place >= 0 else place
            words.append(PlacedWord(word.text, where(place)))
        if words:
            passed = tuple(
                PlacedVariable(key, value.text, where(value.place)) for key, value in call.passed
            )
            contents.program_calls.append(
                ProgramCall(words=tuple(words), where=words[0].where, own_variables=passed)
            )
    for key, value in read.walked.holds.items():
        if isinstance(value, TracedText) and value.text:
            contents.variables[key] = PlacedVariable(key, value.text, where(value.place))
    for path, document in read.walked.documents:
        first = 1 + plain.count("\n", 0, max(0, document.place))
        inside = re.sub(r"\n\w+\s*\Z", "\n", document.text)  # without the word that ends it
        contents.files.append(TextFile(path or "python -c", inside, name, first))
    return ScriptContents(contents, read)


def as_meant(text: str) -> str:
    r"""A script as its author means it; no character moves. A comment between the lines of a
    command ends it for a shell; here the command goes on. A placeholder, `<PATH TO D>`, becomes one
    word.

    >>> as_meant("a \\\n# b\n  --c <PATH TO D>")
    'a \\\n  \\\n  --c _PATH_TO_D_'
    """
    made = text.replace("\r\n", " \n").replace("\r", "\n").replace("\0", " ")
    made = re.sub(
        r"(?<!<)<[A-Za-z][^<>\n$&|;]{0,60}>",
        lambda placeholder: re.sub(r"[^\w.-]", "_", placeholder[0]),
        made,
    )
    if "\\\n" not in made:
        return made
    lines = made.split("\n")
    for at in range(1, len(lines)):
        if lines[at - 1].rstrip().endswith("\\") and re.match(r"\s*#.", lines[at]):
            after = next((line for line in lines[at + 1 :] if not re.match(r"\s*(#|$)", line)), "")
            if re.match(r"\s*(-|\+?[\w.]+=)", after):
                lines[at] = " " * (len(lines[at]) - 1) + "\\"
    return "\n".join(lines)


def cut_by_comment(text: str) -> int:
    """The first line at which a comment ends a command that seems to go on; 0 = none. [1]"""
    meant, lines = as_meant(text).split("\n"), text.replace("\r\n", "\n").split("\n")
    pairs = enumerate(zip(meant, lines, strict=False), 1)
    return next(
        (
            at
            for at, (a, b) in pairs
            if b.lstrip().startswith("#") and not a.lstrip().startswith("#") and a.strip() == "\\"
        ),
        0,
    )


def _by_lines(text: str, name: str) -> Contents:
    """A text that no shell reads as a whole, such as a template: its lines that start a program."""
    contents = Contents()
    joined, first = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        first = first if joined else number
        joined += line[:-1] + " " if line.endswith("\\") else line
        if line.endswith("\\"):
            continue
        if _STARTS.match(joined):
            try:
                words = shlex.split(joined, comments=True)
            except ValueError:
                words = joined.split()
            if words:
                where = f"{name}:{first}"
                contents.program_calls.append(
                    ProgramCall(words=tuple(PlacedWord(word, where) for word in words), where=where)
                )
        elif assignment := re.match(r"\s*(?:export\s+)?([A-Za-z_]\w*)=([\w./-]+)\s*$", joined):
            contents.variables[assignment[1]] = PlacedVariable(
                assignment[1], assignment[2], f"{name}:{first}"
            )
        joined = ""
    return contents
