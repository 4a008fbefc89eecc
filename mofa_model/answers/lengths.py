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
"""Parts of equal numbers of documents, each counted by its mean length. [1]"""


def documents_of(text: str, *, field: str) -> Lengths:
    """Lengths of documents from text, or from a file that it names."""
    word, comma, name = text.rpartition(",")
    if PurePath(name.strip()).suffix.lower() not in _ENDINGS:
        return parse_documents(text, field=field)
    lengths = sorted(_lengths(name.strip()))
    if not lengths:
        raise BadFile(name.strip(), "it has no row with a length, with tokens or with a text")
    pairs = [f"{length:g}:{number}" for length, number in _shares(lengths)]
    return parse_documents(word + comma + ",".join(pairs), field=field)


def _shares(lengths: list[float]) -> Iterator[tuple[float, int]]:
    """Lengths, each with its number of documents; of many, means of parts and the longest."""
    if len(set(lengths)) <= _PARTS:
        yield from ((length, lengths.count(length)) for length in sorted(set(lengths)))
        return
    *most, longest = lengths
    ends = [round(len(most) * number / _PARTS) for number in range(_PARTS + 1)]
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
            document = json.loads(text)
        except ValueError as error:
            raise BadFile(path, str(error)) from None
        rows = [json.dumps(row) for row in document] if isinstance(document, list) else rows
    for row in filter(None, map(str.strip, rows)):
        try:
            value = json.loads(row)
        except ValueError:
            value = row
        tokens = _tokens(value)
        if tokens >= 1:
            yield tokens


def _tokens(row: Any) -> float:
    """Tokens of a row; 0 where it has no length and no text. [1]"""
    if isinstance(row, bool) or row is None:
        return 0.0
    if isinstance(row, int | float):
        return float(row)
    if isinstance(row, dict):
        if isinstance(ids := row.get("input_ids"), list):
            return float(len(ids))
        for field in _LENGTH:
            if isinstance(row.get(field), int):
                return float(row[field])
    return sum(map(len, _texts(row))) / _CHARACTERS


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
