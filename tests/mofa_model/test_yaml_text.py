"""YAML that we write means the same to readers of YAML 1.1, as Accelerate and Kubernetes are, and
to those of 1.2.
"""

import yaml
from questions import case
from ruamel.yaml import YAML

from mofa_model.launch.trainers import launch
from mofa_model.strategy import Sharding, Strategy
from mofa_model.yaml_text import as_yaml

TEXTS = (
    "NO no On off yes y N null ~ 017 0o17 0x1F 0b1 1e5 1.5e+3 1_000 1:30 12:30:45 2026-11-24 << = .inf +1 true - ? plain",
    "a: b", "# c", "", " x", "é", "two\nlines",
)  # fmt: skip
WORDS = [*TEXTS[0].split(), *TEXTS[1:]]
NUMBERS = [1e-05, 2.5e-07, 1e20, 0.1, float("inf"), 8, True, None]


def test_a_word_that_an_old_reader_takes_for_false_comes_back_as_the_word():
    given = {"words": WORDS, "keys": dict.fromkeys(WORDS, 1), "numbers": NUMBERS}
    text = as_yaml(given)
    assert yaml.safe_load(text) == given
    assert YAML(typ="safe", pure=True).load(text) == given


def test_accelerate_reads_that_nothing_is_distributed_on_one_device():
    """A bare NO is false to Accelerate, which knows no such distributed_type."""
    made = launch(
        Strategy(sharding=Sharding.NONE), "accelerate", case("llama3-8b", gpus=1, batch=8)
    )
    assert yaml.safe_load(made.files["accelerate.yaml"])["distributed_type"] == "NO"
