"""Lists of hosts as Slurm writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mofa_model.errors import BadValue

_MOST: Final = 200_000
"""Hosts of one list. [1]"""
_RANGE: Final = re.compile(r"(\d+)-(\d+)")


def hosts_of(text: str) -> tuple[str, ...]:
    """The hosts of a list.

    >>> hosts_of("gpu[01-03,7],login1"), hosts_of("r[1-2]n[1-2]"), hosts_of("(null)")
    (('gpu01', 'gpu02', 'gpu03', 'gpu7', 'login1'), ('r1n1', 'r1n2', 'r2n1', 'r2n2'), ())
    """
    plain = text.strip()
    if plain.lower() in {"", "(null)", "none assigned", "n/a", "none"}:
        return ()
    hosts: list[str] = []
    for part in re.split(r",(?![^\[]*\])", plain):
        for host in _expanded(part):
            hosts.append(host)
            if len(hosts) > _MOST:
                raise BadValue("list of hosts", plain[:60], f"at most {_MOST} hosts are read")
    return tuple(hosts)


def _expanded(text: str) -> Iterator[str]:
    opened = text.find("[")
    if opened < 0:
        yield text
        return
    closed = text.find("]", opened)
    if closed < 0:
        raise BadValue("list of hosts", text, "each [ needs a ]")
    for number in text[opened + 1 : closed].split(","):
        numbers = [number]
        if bounds := _RANGE.fullmatch(number):
            first, last = bounds.groups()
            if int(last) - int(first) > _MOST:
                raise BadValue("list of hosts", text, f"at most {_MOST} hosts are read")
            numbers = [str(index).zfill(len(first)) for index in range(int(first), int(last) + 1)]
        for index in numbers:
            for rest in _expanded(text[closed + 1 :]):
                yield f"{text[:opened]}{index}{rest}"
