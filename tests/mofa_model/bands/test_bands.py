"""Bands rest on measured runs: near ones narrow them, what nobody ran widens them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mofa_model.bands.coordinates import PLACES, WORDS, Coordinates, apart
from mofa_model.bands.evidence import basis_of, features_of
from mofa_model.bands.odds import END, SHARE, band_of
from mofa_model.bands.system import RUNS, SYSTEMS
from mofa_model.bands.table import (
    COLUMNS,
    QUANTITIES,
    in_columns,
    in_words,
    measured_runs,
    support,
)
from mofa_model.bands.variance import shipped, system_scales
from mofa_model.errors import BadFile
from mofa_model.presets import constants

ASKED = Coordinates(
    stack="megatron-core", device="b200-180gb-sxm", format="bf16", blocks="attention+dense",
    gpus="8", hidden="8192", sequence="4096", layout={"tp": "8", "sp": "true"},
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_constants_of_ones_own(monkeypatch):
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
        {**in_words(name, at, step=0.1), "group": "g", "memory": ""}
        for name, at in (("a", ASKED), ("b", other))
    ]
    found = in_columns(rows)
    there, back = found.distances(ASKED), found.distances(other)
    assert there[0] == back[1] == 0
    assert there[1] == pytest.approx(back[0]) == pytest.approx(1.5 + 1.5 + 0.5 + 0.75 + 0.75)
    assert measured_runs().distances(ASKED).min() < 2


@pytest.mark.parametrize(
    "name, asked, had, halvings",
    [
        ("stack", "nemo", "torchtitan", 3.0), ("stack", "nemo", "megatron-core", 1.5), ("stack", "mine", "nemo", 3.0),
        ("device", "h100-80gb-sxm", "h200-141gb-sxm", 0.75), ("device", "gb200", "b200-180gb-sxm", 1.5),
        ("device", "h100-80gb-sxm", "a100-80gb-sxm", 3.0), ("device", "described by hand", "gb200", 3.0), ("device", "l40s", "mofa-a", 3.0),
        ("gpus", "8", "16", 0.5), ("gpus", "8", "8192", 1.5), ("tp", "1", "2", 0.25), ("shard", "0", "8", 0.75),
        ("recompute", "selective:mlp", "selective", 0.375), ("recompute", "none", "full", 0.75),
        ("blocks", "attention+dense", "attention+experts", 3.0), ("format", "bf16", "fp8", 1.5),
        ("method", "full", "lora", 1.5), ("method", "qlora", "lora", 0.75),
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


def test_beyond_the_largest_run_every_doubling_takes_a_band_further():
    """Scales of a slope that nobody saw grow with the doublings: 1, 4 and 16 times in squares."""
    largest, *beyond = (
        np.log(width(replace(ASKED, gpus=f"{gpus}"))) ** 2 for gpus in (4096, 8192, 16384, 65536)
    )
    slope = (END * 2 * shipped().slopes["gpus"]) ** 2  # of noise, seen or not
    ways = [
        found - largest - slope * ((12 + doublings) ** 2 - 12**2)
        for found, doublings in zip(beyond, (1, 2, 4), strict=True)
    ]
    assert ways == pytest.approx([way * ways[0] for way in (1, 4, 16)])
    assert ways[0] == pytest.approx((END * 2 * shipped().layout) ** 2)


def test_experts_over_more_ranks_than_anybody_measured_are_far():
    """The largest measured is 32: 64 is one doubling beyond it, 256 three."""
    mixture = replace(
        ASKED, stack="megatron-bridge", device="h800-80gb-sxm", blocks="attention+experts"
    )
    known = support(measured_runs(), "megatron-bridge", experts=True)
    assert [known.beyond("ep", degree) for degree in ("1", "8", "32", "64", "256")] == [
        0,
        0,
        0,
        1,
        3,
    ]
    measured, beyond = (width(replace(mixture, layout={"ep": degree})) for degree in ("32", "256"))
    further = np.log(beyond) ** 2 - np.log(measured) ** 2
    assert further == pytest.approx((2 * END * 3 * shipped().layout) ** 2)


def test_a_feature_of_another_family_is_nearer_than_one_of_nobody():
    known = support(measured_runs(), "torchtitan", experts=False)
    assert known.beyond("recompute", "selective:per_op") == 0
    assert known.beyond("graphs", "full") == 1
    assert known.beyond("offload", "activations") == 2
    assert known.beyond("mbs", "512") == 0


def test_a_mixture_is_less_sure_than_a_dense_model_of_the_same_width():
    dense = replace(ASKED, stack="megatron-bridge", layout={})
    assert width(replace(dense, blocks="attention+experts")) > 1.05 * width(dense)


def test_systems_of_one_family_tell_more_of_each_other():
    nobody = replace(ASKED, stack="maxtext", layout={})
    assert width(replace(nobody, stack="megatron-core")) < width(
        replace(nobody, stack="torchtitan")
    )
    assert width(replace(nobody, stack="torchtitan")) < width(nobody)


def test_one_run_of_yours_takes_away_most_of_what_a_system_varies_by():
    """Of a mixture nearly all; it reaches near systems by half for each relation."""
    asked = replace(
        ASKED, stack="maxtext", device="h100-80gb-sxm", blocks="attention+experts", layout={}
    )
    before = np.square(system_scales(measured_runs(), (asked,))[0])
    mine = measured_runs([in_words("mine", asked, step=0.1)])
    after, format_, device = (
        np.square(system_scales(mine, (one,))[0])
        for one in (asked, replace(asked, format="fp8"), replace(asked, device="gb200"))
    )
    assert after < 0.3 * before
    assert after < format_ < device < before
    dense = replace(asked, blocks="attention+dense")
    dense_before, dense_after = (
        np.square(system_scales(runs, (dense,))[0])
        for runs in (measured_runs(), measured_runs([in_words("mine", dense, step=0.1)]))
    )
    assert dense_after < 0.6 * dense_before


def test_one_run_is_worth_what_the_factor_that_is_learned_from_it_says():
    """`calibrate.system` has standard deviations of 0.11 between systems and 0.07 between their
    runs; Student's scales are as many roots of three smaller."""
    known = shipped()
    dense, mixture = (math.sqrt(3 * (known.system**2 + more**2)) for more in (0.0, known.mixture))
    assert dense < SYSTEMS < mixture
    noise = math.sqrt(3 * (known.noise**2 + known.slopes["tp"] ** 2))  # of tp 2
    assert noise == pytest.approx(RUNS, rel=0.3)


def test_no_stack_is_known_on_devices_where_nobody_of_its_family_ran():
    found = basis_of(measured_runs(), replace(ASKED, device="mi300x", stack="nemo"))
    assert found.evidence.startswith(
        "evidence: 3 runs of the family of nemo (megatron-core 3) on cdna3, largest 64 GPUs, nearest "
    )
    nowhere = basis_of(measured_runs(), replace(ASKED, device="l40s"))
    assert nowhere.runs == nowhere.largest == 0
    assert nowhere.evidence.startswith(
        f"evidence: none of megatron-core on l40s, {nowhere.related} of its family elsewhere, nearest "
    )
    nobody = basis_of(measured_runs(), replace(ASKED, stack="maxtext"))
    assert nobody.evidence.startswith("evidence: none of maxtext or its relatives, nearest ")
    assert nobody.within > nowhere.within > basis_of(measured_runs(), ASKED).within


def test_adapters_rest_on_runs_that_trained_adapters_and_say_nothing_of_others():
    """20 LoRA runs of Accelerate and torchtune on A100; torchtitan has 20 runs and none
    with LoRA.
    """
    asked = replace(ASKED, stack="accelerate", device="a100-80gb-sxm", layout={})
    lora = replace(asked, method="lora")
    found = basis_of(measured_runs(), lora)
    assert (found.runs, found.largest) == (20, 4)
    assert "20 runs with LoRA of accelerate on a100" in found.evidence
    nobody = basis_of(measured_runs(), replace(lora, stack="torchtitan"))
    assert "none of torchtitan or its relatives with LoRA" in nobody.evidence
    runs = measured_runs()
    assert support(runs, "torchtitan", experts=False).own
    assert not support(runs, "torchtitan", experts=False, method="lora").own
    assert support(runs, "accelerate", experts=False, method="qlora").own
    adapted = runs.where("method", lambda had: had != "full")
    assert (int(adapted.sum()), len(adapted)) == (171, 2264)
    plain = in_columns([dict(zip(COLUMNS, line.split("\t"), strict=True)) for line, without in zip(runs.lines, ~adapted, strict=True) if without])  # fmt: skip
    assert band_of(plain, asked, "step") == band_of(runs, asked, "step")
    assert support(plain, "nemo", experts=False) == support(runs, "nemo", experts=False)
    assert band_of(runs, lora, "step").upper < band_of(plain, lora, "step").upper


def test_evidence_counts_a_family_under_each_of_its_names_alike():
    """What runs of Megatron's family say of one layout does not depend on whose launcher
    wrote it.
    """
    every = [
        basis_of(measured_runs(), replace(ASKED, device="h100-80gb-sxm", stack=stack))
        for stack in ("megatron-core", "nemo", "megatron-bridge")
    ]
    assert len({(one.runs, str(one.family), one.related, one.largest) for one in every}) == 1
    assert "(megatron-bridge 18, nemo 12" in every[0].grade
    assert every[0].confidence == SHARE


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
    assert (strange["schedule"].beyond, found["tp"].beyond) == (2, 0)
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
