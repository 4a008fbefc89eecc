"""JSON of a trace in batches: files of gigabytes in the memory of one batch.

A file is one object with the list `traceEvents`, or the bare list. The list is cut between two
events and each piece is parsed alone; a cut inside a string or a nested list leaves text that is
not JSON, so a piece that parses was cut right.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson

from mofa_model.errors import BadFile
from mofa_model.output import progress

BATCH: Final = 4 * 2**20
"""Text that is parsed at once. [B]"""
LONGEST: Final = 64 * 2**20
"""Text without a cut, or a head or tail of the file, beyond this is refused. [B]"""

MOST: Final = 200
"""Text of a packed trace, beyond one `LONGEST`, over what it is packed in; traces reach 10 to
40. [1]
"""

_START: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_CUT: Final = re.compile(rb"\}\s*,\s*\{")
_SPACE: Final = b" \t\r\n"
_WINDOW: Final = 4096


@dataclass(slots=True)
class Document:
    """What a file says beside its events; complete once all batches were taken."""

    path: str
    """Name of the file."""
    head: dict[str, Any] = field(default_factory=dict)
    """Keys before and after the events."""
    bytes: int = 0
    """JSON text read so far. [B]"""
    events: int = 0
    """Events read so far. [1]"""


def batches(document: Document) -> Iterator[list[Any]]:
    """The events of a file in lists of some thousands; `document` is filled on the way."""
    path = Path(document.path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file, progress(f"reading {path.name}", size) as advance:
            yield from _Pieces(document, file, advance).batches()
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise BadFile(path, "is not a gzip file, whatever its first bytes say") from error
        raise BadFile(path, f"cannot be read: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        if isinstance(error, BadFile):
            raise
        raise BadFile(repr(document.path), f"cannot be read: {error}") from error
    except (EOFError, zlib.error) as error:
        raise BadFile(
            path,
            f"is truncated or damaged: its compressed text breaks off after {document.events} "
            "events",
        ) from error


class _Pieces:
    """Cuts the text of one file."""

    def __init__(self, document: Document, file: BinaryIO, advance: Any) -> None:
        self._document, self._raw, self._advance = document, file, advance
        magic = file.read(2)
        file.seek(0)
        self._text: Any = gzip.GzipFile(fileobj=file) if magic == b"\x1f\x8b" else file
        self._at = 0
        self._bare = False

    def _read(self) -> bytes:
        data: bytes = self._text.read(BATCH)
        self._document.bytes += len(data)
        if self._text is not self._raw and self._document.bytes > MOST * max(
            self._raw.tell(), LONGEST // MOST
        ):
            raise BadFile(
                self._document.path,
                f"unpacks to more than {MOST} times its size: no trace does; unpack it first",
            )
        now = self._raw.tell()
        self._advance(now - self._at)
        self._at = now
        return data

    def batches(self) -> Iterator[list[Any]]:
        held = self._open()
        while True:
            more = self._read()
            if not more:
                yield from self._last(held)
                return
            held += more
            cut = self._cut(held)
            if cut is None:
                if len(held) > LONGEST:
                    raise BadFile(
                        self._document.path,
                        f"has {len(held)} bytes without the end of an event: not a trace",
                    )
                continue
            events, rest = cut
            held = rest
            if events is None:  # the list ended inside this piece: what follows is the tail
                yield from self._last(held)
                return
            self._document.events += len(events)
            yield events

    def _open(self) -> bytes:
        """Text after the bracket that opens the list of events."""
        held = b""
        while True:
            more = self._read()
            held += more
            start = held.lstrip(_SPACE + b"\xef\xbb\xbf")
            if start[:1] == b"[":
                self._bare = True
                return start[1:]
            if start[:1] not in {b"{", b""}:
                raise BadFile(self._document.path, "is not JSON: a trace begins with { or [")
            for match in _START.finditer(held):
                head = _loads(held[: match.end()].lstrip(b"\xef\xbb\xbf") + b"]}")
                if isinstance(head, dict):
                    self._document.head.update(head)
                    self._document.head.pop("traceEvents", None)
                    return held[match.end() :]
            if not more:
                self._no_events(held)
            if len(held) > LONGEST:
                raise BadFile(self._document.path, "is not a trace: no list traceEvents in it")

    def _no_events(self, held: bytes) -> None:
        if not held.strip():
            raise BadFile(self._document.path, "is empty")
        whole = _loads(held)
        if whole is None:
            raise BadFile(
                self._document.path,
                "is truncated or not JSON: it ends before a list traceEvents begins",
            )
        raise BadFile(self._document.path, "is not a trace: it is JSON without a list traceEvents")

    def _cut(self, held: bytes) -> tuple[list[Any] | None, bytes] | None:
        """Events up to the last cut, and the text after it; None where there is no cut yet."""
        end = len(held)
        for _ in range(8):
            place = _last_cut(held, end)
            if place is None:
                break
            events = _loads(b"[" + held[: place[0]] + b"]")
            if isinstance(events, list):
                return events, held[place[1] :]
            end = place[0]
        return None if _end_of_list(held) is None else (None, held)

    def _last(self, held: bytes) -> Iterator[list[Any]]:
        """What is left when the file, or its list of events, ends here."""
        close, events = _closed(held)
        if close is None:
            if self._document.events == 0 and not held.strip():
                raise BadFile(self._document.path, "is truncated: it ends where its events begin")
            count = self._document.events + held.count(b'"ph"')
            raise BadFile(
                self._document.path, f"is truncated: it breaks off after about {count} events"
            )
        if not isinstance(events, list):
            raise BadFile(
                self._document.path,
                f"is not JSON somewhere after its first {self._document.events} events",
            )
        self._tail(held[close + 1 :])
        self._document.events += len(events)
        yield events

    def _tail(self, held: bytes) -> None:
        """Read what stands behind the list of events into the document's head; a truncated file
        is refused.
        """
        while len(held) < LONGEST:
            more = self._read()
            if not more:
                break
            held += more
        tail = held.strip()
        if self._bare and not tail:
            return
        document = _loads(b"{" + tail.lstrip(b",") if tail[:1] == b"," else b"{" + tail)
        if not isinstance(document, dict):
            raise BadFile(
                self._document.path,
                f"is truncated or not JSON after its {self._document.events} events",
            )
        self._document.head.update(document)


def _last_cut(held: bytes, end: int) -> tuple[int, int] | None:
    """The last place before `end` where an object ends and another begins: end of the one, begin of
    the other.
    """
    low = end
    while low > 0:
        low = max(0, low - _WINDOW)
        last = None
        for match in _CUT.finditer(held, low, end):
            last = match
        if last is not None:
            return last.start() + 1, last.end() - 1
    return None


def _closed(held: bytes) -> tuple[int | None, Any]:
    """Position at which the list in `held` is closed, and the items before it.

    It is JSON up to that bracket and up to no other, and hardly ever does a bracket of what follows
    come behind it.
    """
    close = len(held)
    for _ in range(4):
        close = held.rfind(b"]", 0, close)
        if close < 0:
            break
        try:
            return close, orjson.loads(b"[" + held[:close] + b"]")
        except orjson.JSONDecodeError:
            continue
    walked = _end_of_list(held)
    return walked, None if walked is None else _loads(b"[" + held[:walked] + b"]")


def _end_of_list(held: bytes) -> int | None:
    """Where the list that `held` continues is closed; walks every bracket, so it is for the last
    piece only.
    """
    depth = 0
    for match in _TOKEN.finditer(held):
        token = match.group()
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            if depth < 0:
                return match.start() if token == b"]" else None
    return None


_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def _loads(text: bytes) -> Any:
    """JSON, or None; what some profilers write (NaN, broken UTF-8) is read by the slower parser."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    if (
        b"NaN" not in text
        and b"nan" not in text
        and b"Infinity" not in text
        and b"inf" not in text
        and text.isascii()
    ):
        return None
    try:
        return json.loads(_bare_numbers(text.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None


def _bare_numbers(text: str) -> str:
    """C's spellings of what is not a number, as Python's parser knows them."""
    return re.sub(
        r":\s*-?nan(?=\s*[,}])", ": NaN", re.sub(r":\s*(-?)inf(?=\s*[,}])", r": \1Infinity", text)
    )
