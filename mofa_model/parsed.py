"""Tables that we ship, in TOML for people, parsed once and kept as Python keeps byte code.

What is kept stands in `__pycache__` beside the text that it was parsed from, so it is never stale.
Where nothing may be written there, nothing is kept.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any


def tables_of(path: Path) -> dict[str, Any]:
    """The tables of a file of ours."""
    text = path.read_text(encoding="utf-8")
    if (tables := kept(path, text)) is not None:
        return tables
    import tomllib

    return tomllib.loads(text)


def kept(path: Path, text: str) -> dict[str, Any] | None:
    """The tables of a file of ours with this text; None where they cannot be kept, or are no
    TOML.
    """
    folder = Path(cache_from_source(str(path))).parent
    place = folder / f"{path.name}.parsed"
    with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
        of, tables = marshal.loads(place.read_bytes())  # noqa: S302 - as trusted as byte code
        if of == text:
            return dict(tables)
    if sys.dont_write_bytecode or not os.access(folder, os.W_OK):
        return None
    import tomllib  # which few commands need

    with contextlib.suppress(OSError, ValueError):  # no TOML, or a date, which is not kept
        tables = tomllib.loads(text)
        packed = marshal.dumps((text, tables))
        written = place.with_name(f"{place.name}.{os.getpid()}")
        written.write_bytes(packed)
        written.replace(place)
        return tables
    return None
