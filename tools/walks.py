"""How many files and kinds of records a fact passes through, counted by running the product.

    python tools/walks.py            every walk: files, and kinds of records
    python tools/walks.py advise -v  one walk, with the names

A file counts where one of its functions runs. A kind counts where a record of it is made: a
dataclass, a pydantic model, a named tuple; and so does every form of a `TypedDict`, a dict of named
values or a tuple of unlike parts that a function which runs gives back.

A kind is a thing of the domain, which is given or chosen (a device, a block, a strategy); or a
stage, through which the facts of one question pass: numbers of search and estimate, or what
question and answer are made of.

Facts of a job until its annotation, and of a sample until an ETTR, pass the functions of `CHAINS`,
and every record counts that one of these takes or gives back.
"""

from __future__ import annotations

import contextlib
import io
import pydoc
import re
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = tuple(str(ROOT / part) + "/" for part in ("mofa_model", "operator"))
RECORDS = str(ROOT / "mofa_model/records.py")
ERRORS = str(ROOT / "mofa_model/errors.py")
ANONYMOUS = re.compile(r"^(tuple\[(?!.*\.\.\.\]$).+,.+\]|(dict|Mapping)\[str, (object|Any)\])$")
"""How an annotation writes a tuple of unlike parts, or a dict that stands for a record."""


@dataclass
class Walk:
    """Functions and records of a stretch of a run."""

    files: set[str] = field(default_factory=set)
    """Files of the product in which a function ran."""
    kinds: set[str] = field(default_factory=set)
    """Kinds of records that were made."""
    imports: int = 0
    """Modules whose body runs now: what an import makes is declared, and is no fact of
    a question.
    """
    seen: set[CodeType] = field(default_factory=set)
    """Code whose return annotation was read."""

    def called(self, frame: FrameType, event: str, _: object) -> None:
        """Handle an event of the profiler."""
        code = frame.f_code
        if code.co_name == "<module>":
            self.imports += {"call": 1, "return": -1}.get(event, 0)
        if event != "call" or self.imports:
            return
        # The constructor of a named tuple is a lambda that the standard library writes, and that of
        # a class of `mofa_model.records` is `fill`, until many instances are made.
        if (
            code.co_name in ("__init__", "__new__")
            or (code.co_name == "<lambda>" and code.co_filename.startswith("<"))
            or (code.co_name == "fill" and code.co_filename == RECORDS)
        ):
            self._made(frame)
        # A trainer that cannot do what is asked is passed over by its error, which is no fact.
        if code.co_filename == ERRORS:
            return
        if code in self.seen or not code.co_filename.startswith(PRODUCT):
            return
        self.seen.add(code)
        self.files.add(code.co_filename.removeprefix(f"{ROOT}/"))
        self._returned(frame)

    def _made(self, frame: FrameType) -> None:
        """Count the record whose first argument a constructor got."""
        code = frame.f_code
        if not code.co_varnames:
            return
        first = frame.f_locals.get(code.co_varnames[0])
        kind = first if isinstance(first, type) else type(first)
        if kind.__module__.partition(".")[0] in ("mofa_model", "mofa_operator") and is_record(kind):
            self.kinds.add(f"{kind.__module__}.{kind.__qualname__}")

    def _returned(self, frame: FrameType) -> None:
        """Count what a function gives back, where that is a record without a class."""
        code = frame.f_code
        for given in (frame.f_globals, *(vars(kind) for kind in vars_of_classes(frame))):
            made = given.get(code.co_name)
            made = getattr(made, "__func__", made)
            made = getattr(made, "fget", made) or made
            made = getattr(made, "__wrapped__", made)
            if getattr(made, "__code__", None) is code:
                self._annotated(str(made.__annotations__.get("return", "")), frame.f_globals)
                return

    def _annotated(self, annotation: str, names: dict[str, Any]) -> None:
        """Count an annotation that stands for a record."""
        if ANONYMOUS.match(annotation):
            self.kinds.add(annotation)
        for word in re.findall(r"\w+", annotation):
            if typing.is_typeddict(names.get(word)):
                self.kinds.add(f"{names[word].__module__}.{word}")


def vars_of_classes(frame: FrameType) -> Iterator[type]:
    """The class of a method that runs, and what it inherits."""
    if frame.f_code.co_varnames:
        first = frame.f_locals.get(frame.f_code.co_varnames[0])
        yield from (first if isinstance(first, type) else type(first)).__mro__


def is_record(kind: type) -> bool:
    """Whether a class declares fields, as records do and enumerations do not."""
    return (
        is_dataclass(kind)
        or hasattr(kind, "model_fields")
        or hasattr(kind, "_fields")
        or kind.__name__ == "Namespace"
    )


@contextlib.contextmanager
def walking() -> Iterator[Walk]:
    """Count what runs meanwhile."""
    walk = Walk()
    sys.setprofile(walk.called)
    try:
        yield walk
    finally:
        sys.setprofile(None)


def advise() -> Walk:
    """`mofa advise`, from flags to screen."""
    from mofa_model.cli import main

    command = [
        "advise",
        "--model",
        "llama3-8b",
        "--gpu",
        "h100",
        "--gpus",
        "64",
        "--global-batch",
        "512",
        "--seq",
        "8192",
    ]
    with walking() as walk, contextlib.redirect_stdout(io.StringIO()):
        main(command)
    return walk


CHAINS = {
    "annotation": (
        "mofa_operator.observe.cluster.questions.training_question",
        "mofa_operator.decide.question.parsed_question",
        "mofa_model.manifest.jobs.request_of",
        "mofa_model.advice.compose.advise",
        "mofa_operator.decide.answer._searched",
        "mofa_operator.decide.job._job",
        "mofa_operator.decide.job._annotated",
    ),
    "ettr": (
        "mofa_operator.observe.history.node_series.NodeSeries._names",
        "mofa_operator.observe.history.pool_samples._Queries.read",
        "mofa_operator.observe.history.pool_samples.pool_timelines",
        "mofa_operator.incidents.node_incidents.node_incidents",
        "mofa_operator.incidents.past.past",
        "mofa_operator.observe.history.history.history_of_past",
        "mofa_operator.observe.history.history._evidence",
        "mofa_operator.decide.history.read",
        "mofa_operator.decide.pool.profile",
        "mofa_model.manifest.failures.reliability_of",
        "mofa_model.reliability.model.ettr",
    ),
}
"""The functions that pass facts on: of an applied job until its annotation, of a sample until an
ETTR."""
SURROUNDINGS = frozenset(
    {
        *("IncidentRules", "LoopSettings", "Signal", "Span"),
        *("LiveObject", "LiveProfile", "SettledDays", "OpenIncident", "Dependencies", "Named"),
        "JobFacts",
        *("FailureAssumptions", "Cluster", "ClusterProfileSpec"),
    }
)
"""Records beside the facts: settings and signals, other objects, other given things."""


def chain(name: str) -> list[str]:
    """The records that these functions take or give back, in order, each once."""
    records: dict[str, None] = {}
    for path in CHAINS[name]:
        function = pydoc.locate(path)
        if function is None:
            raise LookupError(f"CHAINS: there is no {path}; write its new name")
        annotations = dict(getattr(function, "__annotations__", {}))
        result = annotations.pop("return", "")
        for annotation in (*annotations.values(), result):
            for word in re.findall(r"\w+", str(annotation)):
                kind = vars(sys.modules[function.__module__]).get(word)
                if isinstance(kind, type) and is_record(kind) and word not in SURROUNDINGS:
                    records[word] = None
    return list(records)


WALKS: dict[str, Callable[[], Walk]] = {"advise": advise}
STAGES = {
    "numbers of search and estimate": re.compile(
        r"mofa_model\.(search|estimate|placement|schedules|equations|axes\.rules"
        r"|kernels\.surface\.CallWork|reliability\.(interval|model))\b|(tuple|dict)\["
    ),
    "question and answer": re.compile(r"mofa_model\.(answers|advice|bands\.(evidence|odds))\b"),
}
"""Stages by where their kinds have their homes; all other kinds are things of the domain."""


def by_stage(kinds: set[str]) -> dict[str, list[str]]:
    """Kinds of records by stage."""
    kinds_by_stage: dict[str, list[str]] = {
        "things of the domain": [],
        **{name: [] for name in STAGES},
    }
    for kind in sorted(kinds):
        stages = (name for name, form in STAGES.items() if form.match(kind))
        kinds_by_stage[next(stages, "things of the domain")].append(kind)
    return kinds_by_stage


def run(words: list[str]) -> None:
    """Print the walks that are asked for, or all."""
    names = [word for word in words if not word.startswith("-")] or [*WALKS, *CHAINS]
    for name in names:
        if name in CHAINS:
            records = chain(name)
            print(f"{name}: {len(records)} kinds of records: {' ─▶ '.join(records)}")
            continue
        walk = WALKS[name]()
        parts = by_stage(walk.kinds)
        of_each = ", ".join(f"{len(kinds)} {stage}" for stage, kinds in parts.items())
        print(f"{name}: {len(walk.files)} files, {len(walk.kinds)} kinds of records: {of_each}")
        if "-v" in words:
            for file in sorted(walk.files):
                print(f"  {file}")
            for stage, kinds in parts.items():
                print(f"  {stage}")
                for kind in kinds:
                    print(f"    {kind}")


if __name__ == "__main__":
    run(sys.argv[1:])
