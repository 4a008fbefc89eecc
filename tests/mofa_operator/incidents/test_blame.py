"""The share of the machines in a stop is what it says, on made histories of jobs that no weight was
fitted on.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

import blame as made

from mofa_operator.incidents.blame import Signs, infrastructure_share


@pytest.mark.parametrize("strange", [False, True])
def test_of_stops_said_to_be_the_machines_with_some_chance_that_share_was(strange):
    for said, was, count in made.table(list(made.judged(11, 40, strange=strange))):
        assert said == pytest.approx(was, abs=0.1 + 1.2 / count**0.5), (said, was, count)


@pytest.mark.soak
@pytest.mark.parametrize("strange", [False, True])
def test_it_holds_within_a_tenth_in_every_fifth(strange):
    for said, was, count in made.table(list(made.judged(12, 500, strange=strange))):
        assert said == pytest.approx(was, abs=0.1 + 0.5 / count**0.5), (said, was, count)


def test_codes_of_torchrun_say_nothing_and_codes_of_programs_do():
    torchrun = Signs(together=True, survived=True, lasted=True)
    assert infrastructure_share(torchrun) > 0.8
    own = Signs(own_code=True, survived=True, lasted=True)
    assert infrastructure_share(own) < 0.5
