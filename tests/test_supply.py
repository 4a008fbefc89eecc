"""What a release installs: each part has a licence that it may have, and no version with a
known vulnerability.
"""

import importlib.util
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
_found = importlib.util.spec_from_file_location("supply", ROOT / "tools" / "supply.py")
supply = importlib.util.module_from_spec(_found)
_found.loader.exec_module(supply)
RULES = tomllib.loads((ROOT / "requirements" / "supply.toml").read_text("utf-8"))


def test_the_locks_have_nothing_that_may_not_be_in_a_release():
    parts = supply.locked()
    assert len(parts) > 40
    assert list(supply.errors_of(parts, RULES)) == []


def test_every_part_that_was_ever_vulnerable_is_found_in_an_older_version():
    for name, advisories in RULES["fixed"].items():
        found = list(supply.errors_of({name: "0.1"}, RULES))
        assert [one for one in advisories if not any(one in line for line in found)] == []


def test_a_licence_that_nobody_named_is_no_licence():
    (line,) = supply.errors_of({"no-such-part": "1"}, RULES)
    assert "it names no licence" in line


def test_what_is_stated_is_of_a_part_that_is_there():
    assert set(RULES["stated"]) | set(RULES["fixed"]) <= set(supply.locked())
