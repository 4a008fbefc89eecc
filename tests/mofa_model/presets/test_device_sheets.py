"""A device that no preset has, from its data sheet in a file."""

from __future__ import annotations

import pytest

import mofa_model
from mofa_model import presets
from mofa_model.errors import InputError

SHEET = 'name = "my-card"\nmemory = "48 GB"\nmemory_bandwidth = "864 GB/s"\n'
PEAK = 'peak_bf16 = "181 TFLOP/s"\n'


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_four_fields_are_a_device_in_a_box_without_nvlink(tmp_path):
    name = presets.device_of_file(written(tmp_path / "card.toml", SHEET + PEAK))
    box = presets.cluster(name, 4)
    assert (box.device.memory, box.device.peak_bf16) == (48e9, 181e12)
    assert (box.gpus_per_node, box.domain) == (8, 8)
    assert (box.scale_up, box.scale_out.bandwidth) == (presets.fabric("pcie4"), 1.25e9)
    assert not box.host.stated, "nobody said how much main memory there is"


def test_a_file_that_changed_is_read_again(tmp_path):
    path = tmp_path / "card.toml"
    first = presets.device_of_file(written(path, SHEET + PEAK))
    assert presets.device(first).peak_bf16 == 181e12
    again = presets.device_of_file(written(path, SHEET + PEAK.replace("181", "90.5")))
    assert (again, presets.device(again).peak_bf16) == (first, 90.5e12)


def test_toml_and_yaml_say_the_same(tmp_path):
    as_yaml = (SHEET + PEAK).replace(" = ", ": ").replace("my-card", "my-other-card")
    one = presets.device_of_file(written(tmp_path / "card.toml", SHEET + PEAK))
    two = presets.device_of_file(written(tmp_path / "card.yaml", as_yaml))
    first, second = presets.device(one), presets.device(two)
    assert (first.memory, first.peak_bf16) == (second.memory, second.peak_bf16)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SHEET, "lacks peak_bf16"),
        (SHEET + PEAK + "tflops = 3\n", "unknown name 'tflops'"),
        (SHEET + PEAK + 'peak_fp8 = "300"\n', "is it '300 TFLOP/s'?"),
        (SHEET + PEAK + 'scale_up = "nvlink9"\n', "did you mean"),
        (SHEET + PEAK + "gpus_per_node = 0\n", "whole number"),
        (SHEET.replace("my-card", "h100") + PEAK, "is a preset's already"),
        ("[", "is not TOML"),
        ("", "lacks name, memory"),
    ],
)
def test_a_sheet_that_cannot_be_right_is_refused_in_one_line(text, why, tmp_path):
    with pytest.raises(InputError) as refused:
        presets.device_of_file(written(tmp_path / "card.toml", text))
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_advice_takes_the_file_in_place_of_a_name_and_the_refusal_offers_it(tmp_path):
    path = written(tmp_path / "card.toml", SHEET + PEAK)
    asked = {"model": "llama3-8b", "gpus": 4, "sequence_length": 2048, "global_batch_size": 16}
    found = mofa_model.advise(**asked, adapter_rank=16, device_file=path)
    assert found.advice.device == "my-card"
    with pytest.raises(InputError, match=r"device-file FILE|device_file"):
        mofa_model.advise(**asked, gpu="my-kart")
    with pytest.raises(InputError, match="give one of them"):
        mofa_model.advise(**asked, gpu="h100", device_file=path)


@pytest.mark.parametrize("name", ["tpu-v5e", "v5litepod-8", "TPU v4", "ct5lp-hightpu-4t"])
def test_a_tpu_is_refused_in_one_sentence(name):
    with pytest.raises(InputError, match="is a TPU, and only GPUs are modelled so far"):
        presets.cluster(name, 8)
