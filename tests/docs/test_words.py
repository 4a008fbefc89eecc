"""People finish what is short: all pages that are written by hand, counted by
tools/page_words.py.
"""

import importlib.util

from documents import ROOT


def tool():
    spec = importlib.util.spec_from_file_location("page_words", ROOT / "tools" / "page_words.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_pages_by_hand_have_25_000_words_at_most():
    pages = dict(tool().pages())
    assert sum(pages.values()) <= tool().MOST == 25_000
    assert {"README.md", "CONTRIBUTING.md", "docs/install.md"} <= {str(path) for path in pages}
    assert max(pages.values()) <= 1_500, "none is longer than somebody reads at once"
