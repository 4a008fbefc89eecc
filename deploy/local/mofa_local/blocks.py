"""Blocks of Prometheus' store, written here: a made-up past is mostly constant, and a constant
compresses to nothing.

A hundred million samples take seconds, where promtool needs minutes and gigabytes of text. The
format is the one in Prometheus' own documentation of its store (index version 2, XOR chunks);
`tests/local` holds a block made here against one that promtool makes of the same past.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from operator import xor
from pathlib import Path
from typing import Final, NamedTuple

from mofa_local.series import Run, Series

LONGEST: Final = 1200
"""Most samples of a chunk; a query reads whole chunks."""
XOR: Final = b"\x01"
"""Encoding of chunks of plain numbers."""
ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Digits of a block's name."""
WHOLE: Final = ("", "")
"""The label pair under which the index lists all series."""


class Chunk(NamedTuple):
    """Place and time of a chunk of samples."""

    first: int
    """Time of its first sample. [ms]"""
    last: int
    """Time of its last sample. [ms]"""
    place: int
    """Place in the segment file. [B]"""


Entry = tuple[tuple[tuple[str, str], ...], list[Chunk]]
"""Sorted labels of a series, and its chunks."""


def write_block(sampled: Iterable[tuple[Series, list[Run]]], data: Path) -> Path:
    """Write series as one block into a data folder; the block's folder. A series without samples
    is none.
    """
    ordered = sorted(
        (
            (tuple(sorted((dict(series.labels) | {"__name__": series.metric}).items())), runs)
            for series, runs in sampled
            if any(run.times for run in runs)
        ),
        key=lambda postings: postings[0],
    )
    segment = bytearray(struct.pack(">IBxxx", 0x85BD40DD, 1))
    packed: dict[tuple[range, object], bytes] = {}
    entries = [(labels, list(_chunks(runs, segment, packed))) for labels, runs in ordered]
    first = min(chunks[0].first for _, chunks in entries)
    last = max(chunks[-1].last for _, chunks in entries)
    name = _name(last, first)
    meta = {
        "ulid": name,
        "minTime": first,
        "maxTime": last + 1,
        "stats": {
            "numSamples": sum(len(run.times) for _, runs in ordered for run in runs),
            "numSeries": len(entries),
            "numChunks": sum(len(chunks) for _, chunks in entries),
        },
        "compaction": {"level": 1, "sources": [name]},
        "version": 1,
    }
    block = data / name
    (block / "chunks").mkdir(parents=True)
    (block / "chunks" / "000001").write_bytes(segment)
    (block / "index").write_bytes(_index(entries))
    (block / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
    return block


def _name(milliseconds: int, salt: int) -> str:
    """A block's name: 48 bits of time and 80 bits of anything, in base 32."""
    number = milliseconds << 80 | (salt * 0x9E3779B97F4A7C15) % 2**80
    return "".join(ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


# ------------------------------------------------------------------------------------------- chunks


def _chunks(
    runs: list[Run], segment: bytearray, packed: dict[tuple[range, object], bytes]
) -> Iterator[Chunk]:
    """Append the chunks of a series to the segment file. Equal chunks of other series are only
    packed once.
    """
    for run in runs:
        values = list(run.values()) if run.span.slope else None
        for begin in range(0, len(run.times), LONGEST):
            times = run.times[begin : begin + LONGEST]
            key = (times, run.span if values else run.span.value)
            if key not in packed:
                body = XOR + (
                    _varying(times, values[begin : begin + LONGEST])
                    if values
                    else _constant(times, run.span.value)
                )
                packed[key] = _uvarint(len(body) - 1) + body + _checksum(body)
            yield Chunk(times[0] * 1000, times[-1] * 1000, len(segment))
            segment += packed[key]


def _head(times: range, value: float) -> bytes:
    """The start of a chunk: count, first time, first value, first distance of times."""
    distance = _uvarint(times.step * 1000) if len(times) > 1 else b""
    return (
        struct.pack(">H", len(times))
        + _varint(times[0] * 1000)
        + struct.pack(">d", value)
        + distance
    )


def _constant(times: range, value: float) -> bytes:
    """The body of a chunk whose value never changes: zeros, one bit for the second value, then
    two each.
    """
    return _head(times, value) + bytes((max(0, 2 * len(times) - 3) + 7) // 8)


def _varying(times: range, values: list[float]) -> bytes:
    """The body of a chunk whose value changes: of each change leading zeros, length and bits."""
    words = struct.unpack(f">{len(values)}Q", struct.pack(f">{len(values)}d", *values))
    text = "".join(map(_changed, map(xor, words, words[1:])))[
        1:
    ]  # the second sample's time is in the head
    return _head(times, values[0]) + int(
        text.ljust(-(-len(text) // 8) * 8, "0") or "0", 2
    ).to_bytes(-(-len(text) // 8))


@cache
def _changed(change: int) -> str:
    """A sample's value as bits, from the bits in which it differs from the value before. Results
    are kept, since counters repeat few changes.
    """
    if not change:
        return "00"
    leading = min(64 - change.bit_length(), 31)
    trailing = (change & -change).bit_length() - 1
    length = 64 - leading - trailing
    return f"011{leading:05b}{length % 64:06b}{change >> trailing:0{length}b}"


# -------------------------------------------------------------------------------------------- index


def _index(entries: list[Entry]) -> bytes:
    """The index file of a block: symbols, series, postings, their table, and where each begins."""
    index = bytearray(struct.pack(">IB", 0xBAAAD700, 2))
    symbols = sorted({text for labels, _ in entries for pair in labels for text in pair})
    number = {text: place for place, text in enumerate(symbols)}
    at_symbols = len(index)
    _section(index, struct.pack(">I", len(symbols)) + b"".join(map(_text, symbols)))
    at_series = len(index)
    postings = defaultdict(list)
    for labels, chunks in entries:
        index += bytes(-len(index) % 16)
        for pair in (WHOLE, *labels):
            postings[pair].append(len(index) // 16)
        body = _series(labels, chunks, number)
        index += _uvarint(len(body)) + body + _checksum(body)
    table = bytearray(struct.pack(">I", len(postings)))
    index += bytes(-len(index) % 4)
    at_postings = len(index)
    for pair in sorted(postings):
        index += bytes(-len(index) % 4)
        table += _uvarint(2) + _text(pair[0]) + _text(pair[1]) + _uvarint(len(index))
        numbers = postings[pair]
        _section(index, struct.pack(f">{len(numbers) + 1}I", len(numbers), *numbers))
    at_table = len(index)
    _section(index, bytes(table))
    contents = struct.pack(">6Q", at_symbols, at_series, 0, 0, at_postings, at_table)
    return bytes(index + contents + _checksum(contents))


def _series(
    labels: tuple[tuple[str, str], ...], chunks: list[Chunk], number: Mapping[str, int]
) -> bytes:
    """A series in the index: numbers of its labels' texts, then its chunks, each as the difference
    from the one before.
    """
    body = _uvarint(len(labels)) + b"".join(
        _uvarint(number[text]) for pair in labels for text in pair
    )
    first = chunks[0]
    parts = [
        body,
        _uvarint(len(chunks)),
        _varint(first.first),
        _uvarint(first.last - first.first),
        _uvarint(first.place),
    ]
    for before, chunk in pairwise(chunks):
        parts += (
            _uvarint(chunk.first - before.last),
            _uvarint(chunk.last - chunk.first),
            _varint(chunk.place - before.place),
        )
    return b"".join(parts)


def _section(index: bytearray, body: bytes) -> None:
    index += struct.pack(">I", len(body)) + body + _checksum(body)


def _text(text: str) -> bytes:
    raw = text.encode()
    return _uvarint(len(raw)) + raw


def _uvarint(number: int) -> bytes:
    """A whole number as seven bits a byte, the lowest first; the top bit says that more follow.

    >>> _uvarint(300).hex()
    'ac02'
    """
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varint(number: int) -> bytes:
    """A signed number as `_uvarint`, with the sign in the lowest bit."""
    return _uvarint(number << 1 if number >= 0 else (-number << 1) - 1)


def _table() -> tuple[int, ...]:
    """CRC-32C of each byte."""
    table = []
    for byte in range(256):
        word = byte
        for _ in range(8):
            word = word >> 1 ^ (0x82F63B78 if word & 1 else 0)
        table.append(word)
    return tuple(table)


_TABLE: Final = _table()


def _checksum(body: bytes) -> bytes:
    """CRC-32C (Castagnoli).

    >>> _checksum(b"123456789").hex()
    'e3069283'
    """
    word, table = 0xFFFFFFFF, _TABLE
    for byte in body:
        word = table[(word ^ byte) & 255] ^ word >> 8
    return struct.pack(">I", word ^ 0xFFFFFFFF)
