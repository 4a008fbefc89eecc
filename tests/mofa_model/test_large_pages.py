"""A command takes large pages for its arrays where the system has them, and answers the same where
it has none.
"""

import ctypes
import subprocess
import sys

from mofa_model.cli import prefer_large_pages

HEAP = """
from pathlib import Path
from mofa_model.cli import prefer_large_pages
taken = prefer_large_pages()
kept = [bytearray(2**20) for _ in range(20)]
parts = Path("/proc/self/smaps").read_text().split("VmFlags:")
heap = [after.splitlines()[0].split() for before, after in zip(parts, parts[1:]) if "[heap]" in before]
print(taken, any("hg" in flags for flags in heap))
"""


def test_memory_of_the_heap_is_in_large_pages_where_the_system_says_so():
    told = subprocess.run([sys.executable, "-c", HEAP], capture_output=True, text=True, check=True)
    taken, marked = told.stdout.split()
    assert taken == marked


def test_a_library_without_that_switch_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert prefer_large_pages.__wrapped__() is False
