"""Programs that run other programs: which word of theirs is a line for a shell, and what they make of the words behind.

line_of(words)     which word is a line of its own, as in `bash -lc LINE`
is_run(words)      whether what follows is run as a command
in_the_way(words)  why arguments at the end would not be the trainer's
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mofa_model.errors import shown

_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_USERS: Final = frozenset({"su", "runuser"})
"""Programs that start somebody's shell, or without a line of it a command."""
_RUN_WHAT_FOLLOWS: Final = frozenset(
    {"chrt", "command", "dumb-init", "env", "exec", "ionice", "mpiexec", "mpirun", "ncu", "nice", "nohup", "nsys", "numactl"}
    | {"setsid", "srun", "stdbuf", "sudo", "taskset", "time", "timeout", "tini", "torchrun"}
)  # fmt: skip
_ADD_WORDS: Final = frozenset({"find", "parallel", "xargs"})
"""Programs that put words of their own behind a command's, or end it by a word."""
BUILTINS: Final = frozenset(
    {":", ".", "[", "alias", "cd", "echo", "exit", "export", "popd", "printf", "pushd", "read", "set", "shift", "shopt"}
    | {"sleep", "source", "test", "trap", "true", "ulimit", "umask", "unalias", "unset", "wait"}
)  # fmt: skip
"""Commands that train nothing; where no layout is written yet, they are not taken for the trainer's."""
_TAKES_A_LINE: Final = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_SSH_TAKES_A_VALUE: Final = re.compile(r"-[A-Za-z]*[BbcDEeFIiJLlmOopQRSWw]")
"""Options of ssh whose value is the next word."""
_IS_A_VALUE: Final = re.compile(r"[A-Za-z_]\w*=.*|[0-9].*|profile", re.DOTALL)
"""A variable, a time, a number of processors; what nsys is told to do."""
_STARTS: Final = re.compile(
    r"(?:\S*/)?(?:torchrun|deepspeed|accelerate|python[0-9.]*|\S+\.(?:py|sh))"
)
"""A program or a script by which training is started."""


def line_of(words: Sequence[str]) -> int | None:
    """Which word a shell is told to run as a line: `bash -euo pipefail -c LINE`; None where there is no such shell, and the
    place after the last word where its line is missing, or where it has no script either and reads one from its input.

    >>> line_of(["env", "A=1", "/bin/bash", "-lc", "torchrun t.py"]), line_of(["su", "-", "user", "-c", "torchrun t.py"])
    (4, 4)
    """
    for at in range(len(words)):
        if _name(words[at]) in _USERS and is_run(words[:at]):
            return _line_of_user(words, at)
    starts = (
        [0] if words and _TAKES_A_LINE.fullmatch(words[0]) else []
    )  # the shell is the image's entry point
    starts += [at + 1 for at, word in enumerate(words) if _name(word) in _SHELLS]
    for start in starts:
        at, told = start, False
        while at < len(words) and words[at][:1] in {"-", "+"} and words[at] != "--":
            short = words[at][1:2] != "-"
            told = told or _TAKES_A_LINE.fullmatch(words[at]) is not None
            at += (
                2
                if (short and "o" in words[at].lower()) or words[at] in {"--rcfile", "--init-file"}
                else 1
            )
        at += at < len(words) and words[at] == "--"
        if told or (at >= len(words) and start > 0 and is_run(words[: start - 1])):
            return min(at, len(words))
    return None


def _line_of_user(words: Sequence[str], at: int) -> int | None:
    """The same of `su`, which may name its user before the line, and of `runuser`, which may run a command as it is."""
    told = (
        place for place in range(at + 1, len(words)) if words[place] in {"-c", "-lc", "--command"}
    )
    line = next(told, None)
    if line is None and _name(words[at]) == "runuser" and {"-u", "--user"} & {*words[at:]}:
        return None
    return len(words) if line is None else min(line + 1, len(words))


def is_run(before: Sequence[str]) -> bool:
    """Whether what follows some words is run as a command: they are shells, programs that are known for it, and their options.

    >>> is_run(["timeout", "-k", "9", "1h", "env", "A=1"]), is_run(["ssh", "node"]), is_run(["su", "user", "-c"])
    (True, False, True)
    """
    users = next((at for at, word in enumerate(before) if _name(word) in _USERS), None)
    before = before[:users]  # what follows them is theirs up to the line
    runners = _RUN_WHAT_FOLLOWS | _SHELLS
    return all(
        _name(word) in runners or word[:1] in {"-", "+"} or _IS_A_VALUE.fullmatch(word)
        or (last[:1] in {"-", "+"} and "=" not in last)
        for last, word in zip(("", *before), before, strict=False)
    )  # fmt: skip


def in_the_way(words: Sequence[str]) -> str:
    """Why arguments at the end of a command would not reach the trainer in it; empty where they do.

    >>> in_the_way(["env", "-S", "torchrun t.py"])
    "the trainer stands in 'torchrun t.py', which 'env' takes apart; write it in words of the command's own"
    >>> in_the_way(["torchrun", "t.py", "--note", "as python t.py"]), in_the_way(["ssh", "-p", "22", "node", "t.py"])
    ('', '')
    """
    for at, word in enumerate(words):
        if _name(word) == "ssh" and is_run(words[:at]):
            told = _asked_of_ssh(words[at + 1 :])
            if not told:
                return "ssh is told no command, and would run the arguments as one; write the trainer behind its host"
            if line_of(told) == len(told):
                return "ssh starts a shell that reads what it runs from elsewhere; write the trainer behind its host"
        if _name(word) in _ADD_WORDS and is_run(words[:at]):
            return f"{shown(_name(word))} puts words of its own behind the command; start the trainer without it"
    if any(_STARTS.fullmatch(word) for word in words):
        return ""
    inside = (word for word in words if any(_STARTS.fullmatch(part) for part in word.split()))
    found = next(inside, None)
    if found is None:
        return ""
    return (
        f"the trainer stands in {shown(found)}, which {shown(words[0])} takes apart;"
        " write it in words of the command's own"
    )


def _asked_of_ssh(words: Sequence[str]) -> Sequence[str]:
    """What follows the options of ssh and a host."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 1 + (_SSH_TAKES_A_VALUE.fullmatch(words[at]) is not None)
    return words[at + 1 :]


def _name(word: str) -> str:
    return word.rpartition("/")[2]
