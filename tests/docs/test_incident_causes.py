"""Every cause of an incident has its row in the documentation, and says what it asks of who is
on call.
"""

from pathlib import Path

import pytest

from mofa_model.spec.incident_causes import CAUSES

TEXT = (Path(__file__).parents[2] / "docs" / "incidents.md").read_text("utf-8")
KNOWN, ASKED = TEXT.split("## What each cause asks of who is on call")


@pytest.mark.parametrize("word", [one for one in CAUSES if one != "none"])
def test_a_cause_is_told_with_what_it_asks(word):
    assert f"`{word}`" in KNOWN
    assert f"`{word}`" in ASKED.partition("\n## ")[0]
