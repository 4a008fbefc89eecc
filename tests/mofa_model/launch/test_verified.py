"""The record of what the trainers' own checks say of our launches: nothing is refused, and it is of
the launcher as it is.

`make oracle` asks them again; no trainer is needed here.
"""

import json
import sys
from functools import cache
from pathlib import Path

import pytest

from mofa_model.launch import unverified
from mofa_model.presets import entries
from mofa_model.strategy import parse_strategy

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tools"))
import launches  # noqa: E402
import layouts  # noqa: E402
import verdicts  # noqa: E402
from model_words import MODEL_WORDS  # noqa: E402

RECORD = json.loads(launches.RECORD.read_text(encoding="utf-8"))
AGAIN = "the launcher says something else than what was verified: run `make oracle`"


@cache
def written(trainer):
    """What our launcher says of the launches that the record keeps."""
    return [
        layouts.words_of(
            parse_strategy(one["strategy"], one["gpus"]),
            trainer,
            layouts.problem_of(one["model"], trainer, one["gpus"], **one["run"]),
        )
        for one in RECORD[trainer]["kept"]
    ]


@pytest.mark.parametrize("trainer", RECORD)
def test_a_trainer_took_two_thousand_reachable_launches_and_refused_none(trainer):
    said = RECORD[trainer]
    assert sum(said["reached"].values()) >= 2000
    assert min(said["reached"].values()) > 500, "dense models, mixtures and latent attention"
    assert said["refused"] == {}
    assert said["unwritten"] == {}
    assert said["left out"]["asked"] >= 500


def test_ordinary_questions_from_one_device_to_sixteen_thousand_gave_launches_that_start():
    asked = [name for said in RECORD.values() for name in said["ordinary"]]
    assert len(asked) >= 40
    assert {*RECORD} == {*MODEL_WORDS}, "every trainer that has a validator"
    assert {1, 16384} <= {int(name.split()[2]) for name in asked}


@pytest.mark.parametrize("trainer", RECORD)
def test_every_preset_gives_a_launch_that_starts_or_is_refused_before_the_search(trainer):
    started, refused = RECORD[trainer]["ordinary"], RECORD[trainer]["not had"]
    assert {name.split()[0] for name in (*started, *refused)} == {*entries.names("models")}
    assert [
        why for why in refused.values() if "it has no" not in why and "nothing fits" not in why
    ] == []
    page = (ROOT / "docs" / "reference" / "trainers.md").read_text(encoding="utf-8")
    without = sum("it has no" in why for why in refused.values())
    assert f"| `{trainer}` | {len(started)} | {without} | {len(refused) - without} |" in page


@pytest.mark.parametrize("trainer", RECORD)
def test_what_is_written_today_is_what_was_verified(trainer):
    assert len(written(trainer)) >= launches.KEPT
    assert verdicts.digest(written(trainer)) == RECORD[trainer]["words"], AGAIN


def test_the_product_knows_what_was_verified_and_no_more():
    assert json.loads(launches.VERIFIED.read_text(encoding="utf-8")) == launches.verified(RECORD)
    assert set(launches.PACKAGES) == set(MODEL_WORDS)


@pytest.mark.parametrize("trainer", RECORD)
def test_launches_that_were_verified_are_taken_for_it(trainer):
    version = RECORD[trainer]["versions"][launches.PACKAGES[trainer]]
    for words in written(trainer):
        assert unverified(trainer, words["arguments"], f"v{version}-cuda13") == ""
        assert "is not verified" in unverified(trainer, words["arguments"], f"{version}.1")


@pytest.mark.parametrize("trainer", [one for one in RECORD if launches.SHOWN[one]])
def test_launches_of_examples_and_documents_are_among_the_verified_ones(trainer, monkeypatch):
    monkeypatch.chdir(ROOT)
    shown = {
        name: verdicts.digest([launches.advice_of(options, trainer)["words"]])
        for name, options in launches.SHOWN[trainer].items()
    }
    assert shown == RECORD[trainer]["shown"], AGAIN


def test_every_launch_that_documents_show_is_known_here():
    pages = [
        *ROOT.glob("docs/**/*.md"),
        ROOT / "README.md",
        ROOT / "mofa_model" / "verbs" / "advise.py",
    ]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    known = [
        options.partition(" --framework")[0]
        for every in launches.SHOWN.values()
        for options in every.values()
    ]
    told = [
        line
        for line in lines
        if "mofa advise" in line and "--launch" in line and "job.yaml" not in line
    ]
    assert [line for line in told if not any(options in line for options in known)] == []
