"""What a trainer's own checks say of launches: `tools/validators/` runs in the environment that
`make oracle` builds.

A verdict is kept beside that environment as soon as it is there, by the hash of the launch and of
all that judges it, so a run that was stopped goes on where it was, and a launch that nothing has
changed is not asked again.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

HOME: Final = Path(os.environ.get("TRAINERS_HOME", Path.home() / ".cache" / "mofa-oracle-trainers"))
VALIDATORS: Final = Path(__file__).with_name("validators")


def verdicts(script: str, cases: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
    """The trainer that was asked, by version and hash, and what a validator says of each launch:
    check_TRAINER says why it is refused, or None.
    """
    head: dict[str, Any] = next(_answers(script, []))
    kept = HOME / "verdicts" / f"{script.removeprefix('check_')}.jsonl"
    kept.parent.mkdir(exist_ok=True)
    verdicts_kept: dict[str, Any] = {}
    for line in kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ():
        with suppress(ValueError):  # a line that was cut off
            verdicts_kept |= json.loads(line)
    keys = [digest([head, case]) for case in cases]
    missing = {key: case for key, case in zip(keys, cases, strict=True) if key not in verdicts_kept}
    with kept.open("a", encoding="utf-8") as out:

        def ask(share: list[str]) -> None:
            answers = _answers(script, [missing[key] for key in share])
            next(answers)
            for key, verdict in zip(share, answers, strict=True):
                verdicts_kept[key] = verdict
                print(json.dumps({key: verdict}), file=out, flush=True)

        with ThreadPoolExecutor(cpus()) as pool:
            list(
                pool.map(
                    ask, (list(missing)[at :: cpus()] for at in range(min(cpus(), len(missing))))
                )
            )
    return head, [verdicts_kept[key] for key in keys]


def _answers(script: str, cases: list[dict[str, Any]]) -> Iterator[Any]:
    """What a validator writes: first what it is, then one answer a launch."""
    with subprocess.Popen(
        [str(HOME / "bin" / "python"), str(VALIDATORS / f"{script}.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=HOME,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        for case in cases:
            print(json.dumps(case), file=process.stdin, flush=True)
            yield json.loads(process.stdout.readline())
        process.stdin.close()


def digest(values: list[Mapping[str, Any]]) -> str:
    """A short hash of texts."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def cpus() -> int:
    """Processes that run at once. [1]"""
    return os.cpu_count() or 1
