"""Record every option of the trainers' own parsers in tests/data/trainer_options.json.

    python tools/options.py     asks the parsers in the environment of `make oracle`

It prints the options that nobody has judged yet.

`beside` is kept by hand: what says nothing about memory and time of a step. Everything else has to
be read, refused, or named as not priced, in `mofa_model/launch/arguments/`.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from verdicts import HOME, VALIDATORS

from mofa_model.launch import TRAINERS
from mofa_model.launch.table import table

RECORD: Final = Path(__file__).parents[1] / "tests" / "data" / "trainer_options.json"


def made_of(trainer: str, option: str) -> str:
    """What a reader makes of an option: read, refused, not priced, or nothing."""
    options = table(trainer)
    name = option.removeprefix("--") if trainer in {"megatron", "accelerate"} else option
    names = {*options.kinds, *options.older}
    if trainer == "accelerate":
        names = {name.rpartition(".")[2].removeprefix("--") for name in names}
    section, _, last = name.rpartition(".")
    if name in options.priced_values or name in names or f"{section}.no_{last}" in names:
        return "read"
    if name in options.refused:
        return "refused"
    return "not priced" if options.is_unpriced(name) else ""


def main() -> None:
    """Ask the trainers for their options, compare them with ours, record the result."""
    before: dict[str, Any] = (
        json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    )
    record = {}
    for trainer in TRAINERS:
        asked = subprocess.run(
            [str(HOME / "bin" / "python"), str(VALIDATORS / "options.py"), trainer],
            capture_output=True, text=True, check=True, cwd=HOME,
        )  # fmt: skip
        options = json.loads(asked.stdout)
        beside = {*before.get(trainer, {}).get("beside", ())} & {*options}
        left = [
            option for option in options if not made_of(trainer, option) and option not in beside
        ]
        print(trainer, len(options), "options; to be judged:", *left)
        record[trainer] = {
            "release": table(trainer).release,
            "options": [option for option in options if option not in beside],
            "beside": sorted(beside),
        }
    RECORD.write_text(f"{json.dumps(record, indent=1, sort_keys=True)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
