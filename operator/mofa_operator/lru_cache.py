"""A cache of bounded size, which drops the value that was unused longest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class LruCache(Generic[T]):
    """Values by key."""

    def __init__(self, most: int = 2000) -> None:
        """At most so many are kept. [1]"""
        self._most = most
        self._kept: OrderedDict[Hashable, T] = OrderedDict()

    def __len__(self) -> int:
        """How many are kept. [1]"""
        return len(self._kept)

    def __contains__(self, key: Hashable) -> bool:
        """Whether a value of the key is kept."""
        return key in self._kept

    def __getitem__(self, key: Hashable) -> T:
        """The value of a key, which counts as used now."""
        self._kept.move_to_end(key)
        return self._kept[key]

    def get(self, key: Hashable) -> T | None:
        """The value of a key, which counts as used now; None where none is kept."""
        if key not in self._kept:
            return None
        return self[key]

    def __setitem__(self, key: Hashable, value: T) -> None:
        """Keep a value; if there are too many, drop the one unused longest."""
        self._kept[key] = value
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
