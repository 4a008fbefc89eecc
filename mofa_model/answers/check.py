"""`mofa check`: findings for the reviewer of a launch. Does it fit, does its trainer take it, is it
slower than the launch that it replaces, does it save as often as the pool needs?
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mofa_model import presets, units
from mofa_model.answers.explain import ExplainAnswer, explain
from mofa_model.answers.questions import CheckQuestion
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
_AS_BEFORE: Final = 1.01
"""Factor up to which the amount of a finding is as it was before the change. Ours. [1]"""
_STATED: Final = {
    "model": "model",
    "device_kind": "gpu",
    "devices": "gpus",
    "sequence_length": "sequence_length",
    "global_batch": "global_batch_size",
}
"""Facts that a review needs, and the field of the question that states each where no file does."""


@dataclass(frozen=True, kw_only=True)
class ReviewFinding:
    """One line of a review."""

    rule: str
    file: str
    line_number: int
    """[1]"""
    message: str
    amount: float = 0.0
    """How bad it is, to compare with the finding before the change: bytes, or a share of time."""
    stood_before: bool = False
    """Whether the launch that is replaced has the same finding."""

    @property
    def level(self) -> str:
        """The word of SARIF: error, warning, note."""
        if self.stood_before:
            return "note"
        levels = {"slower": "warning", "interval": "warning", "not-read": "note"}
        return levels.get(self.rule, "error")

    @property
    def text(self) -> str:
        """The finding in one line, as compilers write theirs: file, line, level, message."""
        return f"{self.file}:{self.line_number}: {self.level}: {self.message} [{self.rule}]"


@dataclass(frozen=True, kw_only=True)
class _Priced:
    """A launch with its predicted step and memory."""

    answer: ExplainAnswer
    batch: int
    where: str
    """File and line of the layout."""

    @property
    def seconds(self) -> float:
        """Time of a step for one sequence. [s]"""
        return self.answer.step_seconds / self.batch


def review(
    reviewed: ReviewedLaunch, replaced_launch: ReviewedLaunch | None, question: CheckQuestion
) -> list[ReviewFinding]:
    """The findings of one launch; findings that the replaced launch has as well are notes."""
    findings = _findings(reviewed, replaced_launch, question)
    if replaced_launch is None or all(finding.level == "note" for finding in findings):
        return findings
    before = _findings(replaced_launch, None, question)
    for number, finding in enumerate(findings):
        if any(_stood_before(finding, earlier) for earlier in before):
            message = f"{finding.message}; so it was before the change"
            findings[number] = replace(finding, message=message, stood_before=True)
    return findings


def _stood_before(finding: ReviewFinding, earlier: ReviewFinding) -> bool:
    """Whether a finding is the same as an earlier one, and no worse."""
    if finding.rule != earlier.rule:
        return False
    same = finding.message == earlier.message
    return same or bool(finding.amount and finding.amount <= _AS_BEFORE * earlier.amount)


def _findings(
    reviewed: ReviewedLaunch, replaced_launch: ReviewedLaunch | None, question: CheckQuestion
) -> list[ReviewFinding]:
    """What is wrong with one launch; also whether it is slower than the launch that it replaces."""
    findings = list(_of_slurm(reviewed))
    try:
        refused = _refused(reviewed)
    except InputError as error:
        refused = _finding("refused", reviewed, "", str(error))
    if refused is not None:
        return [*findings, refused]
    launch_found = reviewed.launch_found
    if launch_found is None:
        return findings
    facts = _facts(reviewed, question)
    missing = _missing(facts)
    if missing:
        message = f"give {', '.join(missing)}: it is not said here"
        return [*findings, _finding("not-read", reviewed, launch_found.where, message)]
    try:
        priced = _priced(reviewed, launch_found, facts)
    except InputError as error:
        return [*findings, _finding("refused", reviewed, launch_found.where, str(error))]
    if not priced.answer.fits:
        summary = priced.answer.document["summary"]
        needs = units.format(summary["memory_bytes"], "B")
        limit = units.format(summary["memory_limit_bytes"], "B")
        message = f"the layout needs {needs} of a device that has {limit}"
        amount = priced.answer.memory_bytes
        findings.append(_finding("does-not-fit", reviewed, priced.where, message, amount))
    if replaced_launch is not None:
        findings += _slower(reviewed, replaced_launch, priced, facts, question)
    findings += _interval(reviewed, priced, facts, question)
    return findings


def _of_slurm(reviewed: ReviewedLaunch) -> Sequence[ReviewFinding]:
    """What sbatch refuses or ignores in a script: one finding for each fault, at its first line."""
    lines: dict[str, list[int]] = {}
    for fault in reviewed.faults:
        lines.setdefault(fault.message, []).append(fault.line_number)
    findings = []
    for message, numbers in lines.items():
        alike = f"; more lines alike: {len(numbers) - 1}" if len(numbers) > 1 else ""
        where = f"{reviewed.name}:{numbers[0]}"
        findings.append(_finding("refused", reviewed, where, message + alike))
    return findings


def _refused(reviewed: ReviewedLaunch) -> ReviewFinding | None:
    """The finding that the trainer refuses an argument; none where it takes all."""
    for call in reviewed.program_calls:
        trainer = matching(call.texts)
        if not trainer or call.texts[0].rpartition("/")[2] not in _STARTERS:
            continue
        if trainer == "megatron" and (misspelt := _misspelt(call)):
            return _finding("refused", reviewed, *misspelt)
        if reviewed.launch_found is not None:
            continue
        try:
            read(call.texts)
        except NotRead as error:
            return _finding("not-read", reviewed, _where(call, str(error)), str(error))
        except InputError as error:
            return _finding("refused", reviewed, _where(call, str(error)), str(error))
    return None


def _misspelt(call: ProgramCall) -> tuple[str, str] | None:
    """The place of an option that Megatron's parser refuses because it is spelt wrong, and why."""
    for word in call.words:
        name = word.text.partition("=")[0]
        meant = name[:2] == "--" and table("megatron").meant_by(name[2:].replace("_", "-"))
        if meant:
            return word.where, f"megatron has no option {shown(name)}; did you mean --{meant}?"
    return None


_STARTERS: Final = frozenset({"torchrun", "python", "python3", "accelerate", "deepspeed", "uv"})


def _where(call: ProgramCall, message: str) -> str:
    """The place of the argument that a message names; of the command where it names none."""
    names = [(word.text.partition("=")[0], word.where) for word in call.words]
    options = (where for name, where in names if name.startswith("--") and name in message)
    words = (where for name, where in names if name.lstrip("-") in message.split())
    return next(options, next(words, call.where))


def _finding(
    rule: str, reviewed: ReviewedLaunch, where: str, message: str, amount: float = 0.0
) -> ReviewFinding:
    """A finding at a place such as `train.sbatch:12`; without a line, at the first one."""
    line = _line_of(where) or 1
    return ReviewFinding(
        rule=rule, file=reviewed.name, line_number=line, message=message, amount=amount
    )


def _line_of(where: str) -> int:
    """The line of a place, as of `train.sbatch:12`; 0 = it has none. [1]"""
    line = where.rpartition(":")[2]
    return int(line) if line.isdigit() else 0


def _facts(reviewed: ReviewedLaunch, question: CheckQuestion) -> dict[str, Any]:
    facts = {name: fact.value for name, fact in reviewed.facts.items()}
    stated = {name: getattr(question, field) for name, field in _STATED.items()}
    facts |= {name: value for name, value in stated.items() if value is not None}
    if question.profile is not None and not facts.get("device_kind"):
        from mofa_model.manifest.surroundings import named_profile

        facts["device_kind"] = named_profile(question.profile).spec.gpu
    kind = str(facts.get("device_kind") or "")
    facts["device_kind"] = kind.removeprefix("nvidia-").removeprefix("amd-")
    if facts.get("model"):
        facts["model"] = model_preset(str(facts["model"])) or facts["model"]
    return facts


def _missing(facts: Mapping[str, Any]) -> list[str]:
    """The options that state the facts which a review needs and nobody said."""
    options = CheckQuestion.options
    return [options[field].flag for name, field in _STATED.items() if not facts.get(name)]


def _priced(
    reviewed: ReviewedLaunch, launch_found: LaunchFound, facts: Mapping[str, Any]
) -> _Priced:
    """The launch with its predicted memory and time; an error where it cannot run."""
    reading = launch_found.reading
    layers = reading.layers or int(presets.model(str(facts["model"])).layers)
    layout = reading.strategy(int(facts["devices"]), layers=layers)
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
    if reading.trainer in TRAINERS:
        launch(layout, reading.trainer, problems_of(answer.question)[0])
    parallel = reviewed.facts.get("parallel")  # its line is that of the layout's first degree
    is_placed = parallel is not None and _line_of(parallel.source)
    where = parallel.source if parallel is not None and is_placed else launch_found.where
    return _Priced(answer=answer, batch=int(facts["global_batch"]), where=where)


@dataclass(frozen=True, kw_only=True)
class LaunchForecast:
    """The predicted speed and memory of a launch as it is written in a file."""

    step_seconds: float
    """[s]"""
    tokens_per_second: float
    """[1/s]"""
    memory_bytes: float
    """Peak of a device. [B]"""
    launch: ReviewedLaunch


def forecast(reviewed: ReviewedLaunch, model: str | None, gpu: str | None) -> LaunchForecast:
    """The forecast of a launch; model and GPU are given where its file does not have them."""
    facts = _facts(reviewed, CheckQuestion(files=reviewed.name, model=model, gpu=gpu))
    missing = _missing(facts)
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
    reviewed: ReviewedLaunch, replaced_launch: ReviewedLaunch, priced: _Priced,
    facts: Mapping[str, Any], question: CheckQuestion,
) -> Sequence[ReviewFinding]:  # fmt: skip
    """Whether a step takes longer than that of the replaced launch, where both train the same."""
    old_facts = _facts(replaced_launch, question)
    compared = ("model", "device_kind", "devices", "sequence_length")
    if replaced_launch.launch_found is None or _missing(old_facts):
        return []
    if any(facts.get(name) != old_facts.get(name) for name in compared):
        return []
    try:
        old_priced = _priced(replaced_launch, replaced_launch.launch_found, old_facts)
    except InputError:
        return []
    ratio = priced.seconds / old_priced.seconds - 1
    if not old_priced.answer.fits or ratio <= question.slower:
        return []
    message = (
        f"a step takes {units.format(priced.answer.step_seconds, 's')}, {100 * ratio:.0f} % more "
        "for each sequence than before the change"
    )
    return [_finding("slower", reviewed, priced.where, message)]


def _interval(
    reviewed: ReviewedLaunch, priced: _Priced, facts: Mapping[str, Any], question: CheckQuestion
) -> Sequence[ReviewFinding]:
    """Whether the steps between two checkpoints suit the pool and the time limit."""
    from mofa_model.answers.ettr import ettr

    interval = reviewed.facts.get("checkpoint_interval")
    if interval is None:
        return []
    steps, seconds = int(interval.value), priced.answer.step_seconds
    limit = reviewed.facts.get("time_limit_seconds")
    limit_seconds = math.inf if limit is None else float(limit.value)
    if steps * seconds > limit_seconds and "signal" not in reviewed.facts:
        message = (
            f"the first checkpoint comes after {units.format(steps * seconds, 's')}, and the time "
            f"limit is {units.format(limit_seconds, 's')}: nothing is ever saved; save more "
            "often, or add --signal and save on it"
        )
        return [_finding("interval", reviewed, interval.source, message, 1.0)]
    per_node = int(facts.get("devices_per_node") or 8)
    nodes = float(facts.get("nodes") or max(1, int(facts["devices"]) // per_node))
    try:
        answer = ettr(
            interval=steps, step=f"{seconds} s", nodes=nodes, model=facts["model"],
            profile=question.profile,
        ).document  # fmt: skip
    except InputError:
        return []
    best = answer["interval"]
    lost = best["best_ettr"] - answer["ettr"]["target"]
    if lost <= question.lost:
        return []
    message = (
        f"saving every {steps} steps costs {100 * lost:.1f} % of the time against every "
        f"{best['best_steps']}; {best['flat_from']} to {best['flat_to']} are about as good"
    )
    return [_finding("interval", reviewed, interval.source, message, lost)]


def sarif(findings: Sequence[ReviewFinding], version: str) -> dict[str, Any]:
    """Findings as SARIF 2.1.0, which code hosts show beside the diff."""
    rules = [{"id": name, "shortDescription": {"text": text}} for name, text in RULES.items()]
    results = []
    for finding in findings:
        place = {
            "artifactLocation": {"uri": finding.file},
            "region": {"startLine": finding.line_number},
        }
        results.append(
            {
                "ruleId": finding.rule,
                "level": finding.level,
                "message": {"text": finding.message},
                "locations": [{"physicalLocation": place}],
            }
        )
    tool = {"driver": {"name": "mofa check", "version": version, "rules": rules}}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": tool, "results": results}],
    }
