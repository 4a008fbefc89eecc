"""docs/reference/trainers.md, from the records of what trainers' own code said of our launches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import options
from reference_crds import HEAD, table

from mofa_model.launch.table import table as words

_DATA = Path(__file__).parents[1] / "tests" / "data"
_PAGE = """\
# Trainers

## Options that people write themselves

Every option of a trainer's own parser, or key of its configurations
(`tests/data/trainer_options.json`): it is read, it is refused because only a part of it is priced,
it is taken at one value only, or it is named as not priced.

{options}

## Launches that trainers were asked about

Ordinary questions about every preset, from one device to 16,384, as `mofa advise` answers them
(`tests/data/launches_verified.json`): the launch starts, or the question is refused before the
search because the trainer lacks a block, or nothing fits.

{launches}

## Files that fine-tuners were asked about

Random questions on 1 to 32 devices (`tests/data/tuners_verified.json`).

{tuners}
"""


def trainers_page() -> str:
    """docs/reference/trainers.md."""
    headings = (
        "trainer",
        "options",
        "read",
        "refused",
        "one value only",
        "named as not priced",
        "release",
    )
    return f"{HEAD}\n" + _PAGE.format(
        options=table(headings, _judged()),
        launches=table(("trainer", "starts", "lacks a block", "nothing fits"), _asked()),
        tuners=table(
            ("fine-tuner", "asked, refused", "full", "LoRA", "LoRA beside a quantised base"),
            _tuned(),
        ),
    )


def _record(name: str) -> dict[str, Any]:
    return dict(json.loads((_DATA / f"{name}.json").read_text(encoding="utf-8")))


def _judged() -> Iterator[tuple[str, ...]]:
    record = _record("trainer_options")
    for trainer, answers in record.items():
        made = Counter(options.made_of(trainer, option) for option in answers["options"])
        every = len(answers["options"]) + len(answers["beside"])
        counts = (
            every,
            made["read"],
            made["refused"],
            len(words(trainer).priced_values),
            made["not priced"],
        )
        yield (f"`{trainer}`", *map(str, counts), words(trainer).release)


def _asked() -> Iterator[tuple[str, ...]]:
    for trainer, answers in _record("launches_verified").items():
        lacks = sum("it has no" in why for why in answers["not had"].values())
        counts = (len(answers["ordinary"]), lacks, len(answers["not had"]) - lacks)
        yield (f"`{trainer}`", *map(str, counts))


def _tuned() -> Iterator[tuple[str, ...]]:
    for trainer, answers in _record("tuners_verified").items():
        methods = answers["methods"]
        beside = sum(number for name, number in methods.items() if "beside" in name)
        asked = f"{answers['asked']}, {len(answers['refused']) or 'none'}"
        yield (f"`{trainer}`", asked, *map(str, (methods.get("full", 0), methods["LoRA"], beside)))
