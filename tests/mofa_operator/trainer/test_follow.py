"""Following a log: whatever happens to the file, every whole line comes once."""

import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.errors import BadFile
from mofa_operator.trainer.follow import LONGEST, Lines, follow

PATIENCE = 20.0
"""Longest wait for lines that are there. [s]"""


class Followed:
    """A log that is followed in a thread, and the lines that came."""

    def __init__(self, log):
        self.lines, self.said = [], []
        self._steps = follow(str(log), once=False, poll=0.01, waiting=self.said.append)
        self._going = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        for _, lines in self._steps:
            self.lines += lines
            if b"end" in self.lines:
                return

    def until(self, expected):
        limit = time.monotonic() + PATIENCE
        while self.lines != expected and time.monotonic() < limit:
            time.sleep(0.005)
        assert self.lines == expected


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "train.log"
    yield path
    for one in tmp_path.glob("*"):  # ends the thread, whichever file it reads
        with one.open("ab") as file:
            file.write(b"\nend\n")


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


def once(log):
    return [line for _, lines in follow(str(log), once=True) for line in lines]


def test_a_file_is_read_to_its_end_with_its_last_line_even_where_nothing_ends_it(log):
    log.write_bytes(b"one\ntwo\r\nthr")
    assert once(log) == [b"one", b"two", b"thr"]


def test_a_file_that_appears_later_is_waited_for(log):
    followed = Followed(log)
    limit = time.monotonic() + PATIENCE
    while not followed.said and time.monotonic() < limit:
        time.sleep(0.005)
    log.write_bytes(b"one\n")
    followed.until([b"one"])
    assert followed.said == [f"waiting for {log}"]


def test_a_line_in_two_parts_comes_whole(log):
    log.write_bytes(b"one\ntw")
    followed = Followed(log)
    followed.until([b"one"])
    append(log, b"o\nthree\n")
    followed.until([b"one", b"two", b"three"])


def test_a_rotated_file_is_read_to_its_end_before_the_new_one(log):
    log.write_bytes(b"one\n")
    followed = Followed(log)
    followed.until([b"one"])
    log.rename(log.with_name("train.log.1"))
    append(log.with_name("train.log.1"), b"two\n")
    log.write_bytes(b"three\n")
    followed.until([b"one", b"two", b"three"])


def test_a_truncated_file_is_read_from_its_beginning(log):
    log.write_bytes(b"one\ntwo\n")
    followed = Followed(log)
    followed.until([b"one", b"two"])
    log.write_bytes(b"new\n")
    followed.until([b"one", b"two", b"new"])


def test_a_truncated_file_that_has_grown_past_where_we_were_is_noticed(log):
    log.write_bytes(b"one\n")
    followed = Followed(log)
    followed.until([b"one"])
    grown = log.with_name("other")
    grown.write_bytes(b"a much longer first line\nlast\n")
    with log.open("r+b") as file:  # in one write, so that no look falls between
        file.write(grown.read_bytes())
    grown.unlink()
    followed.until([b"one", b"a much longer first line", b"last"])


def test_files_of_a_pattern_come_one_after_the_other_and_new_ones_when_they_come(tmp_path, log):
    for n, name in enumerate(("attempt_0.log", "attempt_1.log")):
        (tmp_path / name).write_bytes(b"%d\n" % n)
        os.utime(tmp_path / name, (1000 + n, 1000 + n))
    followed = Followed(tmp_path / "attempt_*.log")
    followed.until([b"0", b"1"])
    (tmp_path / "attempt_2.log").write_bytes(b"2\n")
    followed.until([b"0", b"1", b"2"])


def test_a_rotated_file_of_a_pattern_is_not_read_again(tmp_path, log):
    log.write_bytes(b"one\n")
    followed = Followed(tmp_path / "train.log*")
    followed.until([b"one"])
    log.rename(tmp_path / "train.log.1")
    log.write_bytes(b"two\n")
    followed.until([b"one", b"two"])


def test_what_was_there_before_us_has_the_moment_it_was_written(log):
    log.write_bytes(b"one\n")
    os.utime(log, (1000, 1000))
    assert next(follow(str(log), once=True)) == (1000.0, [b"one"])


def test_standard_input_ends_where_it_ends(monkeypatch):
    reading, writing = os.pipe()
    os.write(writing, b"one\ntwo")
    os.close(writing)
    monkeypatch.setattr(
        os,
        "read",
        lambda descriptor, n, read=os.read: read(reading if descriptor == 0 else descriptor, n),
    )
    assert once("-") == [b"one", b"two"]
    os.close(reading)


def test_a_folder_and_a_file_that_is_not_there_are_refused_in_one_line(tmp_path):
    with pytest.raises(BadFile, match="is a folder"):
        once(tmp_path)
    with pytest.raises(BadFile, match="does not exist"):
        once(tmp_path / "nothing.log")
    with pytest.raises(BadFile, match="does not exist"):
        once(tmp_path / "*.log")


@given(st.lists(st.binary(max_size=30), max_size=20), st.lists(st.integers(1, 40), max_size=20))
def test_however_bytes_are_cut_the_lines_are_the_same(parts, cuts):
    data, lines, found = b"".join(parts), Lines(), []
    rest = data
    for cut in cuts:
        found += lines.push(rest[:cut])
        rest = rest[cut:]
    found += lines.push(rest) + lines.rest()
    assert found == [line for line in data.replace(b"\r", b"\n").split(b"\n") if line]


def test_a_line_longer_than_memory_should_bear_is_cut_and_the_next_one_is_whole():
    lines = Lines()
    for _ in range(100):
        assert lines.push(b"x" * LONGEST) == []
    assert lines.push(b"x\nnext\n") == [b"x" * LONGEST, b"next"]
