"""Seconds and bytes are units and no more: in units of 1/1024 s every time is 1024 times as large,
bit for bit.

A time or a size that is written into an equation, and not given to it, breaks it; `test_laws.py`
asks for every term, and here is what its rescaling rests on.
"""

from dataclasses import fields
from typing import get_type_hints

import pytest
from dimensions import DIMENSIONED, PLAIN, rescaled
from hypothesis import given
from hypothesis import strategies as st
from strategies import clusters

from mofa_model import spec
from mofa_model.spec import Cluster, Link

POWER_OF_TWO = st.integers(-20, 20).map(lambda n: 2.0**n)


@pytest.mark.parametrize("kind", [getattr(spec, name) for name in spec.__all__])
def test_every_description_is_in_the_table_of_units(kind):
    assert (kind in DIMENSIONED) != (kind in PLAIN)
    assert DIMENSIONED.get(kind, {}).keys() <= {field.name for field in fields(kind)}


@pytest.mark.parametrize("kind", [getattr(spec, name) for name in spec.__all__])
def test_the_table_has_the_units_that_the_annotations_state(kind):
    hints = get_type_hints(kind, include_extras=True)
    stated = {name: getattr(hint, "__metadata__", ("1",))[0] for name, hint in hints.items()}
    known = {name: DIMENSIONED.get(kind, {}).get(name, "1") for name in stated}
    # The rate of the optimizer on a host has no alias of its own: parameters a second.
    assert {name: unit for name, unit in known.items() if unit != "1/s"} == {
        name: unit for name, unit in stated.items() if known[name] != "1/s"
    }


def test_a_link_of_50_gb_a_second_moves_49_mb_in_a_1024th():
    """1024 units of time are a second, 1 unit of size is a byte: 50e9 B/s are 50e9 / 1024 B
    per unit.
    """
    link = rescaled(Link(bandwidth=50e9, latency=1e-6), time=1024.0)
    assert (link.bandwidth, link.latency) == (50e9 / 1024, 1024e-6)


@given(clusters(), POWER_OF_TWO, POWER_OF_TWO)
def test_rescaling_back_gives_the_same_description(cluster, time, size):
    there = rescaled(cluster, time=time, size=size)
    assert isinstance(there, Cluster)
    assert rescaled(there, time=1 / time, size=1 / size) == cluster
