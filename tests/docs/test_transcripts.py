"""What README and documents show that commands print is what they print; `make transcripts`
writes it.
"""

import importlib
import sys

import pytest
from documents import ROOT


@pytest.fixture(scope="module", autouse=True)
def tools():
    """tools/ can be imported."""
    sys.path.insert(0, str(ROOT / "tools"))
    yield
    sys.path.remove(str(ROOT / "tools"))


def test_every_output_that_a_page_shows_of_our_commands_is_printed_now_and_live_tables_tell_the_same_advice():
    """39.65 s stood in the README, and 39.37 s was printed."""
    transcripts = importlib.import_module("transcripts")
    shown = [one for page in transcripts.PAGES for one in transcripts.of_page(page)]
    assert sum(one.at_the_desk for one in shown) >= 2
    assert sum(transcripts.JOB_ROW in one.output for one in shown) >= 4
    assert "\n".join(transcripts.stale()) == "", "run `make transcripts`"


def test_no_page_shows_an_output_that_is_not_written_by_a_command():
    """A block of text beside an indented `$` would be written by hand."""
    pages = importlib.import_module("transcripts").PAGES
    assert [page.name for page in pages if "\n    $ " in page.read_text("utf-8")] == []


@pytest.mark.soak
@pytest.mark.cluster
def test_the_tutorial_types_as_it_is_printed():
    _, differs = importlib.import_module("live_transcripts").walk()
    assert differs == []
