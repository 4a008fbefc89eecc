"""Files that people name, and JSON, TOML and CSV in them; writes are atomic."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from mofa_model.errors import BadFile, why

if TYPE_CHECKING:
    from pathlib import Path

LARGEST: Final = 8 * 2**20
"""Bytes that a file from outside may have: a hundred times any manifest or model configuration."""


def read_text(path: Path | str, *, largest: int = LARGEST) -> str:
    """A UTF-8 text file of at most `largest` bytes; `-` is standard input."""
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(largest + 1)
        else:
            with open(path, "rb") as file:  # noqa: PTH123 - few commands need pathlib
                data = file.read(largest + 1)
    except OSError as error:
        raise BadFile(path, f"cannot be read: {why(error)}") from error
    except ValueError as error:  # a NUL byte in the name
        raise BadFile(repr(path), f"cannot be read: {error}") from error
    if len(data) > largest:
        raise BadFile(path, f"has more than {largest} bytes; give a smaller file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(path, f"is not UTF-8 text: byte {error.start} cannot be decoded") from error


def path_kind(path: str) -> Literal["file", "folder", ""]:
    """Whether a path is a file or a folder; empty where it is neither."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except (OSError, ValueError):
        return ""
    return "folder" if stat.S_ISDIR(mode) else "file"


def from_json(text: str, path: object) -> Any:
    """The value of a text in JSON; `path` is what an error calls it."""
    import json

    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise BadFile(path, f"is not JSON: {error.msg} in {where}") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # a number of thousands of digits, brackets in brackets
        raise BadFile(path, f"is not JSON that can be read: {error}") from None


def from_toml(text: str, path: object) -> dict[str, Any]:
    """The table of a text in TOML; `path` is what an error calls it."""
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFile(path, f"is not TOML: {error}") from None


def from_csv(text: str, path: object) -> Iterator[tuple[int, list[str]]]:
    r"""Rows of CSV that are not empty, each with its line number; errors name `path`.

    >>> list(from_csv("gpu,gpus\nh100,64\n", "runs.csv"))
    [(1, ['gpu', 'gpus']), (2, ['h100', '64'])]
    """
    import csv
    import io

    reader = csv.reader(io.StringIO(text, newline=""))
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise BadFile(path, f"line {line}: {error}") from None
        if row is None:
            return
        if row:
            yield line, row


def from_headed_csv(text: str, path: object) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of CSV by the names in the first row; a row may have fewer cells, and not more."""
    rows = from_csv(text, path)
    _, names = next(rows, (1, []))
    for line, row in rows:
        if any(row[len(names) :]):
            raise BadFile(
                path, f"line {line} has {len(row)} cells, the first line names {len(names)}"
            )
        yield line, dict(zip(names, row, strict=False))


def write_text(path: Path | str, text: str) -> None:
    """Write a file so that every reader, at any moment, sees the old text or the new one.

    The text goes to a file beside the target, which then takes its name; an interruption leaves
    the target untouched. A link stays a link, and a file keeps its permissions.
    """
    write_bytes(path, text.encode("utf-8"))


def append_text(path: Path | str, text: str) -> None:
    """Write a text behind the end of a file, on a line of its own."""
    from pathlib import Path

    try:
        with Path(path).open("ab+") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 1))
            ended = size == 0 or file.read(1) == b"\n"
            file.write(("" if ended else "\n").encode() + text.encode())
    except OSError as error:
        raise BadFile(str(path), f"cannot be written: {why(error)}") from error


def write_bytes(path: Path | str, data: bytes) -> None:
    """Write a file that is not text."""
    import tempfile
    from pathlib import Path

    target = Path(path).resolve()
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise BadFile(path, f"cannot be written: {why(error)}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(_mode(target))
        Path(name).replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        if isinstance(error, OSError):
            raise BadFile(path, f"cannot be written: {why(error)}") from error
        raise


def check_folder(path: Path | str, *, overwrite: bool) -> None:
    """Refuse a folder that cannot be made, or that holds something without `overwrite`."""
    from pathlib import Path

    folder = Path(path)
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
        if not folder.resolve().parent.is_dir():
            raise BadFile(path, "cannot be made: the folder above it is not there")
    except (OSError, ValueError) as error:
        raise BadFile(path, f"cannot be used: {error}") from error
    if taken and not (overwrite and folder.is_dir()):
        raise BadFile(path, "is not empty; name a new folder, or say --overwrite")


def write_folder(
    path: Path | str, texts: Mapping[str, str], *, programs: Collection[str] = ()
) -> None:
    """Write the files of a folder; those of `programs` are executable.

    A new folder appears with all of its files. In a folder that exists, each file is at any
    moment the old one or the new one.
    """
    import shutil
    import tempfile
    from pathlib import Path

    folder = Path(path).resolve()
    try:
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise BadFile(path, f"cannot be written: {why(error)}") from error
    try:
        made.chmod(0o777 & ~_mask())
        for name, text in texts.items():
            write_text(made / name, text)
            if name in programs:
                (made / name).chmod(0o777 & ~_mask())
        if folder.is_dir() and any(folder.iterdir()):
            for name in texts:
                (made / name).replace(folder / name)
        else:
            made.replace(folder)
    except OSError as error:
        raise BadFile(path, f"cannot be written: {why(error)}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _mode(target: Path) -> int:
    """Permissions of the file that is replaced, or those that a new file gets here."""
    if target.exists():
        return target.stat().st_mode & 0o7777
    return 0o666 & ~_mask()


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
