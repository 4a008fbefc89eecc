"""Lengths of documents from a file of a data set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Final

from mofa_model.errors import BadFile
from mofa_model.files import read_text
from mofa_model.spec.training import Lengths, parse_documents

_ENDINGS: Final = frozenset({".txt", ".json", ".jsonl", ".csv"})
_LENGTH: Final = ("length", "num_tokens", "n_tokens", "tokens")
"""Fields of a row that say how many tokens it has."""
_CHARACTERS: Final = 4.0
"""Characters of English text in a token, about. Source: documents of OpenAI's tokenizer. [1]"""
_PARTS: Final = 32
"""Parts of equal numbers of documents, each of which its mean stands for; and the longest. [1]"""


def documents_of(text: str, *, field: str) -> Lengths:
    """Documents from a text of lengths, or from a file that it names."""
    word, comma, name = text.rpartition(",")
    if PurePath(name.strip()).suffix.lower() not in _ENDINGS:
        return parse_documents(text, field=field)
    lengths = sorted(_lengths(name.strip()))
    if not lengths:
        raise BadFile(name.strip(), "it has no row with a length, with tokens or with a text")
    told = [f"{length:g}:{number}" for length, number in _shares(lengths)]
    return parse_documents(word + comma + ",".join(told), field=field)


def _shares(lengths: list[float]) -> Iterator[tuple[float, int]]:
    """Lengths, each with its number: means of parts, so that all tokens are counted."""
    if len(set(lengths)) <= _PARTS:
        yield from ((one, lengths.count(one)) for one in sorted(set(lengths)))
        return
    *most, longest = lengths
    ends = [round(len(most) * at / _PARTS) for at in range(_PARTS + 1)]
    for start, end in pairwise(ends):
        if part := most[start:end]:
            yield sum(part) / len(part), len(part)
    yield longest, 1


def _lengths(path: str) -> Iterator[float]:
    """Tokens of each row: a number, or JSON that has one, token ids or a text."""
    text = read_text(path)
    rows = text.splitlines()
    if path.lower().endswith(".json"):
        try:
            whole = json.loads(text)
        except ValueError as error:
            raise BadFile(path, str(error)) from None
        rows = [json.dumps(one) for one in whole] if isinstance(whole, list) else rows
    for row in filter(None, map(str.strip, rows)):
        try:
            said = json.loads(row)
        except ValueError:
            said = row
        tokens = _tokens(said)
        if tokens >= 1:
            yield tokens


def _tokens(said: Any) -> float:
    """Tokens of a row; 0 where it says nothing of them. [1]"""
    if isinstance(said, bool) or said is None:
        return 0.0
    if isinstance(said, int | float):
        return float(said)
    if isinstance(said, dict):
        if isinstance(ids := said.get("input_ids"), list):
            return float(len(ids))
        if (
            name := next((one for one in _LENGTH if isinstance(said.get(one), int)), None)
        ) is not None:
            return float(said[name])
    return sum(map(len, _texts(said))) / _CHARACTERS


def _texts(said: Any) -> Iterator[str]:
    if isinstance(said, str):
        yield said
    elif isinstance(said, list | dict):
        for one in said.values() if isinstance(said, dict) else said:
            yield from _texts(one)
