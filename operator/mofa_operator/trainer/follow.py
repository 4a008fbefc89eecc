"""Lines of a log while it is written: a file, a pattern of files, or standard input.

A pattern stands for the files of one run in the order in which they were written, and for later
ones once they appear. A file may appear late, or be rotated, truncated or replaced; a line may come
in parts, be very long, or be no text. Carriage returns end lines too, as in progress bars.
"""

from __future__ import annotations

import contextlib
import glob
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mofa_model.errors import BadFile, why

LONGEST: Final = 64 * 1024
"""Most bytes of a line that are kept."""
_CHUNK: Final = 256 * 1024
_BEGINNING: Final = 256


class Lines:
    r"""Splits bytes into whole lines, in bounded memory.

    >>> lines = Lines()
    >>> lines.push(b"one\ntw"), lines.push(b"o\n"), lines.rest()
    ([b'one'], [b'two'], [])
    """

    def __init__(self) -> None:
        self._partial = b""
        self._dropping = False

    def push(self, data: bytes) -> list[bytes]:
        """The lines that `data` ends."""
        first, *others = data.replace(b"\r", b"\n").split(b"\n")
        if not self._dropping:
            self._partial += first
        if not others:
            self._dropping = self._dropping or len(self._partial) > LONGEST
            self._partial = self._partial[:LONGEST]
            return []
        *whole, last = others
        lines = [line[:LONGEST] for line in (self._partial, *whole) if line]
        self._partial, self._dropping = last[:LONGEST], len(last) > LONGEST
        return lines

    def rest(self) -> list[bytes]:
        """The last line, if no line break has ended it."""
        last, self._partial, self._dropping = self._partial, b"", False
        return [last] if last else []


@dataclass(slots=True)
class _Open:
    """A file, and how far it was read."""

    path: str
    descriptor: int
    read: int = 0
    beginning: bytes = b""
    """Its first bytes, which show whether it was truncated and has grown again."""


def follow(
    log: str, *, once: bool, poll: float = 0.5, waiting: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[float, list[bytes]]]:
    """Lines as they appear, with the moment at which they were written, in seconds of the epoch.

    With `once` it stops at the present end; else it never stops, looks every `poll` seconds [s],
    and calls `waiting` with a sentence while there is no file yet. Standard input, `-`, is read
    to its end.
    """
    return _stream(0) if log == "-" else _Files(log, once=once, poll=poll, waiting=waiting).lines()


def _stream(descriptor: int) -> Iterator[tuple[float, list[bytes]]]:
    lines = Lines()
    while data := os.read(descriptor, _CHUNK):
        yield time.time(), lines.push(data)
    yield time.time(), lines.rest()


class _Files:
    """The files of a run, one after the other."""

    def __init__(
        self, log: str, *, once: bool, poll: float, waiting: Callable[[str], None]
    ) -> None:
        self._log, self._once, self._poll, self._waiting = log, once, poll, waiting
        self._lines = Lines()
        self._known: dict[tuple[int, int], _Open] = {}
        self._file: _Open | None = None

    def lines(self) -> Iterator[tuple[float, list[bytes]]]:
        """The lines that are there, and then new ones."""
        try:
            while True:
                yield from self._to_the_end()
                following = self._next()
                if following is not None:
                    yield from self._to_the_end()  # written between the last look and the rotation
                    yield from self._rest()
                    self._close()
                    self._file = following
                elif self._once:
                    yield from self._rest()
                    return
                else:
                    time.sleep(self._poll)
        finally:
            self._close()

    def _to_the_end(self) -> Iterator[tuple[float, list[bytes]]]:
        if self._file is None:
            return
        self._start_again_where_truncated(self._file)
        while data := self._read(self._file):
            yield self._written_at(), self._lines.push(data)

    def _rest(self) -> Iterator[tuple[float, list[bytes]]]:
        if last := self._lines.rest():
            yield self._written_at(), last

    def _read(self, file: _Open) -> bytes:
        try:
            data = os.read(file.descriptor, _CHUNK)
        except OSError as error:
            raise BadFile(file.path, f"cannot be read: {why(error)}") from error
        if file.read < _BEGINNING:
            file.beginning += data[: _BEGINNING - file.read]
        file.read += len(data)
        return data

    def _written_at(self) -> float:
        """When the file was last written, in seconds of the epoch; never in the future. [s]"""
        now = time.time()
        return now if self._file is None else min(now, os.fstat(self._file.descriptor).st_mtime)

    def _start_again_where_truncated(self, file: _Open) -> None:
        about = os.fstat(file.descriptor)
        if not stat.S_ISREG(about.st_mode):
            return
        if (
            about.st_size < file.read
            or os.pread(file.descriptor, len(file.beginning), 0) != file.beginning
        ):
            os.lseek(file.descriptor, 0, os.SEEK_SET)
            file.read, file.beginning = 0, b""
            self._lines.rest()

    def _next(self) -> _Open | None:
        """The next unread file, opened; None where there is none."""
        for about, path in self._paths():
            known_file = self._known.get((about.st_dev, about.st_ino))
            if known_file is None or (
                known_file is not self._file and about.st_size < known_file.read
            ):  # an inode used again
                opened = _open(path)
                self._known[about.st_dev, about.st_ino] = opened
                return opened
        if self._file is None:
            if self._once:
                raise BadFile(self._log, "does not exist")
            self._waiting(f"waiting for {self._log}")
            self._waiting = lambda _: None
        return None

    def _paths(self) -> list[tuple[os.stat_result, str]]:
        """The files of the log, in the order of their last writes."""
        is_plain = Path(self._log).exists() or not glob.has_magic(self._log)
        paths = [self._log] if is_plain else glob.glob(self._log, recursive=True)  # noqa: PTH207
        dated_paths = []
        for path in paths:
            with contextlib.suppress(OSError):  # it went between the two looks
                about = Path(path).stat()
                if is_plain or not stat.S_ISDIR(about.st_mode):
                    dated_paths.append((about, path))
        return sorted(dated_paths, key=lambda entry: (entry[0].st_mtime_ns, entry[1]))

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file.descriptor)
            self._file = None


def _open(path: str) -> _Open:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise BadFile(path, f"cannot be read: {why(error)}") from error
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadFile(path, "is a folder; give a file, or a pattern of files")
    return _Open(path=path, descriptor=descriptor)
