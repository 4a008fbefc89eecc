"""Constants are found in layers: device, precision, stack, stack on device, defects; the last
one stands.
"""

import tomllib
from importlib import resources
from itertools import product

import pytest
from each import each

from mofa_model import presets
from mofa_model.errors import BadFile, BadValue, UnknownName
from mofa_model.presets import constants, entries
from mofa_model.spec import Calibration

CONSTANTS = entries.table("constants")


def sections(tree, path=()):
    """Every section of the file with its constants; a constant is a table with a value or
    a factor.
    """
    tables = {key: value for key, value in tree.items() if isinstance(value, dict)}
    own = {key: value for key, value in tables.items() if {"value", "factor"} & set(value)}
    inner = [
        found
        for key, value in tables.items()
        if key not in own
        for found in sections(value, (*path, key))
    ]
    return [(path, own), *inner] if own else inner


@pytest.mark.parametrize(
    "section", [pytest.param(own, id=".".join(path)) for path, own in sections(CONSTANTS)]
)
def test_every_constant_has_a_source_and_either_a_value_or_a_factor(section):
    for path, given in section.items():
        assert path.split(".")[0] in constants.GROUPS
        assert len({"value", "factor"} & set(given)) == 1
        assert set(given) <= {"value", "factor", "scatter", "source"}
        assert given["source"]


def test_every_section_is_of_something_that_exists():
    classes = {presets.device_class(name) for name in presets.names("devices")}
    families = classes | {name.split("-")[0] for name in classes}
    recipes = {*presets.names("precisions"), "bf16", "fp8", "fp4"}
    defects = {defect for name in presets.names("stacks") for defect in presets.stack(name).defects}
    for (kind, *rest), _ in sections(CONSTANTS):
        if kind == "device":
            assert rest[0] in families
            assert set(rest[1:]) <= recipes
        elif kind == "stack":
            assert rest[0] in presets.names("stacks")
            # Adapters were measured on chips of one class under other limits of power: a chip's
            # own.
            places = {"device": families, "chip": presets.names("devices")}
            assert not rest[1:] or rest[2] in places[rest[1]]
        elif kind == "defect":
            assert rest[0] in defects
        else:
            assert kind == "any"


@each(product(presets.names("devices"), presets.names("stacks")))
def test_every_device_and_stack_has_constants(device, stack):
    for precision in presets.names("precisions"):
        found = presets.calibration(device, precision, stack)
        assert found.stack == stack
        assert 0 < found.compute.gemm_efficiency < 1.5


@pytest.mark.parametrize("stack", presets.names("stacks"))
def test_every_release_names_defects_that_are_described(stack):
    habits = presets.stack(stack)
    for defects in habits.releases.values():
        assert set(defects) <= set(habits.defects)
    for defect in habits.defects:
        assert habits.defects[defect]["about"]
        assert CONSTANTS["defect"][defect]


@pytest.fixture
def written(monkeypatch):
    """Constants as they would stand with this text for constants.toml."""

    def write(text):
        tree = tomllib.loads(text)
        table = entries.table
        monkeypatch.setattr(
            entries, "table", lambda kind: tree if kind == "constants" else table(kind)
        )
        constants._calibration.cache_clear()
        constants._constants.cache_clear()

    yield write
    monkeypatch.undo()
    constants._calibration.cache_clear()
    constants._constants.cache_clear()


def test_a_later_layer_stands_over_an_earlier_one(written):
    written("""
        [device.h100]
        "compute.gemm_efficiency" = { value = 0.5, source = "a" }
        "host.step" = { value = 0.5, source = "a" }
        [device.h100.fp8]
        "compute.low_precision_rate" = { value = 0.9, source = "b" }
        [device.h100.fp8-rowwise]
        "compute.low_precision_rate" = { value = 0.4, source = "c" }
        [stack.nemo]
        "compute.gemm_efficiency" = { factor = 1.5, scatter = 0.1, source = "d" }
        [stack.nemo.device.h100]
        "host.step" = { value = 0.25, source = "e" }
    """)
    plain = presets.calibration("h100", "fp8-rowwise", "default")
    nemo = presets.calibration("h100", "fp8-current", "nemo")
    assert plain.compute.gemm_efficiency == 0.5
    assert plain.compute.low_precision_rate == 0.4
    assert nemo.compute.low_precision_rate == 0.9
    assert nemo.compute.gemm_efficiency == 0.75
    assert nemo.host.step == 0.25
    told = presets.constants_of("h100", "fp8-current", "nemo")["compute.gemm_efficiency"]
    assert told.scatter == 0.1
    assert told.source == "device.h100: a; stack.nemo: d"


def test_what_no_layer_sets_keeps_its_default(written):
    written("")
    assert presets.calibration("l40s") == Calibration(stack="default")


def test_a_constant_that_does_not_exist_is_refused(written):
    written('[stack.nemo]\n"compute.warp_drive" = { value = 1.0, source = "a" }')
    with pytest.raises(BadFile, match=r"\[stack.nemo\] compute.warp_drive"):
        presets.calibration("h100", "bf16", "nemo")


def test_the_slow_state_of_nanotron_is_asked_for_by_name():
    sound = presets.calibration("h100", "bf16", "nanotron")
    slow = presets.calibration("h100", "bf16", "nanotron", defects=["ring-latency"])
    assert sound.host.extra_rank == 0.0
    assert slow.host.extra_rank > 1e-3
    assert slow.links.tensor_latency_replicated > 10 * sound.links.tensor_latency_replicated


def test_a_release_takes_the_defects_of_the_latest_one_that_is_not_newer():
    bridge = presets.Stack(
        name="bridge",
        placement="even",
        tensor_overlap=False,
        releases={"26.02": ("slow",), "26.06": ("fast",)},
        defects={"slow": {"classes": ["blackwell"]}, "fast": {"classes": ["blackwell"]}},
    )
    assert (
        bridge.defects_of("26.02.01", "blackwell")
        == bridge.defects_of("26.04", "blackwell")
        == ("slow",)
    )
    assert (
        bridge.defects_of("26.10", "blackwell") == bridge.defects_of(None, "blackwell") == ("fast",)
    )
    assert bridge.defects_of("24.12", "blackwell") == ()
    assert bridge.defects_of("26.02", "h100") == ()


def test_unknown_releases_and_defects_are_refused():
    with pytest.raises(BadValue, match="release: 'v2'"):
        presets.calibration("h100", "bf16", "megatron-bridge", release="v2")
    with pytest.raises(UnknownName, match="defects: unknown name 'ring'"):
        presets.calibration("h100", "bf16", "nanotron", defects=["ring"])


def test_the_file_is_part_of_the_package():
    assert resources.files("mofa_model.presets").joinpath("constants.toml").is_file()
