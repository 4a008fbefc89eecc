"""The store of a real API server that is full: etcd reads and refuses every write, as it does when
its quota is used up.
"""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

LONGEST = 6.0
"""Longest that the store stays full, and longest that it takes writes in between. [s]"""


@dataclass
class Full:
    """How often the store of a cluster was full."""

    times: int = 0


def _alarm(cluster: Any, action: str) -> None:
    """Raise or end etcd's own alarm of no space."""
    place = f"{cluster.store}/v3/maintenance"
    member = _asked(f"{place}/status", {})["header"]["member_id"]
    _asked(f"{place}/alarm", {"action": action, "memberID": member, "alarm": "NOSPACE"})


def _asked(url: str, body: dict[str, str]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        return json.load(answer)


@contextlib.contextmanager
def full_at_times(cluster: Any, random: Random) -> Iterator[Full]:
    """The store is full from now on and again and again, for times that are drawn; at the end it
    has room.
    """
    full, ended = Full(), threading.Event()

    def change() -> None:
        while not ended.is_set():
            _alarm(cluster, "ACTIVATE")
            full.times += 1
            ended.wait(random.uniform(0.5, LONGEST))
            _alarm(cluster, "DEACTIVATE")
            ended.wait(random.uniform(0.5, LONGEST))

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    try:
        yield full
    finally:
        ended.set()
        thread.join()
        _alarm(cluster, "DEACTIVATE")
