"""Tokens and passwords: never a fact, and masked where a command is kept."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Final

_SECRET: Final = re.compile(
    r"token(?!iz|s\.)|secret|passw|credential|api[-_]?key|access[-_]?key|private[-_]?key|\bauth",
    re.IGNORECASE,
)
LOOKS_SECRET: Final = re.compile(
    r"^(hf_|sk-|ghp_|gho_|github_pat_|xox[bp]-|AKIA|ASIA|eyJ)\w"
    r"|://[^/\s]*:[^/\s]*@|^[A-Fa-f0-9]{32,}$"
)


def is_secret(name: str, value: str) -> bool:
    """Whether a setting is a token or a password by its name, or by its form.

    >>> is_secret("hf_token", "x"), is_secret("tokenizer", "gpt2"), is_secret("m", "hf_AbC1")
    (True, False, True)
    """
    return bool(_SECRET.search(name) or LOOKS_SECRET.search(value))


def masked(words: Iterable[str]) -> list[str]:
    """Words of a command without tokens and passwords.

    >>> masked(["train.py", "--hf-token", "abc", "--key=1", "--api_key=s3", "hf_AbC1"])
    ['train.py', '--hf-token', '***', '--key=1', '--api_key=***', '***']
    """
    hidden, hide = list[str](), False
    for word in words:
        name, equals, value = word.partition("=")
        secret = bool(_SECRET.search(name)) and (name.startswith("-") or bool(equals))
        if hide and not word.startswith("-"):
            hidden.append("***")
        elif equals and (secret or LOOKS_SECRET.search(value)):
            hidden.append(f"{name}=***")
        else:
            hidden.append("***" if LOOKS_SECRET.search(word) else word)
        hide = secret and not equals
    return hidden


def masked_line(line: str) -> str:
    """A command line without tokens and passwords; as it is where it has none.

    >>> masked_line("t.py --hf_token abc"), masked_line("t.py  $ARGS")
    ('t.py --hf_token ***', 't.py  $ARGS')
    """
    try:
        words = shlex.split(line)
    except ValueError:  # a quote that nobody closes
        words = line.split()
    for word, hidden in zip(words, masked(words), strict=True):
        if word != hidden:
            line = line.replace(word[len(hidden) - len("***") :], "***")
    return line
