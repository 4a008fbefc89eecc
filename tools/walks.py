"""How many files and kinds of records a fact passes through, counted by running the product.

    python tools/walks.py            every walk: files, and kinds of records
    python tools/walks.py advise -v  one walk, with the names

A file counts where one of its functions runs. A kind counts where a record of it is made: a dataclass, a pydantic model, a named
tuple; and so does every form of a `TypedDict`, a dict of named values or a tuple of unlike parts that a function which runs gives back.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = tuple(str(ROOT / part) + "/" for part in ("mofa_model", "operator"))
ANONYMOUS = re.compile(r"^(tuple\[(?!.*\.\.\.\]$).+,.+\]|(dict|Mapping)\[str, (object|Any)\])$")
"""How an annotation writes a tuple of unlike parts, or a dict that stands for a record."""


@dataclass
class Walk:
    """What ran between two moments."""

    files: set[str] = field(default_factory=set)
    """Files of the product in which a function ran."""
    kinds: set[str] = field(default_factory=set)
    """Kinds of records that were made."""
    imports: int = 0
    """Modules whose body runs now: what an import makes is declared, and is no fact of a question."""
    seen: set[CodeType] = field(default_factory=set)
    """Code whose return annotation was read."""

    def called(self, frame: FrameType, event: str, _: object) -> None:
        """A profiler's call."""
        code = frame.f_code
        if code.co_name == "<module>":
            self.imports += {"call": 1, "return": -1}.get(event, 0)
        if event != "call" or self.imports:
            return
        if code.co_name in (
            "__init__",
            "__new__",
            "__lambda__",
            "<lambda>",
        ) or code.co_filename.startswith("<"):
            self._made(frame)
        if code in self.seen or not code.co_filename.startswith(PRODUCT):
            return
        self.seen.add(code)
        self.files.add(code.co_filename.removeprefix(f"{ROOT}/"))
        self._returned(frame)

    def _made(self, frame: FrameType) -> None:
        """Count the record whose first argument a constructor got."""
        code = frame.f_code
        if not code.co_varnames:
            return
        first = frame.f_locals.get(code.co_varnames[0])
        kind = first if isinstance(first, type) else type(first)
        if kind.__module__.partition(".")[0] in ("mofa_model", "mofa_operator") and is_record(kind):
            self.kinds.add(f"{kind.__module__}.{kind.__qualname__}")

    def _returned(self, frame: FrameType) -> None:
        """Count what a function gives back, where that is a record without a class."""
        code = frame.f_code
        for given in (frame.f_globals, *(vars(kind) for kind in vars_of_classes(frame))):
            made = given.get(code.co_name)
            made = getattr(made, "__func__", made)
            made = getattr(made, "fget", made) or made
            made = getattr(made, "__wrapped__", made)
            if getattr(made, "__code__", None) is code:
                self._annotated(str(made.__annotations__.get("return", "")), frame.f_globals)
                return

    def _annotated(self, told: str, names: dict[str, Any]) -> None:
        """Count an annotation that stands for a record."""
        if ANONYMOUS.match(told):
            self.kinds.add(told)
        for word in re.findall(r"\w+", told):
            if typing.is_typeddict(names.get(word)):
                self.kinds.add(f"{names[word].__module__}.{word}")


def vars_of_classes(frame: FrameType) -> Iterator[type]:
    """The class of a method that runs, and what it inherits."""
    if frame.f_code.co_varnames:
        first = frame.f_locals.get(frame.f_code.co_varnames[0])
        yield from (first if isinstance(first, type) else type(first)).__mro__


def is_record(kind: type) -> bool:
    """Whether a class says its fields, and is no word of a choice."""
    return (
        is_dataclass(kind)
        or hasattr(kind, "model_fields")
        or hasattr(kind, "_fields")
        or kind.__name__ == "Namespace"
    )


@contextlib.contextmanager
def walking() -> Iterator[Walk]:
    """Count what runs meanwhile."""
    walk = Walk()
    sys.setprofile(walk.called)
    try:
        yield walk
    finally:
        sys.setprofile(None)


def advise() -> Walk:
    """`mofa advise`, from flags to screen."""
    from mofa_model.cli import main

    command = [
        "advise",
        "--model",
        "llama3-8b",
        "--gpu",
        "h100",
        "--gpus",
        "64",
        "--global-batch",
        "512",
        "--seq",
        "8192",
    ]
    with walking() as walk, contextlib.redirect_stdout(io.StringIO()):
        main(command)
    return walk


WALKS: dict[str, Callable[[], Walk]] = {"advise": advise}


def run(words: list[str]) -> None:
    """Print the walks that are asked for, or all."""
    for name in [word for word in words if word in WALKS] or WALKS:
        walk = WALKS[name]()
        print(f"{name}: {len(walk.files)} files, {len(walk.kinds)} kinds of records")
        if "-v" in words:
            print(
                "\n".join(
                    (
                        *(f"  {one}" for one in sorted(walk.files)),
                        *(f"  {one}" for one in sorted(walk.kinds)),
                    )
                )
            )


if __name__ == "__main__":
    run(sys.argv[1:])
