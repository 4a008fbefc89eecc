"""A true account comes from a generator's own record, and what is told is held against it."""

import json

import pytest

from mofa_lab.validate.account import read, reported_days, scored, true_account
from mofa_model.errors import BadFile

GENERATOR = '''
import sys
from types import SimpleNamespace as Made

DAY = 86400.0


def settings(path):
    return {"end": "2026-11-15T00:00:00Z"}


class History:
    """Two nodes for a day: one trains, stops for an hour and loses twenty minutes; the other rests."""

    def __init__(self, settings, end):
        self.T0, self.T1, noon = end - DAY, end, end - DAY / 2
        fault = dict(id="n0", kind="node", node="a", start=noon, end=noon + 3600, cause="reboot", counts=True)
        stop = dict(id="j0", kind="job", job="ml/x", start=noon, end=noon + 3600, cause="planned-drain",
                    counts=False, caused_by=["n0"])
        self.incidents, self.noon = [fault, stop], noon


class Fleet:
    def __init__(self, h):
        one = dict(born=0.0, gone=1e18, dark=[], bad=[])
        self.pool = [Made(name="a", unfit=[(h.noon, h.noon + 1200)], **one), Made(name="b", unfit=[], **one)]


class Jobs:
    def __init__(self, h, fleet):
        old = Made(slot=0, node=fleet.pool[0], created=h.T0 - 60, running=h.T0, deleted=h.noon, ended=None)
        new = Made(slot=0, node=fleet.pool[0], created=h.noon + 1800, running=h.noon + 1900, deleted=None, ended=None)
        job = Made(c=dict(checkpoint_minutes=35.0), key="ml/x", every=[old, new],
                   up=[(h.T0, h.noon), (h.noon + 3600, h.T1 + DAY)])
        self.every, self.extras = [job], []


def evidence(h, fleet, jobs):
    pass
'''


@pytest.fixture
def files(tmp_path):
    (tmp_path / "made.py").write_text(GENERATOR)
    (tmp_path / "s1.toml").write_text("")
    return tmp_path


def test_half_a_day_of_saves_every_35_minutes_loses_twenty_and_the_fault_of_the_node_is_the_cause(
    files,
):
    true = true_account(files / "made.py", files / "s1.toml")
    minutes = {key: round(time * 1440) for key, time in true.items()}
    assert minutes == {
        ("kept", ""): 700 + 660,  # 20 * 35 min before, 11 h after
        ("redone", "reboot"): 20,
        ("repair", "reboot"): 20,
        ("waiting", "reboot"): 40,
        ("idle", ""): 1440,
    }


def test_what_is_told_is_held_against_the_truth_and_large_causes_are_named(files):
    rows = [
        {"state": "kept", "cause": "", "node_days": 1360 / 1440},
        {"state": "redone", "cause": "reboot", "node_days": 10 / 1440},
        {"state": "rendezvous", "cause": "reboot", "node_days": 40 / 1440},
        {"state": "repair", "cause": "reboot", "node_days": 20 / 1440},
        {"state": "idle", "cause": "no-job", "node_days": 1450 / 1440},
    ]
    (files / "s1.json").write_text(json.dumps({"account": {"rows": rows}}))
    (document,) = read([files / "s1.json"]).values()
    true = true_account(files / "made.py", files / "s1.toml")
    found = {row.what: row for row in scored("s1", true, reported_days(document))}
    assert found["capacity"].off == pytest.approx(0.0, abs=1e-9)
    assert found["redone"].off == pytest.approx(-0.5)
    assert found["lost to reboot"].off == pytest.approx(-10 / 80)
    assert set(found) == {
        "capacity",
        "kept",
        "redone",
        "waiting",
        "repair",
        "idle",
        "lost to reboot",
    }


def test_an_answer_without_an_account_says_how_to_make_one(tmp_path):
    (tmp_path / "old.json").write_text("{}")
    with pytest.raises(BadFile, match="--account"):
        read([tmp_path / "old.json"])
