"""Loopback ports that nothing listens on."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from typing import Final

from mofa_local import LocalStackError

HOST: Final = "127.0.0.1"
"""The only address on which the local stack listens."""

RANGE: Final = range(20000, 30000)
"""Below the ports that systems hand to outgoing connections, so that a server can come back to its
port; and below node ports.
"""


def free_ports(count: int) -> list[int]:
    """Different ports, as many as `count`, that are free at this moment.

    >>> len(set(free_ports(3)))
    3
    """
    ports: list[int] = []
    with ExitStack() as held:  # all at once, so that none comes twice
        for port in random.sample(RANGE, 400 + count):
            if len(ports) == count:
                break
            listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                listener.bind((HOST, port))
            except OSError:
                continue
            ports.append(port)
    if len(ports) < count:
        raise LocalStackError(f"no {count} free ports on {HOST} in {RANGE.start}-{RANGE.stop - 1}")
    return ports


def free_port() -> int:
    """A port that is free at this moment."""
    return free_ports(1)[0]
