"""How far a build has come, counted: `go build -v` names each package when it starts on it, and `go
list` says how many there are.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

EVERY: Final = 15.0
"""Time between two lines of progress where the output is no terminal. [s]"""
AT_ONCE: Final = 1.0
"""Time between two updates of the bar at a terminal. [s]"""
_BAR: Final = 24
"""Characters of the bar. [1]"""
_LISTING: Final = 300.0
"""Longest that packages are listed: modules may have to be fetched first. [s]"""


def to_build(
    command: Path,
    flags: Sequence[str],
    packages: Sequence[str],
    place: Path,
    environment: Mapping[str, str],
) -> int:
    """Packages that have to be built, those that Go has in its cache left out; 0 where it does not
    say. [1]
    """
    question = [str(command), "list", "-deps", "-f", "{{if .Stale}}x{{end}}", *flags, *packages]
    try:
        done = subprocess.run(
            question,
            cwd=place,
            env=dict(environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=_LISTING,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return 0 if done.returncode else sum(1 for line in done.stdout.splitlines() if line == "x")


def begun(log: Path) -> int:
    """Packages that a build has begun, by what it said so far: a line of one word names one. [1]"""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return sum(1 for line in lines if line and " " not in line and not line.startswith("#"))


def share(done: int, total: int) -> float:
    """Share of a build that is done; what is begun is not, so that the last package and linking are
    seen to take their time.

    >>> share(51, 100), share(100, 100), share(0, 0)
    (0.5, 0.99, 0.0)
    """
    return max(0, done - 1) / total if total else 0.0


def sentence(name: str, done: int, total: int, seconds: float, usual: float) -> str:
    """Progress in words; the time left follows from the share that is done.

    >>> sentence("etcd", 51, 100, 60.0, 40.0)
    'etcd: 51 of 100 packages in 1 min 0 s, about 1 min 0 s to go'
    >>> sentence("etcd", 0, 0, 60.0, 40.0)
    'etcd: building for 1 min 0 s (usually 40 s)'
    """
    part = share(done, total)
    if not total:
        return f"{name}: building for {span(seconds)} (usually {span(usual)})"
    if done >= total:
        return f"{name}: all {total} packages in {span(seconds)}; linking"
    left = f", about {span(seconds * (1 - part) / part)} to go" if part > 0 else ""
    return f"{name}: {done} of {total} packages in {span(seconds)}{left}"


def say(text: str) -> None:
    """Print one line of what is done now, on standard error."""
    print(f"mofa_local: {text}", file=sys.stderr, flush=True)


class ProgressLine:
    """Shows a person how far a build is: a line that is drawn anew at a terminal, else a line now
    and then.
    """

    def __init__(self) -> None:
        """Begin a progress line on standard error."""
        self._drawn = 0
        self._at_terminal = sys.stderr.isatty()

    @property
    def pause(self) -> float:
        """How long to wait before the next look. [s]"""
        return AT_ONCE if self._at_terminal else EVERY

    def say(self, text: str, part: float) -> None:
        """Show a line of progress; `part` is the share that is done."""
        if not self._at_terminal:
            say(text)
            return
        full = round(_BAR * part)
        line = f"[{'#' * full}{'.' * (_BAR - full)}] {text}"
        print(f"\r{line.ljust(self._drawn)}", end="", file=sys.stderr, flush=True)
        self._drawn = len(line)

    def end(self) -> None:
        """End the progress line with a line break."""
        if self._drawn:
            print(file=sys.stderr, flush=True)
            self._drawn = 0


def span(seconds: float) -> str:
    """A duration in words.

    >>> span(72)
    '1 min 12 s'
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
