"""Tables that we ship, in text for people, parsed once and kept as Python keeps byte code.

What is kept stands in `__pycache__` beside the file that it was parsed from, with that file's bytes
in it, so it is never stale. Where nothing may be written there, nothing is kept.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
from collections.abc import Callable
from importlib.util import cache_from_source
from typing import Any


def beside(module: str, *names: str) -> str:
    """The path of a file of ours in the folder of a module.

    >>> beside(f"{os.sep}module.py", "measured", "h200.json")
    '/measured/h200.json'
    """
    return "/".join([module.rpartition(os.sep)[0], *names])


def read(path: str) -> bytes:
    """The bytes of a file that is shipped with a module."""
    # To import pathlib takes as long as to read all our tables.
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read()


def tables_of(path: str) -> dict[str, Any]:
    """The tables of a TOML file of ours."""
    tables: dict[str, Any] = parsed(path, tables_in)
    return tables


def tables_in(data: bytes) -> dict[str, Any]:
    """The tables of TOML."""
    import tomllib  # which few commands need

    return tomllib.loads(data.decode("utf-8"))


def parsed(path: str, parse: Callable[[bytes], Any]) -> Any:
    """What `parse` makes of a file of ours: plain values, which can be kept."""
    data = read(path)
    tables = cached(path, data, parse)
    return parse(data) if tables is None else tables


def cached(path: str, data: bytes, parse: Callable[[bytes], Any]) -> Any:
    """What `parse` makes of the bytes of one of our files. It is kept beside the byte code, and
    made anew when the bytes are others. None where it cannot be kept, or `parse` raises ValueError.
    """
    folder = cache_from_source(path).rpartition(os.sep)[0]
    place = f"{folder}/{path.rpartition('/')[2]}.parsed"
    with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
        source, tables = marshal.loads(read(place))  # noqa: S302 - as trusted as byte code
        if source == data:
            return tables
    if sys.dont_write_bytecode or not os.access(folder, os.W_OK):
        return None
    with contextlib.suppress(OSError, ValueError):  # not to be parsed, or a date, which is not kept
        tables = parse(data)
        packed = marshal.dumps((data, tables))
        written = f"{place}.{os.getpid()}"
        with open(written, "wb") as file:  # noqa: PTH123
            file.write(packed)
        os.replace(written, place)  # noqa: PTH105
        return tables
    return None
