"""Bands rest on measured runs: near ones narrow them, what nobody ran widens them."""

from dataclasses import replace

import numpy as np
import pytest

from mofa_model.bands.coordinates import PLACES, WORDS, Coordinates, apart
from mofa_model.bands.evidence import basis_of, features_of, in_a_line
from mofa_model.bands.odds import band_of
from mofa_model.bands.table import QUANTITIES, in_columns, in_words, measured_runs
from mofa_model.errors import BadFile
from mofa_model.presets import constants

ASKED = Coordinates(
    stack="megatron-core", device="b200-180gb-sxm", format="bf16", blocks="attention+dense",
    gpus="8", hidden="8192", sequence="4096", layout={"tp": "8", "sp": "true"},
)  # fmt: skip


@pytest.fixture(autouse=True)
def shipped(monkeypatch):
    monkeypatch.delenv(constants.VARIABLE, raising=False)


def width(asked, quantity="step"):
    found = band_of(measured_runs(), asked, quantity)
    assert found.lower < 1 < found.upper
    return found.upper / found.lower


def test_every_shipped_run_has_a_step_or_a_memory_and_is_there_once():
    runs = measured_runs()
    known = np.isfinite([runs.errors[name] for name in QUANTITIES])
    assert known.any(axis=0).all()
    assert len(set(runs.names)) == len(runs.names) > 1900
    assert set(runs.words) >= set(PLACES)
    assert set(runs.words) - set(PLACES) <= set(WORDS)


def test_a_run_is_at_no_distance_from_itself_and_as_far_from_another_as_that_from_it():
    other = replace(ASKED, gpus="64", layout={"tp": "2", "recompute": "full"}, stack="nemo")
    rows = [
        {**in_words(name, at, step=0.1), "group": "g", "memory": "", "held": ""}
        for name, at in (("a", ASKED), ("b", other))
    ]
    found = in_columns(rows)
    there, back = found.distances((ASKED, other))
    assert there[0] == back[1] == 0
    assert there[1] == pytest.approx(back[0]) == pytest.approx(1.5 + 1.5 + 0.5 + 0.75 + 0.75)
    assert measured_runs().distances((ASKED,)).min() < 2


@pytest.mark.parametrize(
    "name, asked, had, halvings",
    [
        ("stack", "nemo", "torchtitan", 3.0), ("stack", "nemo", "megatron-core", 1.5), ("stack", "mine", "nemo", 3.0),
        ("device", "h100-80gb-sxm", "h200-141gb-sxm", 0.75), ("device", "gb200", "b200-180gb-sxm", 1.5),
        ("device", "h100-80gb-sxm", "a100-80gb-sxm", 3.0), ("device", "described by hand", "gb200", 3.0), ("device", "l40s", "mofa-a", 3.0),
        ("gpus", "8", "16", 0.5), ("gpus", "8", "8192", 1.5), ("tp", "1", "2", 0.25), ("shard", "0", "8", 0.75),
        ("recompute", "selective:mlp", "selective", 0.375), ("recompute", "none", "full", 0.75),
        ("blocks", "attention+dense", "attention+experts", 3.0), ("format", "bf16", "fp8", 1.5),
    ],
)  # fmt: skip
def test_what_a_difference_costs(name, asked, had, halvings):
    assert apart(name, asked, had) == pytest.approx(halvings)
    assert apart(name, asked, asked) == 0


def test_a_known_stack_is_surer_of_a_step_than_an_unknown_one_on_an_unknown_device():
    near = width(ASKED)
    assert near < width(replace(ASKED, stack="maxtext"))
    assert near < width(replace(ASKED, stack="maxtext", device="l40s"))


def test_a_memory_is_as_sure_as_the_share_of_it_that_is_counted():
    """By half² = (0.129 share)² + 0.02²: e^±0.1305 where all is estimated, e^±0.0326 at a fifth."""
    widths = [np.log(width(replace(ASKED, estimated=share), "memory")) for share in (1.0, 0.2)]
    assert widths == pytest.approx([0.2611, 0.0653], abs=1e-4)
    other = replace(ASKED, stack="maxtext", device="l40s")
    assert width(other, "memory") == width(ASKED, "memory")


def test_a_feature_that_no_run_has_widens_a_band():
    strange = replace(ASKED, layout={**ASKED.layout, "schedule": "dualpipev", "vpp": "2"})
    assert width(strange) > width(ASKED)


def test_a_band_widens_with_every_doubling_beyond_the_largest_run():
    largest, *beyond = (
        np.log(width(replace(ASKED, gpus=f"{gpus}"))) for gpus in (4096, 8192, 16384, 65536)
    )
    assert beyond == pytest.approx([1.25 * largest, 1.5 * largest, 2 * largest], rel=0.1)


def test_no_stack_is_known_on_devices_where_nobody_ran_it():
    found = basis_of(measured_runs(), replace(ASKED, device="h100-80gb-sxm"))
    assert found.runs == found.largest == 0
    assert found.evidence.startswith(
        f"evidence: none of megatron-core on h100, {found.related} runs of its relatives or on other devices; a step within ±"
    )
    assert in_a_line(found).startswith(found.evidence)
    known = basis_of(measured_runs(), ASKED)
    assert known.runs > 30
    assert known.evidence.startswith(f"evidence: {known.runs} runs of megatron-core on ")
    nobody = basis_of(measured_runs(), replace(ASKED, stack="accelerate"))
    assert nobody.evidence.startswith(
        "evidence: none of accelerate or its relatives; a step within ±"
    )
    assert found.confidence < known.confidence


def test_the_nearest_runs_stand_at_different_places_and_say_what_differs():
    found = basis_of(measured_runs(), replace(ASKED, sequence="8192")).nearest
    assert [one.distance for one in found] == sorted(one.distance for one in found)
    assert len({one.differs for one in found}) == 3
    assert all("sequence=4096" in one.differs for one in found)


def test_every_feature_of_a_layout_is_told_with_its_runs():
    found = {one.name: one for one in features_of(measured_runs(), ASKED)}
    assert set(ASKED.layout) <= set(found)
    seen = list(found["tp"].seen.values())
    assert seen[0].runs <= seen[1].runs <= seen[-1].runs
    assert 0 < seen[-1].error < 0.2
    strange = {
        one.name: one
        for one in features_of(measured_runs(), replace(ASKED, layout={"schedule": "v-half"}))
    }
    assert [one.runs for one in strange["schedule"].seen.values()] == [0] * 5
    assert strange["schedule"].seen["all"].error is None


def test_a_users_run_that_does_not_say_where_it_stands_is_refused(tmp_path, monkeypatch):
    row = in_words("mine", ASKED, step=0.01)
    file = tmp_path / "mine.toml"
    file.write_text(
        "\n".join(["[[runs]]", *(f'{k} = "{v}"' for k, v in row.items() if k != "hidden")]),
        encoding="utf-8",
    )
    monkeypatch.setenv(constants.VARIABLE, str(file))
    with pytest.raises(BadFile, match="hidden"):
        measured_runs()
    broken = [f'{k} = "{v}"' for k, v in (row | {"step": "many"}).items()]
    file = tmp_path / "broken.toml"
    file.write_text("\n".join(["[[runs]]", *broken]), encoding="utf-8")
    monkeypatch.setenv(constants.VARIABLE, str(file))
    with pytest.raises(BadFile, match="step"):
        measured_runs()
