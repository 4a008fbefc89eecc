"""Whatever docs/security.md says is tested, is: each test that it names is there, and each test
against a tenant is named.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text("utf-8")
NAMED = set(re.findall(r"`((?:tests/)?[a-z_/]*test_[a-z_]+\.py)`", TEXT))


def test_every_test_that_it_names_is_there():
    assert len(NAMED) > 15
    known = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert [one for one in NAMED if not (ROOT / one).is_file() and one not in known] == []


def test_every_test_against_a_tenant_is_named():
    hostile = {path.name for path in (ROOT / "tests" / "hostile").glob("test_*.py")}
    assert hostile - {one.rpartition("/")[2] for one in NAMED} == set()


def test_every_threat_has_what_holds_it_and_a_test():
    rows = [
        line.strip("|").split(" | ")
        for line in TEXT.splitlines()
        if line.startswith("| ") and line.count(" | ") == 3
    ]
    threats = [row for row in rows if row[0].strip() != "who"]
    assert len(threats) > 15
    assert [
        row
        for row in threats
        if "`tests/" not in row[3]
        and "test_" not in row[3]
        and row[3].strip() != "the same |"
        and "the same" not in row[3]
    ] == []
