"""What the tests of the operator's loop put in the place of the model: importable, since a spawned
process runs it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from mofa_operator.decision import Answer
from mofa_operator.snapshot import Question


def question(name: str = "a", namespace: str = "ns", **spec: object) -> Question:
    return Question(
        job={"metadata": {"name": name, "namespace": namespace}, "spec": spec}, profiles=()
    )


def merged(stands: object, patch: object) -> object:
    """What an API server makes of an object and a merge patch."""
    if not isinstance(patch, dict):
        return patch
    kept = (
        {key: value for key, value in stands.items() if key not in patch}
        if isinstance(stands, dict)
        else {}
    )
    before = stands if isinstance(stands, dict) else {}
    return kept | {
        key: merged(before.get(key), value) for key, value in patch.items() if value is not None
    }


def bytes_of(asked: Question) -> bytes:
    return repr((asked.job, asked.profiles, asked.policies, asked.config_maps)).encode()


def warm() -> None:
    pass


def hang() -> None:
    time.sleep(60)


def work(asked: Question) -> Answer:
    """Do what the spec says; `log` is a file that gets a line for each computation."""
    spec = asked.job["spec"]
    if "log" in spec:
        with Path(spec["log"]).open("a") as log:
            log.write(f"{os.getpid()}\n")
    if spec.get("sleep"):
        time.sleep(spec["sleep"])
    if spec.get("crash") == "always" or (spec.get("crash") == "once" and _first(spec["log"])):
        os._exit(7)
    if spec.get("bytes"):
        bytearray(spec["bytes"])
    if spec.get("fail"):
        raise ValueError(spec["fail"])
    return Answer(
        digest=f"{os.getpid()}", outcome="Recommended", explanation="", status={},
        annotations={name: os.environ.get(name, "") for name in ("OPENBLAS_NUM_THREADS",)} | {"nice": str(os.nice(0))},
    )  # fmt: skip


def _first(log: str) -> bool:
    return len(Path(log).read_text().splitlines()) == 1
