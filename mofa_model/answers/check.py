"""What a reviewer of a launch has to know: will it fit, will its trainer take it, is it slower than
what it replaces, does it save as often as the pool needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mofa_model import presets, units
from mofa_model.answers.explain import ExplainAnswer, explain
from mofa_model.answers.reviewed import ReviewedLaunch
from mofa_model.answers.training import problems_of
from mofa_model.errors import InputError, NotRead, shown
from mofa_model.identity import LaunchFound, model_preset
from mofa_model.identity.commands import ProgramCall
from mofa_model.launch import TRAINERS, launch, read
from mofa_model.launch.table import table
from mofa_model.launch.trainers import matching
from mofa_model.records import dataclass
from mofa_model.strategy import format_strategy

RULES: Final[Mapping[str, str]] = {
    "does-not-fit": "the layout needs more device memory than there is",
    "refused": "the trainer, Slurm or the devices do not take it",
    "slower": "a step takes longer than before the change, for each sequence",
    "interval": "checkpoints are too rare or too frequent for the pool, or for the time limit",
    "not-read": "what is missing before anything can be said",
}
"""Findings by the id of their rule."""
SLOWER: Final = 0.05
"""Share by which a step may be slower than before. [1]"""
LOST: Final = 0.02
"""Share of all time that an interval may cost against the best one: below it a forecast is not sure
which is better. Ours. [1]
"""
_AS_BEFORE: Final = 1.01
"""Factor up to which what a finding counts is as it was before the change. Ours. [1]"""
_NEEDED: Final = {
    "model": "--model", "device_kind": "--gpu", "devices": "--gpus",
    "sequence_length": "--seq", "global_batch": "--global-batch",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReviewFinding:
    """One line of a review."""

    rule: str
    file: str
    line_number: int
    """[1]"""
    message: str
    amount: float = 0.0
    """How bad it is, to compare with what was there before: bytes, or a share of time."""
    stood_before: bool = False
    """Whether what is replaced has it as well."""

    @property
    def level(self) -> str:
        """The word of SARIF: error, warning, note."""
        if self.stood_before:
            return "note"
        return {"slower": "warning", "interval": "warning", "not-read": "note"}.get(
            self.rule, "error"
        )

    @property
    def text(self) -> str:
        """The finding in one line, as compilers write theirs: file, line, level, message."""
        return f"{self.file}:{self.line_number}: {self.level}: {self.message} [{self.rule}]"


@dataclass(frozen=True, kw_only=True)
class ReviewBounds:
    """What holds for all files of a review."""

    stated_facts: Mapping[str, Any]
    """Facts that the command states, by their names."""
    profile: str | None = None
    """The pool's profile: a name or a file."""
    slower: float = SLOWER
    """Most that a step may be slower than what it replaces. [1]"""
    lost_share: float = LOST
    """Largest share of time that another checkpoint interval would save. [1]"""


@dataclass(frozen=True, kw_only=True)
class _Priced:
    """A script with its price."""

    answer: ExplainAnswer
    batch: int
    place: int
    """Line where the layout stands. [1]"""

    @property
    def seconds(self) -> float:
        """A sequence's share of a step. [s]"""
        return self.answer.step_seconds / self.batch


def review(
    reviewed: ReviewedLaunch, replaced_launch: ReviewedLaunch | None, review_bounds: ReviewBounds
) -> list[ReviewFinding]:
    """The findings of one launch; what the launch that it replaces has as well is a note."""
    findings = _findings(reviewed, replaced_launch, review_bounds)
    if replaced_launch is None or all(finding.level == "note" for finding in findings):
        return findings
    before = _findings(replaced_launch, None, review_bounds)
    return [
        replace(
            finding, message=f"{finding.message}; so it was before the change", stood_before=True
        )
        if any(_stood(finding, other) for other in before)
        else finding
        for finding in findings
    ]


def _stood(finding: ReviewFinding, earlier: ReviewFinding) -> bool:
    """Whether a finding is the same as one before the change, and no worse."""
    if finding.rule != earlier.rule:
        return False
    same = finding.message == earlier.message
    return same or bool(finding.amount and finding.amount <= _AS_BEFORE * earlier.amount)


def _findings(
    reviewed: ReviewedLaunch, replaced_launch: ReviewedLaunch | None, review_bounds: ReviewBounds
) -> list[ReviewFinding]:
    """What is wrong with one launch; also whether it is slower than the launch that it replaces."""
    findings = list(_of_slurm(reviewed))
    try:
        refused = _refused(reviewed)
    except InputError as error:
        refused = ReviewFinding(
            rule="refused", file=reviewed.name, line_number=1, message=str(error)
        )
    if refused is not None:
        return [*findings, refused]
    if reviewed.launch_found is None:
        return findings
    facts = _facts(reviewed, review_bounds)
    missing = [option for name, option in _NEEDED.items() if not facts.get(name)]
    if missing:
        message = f"give {', '.join(missing)}: it is not said here"
        return [*findings, _finding("not-read", reviewed, reviewed.launch_found.where, message)]
    try:
        priced = _priced(reviewed, reviewed.launch_found, facts)
    except InputError as error:
        return [*findings, _finding("refused", reviewed, reviewed.launch_found.where, str(error))]
    summary = priced.answer.document["summary"]
    if not priced.answer.fits:
        needs = units.format(summary["memory_bytes"], "B")
        limit = units.format(summary["memory_limit_bytes"], "B")
        message = f"the layout needs {needs} of a device that has {limit}"
        findings.append(
            ReviewFinding(
                rule="does-not-fit",
                file=reviewed.name,
                line_number=priced.place,
                message=message,
                amount=priced.answer.memory_bytes,
            )
        )
    if replaced_launch is not None and replaced_launch.launch_found is not None:
        findings += _slower(reviewed, replaced_launch, priced, facts, review_bounds)
    findings += _interval(reviewed, priced, facts, review_bounds)
    return findings


def _of_slurm(reviewed: ReviewedLaunch) -> Sequence[ReviewFinding]:
    """What sbatch refuses or ignores in a script. A fault that many lines share is told once, at
    the first of them.
    """
    lines: dict[str, list[int]] = {}
    for fault in reviewed.faults:
        lines.setdefault(fault.message, []).append(fault.line_number)
    return [
        ReviewFinding(
            rule="refused",
            file=reviewed.name,
            line_number=numbers[0],
            message=message
            + (f"; more lines alike: {len(numbers) - 1}" if len(numbers) > 1 else ""),
        )
        for message, numbers in lines.items()
    ]


def _refused(reviewed: ReviewedLaunch) -> ReviewFinding | None:
    """The finding that the trainer refuses an argument; none where it takes all."""
    for call in reviewed.program_calls:
        trainer = matching(call.texts)
        if not trainer or call.texts[0].rpartition("/")[2] not in _STARTERS:
            continue
        if trainer == "megatron" and (slip := _slip(call)):
            return _finding("refused", reviewed, *slip)
        if reviewed.launch_found is not None:
            continue
        try:
            read(call.texts)
        except NotRead as error:
            return _finding("not-read", reviewed, _where(call, str(error)), str(error))
        except InputError as error:
            return _finding("refused", reviewed, _where(call, str(error)), str(error))
    return None


def _slip(call: ProgramCall) -> tuple[str, str] | None:
    """An option of Megatron that is spelt wrong, with its place: its parser refuses what it does
    not know.
    """
    for word in call.words:
        name = word.text.partition("=")[0]
        meant = name[:2] == "--" and table("megatron").meant_by(name[2:].replace("_", "-"))
        if meant:
            return word.where, f"megatron has no option {shown(name)}; did you mean --{meant}?"
    return None


_STARTERS: Final = frozenset({"torchrun", "python", "python3", "accelerate", "deepspeed", "uv"})


def _where(call: ProgramCall, message: str) -> str:
    """Where the argument stands that a message names."""
    named = (
        word.where
        for word in call.words
        if word.text.startswith("--") and word.text.partition("=")[0] in message
    )
    bare = (
        word.where
        for word in call.words
        if word.text.lstrip("-").partition("=")[0] in message.split()
    )
    return next(named, next(bare, call.where))


def _finding(rule: str, reviewed: ReviewedLaunch, where: str, message: str) -> ReviewFinding:
    return ReviewFinding(
        rule=rule, file=reviewed.name, line_number=_line_of(where) or 1, message=message
    )


def _line_of(where: str) -> int:
    """The line of a place, as of `train.sbatch:12`; 0 = it has none. [1]"""
    line = where.rpartition(":")[2]
    return int(line) if line.isdigit() else 0


def _facts(reviewed: ReviewedLaunch, bounds: ReviewBounds) -> dict[str, Any]:
    facts = {name: fact.value for name, fact in reviewed.facts.items()}
    facts |= {name: value for name, value in bounds.stated_facts.items() if value is not None}
    if bounds.profile is not None and not facts.get("device_kind"):
        from mofa_model.manifest.surroundings import named_profile

        facts["device_kind"] = named_profile(bounds.profile).spec.gpu
    kind = str(facts.get("device_kind") or "")
    facts["device_kind"] = kind.removeprefix("nvidia-").removeprefix("amd-")
    if facts.get("model"):
        facts["model"] = model_preset(str(facts["model"])) or facts["model"]
    return facts


def _priced(
    reviewed: ReviewedLaunch, launch_found: LaunchFound, facts: Mapping[str, Any]
) -> _Priced:
    """Findings on the layout's memory and time; an error where it cannot run."""
    layers = int(presets.model(str(facts["model"])).layers)
    layout = launch_found.reading.strategy(
        int(facts["devices"]), layers=launch_found.reading.layers or layers
    )
    arguments: dict[str, Any] = {
        "model": facts["model"],
        "gpu": facts["device_kind"],
        "gpus": int(facts["devices"]),
        "global_batch_size": int(facts["global_batch"]),
        "sequence_length": int(facts["sequence_length"]),
        "strategy": format_strategy(layout),
    }
    if facts.get("precision") in {"bf16", "fp16"}:
        arguments["precision"] = "bf16"
    answer = explain(**arguments)
    if launch_found.reading.trainer in TRAINERS:
        launch(layout, launch_found.reading.trainer, problems_of(answer.question)[0])
    parallel = reviewed.facts.get("parallel")  # its line is that of the layout's first degree
    degree = 0 if parallel is None else _line_of(parallel.source)
    return _Priced(
        answer=answer,
        batch=int(facts["global_batch"]),
        place=degree or _line_of(launch_found.where) or 1,
    )


@dataclass(frozen=True, kw_only=True)
class LaunchForecast:
    """What is predicted of a launch as it stands in a file."""

    step_seconds: float
    """[s]"""
    tokens_per_second: float
    """[1/s]"""
    memory_bytes: float
    """Peak of a device. [B]"""
    launch: ReviewedLaunch


def forecast(reviewed: ReviewedLaunch, stated_facts: Mapping[str, Any]) -> LaunchForecast:
    """What a launch is predicted to do; `given` are facts that it does not say."""
    facts = _facts(reviewed, ReviewBounds(stated_facts=stated_facts))
    missing = [option for name, option in _NEEDED.items() if not facts.get(name)]
    if reviewed.launch_found is None or missing:
        what = f"give {', '.join(missing)}" if missing else "no known trainer is started in it"
        raise InputError(f"{reviewed.name}: {what}")
    priced = _priced(reviewed, reviewed.launch_found, facts)
    step = priced.answer.step_seconds
    return LaunchForecast(
        step_seconds=step,
        tokens_per_second=int(facts["global_batch"]) * int(facts["sequence_length"]) / step,
        memory_bytes=priced.answer.memory_bytes,
        launch=reviewed,
    )


def _slower(
    reviewed: ReviewedLaunch, replaced_launch: ReviewedLaunch, priced: _Priced, facts: Mapping[str, Any],
    bounds: ReviewBounds,
) -> Sequence[ReviewFinding]:  # fmt: skip
    old_facts = _facts(replaced_launch, bounds)
    assert replaced_launch.launch_found is not None  # noqa: S101 - the caller has seen it
    if any(not old_facts.get(name) for name in _NEEDED):
        return []
    if any(
        facts.get(name) != old_facts.get(name)
        for name in ("model", "device_kind", "devices", "sequence_length")
    ):
        return []  # another question: there is nothing to compare
    try:
        old_priced = _priced(replaced_launch, replaced_launch.launch_found, old_facts)
    except InputError:
        return []
    ratio = priced.seconds / old_priced.seconds - 1
    if not old_priced.answer.fits or ratio <= bounds.slower:
        return []
    message = (
        f"a step takes {units.format(priced.answer.step_seconds, 's')}, {100 * ratio:.0f} % more for "
        f"each sequence than before the change"
    )
    return [
        ReviewFinding(rule="slower", file=reviewed.name, line_number=priced.place, message=message)
    ]


def _interval(
    reviewed: ReviewedLaunch, priced: _Priced, facts: Mapping[str, Any], bounds: ReviewBounds
) -> Sequence[ReviewFinding]:
    """Whether the steps between two checkpoints suit the pool and the time limit."""
    from mofa_model.answers.ettr import ettr

    interval = reviewed.facts.get("checkpoint_interval")
    if interval is None:
        return []
    steps, seconds = int(interval.value), priced.answer.step_seconds
    limit = reviewed.facts.get("time_limit_seconds")
    if (
        limit is not None
        and steps * seconds > float(limit.value)
        and "signal" not in reviewed.facts
    ):
        message = (
            f"the first checkpoint comes after {units.format(steps * seconds, 's')}, and the time "
            f"limit is {units.format(float(limit.value), 's')}: nothing is ever saved; save more "
            "often, or add --signal and save on it"
        )
        return [replace(_finding("interval", reviewed, interval.source, message), amount=1.0)]
    nodes = facts.get("nodes") or max(
        1, int(facts["devices"]) // int(facts.get("devices_per_node") or 8)
    )
    arguments: dict[str, Any] = {
        "step": f"{seconds} s",
        "nodes": float(nodes),
        "model": facts["model"],
    }
    if bounds.profile is not None:
        arguments["profile"] = bounds.profile
    try:
        answer = ettr(interval=steps, **arguments).document
    except InputError:
        return []
    lost = answer["interval"]["best_ettr"] - answer["ettr"]["target"]
    if lost <= bounds.lost_share:
        return []
    best = answer["interval"]
    message = (
        f"saving every {steps} steps costs {100 * lost:.1f} % of the time against every "
        f"{best['best_steps']}; {best['flat_from']} to {best['flat_to']} are about as good"
    )
    return [replace(_finding("interval", reviewed, interval.source, message), amount=lost)]


def sarif(findings: Sequence[ReviewFinding], version: str) -> dict[str, Any]:
    """Findings as SARIF 2.1.0, which code hosts show beside the diff."""
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "mofa check",
                        "version": version,
                        "rules": [
                            {"id": name, "shortDescription": {"text": meaning}}
                            for name, meaning in RULES.items()
                        ],
                    }
                },
                "results": [
                    {
                        "ruleId": finding.rule,
                        "level": finding.level,
                        "message": {"text": finding.message},
                        "locations": [
                            {
                                "physicalLocation": {
                                    "artifactLocation": {"uri": finding.file},
                                    "region": {"startLine": finding.line_number},
                                }
                            }
                        ],
                    }
                    for finding in findings
                ],
            }
        ],
    }
