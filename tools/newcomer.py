"""The newcomer as a test: adds toys to a copy of this tree, as CONTRIBUTING says, and shows that
each of them works.

    python tools/newcomer.py                    all toys
    python tools/newcomer.py schedule           one
    python tools/newcomer.py --suite axis       with `make check verify test-unit` in the copy, no
                                                test edited
    python tools/newcomer.py --near kind        with the quick tests of the rooms that changed

The copy is a clean clone with what is changed here. For each toy it prints the files and lines that
were written (generated ones apart), and a price, a flag or a count that changed by it. It fails
where a toy needs more files or lines than it should, or changes nothing, and with `--suite` where a
check or a quick test fails.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from newcomer_copy import Copy, Fails, cloned
from newcomer_jobs import figure, kind, recovery_class
from newcomer_model import axis, block, device, schedule, term, trainer

LINES = 40
"""Lines that a toy may write by hand, apart from a block and a schedule, whose mathematics
is theirs.
"""
TOYS: dict[str, tuple[int, int, Callable[[Copy], str]]] = {
    "block": (2, 60, block),
    "device": (1, LINES, device),
    "schedule": (2, LINES, schedule),
    "axis": (2, LINES, axis),
    "kind": (2, LINES, kind),
    "term": (1, LINES, term),
    "trainer": (2, LINES, trainer),
    "recovery-class": (2, LINES, recovery_class),
    "figure": (2, LINES, figure),
}
"""Each toy with the files and lines that it may write by hand."""


def main(words: list[str]) -> int:
    """Add each toy in a copy of its own, and check it."""
    names = [word for word in words if word not in {"--suite", "--near"}]
    if unknown := set(names) - set(TOYS):
        print(f"newcomer: {', '.join(sorted(unknown))}: there are {', '.join(TOYS)}")
        return 2
    failed = False
    for name in names or TOYS:
        files, lines, add = TOYS[name]
        with tempfile.TemporaryDirectory() as folder:
            copy = cloned(Path(folder))
            written = 0
            try:
                outcome = add(copy)
                written = copy.lines()
                copy.keep_to(files, lines)
                if "--suite" in words:
                    outcome += f"; {copy.suite()}"
                if "--near" in words:
                    outcome += f"; {copy.near()}"
            except Fails as problem:
                failed, outcome = True, f"FAILS: {problem}"
            touched = ", ".join(sorted(copy.touched))
            print(f"{name}: {len(copy.touched)} files, {written} lines ({touched}): {outcome}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
