"""What is said to help gains as much where the same past is lived once more with that one thing
changed.

The pools are ours (`pool_lives`); with `MOFA_FAILURE_HISTORIES` the histories of a generator that
is not ours are rerun too, and the lemons of real fleets are judged by what came after.
"""

import os
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest

from mofa_lab.validate.lemons import lemon_scores
from mofa_lab.validate.pool_lives import LifeSettings, live
from mofa_lab.validate.reruns import agreements, reruns
from mofa_model.answers.what_would_help import past_of
from mofa_model.reliability.remedies import RemedySettings, what_would_help

FOLDER = Path(os.environ.get("MOFA_FAILURE_HISTORIES") or "/nowhere")
SCENARIOS = sorted((Path(__file__).parents[3] / "lab/data/changes").glob("*.toml"))
BASE = LifeSettings(seed=0, nodes=26, node_rate=0.012)
CHANGES = {
    "restart in place": (replace(BASE, interval=300.0), {"in_place": True}),
    "a save every 10 min": (BASE, {"interval": 600.0}),
    "a watchdog of 5 min": (BASE, {"watchdog": 300.0}),
    "copies in the memory of peers": (BASE, {"peers": 60.0}),
    "recovery replica by replica": (BASE, {"replicas": 2}),
    "1 spare node ": (BASE, {"nodes": 25}),
    "3 spare nodes": (BASE, {"nodes": 27}),
    "out: ": (replace(BASE, lemon_nodes=2, nodes=28), {"lemon_factor": 1.0}),
}


def compared(base, name, change, seeds, days):
    """What is said and what is gained in each life."""
    pairs = []
    for seed in range(seeds):
        settings = replace(base, seed=seed, days=days)
        first = live(settings)
        found = what_would_help(past_of(first.document, "a life"), RemedySettings(gpus_per_node=1))
        told = next((one for one in found.remedies if one.name.startswith(name)), None)
        again = live(replace(settings, **change))
        if told is not None:
            pairs.append((told.gain.target, again.kept - first.kept))
    return pairs


def hold(seeds, days):
    for name, (base, change) in CHANGES.items():
        pairs = compared(base, name, change, seeds, days)
        off = [gained - told for told, gained in pairs]
        error = 3 * stdev(off) / len(off) ** 0.5
        gained = mean(one for _, one in pairs)
        assert len(pairs) >= seeds / 2, name
        assert abs(mean(off)) <= max(error, 0.03 * abs(gained)), (name, pairs)


def test_eight_changes_gain_what_is_said_in_lives_of_forty_weeks():
    hold(seeds=5, days=280)


@pytest.mark.soak
def test_eight_changes_gain_what_is_said_in_thirty_lives():
    hold(seeds=30, days=280)


def test_no_lemon_is_named_where_all_nodes_are_alike():
    found = [
        what_would_help(past_of(live(replace(BASE, seed=seed)).document, "a life")).lemons
        for seed in range(12)
    ]
    assert found == [()] * 12


@pytest.mark.soak
@pytest.mark.skipif(not FOLDER.exists(), reason="MOFA_FAILURE_HISTORIES names no folder")
def test_five_changes_gain_what_is_said_in_histories_of_another_generator():
    for scenario in SCENARIOS:
        for one in agreements(list(reruns(FOLDER / "histories.py", scenario, range(1, 9)))):
            assert one.is_within_noise, (scenario.stem, one)


@pytest.mark.soak
@pytest.mark.skipif(not FOLDER.exists(), reason="MOFA_FAILURE_HISTORIES names no folder")
def test_lemons_of_real_fleets_fail_more_than_others_afterwards_by_about_as_much_as_is_said():
    scores = {one.fleet: one for one in lemon_scores(FOLDER / "real")}
    assert scores["lanl"].came > 5 * scores["lanl"].usual
    assert scores["lanl"].came == pytest.approx(scores["lanl"].expected, rel=0.2)
    assert scores["titan"].came > 1.5 * scores["titan"].usual
    for one in scores.values():
        assert one.advised == 0 or one.came > one.usual, one
