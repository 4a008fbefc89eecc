"""Files of constants that a user chooses: over the shipped ones, or in their place."""

import os

import pytest

from mofa_model import presets
from mofa_model.errors import BadFile
from mofa_model.presets import constants


@pytest.fixture(autouse=True)
def choose(monkeypatch):
    """Lets files hold; none at first."""

    def held(*files):
        monkeypatch.setenv(constants.VARIABLE, os.pathsep.join(str(file) for file in files))

    held()
    return held


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def gemm():
    return presets.calibration("h100", stack="nanotron").compute.gemm_efficiency


def test_a_factor_stands_over_what_is_shipped(tmp_path, choose):
    bare = gemm()
    file = write(
        tmp_path / "a.toml",
        '[stack.nanotron]\n"compute.gemm_efficiency" = {factor = 0.5, source = "x"}\n',
    )
    choose(file)
    assert gemm() == pytest.approx(0.5 * bare)
    choose(
        file,
        write(
            tmp_path / "b.toml", '[any]\n"compute.gemm_efficiency" = {value = 0.25, source = "y"}\n'
        ),
    )
    assert gemm() == 0.25
    choose()
    assert gemm() == bare


def test_a_whole_file_takes_the_place_of_the_shipped_one(tmp_path, choose):
    file = write(
        tmp_path / "c.toml", 'whole = true\n[any]\n"host.step" = {value = 0.5, source = "x"}\n'
    )
    choose(file)
    found = presets.calibration("h100", stack="nanotron")
    assert (found.host.step, found.compute.gemm_efficiency) == (0.5, 0.75)


@pytest.mark.parametrize(
    "text, why",
    [
        ("[any\n", "is not TOML"),
        ('[any]\n"host.step" = 3.0\n', "must have a value or a factor"),
        (
            '[any]\n"host.step" = {value = 1.0, factor = 2.0, source = "x"}\n',
            "must have a value or a factor",
        ),
        ('[any]\n"host.step" = {value = -1.0, source = "x"}\n', "zero or more"),
        ('[any]\n"host.step" = {value = nan, source = "x"}\n', "zero or more"),
        ('[any]\n"host.step" = {value = true, source = "x"}\n', "must have a value or a factor"),
        ('[any]\n"host.step" = {value = 1.0}\n', "must have a source"),
    ],
)
def test_what_is_no_constant_is_refused_in_one_line(tmp_path, text, why, choose):
    choose(write(tmp_path / "bad.toml", text))
    with pytest.raises(BadFile, match=why) as refused:
        gemm()
    assert "\n" not in str(refused.value)


def test_a_constant_that_does_not_exist_is_refused_when_it_is_asked_for(tmp_path, choose):
    choose(write(tmp_path / "d.toml", '[any]\n"host.steps" = {value = 1.0, source = "x"}\n'))
    with pytest.raises(BadFile, match=r"host\.steps is not a constant"):
        gemm()


def test_a_file_that_is_not_there_is_refused(tmp_path, choose):
    choose(tmp_path / "none.toml")
    with pytest.raises(BadFile, match="cannot be read"):
        gemm()
