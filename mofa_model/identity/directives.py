"""The options of a batch script's `#SBATCH` lines, read as sbatch reads them.

    directives(text)    Directives: each option with its place, and what sbatch makes of the rest

They end where sbatch stops to look for them, at the first command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from mofa_model.errors import shown
from mofa_model.identity.expansion import EMPTY, TracedText

_DIRECTIVE: Final = re.compile(r"#SBATCH(?=[\s-]|$)")
_COMPONENT: Final = re.compile(r"#SBATCH\s+(hetjob|packjob)\b")
SHORT: Final = {
    "A": "account", "p": "partition", "N": "nodes", "n": "ntasks", "c": "cpus-per-task",
    "t": "time", "J": "job-name", "o": "output", "e": "error", "C": "constraint", "G": "gpus",
    "a": "array", "d": "dependency", "q": "qos", "w": "nodelist", "x": "exclude", "D": "chdir",
    "m": "distribution", "M": "clusters", "L": "licenses", "i": "input", "B": "extra-node-info",
    "b": "begin", "F": "nodefile", "S": "core-spec", "r": "relative",
    "H": "hold", "k": "no-kill", "O": "overcommit", "Q": "quiet", "s": "oversubscribe",
    "v": "verbose", "W": "wait", "K": "kill-on-bad-exit", "l": "label", "u": "unbuffered",
    "X": "disable-status", "E": "preserve-env", "Z": "no-allocate",
}  # fmt: skip
"""One-letter options of sbatch and srun. Source: sbatch(1) and srun(1) of Slurm 22.05 to 25.05."""
FLAGS: Final = frozenset(
    {"hold", "no-kill", "overcommit", "quiet", "oversubscribe", "verbose", "wait", "label"}
    | {"unbuffered", "disable-status", "preserve-env", "no-allocate", "requeue", "no-requeue"}
    | {"contiguous", "test-only", "parsable", "spread-job", "use-min-nodes", "reboot", "exact"}
    | {"ignore-pbs", "overlap", "multi-prog", "pty", "help", "usage", "version"}
    | {"quit-on-interrupt", "no-container-mount-home", "container-mount-home"}
    | {"container-remap-root", "whole", "no-container-remap-root", "container-writable"}
    | {"container-readonly", "interactive", "no-container-entrypoint", "container-entrypoint"}
    | {"stepmgr", "external-launcher"}
)  # fmt: skip
"""Options without a value."""
OPTIONAL: Final = frozenset(
    {"exclusive", "nice", "get-user-env", "propagate", "kill-on-bad-exit", "wait-all-nodes"}
    | {"resv-ports", "container-save", "bcast", "compress", "immediate", "send-libs"}
)
"""Options whose value follows `=` alone."""
_OF_SRUN: Final = frozenset(
    {"label", "unbuffered", "disable-status", "preserve-env", "no-allocate", "exact", "overlap"}
    | {"multi-prog", "pty", "mpi", "kill-on-bad-exit", "bcast", "epilog", "prolog", "task-epilog"}
    | {"task-prolog", "het-group", "pack-group", "relative", "jobid", "threads", "send-libs"}
    | {"cpu-bind", "accel-bind", "bcast-exclude", "compress", "debugger-test", "immediate"}
    | {"msg-timeout", "slurmd-debug"}
)  # fmt: skip
"""What srun takes and sbatch does not."""
_OF_SBATCH: Final = frozenset(
    {*SHORT.values(), *FLAGS, *OPTIONAL}
    | {"bb", "bbf", "cluster-constraint", "comment", "container", "container-id"}
    | {"cores-per-socket", "cpu-freq", "cpus-per-gpu", "deadline", "delay-boot", "export"}
    | {"export-file", "gid", "uid", "gpu-bind", "gpu-freq", "gpus-per-node", "gpus-per-socket"}
    | {"gpus-per-task", "gres", "gres-flags", "hint", "mail-type", "mail-user", "mcs-label", "mem"}
    | {"mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "network", "ntasks-per-core"}
    | {"ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "open-mode", "power", "prefer"}
    | {"priority", "profile", "acctg-freq", "reservation", "segment", "signal", "sockets-per-node"}
    | {"switches", "thread-spec", "threads-per-core", "time-min", "tmp", "tres-bind"}
    | {"tres-per-task", "wckey", "wrap", "batch", "clusters", "kill-on-invalid-dep"}
    | {"oom-kill-step", "consolidate-segments", "container-image", "container-mounts"}
    | {"container-name", "container-workdir", "container-env", "get-user-env", "cpus-per-task"}
    | {"context", "ntasks-per-tres"}
) - _OF_SRUN  # fmt: skip
"""Options of sbatch of Slurm 22.05 to 25.05, and of pyxis; a site's plugins may add others."""
_ALSO: Final = {
    "tasks-per-node": "ntasks-per-node", "cluster": "clusters", "cpu_bind": "cpu-bind",
}  # fmt: skip
"""Other spellings that Slurm's own parser has."""
KNOWN: Final = _OF_SBATCH | _OF_SRUN | _ALSO.keys()
"""Every option of sbatch and srun."""
_VERBATIM: Final = frozenset(
    {"job-name", "output", "error", "input", "comment", "mail-user", "chdir", "export", "wckey"}
    | {"container-image", "container-mounts", "container-name", "container-workdir", "wrap"}
)
"""Options that take any text: a `$` in it stays a dollar sign."""
_SECONDS: Final = re.compile(
    r"(?:(?P<days>\d+)-(?P<after>\d+(?::\d+){0,2})|(?P<plain>\d+(?::\d+){0,2}))"
)
_GRES: Final = re.compile(r"(?:gres[:/])?gpu(?::(?P<type>[A-Za-z][\w.-]*))?(?:[:=](?P<count>\d+))?")


class WrittenOption(NamedTuple):
    """One option of sbatch or srun."""

    name: str
    """Its long name; the letter itself where it is none of theirs."""
    value: TracedText
    """Empty for a switch."""


class Directive(NamedTuple):
    """One option of an `#SBATCH` line."""

    name: str
    """Its long name."""
    value: TracedText
    """Its value with its place in the script; empty for a switch."""
    line_number: int
    """The line where it stands. [1]"""
    component: int = 0
    """The part of a heterogeneous job that it is of. [1]"""


class DirectiveFault(NamedTuple):
    """A line that sbatch refuses, or does not read."""

    line_number: int
    """[1]"""
    message: str


class Directives(NamedTuple):
    """What stands on the `#SBATCH` lines of a script."""

    directive_list: tuple[Directive, ...]
    faults: tuple[DirectiveFault, ...]


def seconds_of(text: str) -> int | None:
    """A time limit as Slurm writes it; None where it is none, or without a limit. [s]

    >>> seconds_of("2-12:30"), seconds_of("90"), seconds_of("1:30:00"), seconds_of("UNLIMITED")
    (217800, 5400, 5400, None)
    """
    limit = _SECONDS.fullmatch(text.strip())
    if limit is None:
        return None
    if limit["days"] is not None:
        parts = [int(number) for number in limit["after"].split(":")] + [0, 0]
        return int(limit["days"]) * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2]
    parts = [int(number) for number in limit["plain"].split(":")]
    if len(parts) == 1:
        return parts[0] * 60
    return (
        parts[0] * 60 + parts[1] if len(parts) == 2 else parts[0] * 3600 + parts[1] * 60 + parts[2]
    )


def devices_of_gres(text: str) -> tuple[int, str] | None:
    """GPUs and their type in a list of generic resources; None where it has none.

    >>> devices_of_gres("gpu:a100:8(S:0-1),nvme:1"), devices_of_gres("x:1")
    ((8, 'a100'), None)
    """
    total, kind = 0, ""
    for resource in re.split(r",(?![^(]*\))", text):
        if gpus := _GRES.fullmatch(re.sub(r"\(.*", "", resource.strip())):
            total += int(gpus["count"] or 1)
            kind = kind or gpus["type"] or ""
    return (total, kind) if total else None


def directives(text: str) -> Directives:
    """The options before the first command, and the lines that sbatch refuses or does not read.

    >>> read = directives("#SBATCH -N 2 --gpu-per-node=8")
    >>> [(one.name, one.value.text) for one in read.directive_list]
    [('nodes', '2'), ('gpu-per-node', '8')]
    >>> read.faults[0].message
    'sbatch has no option --gpu-per-node; did you mean --gpus-per-node?'
    """
    options, faults = list[Directive](), list[DirectiveFault]()
    offset, component, ended = 0, 0, False
    for number, line in enumerate(text.split("\n"), 1):
        plain = line.strip()
        if not ended and plain and not plain.startswith("#"):
            ended = True
        if _DIRECTIVE.match(line):
            if ended:
                message = "sbatch does not read it: it stands behind a command"
                faults.append(DirectiveFault(number, message))
            elif _COMPONENT.match(line):
                component += 1
            else:
                made, odd = _options_of(line, offset, number, component)
                options += made
                messages = [
                    f"{shown(word)} is no option: sbatch refuses the script" for word in odd
                ]
                messages += [message for directive in made if (message := _fault_of(directive))]
                faults += [DirectiveFault(number, message) for message in messages]
        offset += len(line) + 1
    return Directives(tuple(options), tuple(faults))


def _fault_of(directive: Directive) -> str:
    """Why sbatch refuses an option; empty = it does not, or only the site can tell."""
    if "$" in directive.value.text and directive.name not in _VERBATIM:
        return f"sbatch puts no variable into --{directive.name}={directive.value.text}"
    if len(directive.name) == 1:
        return f"'-{directive.name}' is no option: sbatch refuses the script"
    if directive.name in _OF_SRUN:
        return f"--{directive.name} is an option of srun, which sbatch refuses"
    begun = any(option.startswith(directive.name) for option in _OF_SBATCH)  # it may be shortened
    near = [] if begun else get_close_matches(directive.name, _OF_SBATCH, n=1, cutoff=0.8)
    return f"sbatch has no option --{directive.name}; did you mean --{near[0]}?" if near else ""


def _in_full(name: str) -> str:
    """An option's name where it is written without its end, as sbatch allows."""
    full = [option for option in KNOWN if option.startswith(name)]
    whole = full[0] if name not in KNOWN and len(full) == 1 else name
    return _ALSO.get(whole, whole)


def _words(line: str, first: int) -> list[TracedText]:
    """Words of a directive's line, as sbatch splits it: quotes, and a comment that ends it."""
    words, current, quote = list[TracedText](), list[int](), ""
    is_begun = False
    for column in range(first, len(line)):
        sign = line[column]
        if quote:
            if sign == quote:
                quote = ""
            else:
                current.append(column)
        elif sign in "\"'":
            quote, is_begun = sign, True
        elif sign.isspace() or (sign == "#" and not current):
            if current or is_begun:
                words.append(
                    TracedText("".join(line[column] for column in current), tuple(current))
                )
            current, is_begun = [], False
            if sign == "#":
                break
        else:
            current.append(column)
    if current or is_begun:
        words.append(TracedText("".join(line[column] for column in current), tuple(current)))
    return words


def option_at(traced_words: Sequence[TracedText], at: int) -> tuple[list[WrittenOption], int]:
    """The options that begin with a word of sbatch's or srun's, and where the next one stands.

    There are none where the word is no option; letters without a value may share a word.

    >>> from mofa_model.identity.expansion import traced
    >>> traced_words = [traced(one) for one in ("-luN", "4", "--gpus=8")]
    >>> found, following = option_at(traced_words, 0)
    >>> [(one.name, one.value.text) for one in found], following
    ([('label', ''), ('unbuffered', ''), ('nodes', '4')], 2)
    """
    word, options = traced_words[at], list[WrittenOption]()
    if word.text.startswith("--") and len(word.text) > 2:
        written, equals, _ = word.text[2:].partition("=")
        name = _in_full(written)
        value = word.slice(len(written) + 3) if equals else EMPTY
        takes = not equals and name not in FLAGS | OPTIONAL
    elif word.text.startswith("-") and word.text[1:2].isalpha():
        letters = word.slice(1)
        while letters.text and SHORT.get(letters.text[0]) in FLAGS:
            options.append(WrittenOption(SHORT[letters.text[0]], EMPTY))
            letters = letters.slice(1)
        if not letters.text:
            return options, at + 1
        name, value = SHORT.get(letters.text[0], letters.text[0]), letters.slice(1)
        takes = not value.text and name not in OPTIONAL
        value = value.slice(1) if value.text.startswith("=") else value
    else:
        return [], at
    if takes and at + 1 < len(traced_words) and not traced_words[at + 1].text.startswith("-"):
        value, at = traced_words[at + 1], at + 1
    return [*options, WrittenOption(name, value)], at + 1


def _options_of(
    line: str, offset: int, number: int, component: int
) -> tuple[list[Directive], list[str]]:
    words = [
        TracedText(word.text, tuple(place + offset for place in word.at))
        for word in _words(line, len("#SBATCH"))
    ]
    directives, odd = list[Directive](), list[str]()
    at = 0
    while at < len(words):
        options, following = option_at(words, at)
        if not options:
            odd.append(words[at].text)
            at += 1
            continue
        directives += [Directive(name, value, number, component) for name, value in options]
        at = following
    return directives, odd
